//! Tools of MCP servers, served as ordinary NATS tools: one task supervises each server, and tool-hosts with the same
//! server share its calls.

mod backoff;
mod call_queue;
mod config;
mod connection;
mod description_tracker;
mod failure;
mod notifications;
mod observed_client;
mod oversize;
mod pace;
mod published_tools;
mod registration;
mod result;
mod server_process;
mod supervisor;
mod task_tools;
mod tool_listing;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ailoop_tool::async_nats::Client;
use bus::NatsConfig;
use contract::{TenantId, ToolName};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use service::health::Readiness;
use service::tasks::Tasks;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use config::McpConfig;

use super::connect::connect_tools;
use super::error::HostError;
use super::server_name::ServerName;
use published_tools::PublishedTools;
use supervisor::Supervisor;

use tool_schema::Checker;

/// Longest time that the start of the process waits for its servers. The tools of a slower server are added when it is
/// connected.
const FIRST_CONNECT_MAX: Duration = Duration::from_secs(10);

/// The MCP servers of this process.
pub(super) struct McpServers {
    /// Their end takes no more calls, finishes the running ones, and stops the servers.
    pub(super) tasks: Tasks,
    /// The tools that are served from the start.
    pub(super) names: BTreeSet<ToolName>,
    /// One connection to NATS for each server.
    pub(super) clients: Vec<Client>,
    /// One part for each server, always ready: its warning says why the server is not served.
    pub(super) status: Readiness,
}

impl McpServers {
    /// Connects to NATS for each server, and starts a supervisor for each.
    pub(super) async fn start(
        servers: &BTreeMap<ServerName, McpConfig>,
        tenant: &TenantId,
        nats: &NatsConfig,
        checker: &Checker,
    ) -> Result<Self, HostError> {
        let (tasks, mut first_names, mut clients) = (Tasks::new(), Vec::new(), Vec::new());
        let mut statuses = Vec::new();
        if servers.values().any(McpConfig::is_process) {
            // A process of the same user could read the environment of this one, with its passwords.
            if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
                tracing::warn!(%error, "this process cannot be hidden from the MCP servers that it starts");
            }
        }
        for (server, config) in servers {
            config.check_environment().map_err(|reason| HostError::Server { server: server.clone(), reason })?;
            let client = connect_tools(nats, config.login.as_ref(), &format!("mcp {server}")).await?;
            clients.push(client.clone());
            let published =
                PublishedTools::new(client, tenant.clone(), config.concurrency, tasks.clone(), checker.clone());
            let (sender, names) = oneshot::channel();
            let status = Readiness::new("tool-host");
            status.set(true);
            statuses.push(status.clone());
            let supervisor = Supervisor::new(server.clone(), config.clone(), published, tasks.clone(), sender, status);
            tasks.spawn("mcp server", supervisor.run());
            first_names.push(names);
        }
        let (end, mut names) = (Instant::now() + FIRST_CONNECT_MAX, BTreeSet::new());
        for first in first_names {
            // A slow or unreachable server does not delay the others.
            if let Ok(Ok(there)) = timeout_at(end, first).await {
                names.extend(there.iter().filter_map(|name| ToolName::new(name).ok()));
            }
        }
        Ok(Self { tasks, names, clients, status: Readiness::all(statuses) })
    }
}
