//! The tool catalogue: asks every NATS service what it is, and keeps KV `ai_loop_tools` as they answer.

pub(crate) mod describe;
mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::{Bus, BusError, Heard, Subscription};
use bytes::Bytes;
use contract::streams::Bucket;
use contract::tool::ToolSpec;
use contract::{TenantId, subject};
use futures::StreamExt;
use service::health::Readiness;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use describe::Described;
pub(crate) use describe::TEXT_BYTES_MAX;
use known::{Change, Key, Known};

use crate::schema::Schemas;
use crate::trouble::Trouble;

/// Pause between polls: with [`GATHER`] it keeps "found within two seconds" also for a tool that may not announce itself.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How long answers of one poll are gathered.
const GATHER: Duration = Duration::from_millis(400);
/// Pause before a poll that an announcement asks for: whoever starts many tools announces many times.
const SETTLE: Duration = Duration::from_millis(30);
/// Answers of one poll that are read; the fleet's tools are far fewer.
const ANSWERS_MAX: usize = 10_000;
/// Complaints that are remembered, so that each is logged once.
const COMPLAINTS_MAX: usize = 1_000;

/// Keeps the catalogue until it is told to end. `ready` is set after the first poll that found the tools of this very
/// process: their subscriptions may reach the server after the first question.
pub(crate) async fn run(
    bus: Bus,
    schemas: Schemas,
    trouble: Trouble,
    own: BTreeSet<Key>,
    ending: CancellationToken,
    ready: Readiness,
) {
    let (known, complaints, began) = (Known::default(), BTreeSet::new(), Instant::now());
    let mut catalogue = Catalogue { bus, schemas, known, own, complaints, trouble, began };
    ending.run_until_cancelled(catalogue.keep(ready)).await;
}

struct Catalogue {
    bus: Bus,
    schemas: Schemas,
    known: Known,
    /// Tools of this process that were not found yet.
    own: BTreeSet<Key>,
    complaints: BTreeSet<(String, String)>,
    trouble: Trouble,
    began: Instant,
}

impl Catalogue {
    async fn keep(&mut self, ready: Readiness) {
        let mut announced: Option<Subscription> = None;
        let mut inherited = false;
        loop {
            let began = Instant::now();
            if announced.is_none() {
                announced = self.bus.listen(&subject::tool_announce(), None).await.ok();
            }
            let polled = async {
                if !inherited {
                    self.inherit().await?;
                    inherited = true;
                }
                self.poll().await
            };
            match polled.await {
                Ok(()) if self.own.is_empty() => ready.set(true),
                Ok(()) => {
                    self.settle(&mut announced).await;
                    continue;
                }
                Err(error) => {
                    self.trouble.note();
                    tracing::warn!(%error, "tool catalogue not refreshed");
                }
            }
            tokio::select! {
                () = sleep_until(began + POLL_EVERY) => {}
                heard = next(&mut announced) => match heard {
                    Some(Heard::Message(_)) => self.settle(&mut announced).await,
                    Some(Heard::Gap) => self.trouble.note(),
                    None => {
                        announced = None;
                        sleep_until(began + POLL_EVERY).await;
                    }
                },
            }
        }
    }

    /// Waits a moment and forgets the announcements that came meanwhile.
    async fn settle(&self, announced: &mut Option<Subscription>) {
        let forget = async {
            while let Some(heard) = next(announced).await {
                if matches!(heard, Heard::Gap) {
                    self.trouble.note();
                }
            }
        };
        tokio::select! {
            () = sleep(SETTLE) => {}
            () = forget => {}
        }
    }

    /// Takes in what stands in the catalogue already.
    async fn inherit(&mut self) -> Result<(), BusError> {
        for (key, value) in self.bus.transport().kv_list(Bucket::Tools, "*.*").await? {
            let tenant = key.split_once('.').and_then(|(tenant, _)| TenantId::new(tenant).ok());
            if let (Some(tenant), Ok(spec)) = (tenant, serde_json::from_slice::<ToolSpec>(&value)) {
                // Whoever wrote it has compiled it; where that cannot be done again, the tool checks for itself.
                let _unusable = self.schemas.learn(&(tenant.clone(), spec.name.clone()), &spec.parameters);
                self.known.inherit(tenant, spec);
            }
        }
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), BusError> {
        let found = self.gather().await?;
        self.own.retain(|tool| !found.contains_key(tool));
        let trouble = self.trouble.last().unwrap_or(self.began);
        for change in self.known.observe(&found, Instant::now(), trouble) {
            match &change {
                Change::Put(tenant, spec) => {
                    self.bus.put_tool(tenant, spec).await?;
                    tracing::debug!(%tenant, tool = %spec.name, version = spec.version, "tool in the catalogue");
                }
                Change::Delete(tenant, tool) => {
                    self.bus.delete_tool(tenant, tool).await?;
                    self.schemas.forget(&(tenant.clone(), tool.clone()));
                    tracing::info!(%tenant, %tool, "tool gone");
                }
            }
            self.known.made(&change, Instant::now());
        }
        Ok(())
    }

    /// Asks everybody, and reads what comes in time. Of replicas that differ the greatest version counts, so that two
    /// executors and two polls agree.
    async fn gather(&mut self) -> Result<BTreeMap<Key, ToolSpec>, BusError> {
        let mut found: BTreeMap<Key, ToolSpec> = BTreeMap::new();
        let asked = self.bus.transport().request_many(&subject::services_info(), Vec::new(), Bytes::new()).await;
        let answers = match asked {
            Ok(answers) => answers,
            Err(BusError::NoResponders { .. }) => return Ok(found),
            Err(error) => return Err(error),
        };
        let mut answers = answers.take(ANSWERS_MAX);
        let end = Instant::now() + GATHER;
        let mut heard_any = false;
        loop {
            let message = match timeout_at(end, answers.next()).await {
                Ok(Some(Heard::Message(message))) => message,
                Ok(Some(Heard::Gap)) => {
                    return Err(BusError::Unavailable("the connection was lost during a poll".to_owned()));
                }
                // The server said that there is nobody, or nobody else.
                Ok(None) => break,
                Err(_) if heard_any => break,
                // Neither an answer nor that there is none: perhaps this connection carries nothing any more.
                Err(_) => return Err(BusError::Timeout { what: "poll of the tools".to_owned() }),
            };
            heard_any = true;
            for described in describe::read(&message.payload) {
                match described {
                    Described::Tool(tenant, spec) => {
                        let key = (tenant, spec.name.clone());
                        let better = found.get(&key).is_none_or(|other| rank(other) < rank(&spec));
                        if better {
                            found.insert(key, spec);
                        }
                    }
                    Described::Bad { subject, reason } => self.complain(subject, reason),
                }
            }
        }
        for (key, reason) in self.learn(&found) {
            found.remove(&key);
            self.complain(subject::tool(&key.0, &key.1).to_string(), reason);
        }
        Ok(found)
    }

    /// Compiles the schemas that are new; returns the tools whose schema cannot be used.
    fn learn(&self, found: &BTreeMap<Key, ToolSpec>) -> Vec<(Key, String)> {
        let learn = |(key, spec): (&Key, &ToolSpec)| {
            self.schemas.learn(key, &spec.parameters).err().map(|reason| (key.clone(), reason))
        };
        found.iter().filter_map(learn).collect()
    }

    fn complain(&mut self, subject: String, reason: String) {
        let room = self.complaints.len() < COMPLAINTS_MAX;
        let complaint = (subject, reason);
        if room && !self.complaints.contains(&complaint) {
            tracing::warn!(subject = complaint.0, reason = complaint.1, "tool refused");
            self.complaints.insert(complaint);
        }
    }
}

fn rank(spec: &ToolSpec) -> (Vec<u64>, &str, &str) {
    let numbers = spec.version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect();
    (numbers, spec.description.as_str(), spec.parameters.get())
}

async fn next(announced: &mut Option<Subscription>) -> Option<Heard> {
    match announced {
        Some(heard) => heard.next().await,
        None => std::future::pending().await,
    }
}
