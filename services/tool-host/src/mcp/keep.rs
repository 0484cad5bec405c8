//! The life of one MCP server: connected, served, watched, and connected again when it is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use service::tasks::Tasks;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::backoff::Restarts;
use super::call::Line;
use super::config::McpConfig;
use super::link::{Found, Link, News};
use super::name::ServerName;
use super::offer::{self, Listed};
use super::shown::Shown;
use super::wording::Wordings;

/// Complaints about one server that are remembered, so that each is logged once.
const COMPLAINTS_MAX: usize = 1_000;

/// Whoever keeps one server; one task.
pub(super) struct Keeper {
    server: ServerName,
    config: McpConfig,
    shown: Shown,
    tasks: Tasks,
    restarts: Restarts,
    /// What is told once the server is there for the first time, or could not be reached once: the names of its tools.
    first: Option<oneshot::Sender<BTreeSet<String>>>,
    /// Whether the next try begins with the old handshake.
    legacy: bool,
    complaints: BTreeSet<String>,
    wordings: Wordings,
}

impl Keeper {
    pub(super) fn new(
        server: ServerName,
        config: McpConfig,
        shown: Shown,
        tasks: Tasks,
        first: oneshot::Sender<BTreeSet<String>>,
    ) -> Self {
        Self {
            server,
            config,
            shown,
            tasks,
            restarts: Restarts::default(),
            first: Some(first),
            legacy: false,
            complaints: BTreeSet::new(),
            wordings: Wordings::default(),
        }
    }

    /// Until the tasks end.
    pub(super) async fn run(mut self) {
        let ending = self.tasks.token();
        while !ending.is_cancelled() {
            let lived = self.live().await;
            // Nobody waits for the first time any more.
            self.first = None;
            let salt = uuid::Uuid::now_v7().to_string();
            ending.run_until_cancelled(sleep(self.restarts.after(lived, &salt))).await;
        }
    }

    /// One life of the server; returns how long it served.
    async fn live(&mut self) -> Duration {
        let ending = self.tasks.token();
        // The library's greeting is a large future.
        let connect = Box::pin(Link::connect(&self.server, &self.config, &self.tasks, self.legacy));
        let Found { mut link, tools, version } = match ending.run_until_cancelled(connect).await {
            None => return Duration::ZERO,
            Some(Ok(found)) => found,
            Some(Err(none)) => {
                self.legacy = !self.legacy;
                let (reason, stderr) = (none.reason, none.stderr.join(" | "));
                tracing::warn!(server = %self.server, reason, stderr, "an MCP server cannot be served");
                return Duration::ZERO;
            }
        };
        let began = Instant::now();
        let why = match self.offer(link.line(), &version, tools).await {
            Ok(()) => {
                let names = self.shown.names();
                tracing::info!(server = %self.server, version, tools = names.len(), "MCP server connected");
                if let Some(first) = self.first.take() {
                    let _nobody_waits = first.send(names).is_err();
                }
                self.serve(&mut link, &version).await
            }
            Err(why) => Some(why),
        };
        let stderr = self.part(link).await;
        if let Some(reason) = why {
            tracing::warn!(server = %self.server, reason, stderr = stderr.join(" | "), "an MCP server is lost");
        }
        began.elapsed()
    }

    /// Until the server is lost, or all ends: then no reason is given.
    async fn serve(&mut self, link: &mut Link, version: &str) -> Option<String> {
        let ending = self.tasks.token();
        loop {
            match ending.run_until_cancelled(link.next()).await? {
                News::Lost(why) => return Some(why),
                News::Listed(tools) => {
                    if let Err(why) = self.offer(link.line(), version, tools).await {
                        return Some(why);
                    }
                }
            }
        }
    }

    async fn offer(&mut self, line: &Line, version: &str, tools: Vec<Listed>) -> Result<(), String> {
        let offers = offer::offers(&self.server, version, &self.config.rules, tools);
        for complaint in offers.complaints {
            if self.complaints.len() < COMPLAINTS_MAX && self.complaints.insert(complaint.clone()) {
                tracing::warn!(server = %self.server, complaint, "a tool of an MCP server");
            }
        }
        for tool in self.wordings.changed(offers.tools.values()) {
            tracing::warn!(server = %self.server, tool, "a tool says something else of itself than before");
        }
        self.shown.show(offers.tools, line).await.map_err(|error| format!("NATS: {error}"))
    }

    /// Withdraws the tools and ends the connection. Where it still stands, calls that run end first.
    async fn part(&mut self, mut link: Link) -> Vec<String> {
        let ending = self.tasks.token().is_cancelled();
        let mut withdrawn = std::pin::pin!(self.shown.withdraw().fuse());
        if ending {
            let lost = async { while !matches!(link.next().await, News::Lost(_)) {} };
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
        tokio::join!(link.close(), rest).0
    }
}
