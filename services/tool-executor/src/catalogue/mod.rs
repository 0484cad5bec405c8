//! The tool catalogue: polls all NATS services, and writes their tools to KV `ai_loop_tools`.

mod known_tools;
mod poll;

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

use known_tools::{CatalogueChange, KnownTools};
use poll::{CataloguePoll, ConfirmedSpecs, SPECS_PER_TOOL_MAX, TenantTool};
use tool_schema::ToolDescription;

use crate::connection_health::ConnectionHealth;
use crate::schemas::{Schemas, ToolKey};

/// Pause between polls: with [`REPLY_WAIT`] a tool that may not announce itself is found within two seconds.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Time in which answers of one query are collected.
const REPLY_WAIT: Duration = Duration::from_millis(400);
/// Pause between an announcement and its poll: a process that starts many tools announces many times.
const DEBOUNCE: Duration = Duration::from_millis(30);
/// Answers of one query that are read; the tools of a fleet are far fewer.
const REPLIES_MAX: usize = 10_000;
/// Tools that are asked at the same time to confirm their descriptions.
const QUERIES_CONCURRENT_MAX: usize = 256;
/// Refusals that are remembered, so that each is logged once.
const LOGGED_REFUSALS_MAX: usize = 1_000;

/// Maintains the catalogue until `ending`. `ready` is set after the first poll that found the tools of this very
/// process: their subscriptions may reach the server after the first query.
pub(crate) async fn run(
    bus: Bus,
    schemas: Schemas,
    health: ConnectionHealth,
    own: BTreeSet<ToolKey>,
    ending: CancellationToken,
    ready: Readiness,
) {
    let (known, confirmed) = (KnownTools::default(), ConfirmedSpecs::default());
    let (logged_refusals, began) = (BTreeSet::new(), Instant::now());
    let mut catalogue =
        Catalogue { bus, schemas, known, confirmed, poll_count: 0, own, logged_refusals, health, began };
    ending.run_until_cancelled(catalogue.maintain(ready)).await;
}

struct Catalogue {
    bus: Bus,
    schemas: Schemas,
    known: KnownTools,
    confirmed: ConfirmedSpecs,
    poll_count: usize,
    /// Tools of this process that no poll has found yet.
    own: BTreeSet<ToolKey>,
    logged_refusals: BTreeSet<(String, String)>,
    health: ConnectionHealth,
    began: Instant,
}

impl Catalogue {
    async fn maintain(&mut self, ready: Readiness) {
        let mut announced: Option<Subscription> = None;
        let mut has_adopted = false;
        loop {
            let began = Instant::now();
            if announced.is_none() {
                announced = self.bus.listen(&subject::tool_announce(), None).await.ok();
            }
            let polled = async {
                if !has_adopted {
                    self.adopt_entries().await?;
                    has_adopted = true;
                }
                self.poll().await
            };
            match polled.await {
                Ok(()) if self.own.is_empty() => ready.set(true),
                Ok(()) => {
                    self.debounce(&mut announced).await;
                    continue;
                }
                Err(error) => {
                    self.health.record_loss();
                    tracing::warn!(%error, "tool catalogue not refreshed");
                }
            }
            tokio::select! {
                () = sleep_until(began + POLL_EVERY) => {}
                event = next_announcement(&mut announced) => match event {
                    Some(SubscriptionEvent::Message(_)) => self.debounce(&mut announced).await,
                    Some(SubscriptionEvent::Gap) => self.health.record_loss(),
                    None => {
                        announced = None;
                        sleep_until(began + POLL_EVERY).await;
                    }
                },
            }
        }
    }

    /// Waits a moment and drops the announcements that arrive meanwhile.
    async fn debounce(&self, announced: &mut Option<Subscription>) {
        let forget = async {
            while let Some(event) = next_announcement(announced).await {
                if matches!(event, SubscriptionEvent::Gap) {
                    self.health.record_loss();
                }
            }
        };
        tokio::select! {
            () = sleep(DEBOUNCE) => {}
            () = forget => {}
        }
    }

    /// Adopts the entries that the catalogue has already.
    async fn adopt_entries(&mut self) -> Result<(), BusError> {
        let mut schemas = Vec::new();
        for (key, value) in self.bus.transport().kv_list(Bucket::Tools, "*.*").await? {
            let tenant = key.split_once('.').and_then(|(tenant, _)| TenantId::new(tenant).ok());
            if let (Some(tenant), Ok(spec)) = (tenant, serde_json::from_slice::<ToolSpec>(&value)) {
                schemas.push(((tenant.clone(), spec.name.clone()), spec.parameters.clone()));
                self.known.adopt(tenant, spec);
            }
        }
        // Their writer has compiled the schemas. Where that fails here, the tool checks its arguments itself.
        let _unusable = self.schemas.learn(schemas).await;
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), BusError> {
        let found = self.poll_tools().await?;
        self.schemas.record_poll(found.keys());
        self.own.retain(|tool| !found.contains_key(tool));
        let last_loss = self.health.last_loss().unwrap_or(self.began);
        for change in self.known.observe(&found, Instant::now(), last_loss) {
            match &change {
                CatalogueChange::Put(tenant, spec) => {
                    self.bus.put_tool(tenant, spec).await?;
                    tracing::debug!(%tenant, tool = %spec.name, version = spec.version, "tool in the catalogue");
                }
                CatalogueChange::Delete(tenant, tool) => {
                    self.bus.delete_tool(tenant, tool).await?;
                    self.schemas.remove(&(tenant.clone(), tool.clone()));
                    tracing::info!(%tenant, %tool, "tool gone");
                }
            }
            self.known.record_change(&change, Instant::now());
        }
        Ok(())
    }

    /// Queries all services, then each tool with a new description at its own address.
    async fn poll_tools(&mut self) -> Result<BTreeMap<ToolKey, ToolSpec>, BusError> {
        let mut poll = CataloguePoll::new(Instant::now());
        let mut bad = Vec::new();
        query_services(&self.bus, &subject::services_info(), |described| {
            match described {
                ToolDescription::Tool(tenant, spec) => {
                    poll.add_broadcast_reply(&self.confirmed, (tenant, spec.name.clone()), spec);
                }
                ToolDescription::Bad { subject, reason } => bad.push((subject, reason)),
            }
            false
        })
        .await?;
        self.poll_count = self.poll_count.wrapping_add(1);
        let silent = self.confirm(&mut poll).await?;
        let (mut found, unconfirmed) = poll.finish(&mut self.confirmed);
        // A known tool whose own address is silent stays.
        for (key, spec) in silent.iter().flat_map(|tool| self.known.find(tool)) {
            found.entry(key).or_insert(spec);
        }
        for (subject, reason) in bad {
            self.warn_once(subject, reason);
        }
        for (tenant, tool) in unconfirmed {
            let address = subject::service_info(&tool);
            let reason = if silent.contains(&tool) {
                format!(
                    "no service answers at {address} in time: check that the NATS user of the executor may publish there"
                )
            } else {
                format!(
                    "it was announced, but no service named {tool} describes it at {address}: \
                     give its NATS service the name of the tool"
                )
            };
            self.warn_once(subject::tool(&tenant, &tool).to_string(), reason);
        }
        let schemas = found.iter().map(|(key, spec)| (key.clone(), spec.parameters.clone())).collect();
        for (key, reason) in self.schemas.learn(schemas).await {
            found.remove(&key);
            self.warn_once(subject::tool(&key.0, &key.1).to_string(), reason);
        }
        Ok(found)
    }

    /// Asks each tool with a new description at its own address; returns the silent ones. A tool that does not answer
    /// in time is asked by the next poll again.
    async fn confirm(&self, poll: &mut CataloguePoll) -> Result<BTreeSet<ToolName>, BusError> {
        // Known tools come first, so that invented names delay none of them. The others take turns to be the first.
        let is_familiar = |tool: &ToolName| self.known.has_name(tool) || self.own.iter().any(|(_, own)| own == tool);
        let (mut tools, mut rest): (Vec<_>, Vec<_>) =
            poll.unconfirmed().into_iter().partition(|(tool, _)| is_familiar(tool));
        let first = self.poll_count.wrapping_mul(QUERIES_CONCURRENT_MAX) % rest.len().max(1);
        rest.rotate_left(first);
        tools.append(&mut rest);
        let queries: Vec<_> = tools.into_iter().map(|(tool, open)| self.query_tool(tool, open)).collect();
        let mut results = futures::stream::iter(queries).buffer_unordered(QUERIES_CONCURRENT_MAX);
        let (end, mut silent) = (Instant::now() + REPLY_WAIT * 2, BTreeSet::new());
        while let Ok(Some(answered)) = timeout_at(end, results.next()).await {
            match answered? {
                (_, Some(specs)) => {
                    for (tenant, spec) in specs {
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

    /// Descriptions from a tool's own address, until all of `open` are among them; `None` where the address is silent.
    async fn query_tool(
        &self,
        tool: ToolName,
        mut open: Vec<TenantTool>,
    ) -> Result<(ToolName, Option<Vec<TenantTool>>), BusError> {
        let (address, mut found) = (subject::service_info(&tool), Vec::new());
        let query = query_services(&self.bus, &address, |described| {
            if let ToolDescription::Tool(tenant, spec) = described
                && spec.name == tool
            {
                // Other descriptions are kept too: of replicas that describe themselves as before, and of tools of
                // other tenants.
                let tool_spec = (tenant, spec);
                let is_wanted = open.contains(&tool_spec);
                open.retain(|other| *other != tool_spec);
                if is_wanted || (found.len() < SPECS_PER_TOOL_MAX && !found.contains(&tool_spec)) {
                    found.push(tool_spec);
                }
            }
            open.is_empty()
        });
        match query.await {
            Ok(()) => Ok((tool, Some(found))),
            // A client subscribes there and does not answer, or the server permits no query.
            Err(BusError::Timeout { .. }) => Ok((tool, None)),
            Err(error) => Err(error),
        }
    }

    fn warn_once(&mut self, subject: String, reason: String) {
        let has_room = self.logged_refusals.len() < LOGGED_REFUSALS_MAX;
        let refusal = (subject, reason);
        if has_room && !self.logged_refusals.contains(&refusal) {
            tracing::warn!(subject = refusal.0, reason = refusal.1, "tool refused");
            self.logged_refusals.insert(refusal);
        }
    }
}

/// Sends a query of the services protocol, and reads answers for [`REPLY_WAIT`], or until `on_described` has enough.
async fn query_services(
    bus: &Bus,
    question: &Subject,
    mut on_described: impl FnMut(ToolDescription) -> bool + Send,
) -> Result<(), BusError> {
    let replies = bus.transport().request_many(question, Vec::new(), Bytes::new()).await?;
    let mut replies = replies.take(REPLIES_MAX);
    let end = Instant::now() + REPLY_WAIT;
    let mut has_received = false;
    loop {
        let message = match timeout_at(end, replies.next()).await {
            Ok(Some(SubscriptionEvent::Message(message))) => message,
            Ok(Some(SubscriptionEvent::Gap)) => {
                return Err(BusError::Unavailable("the connection was lost during a poll".to_owned()));
            }
            // The server reports that there is no responder, or no further one.
            Ok(None) => return Ok(()),
            Err(_) if has_received => return Ok(()),
            // Neither an answer nor the report that there is none: this connection may be broken.
            Err(_) => return Err(BusError::Timeout { what: "poll of the tools".to_owned() }),
        };
        has_received = true;
        let mut is_enough = false;
        for described in tool_schema::parse_service_info(&message.payload) {
            is_enough |= on_described(described);
        }
        if is_enough {
            return Ok(());
        }
    }
}

async fn next_announcement(announced: &mut Option<Subscription>) -> Option<SubscriptionEvent> {
    match announced {
        Some(announced) => announced.next().await,
        None => std::future::pending().await,
    }
}
