//! Serves the built-in tools, and those of MCP servers and HTTP endpoints.
//!
//! Each is an ordinary NATS tool, built on `ailoop-tool` like the tools of strangers: the executor finds it and calls
//! it over the bus, and replicas share its calls. Each kind of tools connects as a NATS user of its own, and this
//! process has no other rights.
//!
//! # Layout
//!
//! - `files`, `plans`, `fetch`, `command`, `mail`, `results` and `sessions` have the shipped tools.
//! - `mcp` runs MCP servers and serves their tools; `webhook` serves HTTP endpoints as tools.
//! - `connect` connects each kind of tools as its NATS user.

pub mod command;
mod connect;
mod error;
pub mod fetch;
mod files;
mod head_tail_buffer;
mod http;
pub mod mail;
mod mcp;
mod plans;
mod results;
mod server_name;
mod sessions;
mod truncate;
pub mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::async_nats::Client;
use ailoop_tool::async_nats::connection::State;
use ailoop_tool::{Serving, Tool, Tools};
use bus::{Bus, NatsConfig};
use contract::{TenantId, ToolName};
use futures::future::{join, join_all};
use schemars::JsonSchema;
use serde::Deserialize;
use service::clock::SystemClock;
use service::health::Readiness;
use service::process::{ReadinessWatch, Running, run_without_bus};
use service::tasks::Tasks;
use tool_schema::Checker;

use command::CommandConfig;
use connect::CONCURRENCY;
pub use connect::Login;
pub use error::HostError;
use fetch::FetchConfig;
pub use files::FilesConfig;
use files::Workspace;
pub use mail::MailConfig;
use mail::MailService;
pub use mcp::McpConfig;
pub use plans::PlansConfig;
pub use results::ResultsConfig;
pub use server_name::ServerName;
pub use sessions::SessionsConfig;
use webhook::WebhookConfig;

/// Name of the section of the configuration.
pub const SECTION: &str = "tool_host";

/// Runs the tool host until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    run_without_bus("tool-host", SECTION, async |config: ToolHostConfig, nats| {
        // The future of the start is large.
        let host = Box::pin(ToolHost::start(&config, &nats)).await?;
        Ok(Running::new(host.readiness(), |timeout| host.drain(timeout)))
    })
    .await
}

/// The `tool_host` section of the configuration: tools by kind; a kind that is absent is not served.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "tool_host")]
pub struct ToolHostConfig {
    /// Tenant whose sessions may use the tools.
    #[schemars(with = "String")]
    pub tenant: TenantId,
    /// `list_files`, `read_file`, `search_text`, `write_file`.
    pub files: Option<FilesConfig>,
    /// `list_plans`, `read_plan`, `decompose_plan`, `analyze_dependencies`, `mark_step_done`; needs `files`.
    pub plans: Option<PlansConfig>,
    /// Mail between agents: `send_mail`, `check_mail`, `reply_mail`.
    pub mail: Option<MailConfig>,
    /// Reads omitted parts of long results: `read_result`.
    pub results: Option<ResultsConfig>,
    /// `list_sessions`, `read_session`, `read_decisions`: every session of the tenant, for agents that look into them.
    pub sessions: Option<SessionsConfig>,
    /// Fetches web pages: `http_fetch`.
    pub fetch: Option<FetchConfig>,
    /// Runs permitted programs: `run_command`.
    pub command: Option<CommandConfig>,
    /// HTTP endpoints as tools, by the names of the tools.
    #[schemars(with = "BTreeMap<String, WebhookConfig>")]
    pub webhooks: BTreeMap<ToolName, WebhookConfig>,
    /// `mcp__<server>__<tool>`: the tools of MCP servers, by names of yours for the servers.
    pub mcp: BTreeMap<ServerName, McpConfig>,
}

impl ToolHostConfig {
    /// Finds errors that the start would report, as far as they show without NATS and without starting anything.
    pub fn find_mistakes(&self) -> Vec<HostError> {
        let mut found = Vec::new();
        if let Some(files) = &self.files {
            found.extend(files::find_mistakes(files));
        }
        found.extend(self.find_plans_without_files());
        found.extend(self.fetch.as_ref().and_then(|fetch| fetch::tools(fetch).err()));
        found.extend(self.command.as_ref().and_then(|command| command::tools(command, &Tasks::new()).err()));
        found.extend(webhook::tools(&self.webhooks).err());
        found
    }

    /// Names what starts programs as the user of this process, which can read what that user may read.
    pub fn programs_of_this_user(&self) -> Vec<String> {
        let command = self.command.as_ref().filter(|command| command.user.is_none() && !command.allow.is_empty());
        let servers = self.mcp.iter().filter(|(_, server)| server.is_process());
        let servers = servers.map(|(name, _)| format!("the MCP server {name}"));
        command.map(|_| "run_command".to_owned()).into_iter().chain(servers).collect()
    }

    fn find_plans_without_files(&self) -> Option<HostError> {
        let message = "plans are files: set tool_host.files too, or leave plans out".to_owned();
        let is_missing_files = self.plans.is_some() && self.files.is_none();
        is_missing_files.then(|| HostError::Setting { field: "plans".to_owned(), message })
    }
}

/// A running tool host.
pub struct ToolHost {
    servings: Vec<Serving>,
    mcp: mcp::McpServers,
    names: BTreeSet<(TenantId, ToolName)>,
    clients: Vec<Client>,
    stores: Vec<Bus>,
    /// Work that calls leave behind.
    tasks: Tasks,
    watch: Option<ReadinessWatch>,
    readiness: Readiness,
}

impl ToolHost {
    /// Serves every configured kind of tools, each over a connection of its own.
    pub async fn start(config: &ToolHostConfig, nats: &NatsConfig) -> Result<Self, HostError> {
        if let Some(mistake) = config.find_plans_without_files() {
            return Err(mistake);
        }
        let mcp = mcp::McpServers::start(&config.mcp, &config.tenant, nats, &Checker::default()).await?;
        let mut host = Self {
            servings: Vec::new(),
            names: mcp.names.iter().map(|tool| (config.tenant.clone(), tool.clone())).collect(),
            clients: mcp.clients.clone(),
            mcp,
            stores: Vec::new(),
            tasks: Tasks::new(),
            watch: None,
            readiness: Readiness::new("tool-host"),
        };
        let context = HostContext { tenant: &config.tenant, nats };
        let workspace = config.files.as_ref().map(Workspace::open).transpose()?.map(Arc::new);
        if let (Some(files), Some(workspace)) = (&config.files, &workspace) {
            host.serve(&context, "files", files.login.as_ref(), files::tools(workspace)).await?;
        }
        if let (Some(plans), Some(workspace)) = (&config.plans, &workspace) {
            host.serve(&context, "plans", plans.login.as_ref(), plans::tools(workspace)).await?;
        }
        if let Some(mail) = &config.mail {
            let bus = host.connect_store(&context, "mail", mail.login.as_ref()).await?;
            let mail_service = MailService::new(bus.clone(), config.tenant.clone(), Arc::new(SystemClock));
            host.serve(&context, "mail", mail.login.as_ref(), mail::tools(&mail_service)).await?;
            let clients = mail::serve_clients(bus, config.tenant.clone(), mail_service, host.tasks.token());
            host.tasks.spawn("mail of clients", clients);
        }
        if let Some(results) = &config.results {
            let bus = host.connect_store(&context, "results", results.login.as_ref()).await?;
            host.serve(&context, "results", results.login.as_ref(), results::tools(&bus, context.tenant)).await?;
        }
        if let Some(sessions) = &config.sessions {
            let bus = host.connect_store(&context, "sessions", sessions.login.as_ref()).await?;
            host.serve(&context, "sessions", sessions.login.as_ref(), sessions::tools(&bus, context.tenant)).await?;
        }
        if let Some(fetch) = &config.fetch {
            host.serve(&context, "fetch", fetch.login.as_ref(), fetch::tools(fetch)?).await?;
        }
        if let Some(command) = &config.command {
            let tools = command::tools(command, &host.tasks)?;
            host.serve(&context, "command", command.login.as_ref(), tools).await?;
        }
        for (login, tools) in webhook::tools(&config.webhooks)? {
            host.serve(&context, "webhooks", login.as_ref(), tools).await?;
        }
        let connections = Arc::new((host.clients.clone(), host.stores.clone()));
        host.watch = Some(ReadinessWatch::start("tool-host", host.readiness.clone(), move || {
            let connections = connections.clone();
            async move {
                let (clients, stores) = &*connections;
                let answers = join_all(stores.iter().map(Bus::ping)).await;
                let is_connected = |client: &Client| client.connection_state() == State::Connected;
                clients.iter().all(is_connected) && answers.iter().all(Result::is_ok)
            }
        }));
        Ok(host)
    }

    async fn connect_store(
        &mut self,
        context: &HostContext<'_>,
        kind: &str,
        login: Option<&Login>,
    ) -> Result<Bus, HostError> {
        let bus = connect::connect_store(context.nats, login, kind).await?;
        self.stores.push(bus.clone());
        Ok(bus)
    }

    async fn serve(
        &mut self,
        context: &HostContext<'_>,
        kind: &str,
        login: Option<&Login>,
        tools: Vec<Tool>,
    ) -> Result<(), HostError> {
        let name = |tool: &Tool| Some((context.tenant.clone(), ToolName::new(tool.name()).ok()?));
        self.names.extend(tools.iter().filter_map(name));
        let client = connect::connect_tools(context.nats, login, kind).await?;
        self.clients.push(client.clone());
        let serving = Tools::new(client).tenant(context.tenant.as_str()).concurrency(CONCURRENCY);
        self.servings.push(tools.into_iter().fold(serving, Tools::tool).serve().await?);
        Ok(())
    }

    /// The tools that are served from the start.
    pub fn names(&self) -> BTreeSet<(TenantId, ToolName)> {
        self.names.clone()
    }

    /// Ready while every kind of tools is connected. Its warnings name MCP servers that are not served.
    pub fn readiness(&self) -> Readiness {
        Readiness::all([self.readiness.clone(), self.mcp.status.clone()])
    }

    /// Takes no more calls and finishes those that run, up to `timeout`.
    pub async fn drain(self, timeout: Duration) {
        if let Some(watch) = self.watch {
            watch.end().await;
        }
        self.readiness.set(false);
        let servings = join_all(self.servings.into_iter().map(|serving| serving.stop(timeout)));
        join(servings, self.mcp.tasks.end(timeout)).await;
        self.tasks.end(timeout).await;
        for store in self.stores {
            store.close().await;
        }
    }
}

/// Settings that all kinds of tools share.
struct HostContext<'a> {
    tenant: &'a TenantId,
    nats: &'a NatsConfig,
}

impl std::fmt::Debug for ToolHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolHost").field("names", &self.names).finish_non_exhaustive()
    }
}
