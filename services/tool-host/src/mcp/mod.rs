//! Tools of MCP servers, served as ordinary NATS tools: one task keeps each server, and tool-hosts with the same one share
//! its calls.

mod backoff;
mod call;
mod child;
mod config;
mod failure;
mod keep;
mod link;
mod listener;
mod listing;
mod name;
mod offer;
mod open;
mod oversize;
mod pace;
mod result;
mod shown;
mod tasks;
mod watched;
mod wording;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ailoop_tool::async_nats::Client;
use bus::NatsConfig;
use contract::{TenantId, ToolName};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use service::tasks::Tasks;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use config::McpConfig;
pub use name::ServerName;

use super::HostError;
use super::connect::connect_tools;
use keep::Keeper;
use shown::Shown;

use tool_schema::Checker;

/// How long the start of the process waits for its servers. One that takes longer is served when it is there.
const FIRST_MAX: Duration = Duration::from_secs(10);

/// The MCP servers of this process.
pub(super) struct Servers {
    tasks: Tasks,
    /// The tools that are there from the beginning.
    names: BTreeSet<ToolName>,
    /// One connection for each server.
    clients: Vec<Client>,
}

impl Servers {
    /// Connects to NATS for each server, and starts to keep them.
    pub(super) async fn start(
        servers: &BTreeMap<ServerName, McpConfig>,
        tenant: &TenantId,
        nats: &NatsConfig,
        checker: &Checker,
    ) -> Result<Self, HostError> {
        let (tasks, mut firsts, mut clients) = (Tasks::new(), Vec::new(), Vec::new());
        if servers.values().any(McpConfig::is_process) {
            // A process of our own user could read the environment of this one, and so its passwords.
            if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
                tracing::warn!(%error, "this process cannot be hidden from the MCP servers that it starts");
            }
        }
        for (server, config) in servers {
            config.check().map_err(|reason| HostError::Server { server: server.clone(), reason })?;
            let client = connect_tools(nats, config.login.as_ref(), &format!("mcp {server}")).await?;
            clients.push(client.clone());
            let shown = Shown::new(client, tenant.clone(), config.concurrency, tasks.clone(), checker.clone());
            let (tell, first) = oneshot::channel();
            let keeper = Keeper::new(server.clone(), config.clone(), shown, tasks.clone(), tell);
            tasks.spawn("mcp server", keeper.run());
            firsts.push(first);
        }
        let (end, mut names) = (Instant::now() + FIRST_MAX, BTreeSet::new());
        for first in firsts {
            // Neither a server that is late nor one that cannot be reached holds up the others.
            if let Ok(Ok(there)) = timeout_at(end, first).await {
                names.extend(there.iter().filter_map(|name| ToolName::new(name).ok()));
            }
        }
        Ok(Self { tasks, names, clients })
    }

    /// The connections to NATS.
    pub(super) fn clients(&self) -> impl Iterator<Item = Client> + '_ {
        self.clients.iter().cloned()
    }

    /// The tools that are there from the beginning.
    pub(super) fn names(&self) -> impl Iterator<Item = ToolName> + '_ {
        self.names.iter().cloned()
    }

    /// Takes no more calls, finishes those that run, and ends the servers, up to `timeout`.
    pub(super) async fn stop(self, timeout: Duration) {
        self.tasks.end(timeout).await;
    }
}
