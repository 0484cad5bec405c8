//! The tools of one MCP server that are served over NATS, each by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ailoop_tool::async_nats::Client;
use ailoop_tool::{ServeError, Serving, Tools};
use contract::{Json, TenantId};
use futures::future::join_all;
use service::tasks::Tasks;
use tokio::time::sleep;

use super::call_queue::{ConnectionHandle, RequestKind};
use super::registration::ToolRegistration;
use tool_schema::{Checker, Schema};

/// Longest time that running calls of a withdrawn or replaced tool may take; as long as the longest call.
const WITHDRAW_MAX: Duration = contract::limits::TOOL_TIMEOUT_MAX;

/// Pause between the ends of two subscriptions: longer than a nats-server takes to answer.
const STOP_INTERVAL: Duration = Duration::from_millis(2);

/// The published tools of one server.
pub(super) struct PublishedTools {
    pub(super) client: Client,
    pub(super) tenant: TenantId,
    /// Calls of one tool that run at the same time.
    pub(super) concurrency: usize,
    pub(super) tasks: Tasks,
    checker: Checker,
    tools: BTreeMap<String, (ToolRegistration, Serving)>,
}

impl PublishedTools {
    pub(super) fn new(client: Client, tenant: TenantId, concurrency: usize, tasks: Tasks, checker: Checker) -> Self {
        Self { client, tenant, concurrency, tasks, checker, tools: BTreeMap::new() }
    }

    /// Returns the kind of request that calls of a tool become.
    async fn request_kind(&self, name: &str, registration: &ToolRegistration) -> RequestKind {
        if registration.is_resource {
            return RequestKind::Resource;
        }
        let Some(output) = registration.output.clone() else {
            return RequestKind::Tool(registration.tool.clone(), None);
        };
        let compiled = tokio::task::spawn_blocking(move || Schema::compile(&Json::of(&output))).await;
        let schema = match compiled.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(schema) => Some((schema, self.checker.clone())),
            Err(reason) => {
                tracing::warn!(
                    tool = name,
                    reason,
                    "the outputSchema of an MCP tool cannot be used: results are not checked"
                );
                None
            }
        };
        RequestKind::Tool(registration.tool.clone(), schema)
    }

    /// Serves this set from now on. New tools are served before old ones are withdrawn, so that no call finds no tool;
    /// unchanged tools and running calls continue.
    pub(super) async fn publish(
        &mut self,
        registrations: BTreeMap<String, ToolRegistration>,
        handle: &ConnectionHandle,
    ) -> Result<(), ServeError> {
        let names: BTreeSet<String> = registrations.keys().cloned().collect();
        let mut old = Vec::new();
        for (name, registration) in registrations {
            if self.tools.get(&name).is_some_and(|(published, _)| *published == registration) {
                continue;
            }
            let kind = self.request_kind(&name, &registration).await;
            let tool = registration.to_tool(&name).handler(handle.handler(kind, registration.effect));
            let tools = Tools::new(self.client.clone()).tenant(self.tenant.as_str()).concurrency(self.concurrency);
            let serving = tools.tool(tool).serve().await?;
            old.extend(self.tools.insert(name, (registration, serving)));
        }
        // The new subscriptions reach the server before the old ones end.
        if let Err(error) = self.client.flush().await {
            tracing::debug!(%error, "not flushed");
        }
        old.extend(self.tools.extract_if(.., |name, _| !names.contains(name)).map(|(_, published)| published));
        if !old.is_empty() {
            self.tasks.spawn("mcp tools withdrawn", stop_staggered(old));
        }
        Ok(())
    }

    pub(super) fn names(&self) -> BTreeSet<String> {
        self.tools.keys().cloned().collect()
    }

    /// Takes no more calls, and waits until the running ones have ended.
    pub(super) async fn withdraw(&mut self) {
        stop_staggered(std::mem::take(&mut self.tools).into_values()).await;
    }
}

/// The NATS library forgets a draining subscription at the next event of its connection, though calls may be on their
/// way to it until the server has answered. The pauses keep the drains from disturbing each other; another event may
/// still lose a call at that instant.
async fn stop_staggered(tools: impl IntoIterator<Item = (ToolRegistration, Serving)>) {
    let apart = (0..).map(|number| STOP_INTERVAL * number);
    let stop = |((_, serving), wait): ((ToolRegistration, Serving), Duration)| async move {
        sleep(wait).await;
        serving.stop(WITHDRAW_MAX).await;
    };
    join_all(tools.into_iter().zip(apart).map(stop)).await;
}
