//! The NATS services protocol (`$SRV.PING`, `INFO`, `STATS`) for one tool.
//!
//! It is implemented here, since endpoints of async-nats' `service` module can only be unsubscribed, never drained:
//! each call that is on its way while its tool stops would be lost. See `intake.rs` for the drain.

use std::time::Duration;

use async_nats::{Client, Message, SubscribeError, Subscriber};
use bytes::Bytes;
use futures::stream::{SelectAll, select_all};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{Tool, wire};

/// One tool as a service of the protocol.
pub(crate) struct Service {
    identity: Value,
    description: String,
    endpoint: Value,
    metadata: Value,
    started: String,
    stats: Stats,
}

#[derive(Default)]
struct Stats {
    requests: u64,
    errors: u64,
    last_error: String,
    time: Duration,
}

impl Service {
    /// A service with the name of its tool, and the tool as its only endpoint.
    pub(crate) fn new(client: &Client, tool: &Tool, tenant: &str) -> Self {
        let id = client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned();
        let endpoint = json!({"name": tool.name(), "subject": wire::call_subject(tenant, tool.name()), "queue_group": wire::QUEUE});
        Self {
            identity: json!({"name": tool.name(), "id": id, "version": tool.version, "metadata": {}}),
            description: tool.description.clone(),
            endpoint,
            metadata: json!(tool.metadata()),
            started: OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
            stats: Stats::default(),
        }
    }

    /// Returns `<name>.<id>`, which identifies this replica among all services.
    pub(crate) fn instance(&self) -> String {
        format!("{}.{}", self.text("name"), self.text("id"))
    }

    /// Subscribes to the two subjects of queries about running calls: whether this replica is alive, and which replica
    /// of the tool has a call.
    pub(crate) async fn subscribe_for_calls(&self, client: &Client) -> Result<SelectAll<Subscriber>, SubscribeError> {
        let alive = client.subscribe(format!("$SRV.PING.{}", self.instance())).await?;
        Ok(select_all([alive, client.subscribe(format!("$SRV.INFO.{}", self.text("name"))).await?]))
    }

    /// Subscribes to the other seven subjects of the protocol.
    pub(crate) async fn subscribe(&self, client: &Client) -> Result<SelectAll<Subscriber>, SubscribeError> {
        let (name, instance) = (self.text("name"), self.instance());
        let subjects = [
            "$SRV.PING".to_owned(),
            format!("$SRV.PING.{name}"),
            "$SRV.INFO".to_owned(),
            format!("$SRV.INFO.{instance}"),
            "$SRV.STATS".to_owned(),
            format!("$SRV.STATS.{name}"),
            format!("$SRV.STATS.{instance}"),
        ];
        let mut all = Vec::new();
        for subject in subjects {
            all.push(client.subscribe(subject).await?);
        }
        Ok(select_all(all))
    }

    /// Builds the answer to a query of the protocol.
    pub(crate) fn build_answer(&self, query: &Message) -> Option<Bytes> {
        let mut reply = self.identity.clone();
        match query.subject.as_str().split('.').nth(1)? {
            "PING" => reply["type"] = json!("io.nats.micro.v1.ping_response"),
            "INFO" => {
                reply["type"] = json!("io.nats.micro.v1.info_response");
                reply["description"] = json!(self.description);
                let mut endpoint = self.endpoint.clone();
                endpoint["metadata"] = self.metadata.clone();
                reply["endpoints"] = json!([endpoint]);
            }
            "STATS" => {
                reply["type"] = json!("io.nats.micro.v1.stats_response");
                reply["started"] = json!(self.started);
                reply["endpoints"] = json!([self.stats.to_endpoint(self.endpoint.clone())]);
            }
            _ => return None,
        }
        Some(Bytes::from(reply.to_string()))
    }

    /// Adds a call to the statistics.
    pub(crate) fn record_call(&mut self, took: Duration, error: Option<String>) {
        self.stats.requests += 1;
        self.stats.time += took;
        if let Some(error) = error {
            self.stats.errors += 1;
            self.stats.last_error = error;
        }
    }

    fn text(&self, key: &str) -> &str {
        self.identity[key].as_str().unwrap_or_default()
    }
}

impl Stats {
    fn to_endpoint(&self, mut endpoint: Value) -> Value {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let total = nanos(self.time);
        endpoint["num_requests"] = json!(self.requests);
        endpoint["num_errors"] = json!(self.errors);
        endpoint["last_error"] = json!(self.last_error);
        endpoint["processing_time"] = json!(total);
        endpoint["average_processing_time"] = json!(total.checked_div(self.requests).unwrap_or(0));
        endpoint
    }
}
