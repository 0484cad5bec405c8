//! The tools that this process serves itself. Each is an ordinary NATS tool: found by the catalogue, called over the bus,
//! and shared by every executor that serves it.

pub mod command;
mod connect;
pub mod fetch;
mod files;
mod fit;
mod http;
mod kept;
pub mod mail;
mod mcp;
mod plans;
mod results;
mod sessions;
pub mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Serving, Tool, Tools};
use bus::{Bus, NatsConfig};
use contract::{ErrorCode, TenantId, ToolName};
use futures::future::{join, join_all};
use schemars::JsonSchema;
use serde::Deserialize;

use command::CommandConfig;
pub use connect::Login;
use fetch::FetchConfig;
pub use files::FilesConfig;
use files::Workspace;
pub use mail::MailConfig;
use mail::PostOffice;
pub use mcp::{McpConfig, ServerName};
pub use plans::PlansConfig;
pub(crate) use results::READ_RESULT;
pub use results::ResultsConfig;
use service::tasks::Tasks;
pub use sessions::SessionsConfig;
use webhook::WebhookConfig;

use crate::schema::Schemas;

/// Calls of one tool that run in this process at the same time.
const CONCURRENCY: usize = 8;

/// The tools that this process serves itself, by kind; what is absent is not served.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "serve")]
pub struct ServeConfig {
    /// Whose sessions may use them.
    #[schemars(with = "String")]
    pub tenant: TenantId,
    /// `list_files`, `read_file`, `search_text`, `write_file`.
    pub files: Option<FilesConfig>,
    /// `list_plans`, `read_plan`, `decompose_plan`, `analyze_dependencies`, `mark_step_done`; needs `files`.
    pub plans: Option<PlansConfig>,
    /// `send_mail`, `check_mail`, `reply_mail`.
    pub mail: Option<MailConfig>,
    /// `read_result`.
    pub results: Option<ResultsConfig>,
    /// `list_sessions`, `read_session`, `read_decisions`: every session of the tenant, for agents that look into them.
    pub sessions: Option<SessionsConfig>,
    /// `http_fetch`.
    pub fetch: Option<FetchConfig>,
    /// `run_command`.
    pub command: Option<CommandConfig>,
    /// HTTP endpoints as tools, by the names of the tools.
    #[schemars(with = "BTreeMap<String, WebhookConfig>")]
    pub webhooks: BTreeMap<ToolName, WebhookConfig>,
    /// `mcp__<server>__<tool>`: the tools of MCP servers, by names of yours for the servers.
    pub mcp: BTreeMap<ServerName, McpConfig>,
}

impl ServeConfig {
    /// What would be refused at the start, as far as it shows without NATS and without starting anything.
    pub fn mistakes(&self) -> Vec<ServeError> {
        let mut found = Vec::new();
        if let Some(files) = &self.files {
            found.extend(files::mistakes(files));
        }
        found.extend(self.plans_without_files());
        found.extend(self.fetch.as_ref().and_then(|fetch| fetch::tools(fetch).err()));
        found.extend(self.command.as_ref().and_then(|command| command::tools(command, &Tasks::new()).err()));
        found.extend(webhook::tools(&self.webhooks).err());
        found
    }

    fn plans_without_files(&self) -> Option<ServeError> {
        let message = "plans are files: set executor.serve.files too, or leave plans out".to_owned();
        let is_alone = self.plans.is_some() && self.files.is_none();
        is_alone.then(|| ServeError::Setting { field: "plans".to_owned(), message })
    }
}

/// Why the tools of this process cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A directory is not there or may not be used. Correct the configuration.
    #[error("executor.serve.{field} {path:?} cannot be used: {source}")]
    Directory {
        /// Which field of the configuration.
        field: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A field says what it must not, or what cannot be had here. Correct the configuration.
    #[error("executor.serve.{field} cannot be used: {message}")]
    Setting {
        /// Which field.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// An MCP server cannot be spoken to. Correct the configuration, or what it refers to.
    #[error("executor.serve.mcp.{server}: {reason}")]
    Server {
        /// Which one.
        server: ServerName,
        /// Why.
        reason: String,
    },
    /// NATS cannot be reached, or refuses the tools.
    #[error(transparent)]
    Nats(#[from] ailoop_tool::ServeError),
}

impl ServeError {
    /// The code that users see.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Directory { .. } | Self::Setting { .. } | Self::Server { .. } => ErrorCode::BadConfig,
            Self::Nats(_) => ErrorCode::NatsUnreachable,
        }
    }
}

/// The tools of this process, being served.
pub(crate) struct Served {
    kinds: Vec<Serving>,
    mcp: mcp::Servers,
    names: BTreeSet<(TenantId, ToolName)>,
    /// What calls leave behind when they end.
    tasks: Tasks,
}

impl Served {
    /// Serves every kind that is configured, each over a connection of its own.
    pub(crate) async fn start(
        config: &ServeConfig,
        nats: &NatsConfig,
        bus: &Bus,
        office: PostOffice,
        schemas: &Schemas,
    ) -> Result<Self, ServeError> {
        if let Some(mistake) = config.plans_without_files() {
            return Err(mistake);
        }
        let mcp = mcp::Servers::start(&config.mcp, &config.tenant, nats, schemas).await?;
        let names = mcp.names().map(|tool| (config.tenant.clone(), tool)).collect();
        let mut served = Self { kinds: Vec::new(), mcp, names, tasks: Tasks::new() };
        let kinds = Kinds { tenant: &config.tenant, nats };
        let workspace = config.files.as_ref().map(Workspace::open).transpose()?.map(Arc::new);
        if let (Some(files), Some(workspace)) = (&config.files, &workspace) {
            served.add(&kinds, "file tools", files.login.as_ref(), files::tools(workspace)).await?;
        }
        if let (Some(plans), Some(workspace)) = (&config.plans, &workspace) {
            served.add(&kinds, "plan tools", plans.login.as_ref(), plans::tools(workspace)).await?;
        }
        if let Some(mail) = &config.mail {
            served.add(&kinds, "mail tools", mail.login.as_ref(), mail::tools(&office)).await?;
            let clients = mail::serve_clients(bus.clone(), config.tenant.clone(), office, served.tasks.token());
            served.tasks.spawn("mail of clients", clients);
        }
        if let Some(results) = &config.results {
            served.add(&kinds, "results", results.login.as_ref(), results::tools(bus, kinds.tenant)).await?;
        }
        if let Some(sessions) = &config.sessions {
            let tools = sessions::tools(bus, kinds.tenant);
            served.add(&kinds, "tools that read sessions", sessions.login.as_ref(), tools).await?;
        }
        if let Some(fetch) = &config.fetch {
            served.add(&kinds, "fetch tools", fetch.login.as_ref(), fetch::tools(fetch)?).await?;
        }
        if let Some(command) = &config.command {
            let tools = command::tools(command, &served.tasks)?;
            served.add(&kinds, "command tools", command.login.as_ref(), tools).await?;
        }
        for (login, tools) in webhook::tools(&config.webhooks)? {
            served.add(&kinds, "webhooks", login.as_ref(), tools).await?;
        }
        Ok(served)
    }

    async fn add(
        &mut self,
        kinds: &Kinds<'_>,
        whose: &str,
        login: Option<&Login>,
        tools: Vec<Tool>,
    ) -> Result<(), ServeError> {
        let name = |tool: &Tool| Some((kinds.tenant.clone(), ToolName::new(tool.name()).ok()?));
        self.names.extend(tools.iter().filter_map(name));
        let client = connect::connect(kinds.nats, login, whose).await?;
        let serving = Tools::new(client).tenant(kinds.tenant.as_str()).concurrency(CONCURRENCY);
        self.kinds.push(tools.into_iter().fold(serving, Tools::tool).serve().await?);
        Ok(())
    }

    /// The tools that are there from the beginning: the catalogue has found them before the process is ready.
    pub(crate) fn names(&self) -> BTreeSet<(TenantId, ToolName)> {
        self.names.clone()
    }

    /// Takes no more calls and finishes those that run, up to `timeout`.
    pub(crate) async fn stop(self, timeout: Duration) {
        let kinds = join_all(self.kinds.into_iter().map(|serving| serving.stop(timeout)));
        join(kinds, self.mcp.stop(timeout)).await;
        self.tasks.end(timeout).await;
    }
}

/// What all kinds have in common.
struct Kinds<'a> {
    tenant: &'a TenantId,
    nats: &'a NatsConfig,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("names", &self.names).finish_non_exhaustive()
    }
}
