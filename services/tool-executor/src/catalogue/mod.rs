//! The tool catalogue: asks every NATS service what it is, and keeps KV `ai_loop_tools` as they answer.

mod heard;
mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bus::{Bus, BusError, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::streams::Bucket;
use contract::subject::{self, Subject};
use contract::tool::ToolSpec;
use contract::{TenantId, ToolName};
use futures::StreamExt;
use service::health::Readiness;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use heard::{Confirmed, Poll, SAID_MAX, Said};
use known::{Change, Key, Known};
use tool_schema::Described;

use crate::connection_health::ConnectionHealth;
use crate::schemas::Schemas;

/// Pause between polls: with [`GATHER`] it keeps "found within two seconds" also for a tool that may not announce itself.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How long answers of one poll are gathered.
const GATHER: Duration = Duration::from_millis(400);
/// Pause before a poll that an announcement asks for: whoever starts many tools announces many times.
const SETTLE: Duration = Duration::from_millis(30);
/// Answers of one poll that are read; the fleet's tools are far fewer.
const ANSWERS_MAX: usize = 10_000;
/// Tools that are asked at the same time whether they said what was heard of them.
const ASKED_AT_ONCE: usize = 256;
/// Complaints that are remembered, so that each is logged once.
const COMPLAINTS_MAX: usize = 1_000;

/// Keeps the catalogue until it is told to end. `ready` is set after the first poll that found the tools of this very
/// process: their subscriptions may reach the server after the first question.
pub(crate) async fn run(
    bus: Bus,
    schemas: Schemas,
    health: ConnectionHealth,
    own: BTreeSet<Key>,
    ending: CancellationToken,
    ready: Readiness,
) {
    let (known, confirmed) = (Known::default(), Confirmed::default());
    let (complaints, began) = (BTreeSet::new(), Instant::now());
    let mut catalogue = Catalogue { bus, schemas, known, confirmed, turns: 0, own, complaints, health, began };
    ending.run_until_cancelled(catalogue.keep(ready)).await;
}

struct Catalogue {
    bus: Bus,
    schemas: Schemas,
    known: Known,
    confirmed: Confirmed,
    /// Polls so far.
    turns: usize,
    /// Tools of this process that were not found yet.
    own: BTreeSet<Key>,
    complaints: BTreeSet<(String, String)>,
    health: ConnectionHealth,
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
                    self.health.note();
                    tracing::warn!(%error, "tool catalogue not refreshed");
                }
            }
            tokio::select! {
                () = sleep_until(began + POLL_EVERY) => {}
                heard = next(&mut announced) => match heard {
                    Some(SubscriptionEvent::Message(_)) => self.settle(&mut announced).await,
                    Some(SubscriptionEvent::Gap) => self.health.note(),
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
                if matches!(heard, SubscriptionEvent::Gap) {
                    self.health.note();
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
        let mut schemas = Vec::new();
        for (key, value) in self.bus.transport().kv_list(Bucket::Tools, "*.*").await? {
            let tenant = key.split_once('.').and_then(|(tenant, _)| TenantId::new(tenant).ok());
            if let (Some(tenant), Ok(spec)) = (tenant, serde_json::from_slice::<ToolSpec>(&value)) {
                schemas.push(((tenant.clone(), spec.name.clone()), spec.parameters.clone()));
                self.known.inherit(tenant, spec);
            }
        }
        // Who wrote them has compiled them; where that cannot be done again, the tool checks for itself.
        let _unusable = self.schemas.learn(schemas).await;
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), BusError> {
        let found = self.gather().await?;
        self.schemas.record_poll(found.keys());
        self.own.retain(|tool| !found.contains_key(tool));
        let last_loss = self.health.last().unwrap_or(self.began);
        for change in self.known.observe(&found, Instant::now(), last_loss) {
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

    /// Asks everybody, and whoever says something new once more where he alone can hear it.
    async fn gather(&mut self) -> Result<BTreeMap<Key, ToolSpec>, BusError> {
        let mut poll = Poll::new(Instant::now());
        let mut bad = Vec::new();
        answers(&self.bus, &subject::services_info(), |described| {
            match described {
                Described::Tool(tenant, spec) => poll.hear(&self.confirmed, (tenant, spec.name.clone()), spec),
                Described::Bad { subject, reason } => bad.push((subject, reason)),
            }
            false
        })
        .await?;
        self.turns = self.turns.wrapping_add(1);
        let silent = self.confirm(&mut poll).await?;
        let (mut found, unsure) = poll.end(&mut self.confirmed);
        // Silence at its address is not held against a tool that is known.
        for (key, spec) in silent.iter().flat_map(|tool| self.known.of(tool)) {
            found.entry(key).or_insert(spec);
        }
        for (subject, reason) in bad {
            self.complain(subject, reason);
        }
        for (tenant, tool) in unsure {
            let address = subject::service_info(&tool);
            let reason = if silent.contains(&tool) {
                format!(
                    "nobody answers at {address} in time: may the executor ask there, by nats-server's configuration?"
                )
            } else {
                format!("what is said of it is not said at {address}: name its service {tool}, as the tool")
            };
            self.complain(subject::tool(&tenant, &tool).to_string(), reason);
        }
        let schemas = found.iter().map(|(key, spec)| (key.clone(), spec.parameters.clone())).collect();
        for (key, reason) in self.schemas.learn(schemas).await {
            found.remove(&key);
            self.complain(subject::tool(&key.0, &key.1).to_string(), reason);
        }
        Ok(found)
    }

    /// Asks each tool of which something new was heard; returns those that are silent. What does not answer in time is asked
    /// by the next poll again.
    async fn confirm(&self, poll: &mut Poll) -> Result<BTreeSet<ToolName>, BusError> {
        // First what is known: whoever invents names keeps no tool out. Of the rest each comes to be the first one.
        let familiar = |tool: &ToolName| self.known.has(tool) || self.own.iter().any(|(_, own)| own == tool);
        let (mut tools, mut rest): (Vec<_>, Vec<_>) = poll.unsure().into_iter().partition(|(tool, _)| familiar(tool));
        let first = self.turns.wrapping_mul(ASKED_AT_ONCE) % rest.len().max(1);
        rest.rotate_left(first);
        tools.append(&mut rest);
        let asks: Vec<_> = tools.into_iter().map(|(tool, open)| self.ask(tool, open)).collect();
        let mut asked = futures::stream::iter(asks).buffer_unordered(ASKED_AT_ONCE);
        let (end, mut silent) = (Instant::now() + GATHER * 2, BTreeSet::new());
        while let Ok(Some(answered)) = timeout_at(end, asked.next()).await {
            match answered? {
                (_, Some(said)) => {
                    for (tenant, spec) in said {
                        poll.confirm((tenant, spec.name.clone()), spec);
                    }
                }
                (tool, None) => {
                    silent.insert(tool);
                }
            }
        }
        Ok(silent)
    }

    /// What is said at a tool's own address, until all of `open` was said there; none where it is silent.
    async fn ask(&self, tool: ToolName, mut open: Vec<Said>) -> Result<(ToolName, Option<Vec<Said>>), BusError> {
        let (address, mut heard) = (subject::service_info(&tool), Vec::new());
        let asked = answers(&self.bus, &address, |described| {
            if let Described::Tool(tenant, spec) = described
                && spec.name == tool
            {
                // Others are told too: replicas that say the same as before, and tools of other tenants.
                let said = (tenant, spec);
                let wanted = open.contains(&said);
                open.retain(|other| *other != said);
                if wanted || (heard.len() < SAID_MAX && !heard.contains(&said)) {
                    heard.push(said);
                }
            }
            open.is_empty()
        });
        match asked.await {
            Ok(()) => Ok((tool, Some(heard))),
            // Somebody listens there and does not answer, or the server lets nobody ask.
            Err(BusError::Timeout { .. }) => Ok((tool, None)),
            Err(error) => Err(error),
        }
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

/// Puts a question of the services protocol, and reads what comes in time, or until `heard` says that it is enough.
async fn answers(
    bus: &Bus,
    question: &Subject,
    mut heard: impl FnMut(Described) -> bool + Send,
) -> Result<(), BusError> {
    let asked = bus.transport().request_many(question, Vec::new(), Bytes::new()).await;
    let mut answers = match asked {
        Ok(answers) => answers.take(ANSWERS_MAX),
        Err(BusError::NoResponders { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let end = Instant::now() + GATHER;
    let mut heard_any = false;
    loop {
        let message = match timeout_at(end, answers.next()).await {
            Ok(Some(SubscriptionEvent::Message(message))) => message,
            Ok(Some(SubscriptionEvent::Gap)) => {
                return Err(BusError::Unavailable("the connection was lost during a poll".to_owned()));
            }
            // The server said that there is nobody, or nobody else.
            Ok(None) => return Ok(()),
            Err(_) if heard_any => return Ok(()),
            // Neither an answer nor that there is none: perhaps this connection carries nothing any more.
            Err(_) => return Err(BusError::Timeout { what: "poll of the tools".to_owned() }),
        };
        heard_any = true;
        let mut enough = false;
        for described in tool_schema::read(&message.payload) {
            enough |= heard(described);
        }
        if enough {
            return Ok(());
        }
    }
}

async fn next(announced: &mut Option<Subscription>) -> Option<SubscriptionEvent> {
    match announced {
        Some(heard) => heard.next().await,
        None => std::future::pending().await,
    }
}
