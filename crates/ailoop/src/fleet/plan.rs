//! What a fleet in this process is made of, found out before anything is started.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use configuration::models;
use configuration::{ConfigError, Settings, env};
use contract::ErrorCode;
use service::common::CommonSettings;
use tool_host::FilesConfig;

use crate::args::{Files, UpArgs};
use crate::default_model::{self, ModelChoice, ModelSources};
use crate::failure::CommandFailure;
use crate::instance::Home;
use crate::nats_binary;

/// Logs of a fleet that shares the screen with its user; `RUST_LOG` overrides it.
const QUIET: &str = "error,rmcp=off";
const FEW: &str = "warn,rmcp=off";

/// Which nats-server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nats {
    /// One of our own.
    Private {
        /// The program.
        binary: PathBuf,
        /// Its port; -1 takes a free one.
        port: i32,
    },
    /// One that runs.
    Existing {
        /// Where.
        url: String,
    },
}

/// Where the edge listens, where that is not left to the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub host: Option<IpAddr>,
    /// Port for WebSocket and HTTP.
    pub ws: Option<u16>,
    /// Port for gRPC.
    pub grpc: Option<u16>,
}

impl Listen {
    fn apply(self, edge: &mut edge::Config) {
        let with = |configured: SocketAddr, port: Option<u16>| {
            SocketAddr::new(self.host.unwrap_or(configured.ip()), port.unwrap_or(configured.port()))
        };
        edge.ws.listen = with(edge.ws.listen, self.ws);
        edge.grpc.listen = with(edge.grpc.listen, self.grpc);
    }
}

/// Everything that a fleet needs to start.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) home: Home,
    pub(super) nats: Nats,
    pub(super) common: CommonSettings,
    pub(super) composer: prompt_composer::ComposerConfig,
    pub(super) gateway: model_gateway::Config,
    pub(super) executor: tool_executor::ExecutorConfig,
    pub(super) tool_host: tool_host::ToolHostConfig,
    pub(super) orchestrator: loop_orchestrator::OrchestratorConfig,
    pub(super) edge: edge::Config,
    /// Variables that hold providers' keys, and are not set here.
    pub(super) missing_keys: Vec<String>,
    choice: ModelChoice,
    root: PathBuf,
    out: PathBuf,
}

impl Plan {
    /// A fleet for one command: quiet, on free ports.
    pub async fn embedded(files: &Files, model: Option<String>) -> Result<Self, CommandFailure> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let listen = Listen { host: Some(loopback), ws: Some(0), grpc: Some(0) };
        Self::make(files, model, None, -1, listen, QUIET).await
    }

    /// A fleet that stays.
    pub async fn up(args: &UpArgs) -> Result<Self, CommandFailure> {
        let listen = Listen { host: args.host, ws: args.ws_port, grpc: args.grpc_port };
        Self::make(&args.files, args.model.clone(), args.nats.clone(), args.nats_port, listen, FEW).await
    }

    async fn make(
        files: &Files,
        model: Option<String>,
        nats: Option<String>,
        nats_port: i32,
        listen: Listen,
        filter: &str,
    ) -> Result<Self, CommandFailure> {
        let home = Home::below(Path::new(""));
        let root = files.root.clone().unwrap_or_else(|| PathBuf::from("."));
        if !root.is_dir() {
            return Err(CommandFailure::usage(
                ErrorCode::BadRequest,
                format!("--root {} is no directory", root.display()),
            ));
        }
        let out = files.out.clone().unwrap_or_else(|| home.out());
        let settings = Settings::read(None)?;
        let mut common = CommonSettings::read(&settings)?;
        if env("RUST_LOG").is_none_or(|filter| filter.is_empty()) {
            filter.clone_into(&mut common.telemetry.filter);
        }
        let mut composer: prompt_composer::ComposerConfig = settings.section(prompt_composer::SECTION)?;
        composer = composer.watch_config_file()?;
        let mut edge: edge::Config = settings.section("edge")?;
        listen.apply(&mut edge);
        let mut tool_host: tool_host::ToolHostConfig = settings.section(tool_host::SECTION)?;
        tool_host.tenant = edge.tenant.clone();
        tool_host.plans.get_or_insert_default();
        tool_host.mail.get_or_insert_default();
        tool_host.results.get_or_insert_default();
        tool_host.fetch.get_or_insert_default();
        let login = tool_host.files.take().and_then(|files| files.login);
        tool_host.files = Some(FilesConfig { root: root.clone(), out: Some(out.clone()), login });

        let models = models::load(settings.paths())?;
        let own = composer.default_model.clone().filter(|model| !model.is_empty());
        // The default of models.yaml is left to the composer, which follows the file.
        let follows = model.is_none() && own.is_none() && models.default.is_some();
        let is_named = model.is_some() || own.is_some();
        let configured = own.or_else(|| models.default.clone());
        let choice = default_model::choose_model(
            &ModelSources { requested: model, configured, keys: default_model::find_keys() },
            &models,
        )
        .await;
        composer.default_model = (!follows).then(|| choice.model.clone());

        if is_named {
            let known = models.resolve(&choice.model);
            known.map_err(|unknown| CommandFailure::new(ErrorCode::UnknownModel, unknown.to_string()))?;
        }
        let mut missing_keys: Vec<String> = models.providers.values().filter_map(|of| of.api_key_env.clone()).collect();
        missing_keys.retain(|name| !is_set(name));
        missing_keys.sort();
        missing_keys.dedup();

        let nats = match nats {
            Some(url) => Nats::Existing { url },
            None => Nats::Private { binary: nats_binary::find(&places()).await?, port: nats_port },
        };
        let (gateway, orchestrator) = (settings.section("gateway")?, settings.section("orchestrator")?);
        let executor = settings.section("executor")?;
        Ok(Self {
            home,
            nats,
            common,
            composer,
            gateway,
            executor,
            tool_host,
            orchestrator,
            edge,
            missing_keys,
            choice,
            root,
            out,
        })
    }

    /// The model of agents that name none.
    pub fn choice(&self) -> &ModelChoice {
        &self.choice
    }

    /// The directory that the file tools read.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that the file tools write.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Where the data of a private nats-server is; none where the server is not ours.
    pub fn data(&self) -> Option<PathBuf> {
        match &self.nats {
            Nats::Private { .. } => Some(self.home.nats()),
            Nats::Existing { .. } => None,
        }
    }
}

/// Whether a variable of the environment holds a key.
pub(crate) fn is_set(name: &str) -> bool {
    env(name).is_some_and(|key| !key.trim().is_empty())
}

fn places() -> nats_binary::SearchPaths {
    nats_binary::SearchPaths {
        configured: env("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(PathBuf::from),
        start_dir: std::env::current_dir().unwrap_or_default(),
        path: env("PATH").map(Into::into),
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
