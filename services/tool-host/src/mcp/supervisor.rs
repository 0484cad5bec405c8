//! Supervises one MCP server: connects to it, publishes its tools, watches it, and reconnects when it is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use service::health::Readiness;
use service::tasks::Tasks;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::backoff::RestartBackoff;
use super::call_queue::ConnectionHandle;
use super::config::McpConfig;
use super::connection::{Connection, ConnectionEvent, NewConnection};
use super::description_tracker::DescriptionTracker;
use super::published_tools::PublishedTools;
use super::registration::{self, ListedTool};
use crate::server_name::ServerName;

/// Warnings about one server that are remembered, so that each is logged once.
const LOGGED_WARNINGS_MAX: usize = 1_000;

/// Supervisor of one server; one task.
pub(super) struct Supervisor {
    server: ServerName,
    config: McpConfig,
    published: PublishedTools,
    tasks: Tasks,
    backoff: RestartBackoff,
    /// Gets the names of the tools after the first connection; dropped after the first failure.
    first_names: Option<oneshot::Sender<BTreeSet<String>>>,
    /// Whether the next try uses the handshake of older servers.
    is_legacy_next: bool,
    logged_warnings: BTreeSet<String>,
    descriptions: DescriptionTracker,
    /// Says why the server is not served.
    status: Readiness,
}

impl Supervisor {
    pub(super) fn new(
        server: ServerName,
        config: McpConfig,
        published: PublishedTools,
        tasks: Tasks,
        first_names: oneshot::Sender<BTreeSet<String>>,
        status: Readiness,
    ) -> Self {
        Self {
            server,
            config,
            published,
            tasks,
            backoff: RestartBackoff::default(),
            first_names: Some(first_names),
            is_legacy_next: false,
            logged_warnings: BTreeSet::new(),
            descriptions: DescriptionTracker::default(),
            status,
        }
    }

    /// Runs until the tasks end.
    pub(super) async fn run(mut self) {
        let ending = self.tasks.token();
        while !ending.is_cancelled() {
            let served_for = self.run_once().await;
            // After the first try the start of the process no longer waits.
            self.first_names = None;
            let salt = uuid::Uuid::now_v7().to_string();
            ending.run_until_cancelled(sleep(self.backoff.next_wait(served_for, &salt))).await;
        }
    }

    /// Connects once and serves until the connection is lost; returns how long it served.
    async fn run_once(&mut self) -> Duration {
        let ending = self.tasks.token();
        // The future of the library's handshake is large.
        let connect = Box::pin(Connection::connect(&self.server, &self.config, &self.tasks, self.is_legacy_next));
        let NewConnection { mut connection, tools, version } = match ending.run_until_cancelled(connect).await {
            None => return Duration::ZERO,
            Some(Ok(new)) => new,
            Some(Err(error)) => {
                self.is_legacy_next = !self.is_legacy_next;
                let (reason, stderr) = (error.reason, error.stderr.join(" | "));
                tracing::warn!(server = %self.server, reason, stderr, "an MCP server cannot be served");
                self.status.warn(Some(&format!("MCP server {} is not served: {reason}", self.server)));
                return Duration::ZERO;
            }
        };
        let began = Instant::now();
        let why = match self.register(connection.handle(), &version, tools).await {
            Ok(()) => {
                let names = self.published.names();
                tracing::info!(server = %self.server, version, tools = names.len(), "MCP server connected");
                self.status.warn(None);
                if let Some(first_names) = self.first_names.take() {
                    let _receiver_gone = first_names.send(names).is_err();
                }
                self.serve(&mut connection, &version).await
            }
            Err(why) => Some(why),
        };
        let stderr = self.disconnect(connection).await;
        if let Some(reason) = why {
            self.status.warn(Some(&format!("MCP server {} is lost: {reason}", self.server)));
            tracing::warn!(server = %self.server, reason, stderr = stderr.join(" | "), "an MCP server is lost");
        }
        began.elapsed()
    }

    /// Serves until the server is lost, with the reason, or until the tasks end, without one.
    async fn serve(&mut self, connection: &mut Connection, version: &str) -> Option<String> {
        let ending = self.tasks.token();
        loop {
            match ending.run_until_cancelled(connection.next()).await? {
                ConnectionEvent::Lost(why) => return Some(why),
                ConnectionEvent::ToolsListed(tools) => {
                    if let Err(why) = self.register(connection.handle(), version, tools).await {
                        return Some(why);
                    }
                }
            }
        }
    }

    async fn register(
        &mut self,
        handle: &ConnectionHandle,
        version: &str,
        tools: Vec<ListedTool>,
    ) -> Result<(), String> {
        let registrations = registration::select_tools(&self.server, version, &self.config.rules, tools);
        for warning in registrations.warnings {
            if self.logged_warnings.len() < LOGGED_WARNINGS_MAX && self.logged_warnings.insert(warning.clone()) {
                tracing::warn!(server = %self.server, complaint = warning, "a tool of an MCP server");
            }
        }
        for tool in self.descriptions.record(registrations.tools.values()) {
            tracing::warn!(server = %self.server, tool, "a tool says something else of itself than before");
        }
        self.published.publish(registrations.tools, handle).await.map_err(|error| format!("NATS: {error}"))
    }

    /// Withdraws the tools and closes the connection. While it is open, running calls finish first.
    async fn disconnect(&mut self, mut connection: Connection) -> Vec<String> {
        let ending = self.tasks.token().is_cancelled();
        let mut withdrawn = std::pin::pin!(self.published.withdraw().fuse());
        if ending {
            let lost = async { while !matches!(connection.next().await, ConnectionEvent::Lost(_)) {} };
            tokio::select! {
                () = &mut withdrawn => {}
                () = lost => {}
            }
        }
        let rest = async {
            if !withdrawn.is_terminated() {
                withdrawn.await;
            }
        };
        tokio::join!(connection.close(), rest).0
    }
}
