//! Streams and consumers: created where they are missing, else verified.

use contract::ErrorCode;
use contract::streams::Queue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::NatsTransport;
use super::refusal::{NO_STREAM, Refusal};
use super::settings::{self, Settings};
use super::snapshot::RESTORE_MARK;
use crate::transport::DriftPolicy;
use crate::{BusError, retry};

const NO_CONSUMER: u32 = 10_014;
/// Most tries: a cluster that has just started has no leader yet.
const ROUNDS_MAX: u32 = 40;

#[derive(Deserialize)]
struct Info {
    config: Settings,
}

/// A stream or consumer to ensure, with the subjects that inspect, create and update it.
struct Resource {
    what: String,
    info: String,
    create: String,
    update: String,
    none: u32,
    wanted: Settings,
    body: Value,
}

impl NatsTransport {
    pub(super) async fn ensure_all(&self, drift: DriftPolicy) -> Result<(), BusError> {
        for (name, wanted) in settings::streams(self.retention) {
            self.ensure_resource(drift, &stream(&name, wanted, self.replicas)).await?;
        }
        for queue in Queue::ALL {
            self.ensure_resource(drift, &consumer(*queue)).await?;
        }
        Ok(())
    }

    async fn ensure_resource(&self, drift: DriftPolicy, resource: &Resource) -> Result<(), BusError> {
        let may_pass = |error: &BusError| matches!(error, BusError::Unavailable(_) | BusError::Timeout { .. });
        retry::repeat(ROUNDS_MAX, &resource.what, may_pass, || self.try_ensure(drift, resource)).await
    }

    async fn try_ensure(&self, drift: DriftPolicy, resource: &Resource) -> Result<(), BusError> {
        let found = match self.js_request::<Info>(&resource.info, None).await? {
            Ok(info) => info.config,
            Err(refusal) if refusal.err_code == resource.none && drift == DriftPolicy::Verify => {
                return Err(BusError::Unavailable(format!(
                    "{} is missing: `ailoop bootstrap` makes it",
                    resource.what
                )));
            }
            Err(refusal) if refusal.err_code == resource.none => {
                // Another replica may create it at the same time, with the same settings: that is success as well.
                let created = self.js_request::<Info>(&resource.create, Some(&resource.body)).await?;
                created.map_err(Refusal::into_error)?.config
            }
            Err(refusal) => return Err(refusal.into_error()),
        };
        if found.get("metadata").is_some_and(|metadata| metadata.get(RESTORE_MARK).is_some()) {
            let message = format!("{}: a restore of it has not ended; repeat `ailoop restore`", resource.what);
            return Err(BusError::Unusable { code: ErrorCode::NotNow, message });
        }
        let Some((setting, wanted, found)) = drifted(resource, &found) else { return Ok(()) };
        match drift {
            DriftPolicy::Repair => {
                let updated = self.js_request::<Info>(&resource.update, Some(&resource.body)).await?;
                updated.map(drop).map_err(|refusal| {
                    let message = format!("{}: {setting} cannot be changed to {wanted}: {refusal}", resource.what);
                    BusError::Unusable { code: ErrorCode::StreamDrift, message }
                })
            }
            DriftPolicy::Verify | DriftPolicy::Refuse => Err(BusError::Unusable {
                code: ErrorCode::StreamDrift,
                message: format!(
                    "{}: {setting} is {found}, ailoop needs {wanted}; `ailoop bootstrap --fix` changes it",
                    resource.what
                ),
            }),
        }
    }
}

fn drifted(resource: &Resource, found: &Settings) -> Option<(String, Value, Value)> {
    let mut wanted = resource.wanted.clone();
    // More replicas than configured are a decision of the operators; fewer are drift.
    let replica_count = |settings: &Settings| settings.get("num_replicas").and_then(Value::as_u64).unwrap_or(1);
    if replica_count(found) >= replica_count(&wanted) {
        wanted.remove("num_replicas");
    }
    settings::drift(&wanted, found)
}

fn stream(name: &str, mut wanted: Settings, replicas: usize) -> Resource {
    wanted.insert("name".to_owned(), json!(name));
    wanted.insert("num_replicas".to_owned(), json!(replicas));
    Resource {
        what: format!("stream {name}"),
        info: format!("$JS.API.STREAM.INFO.{name}"),
        create: format!("$JS.API.STREAM.CREATE.{name}"),
        update: format!("$JS.API.STREAM.UPDATE.{name}"),
        none: NO_STREAM,
        body: Value::Object(wanted.clone()),
        wanted,
    }
}

fn consumer(queue: Queue) -> Resource {
    let (stream, durable) = (queue.stream().name(), queue.durable());
    let wanted = settings::consumer(queue);
    let create = format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{durable}");
    Resource {
        what: format!("consumer {durable} of stream {stream}"),
        info: format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"),
        update: create.clone(),
        create,
        none: NO_CONSUMER,
        body: json!({ "stream_name": stream, "config": wanted }),
        wanted,
    }
}
