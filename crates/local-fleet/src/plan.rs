//! The plan of a fleet in this process, which is complete before anything is started.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use configuration::models::{self, ModelsFile, is_key_set};
use configuration::{ConfigError, Settings, UntrustedConfig, env};
use contract::ErrorCode;
use fleet_connection::instance::Home;
use fleet_connection::local_credentials::CredentialSource;
use service::common::CommonSettings;
use terminal::failure::CommandFailure;
use tool_host::{FilesConfig, ToolHostConfig};

use crate::default_model::{self, ModelChoice, ModelSources};
use crate::nats_binary;

/// Log filter of a fleet that shares the terminal with a session; `RUST_LOG` overrides it.
pub(super) const SESSION_FILTER: &str = "error,rmcp=off";
/// Log filter of a fleet that stays; `RUST_LOG` overrides it.
const SERVER_FILTER: &str = "warn,rmcp=off";

/// The nats-server of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NatsSource {
    /// A server that the fleet starts.
    Private {
        /// Path of the nats-server binary.
        binary: PathBuf,
        /// Port to listen on; -1 takes a free one.
        port: i32,
    },
    /// A server that runs already.
    Existing { url: String },
}

/// Addresses of the edge that the command line sets in place of the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenOverrides {
    /// The address to listen on.
    pub host: Option<IpAddr>,
    /// Port for WebSocket and HTTP.
    pub ws: Option<u16>,
    /// Port for clients of gRPC.
    pub grpc: Option<u16>,
}

/// Choices of a command line for a fleet; the configuration makes those that it leaves open.
#[derive(Debug, Clone, Default)]
pub struct FleetOptions {
    /// The directory that the file tools read; the working directory if there is none.
    pub root: Option<PathBuf>,
    /// The directory that the file tools write; a directory of the fleet if there is none.
    pub out: Option<PathBuf>,
    /// The model of agents that name none.
    pub model: Option<String>,
    /// The address of a running nats-server, to use instead of a private one.
    pub nats: Option<String>,
    /// Port of the private nats-server; -1 takes a free one.
    pub nats_port: i32,
    /// Addresses of the edge.
    pub listen: ListenOverrides,
    /// The credentials of the fleet.
    pub credentials: CredentialSource,
}

impl ListenOverrides {
    fn apply(self, edge: &mut edge::EdgeConfig) {
        let address = |configured: SocketAddr, port: Option<u16>| {
            SocketAddr::new(self.host.unwrap_or(configured.ip()), port.unwrap_or(configured.port()))
        };
        edge.ws.listen = address(edge.ws.listen, self.ws);
        edge.grpc.listen = address(edge.grpc.listen, self.grpc);
    }
}

/// Everything that a fleet needs to start.
#[derive(Debug, Clone)]
pub struct FleetPlan {
    pub(super) home: Home,
    pub(super) nats: NatsSource,
    pub(super) common: CommonSettings,
    pub(super) composer: prompt_composer::ComposerConfig,
    pub(super) gateway: model_gateway::GatewayConfig,
    pub(super) executor: tool_executor::ExecutorConfig,
    pub(super) tool_host: ToolHostConfig,
    pub(super) orchestrator: loop_orchestrator::OrchestratorConfig,
    pub(super) edge: edge::EdgeConfig,
    pub(super) credentials: CredentialSource,
    /// Variables of providers' keys that are not set.
    pub(super) missing_keys: Vec<String>,
    /// The configuration of this directory, if it is not used.
    pub untrusted: Option<UntrustedConfig>,
    /// The model of agents that name none.
    pub choice: ModelChoice,
    /// The directory that the file tools read.
    pub root: PathBuf,
    /// The directory that the file tools write.
    pub out: PathBuf,
}

impl FleetPlan {
    /// Plans a fleet for one command: quiet, and on free ports.
    pub async fn for_one_command(options: FleetOptions) -> Result<Self, CommandFailure> {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let listen = ListenOverrides { host: Some(loopback), ws: Some(0), grpc: Some(0) };
        Self::build(FleetOptions { nats_port: -1, listen, ..options }, SESSION_FILTER).await
    }

    /// Plans a fleet for `ailoop up`, which runs until a signal.
    pub async fn for_up(options: FleetOptions) -> Result<Self, CommandFailure> {
        let plan = Self::build(options, SERVER_FILTER).await?;
        // A user who asks for new credentials says that the directory is theirs.
        let home = if plan.credentials == CredentialSource::New { plan.home.adopted() } else { plan.home };
        Ok(Self { home, ..plan })
    }

    async fn build(options: FleetOptions, filter: &str) -> Result<Self, CommandFailure> {
        let FleetOptions { root, out, model, nats, nats_port, listen, credentials } = options;
        let home = Home::below(Path::new(""));
        let root = root.unwrap_or_else(|| PathBuf::from("."));
        if !root.is_dir() {
            return Err(CommandFailure::usage(
                ErrorCode::BadRequest,
                format!("--root {} is not a directory", root.display()),
            ));
        }
        let out = out.unwrap_or_else(|| home.out());
        let settings = Settings::read(None)?;
        let mut common = CommonSettings::read(&settings)?;
        set_log_filter(&mut common, filter);
        let mut composer: prompt_composer::ComposerConfig = settings.section(prompt_composer::SECTION)?;
        composer = composer.watch_config_file()?;
        let mut edge: edge::EdgeConfig = settings.section("edge")?;
        listen.apply(&mut edge);
        let tool_host = configure_tool_host(&settings, &edge, &root, &out)?;

        let models = models::load(settings.paths())?;
        let choice = choose_default_model(model, &mut composer, &models).await?;

        let nats = match nats {
            Some(url) => NatsSource::Existing { url },
            None => NatsSource::Private { binary: nats_binary::find(&nats_search_paths()).await?, port: nats_port },
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
            credentials,
            missing_keys: find_missing_keys(&models),
            untrusted: settings.paths().untrusted.clone(),
            choice,
            root,
            out,
        })
    }

    /// Returns the data directory of a private nats-server.
    pub fn data(&self) -> Option<PathBuf> {
        match &self.nats {
            NatsSource::Private { .. } => Some(self.home.nats()),
            NatsSource::Existing { .. } => None,
        }
    }
}

/// Reads the configuration of the tool-host, and adds the tools that every fleet in this process has.
fn configure_tool_host(
    settings: &Settings,
    edge: &edge::EdgeConfig,
    root: &Path,
    out: &Path,
) -> Result<ToolHostConfig, ConfigError> {
    let mut config: ToolHostConfig = settings.section(tool_host::SECTION)?;
    config.tenant = edge.tenant.clone();
    config.plans.get_or_insert_default();
    config.mail.get_or_insert_default();
    config.results.get_or_insert_default();
    config.fetch.get_or_insert_default();
    let login = config.files.take().and_then(|files| files.login);
    config.files = Some(FilesConfig { root: root.to_owned(), out: Some(out.to_owned()), login });
    Ok(config)
}

/// Chooses the model of agents that name none, and sets it in the composer. A named model must be one that the models
/// file resolves.
async fn choose_default_model(
    requested: Option<String>,
    composer: &mut prompt_composer::ComposerConfig,
    models: &ModelsFile,
) -> Result<ModelChoice, CommandFailure> {
    let configured = composer.default_model.clone().filter(|model| !model.is_empty());
    // The composer reads the default of models.yaml itself, and again after each change of the file.
    let is_from_file = requested.is_none() && configured.is_none() && models.default.is_some();
    let is_named = requested.is_some() || configured.is_some();
    let configured = configured.or_else(|| models.default.clone());
    let sources = ModelSources { requested, configured, with_key: default_model::find_with_key(models) };
    let choice = default_model::choose_model(&sources, models).await;
    composer.default_model = (!is_from_file).then(|| choice.model.clone());
    if is_named {
        let known = models.resolve(&choice.model);
        known.map_err(|unknown| CommandFailure::new(ErrorCode::UnknownModel, unknown.to_string()))?;
    }
    Ok(choice)
}

/// Returns the variables of providers' keys that are not set.
fn find_missing_keys(models: &ModelsFile) -> Vec<String> {
    let mut missing: Vec<String> = models.providers.values().filter_map(|of| of.api_key_env.clone()).collect();
    missing.retain(|name| !is_key_set(name));
    missing.sort();
    missing.dedup();
    missing
}

/// Sets which lines are logged, unless `RUST_LOG` says it.
pub(super) fn set_log_filter(common: &mut CommonSettings, filter: &str) {
    if env("RUST_LOG").is_none_or(|filter| filter.is_empty()) {
        filter.clone_into(&mut common.telemetry.filter);
    }
}

/// Returns where a nats-server is searched.
pub fn nats_search_paths() -> nats_binary::SearchPaths {
    nats_binary::SearchPaths {
        configured: env("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(PathBuf::from),
        path: env("PATH").map(Into::into),
    }
}
