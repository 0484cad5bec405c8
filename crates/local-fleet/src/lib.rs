//! Runs a fleet in this process: the six services, and a private nats-server if none is named.
//!
//! # Layout
//!
//! - `plan` has what a fleet needs to start; `default_model` chooses the model of agents that name none.
//! - [`nats_binary`] finds a nats-server, and `nats_server` runs it.
//! - `store` serves what a fleet left to a command that reads.

mod default_model;
pub mod nats_binary;
mod nats_server;
mod plan;
mod startup;
mod store;

use std::path::Path;
use std::time::Duration;

use ailoop_client::RunFile;
use bus::{Bus, BusError, NatsConfig};
use configuration::Secret;
use contract::ErrorCode;
use edge::{Addresses, Edge};
use fleet_connection::client::{EdgeClient, EdgeTarget};
use fleet_connection::instance::Lock;
use loop_orchestrator::Orchestrator;
use model_gateway::Gateway;
use prompt_composer::Composer;
use service::health::{self, Health, Readiness};
use service::process::ReadinessWatch;
use service::tasks::Tasks;
use telemetry::Telemetry;
use terminal::failure::CommandFailure;
use tokio::sync::oneshot;
use tool_executor::Executor;
use tool_host::ToolHost;

use crate::nats_server::{NatsServer, SUPERVISED_END_MAX};
use plan::NatsSource;
pub use plan::{FleetOptions, FleetPlan, ListenOverrides, nats_search_paths};
pub use startup::service_failure;
use startup::{internal_failure, wait_until_ready};
pub use store::LocalStore;

/// Timeout for the end of the task that describes this process.
const DESCRIBING_END_MAX: Duration = Duration::from_secs(1);

/// A fleet that runs in this process.
#[derive(Debug)]
pub struct LocalFleet {
    services: Services,
    health: Health,
    watch: ReadinessWatch,
    /// Answers requests for the status of the fleet.
    describing: Tasks,
    bus: Bus,
    nats: Option<SupervisedNats>,
    run: RunFile,
    /// Address of the web console with the key for it, if the edge serves it.
    console: Option<String>,
    token: Option<String>,
    drain_max: Duration,
    telemetry: Telemetry,
    /// Dropped last, so that the directory is free only when nothing uses it any more.
    lock: Lock,
}

/// A private nats-server, which a task starts again when it ends.
#[derive(Debug)]
struct SupervisedNats {
    tasks: Tasks,
    /// The reason for which it is not started again.
    failure: oneshot::Receiver<CommandFailure>,
}

impl SupervisedNats {
    fn start(server: NatsServer) -> Self {
        let (tasks, (sender, failure)) = (Tasks::new(), oneshot::channel());
        let ending = tasks.token();
        tasks.spawn("nats-server", async move {
            if let Some(failure) = server.supervise(ending).await {
                // An error means that the fleet has ended.
                let _send_result = sender.send(failure);
            }
        });
        Self { tasks, failure }
    }
}

#[derive(Debug)]
struct Services {
    edge: Edge,
    orchestrator: Orchestrator,
    gateway: Gateway,
    executor: Executor,
    tool_host: ToolHost,
    composer: Composer,
}

impl LocalFleet {
    /// Starts the nats-server and the services, and returns when all of them are ready. After an error nothing runs.
    pub async fn start(plan: FleetPlan) -> Result<Self, CommandFailure> {
        Box::pin(Self::start_unboxed(plan)).await
    }

    async fn start_unboxed(mut plan: FleetPlan) -> Result<Self, CommandFailure> {
        service::process::raise_open_files();
        let lock = plan.home.lock_when_free().await?;
        lock.remove_run_file();
        let credentials = lock.credentials(plan.credentials)?;
        let token = credentials.as_ref().map(|credentials| credentials.token.clone());
        // Credentials of the configuration say who may use the edge. Beyond this machine, only they do.
        let token = token.filter(|_| !plan.edge.has_credentials() && plan.edge.is_local());
        plan.edge.token = token.clone().or(plan.edge.token);
        let telemetry = telemetry::init("ailoop", &plan.common.telemetry).map_err(|error| internal_failure(&error))?;
        service::process::start_metrics();
        let password = credentials.map(|credentials| credentials.nats_password);
        let (nats, url) = start_nats(&plan.nats, &plan.home.nats(), password).await?;
        let mut nats_config = plan.common.nats.clone();
        "ailoop".clone_into(&mut nats_config.name);
        nats_config.url.clone_from(&url);
        let bus = connect_bus(&nats_config).await?;

        let own_token = plan.edge.token.as_ref().map(|token| token.expose().to_owned());
        let (has_tls, has_console) = (plan.edge.tls.is_some(), plan.edge.console);
        let (common, home, missing_keys) = (plan.common.clone(), plan.home.clone(), plan.missing_keys.clone());
        let services = Services::start(plan, nats_config, &bus).await?;
        let reachable = Readiness::new("nats");
        let watch = ReadinessWatch::of_bus(bus.clone(), reachable.clone());
        let readiness = Readiness::all([reachable, services.readiness()]);
        wait_until_ready(&readiness).await?;
        let describing = Tasks::new();
        service::status::serve(bus.clone(), contract::fleet::ALL_SERVICES, readiness.clone(), &describing);
        let health = health::serve(common.health, readiness);
        let health = health.await?;

        let run = make_run_file(services.edge.addresses(), has_tls, url, token.as_ref(), missing_keys);
        let console = has_console.then(|| console_address(&run));
        let nats = nats.map(SupervisedNats::start);
        let telemetry::build::BuildInfo { version, commit } = telemetry::build::current();
        tracing::info!(home = %home.nats().display(), version, commit, "fleet started");
        let drain_max = common.drain_timeout;
        Ok(Self {
            services,
            health,
            watch,
            describing,
            bus,
            nats,
            run,
            console,
            token: own_token,
            drain_max,
            telemetry,
            lock,
        })
    }

    /// Returns the addresses as the run file has them.
    pub fn addresses(&self) -> &RunFile {
        &self.run
    }

    /// Returns the address of the web console, if the edge serves it.
    pub fn console(&self) -> Option<&str> {
        self.console.as_deref()
    }

    /// Writes the run file as [`LocalFleet::announce`] does. It also says that the fleet ends after one session.
    pub fn announce_for_one_session(&mut self) -> Result<(), CommandFailure> {
        self.run.one_session = true;
        self.announce()
    }

    /// Writes the run file, by which other commands of this directory find the fleet.
    pub fn announce(&self) -> Result<(), CommandFailure> {
        let to_failure =
            |error: std::io::Error| CommandFailure::new(ErrorCode::BadConfig, format!(".ailoop/run.json: {error}"));
        self.lock.announce(&self.run).map_err(to_failure)
    }

    /// Connects a client to the edge.
    pub async fn connect(&self) -> Result<EdgeClient, CommandFailure> {
        let target = EdgeTarget { url: self.run.grpc.clone(), token: self.token.clone(), ..EdgeTarget::default() };
        EdgeClient::connect(target).await
    }

    /// Waits until the private nats-server has ended too often, and returns the reason. Without such a server it never
    /// returns.
    pub async fn wait_for_failure(&mut self) -> CommandFailure {
        match &mut self.nats {
            Some(nats) => match (&mut nats.failure).await {
                Ok(failure) => failure,
                Err(_ended) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Accepts no more work, waits for running work or returns it to its queue, and ends.
    pub async fn drain(self) {
        self.lock.remove_run_file();
        self.services.drain(self.drain_max).await;
        self.describing.end(DESCRIBING_END_MAX).await;
        self.watch.end().await;
        self.health.end().await;
        self.bus.close().await;
        if let Some(nats) = self.nats {
            nats.tasks.end(SUPERVISED_END_MAX).await;
        }
        self.telemetry.shutdown().await;
    }
}

impl Services {
    async fn start(plan: FleetPlan, nats: NatsConfig, bus: &Bus) -> Result<Self, CommandFailure> {
        let composer = Composer::start(plan.composer, bus.clone()).await;
        let composer = composer.map_err(|error| service_failure(&error.into()))?;
        let gateway = Gateway::start(plan.gateway, bus.clone()).await.map_err(|error| service_failure(&error))?;
        let tool_host = ToolHost::start(&plan.tool_host, &nats).await?;
        let executor = tool_executor::ExecutorConfig { expected: tool_host.names(), ..plan.executor };
        let executor = Executor::start(executor, bus.clone());
        let orchestrator = Orchestrator::start(plan.orchestrator, bus.clone()).await;
        let orchestrator = orchestrator.map_err(|error| service_failure(&error))?;
        let edge = Edge::start(plan.edge, bus.clone()).await?;
        Ok(Self { edge, orchestrator, gateway, executor, tool_host, composer })
    }

    fn readiness(&self) -> Readiness {
        Readiness::all([
            self.edge.readiness(),
            self.orchestrator.readiness(),
            self.gateway.readiness(),
            self.executor.readiness(),
            self.tool_host.readiness(),
            self.composer.readiness(),
        ])
    }

    /// Drains the edge first, and the tools after the executor, which waits for running calls. The composer is last,
    /// since the orchestrator needs it until its end.
    async fn drain(self, timeout: Duration) {
        self.edge.drain(timeout).await;
        let tools = async {
            self.executor.drain(timeout).await;
            self.tool_host.drain(timeout).await;
        };
        tokio::join!(self.gateway.drain(timeout), tools, self.orchestrator.drain(timeout));
        self.composer.drain(timeout).await;
    }
}

/// Starts the private nats-server with its data below `dir`, unless a server is named. Returns it, and the address of
/// the server of the fleet.
async fn start_nats(
    source: &NatsSource,
    dir: &Path,
    password: Option<Secret>,
) -> Result<(Option<NatsServer>, String), CommandFailure> {
    match source {
        NatsSource::Private { binary, port } => {
            let server = NatsServer::start(binary, dir, *port, password).await?;
            let url = server.url();
            Ok((Some(server), url))
        }
        NatsSource::Existing { url } => Ok((None, url.clone())),
    }
}

/// Connects to the nats-server, and creates what the bus needs there. A failure names the server.
async fn connect_bus(config: &NatsConfig) -> Result<Bus, CommandFailure> {
    let at_server = |error: BusError| {
        let failure = CommandFailure::from(error);
        let unreachable = *failure.code() == ErrorCode::NatsUnreachable;
        let failure = failure.at(config.shown_url());
        if unreachable {
            return failure.help("start the nats-server, or leave --nats out for a private one");
        }
        failure
    };
    let bus = Bus::connect(config).await.map_err(at_server)?;
    bus.ensure().await.map_err(at_server)?;
    Ok(bus)
}

/// Makes the run file of a fleet whose edge listens at these addresses.
fn make_run_file(
    addresses: Addresses,
    has_tls: bool,
    nats: String,
    token: Option<&Secret>,
    missing_keys: Vec<String>,
) -> RunFile {
    let (web, socket) = if has_tls { ("https", "wss") } else { ("http", "ws") };
    RunFile {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        grpc: format!("{web}://{}", addresses.grpc),
        http: format!("{web}://{}", addresses.ws),
        ws: format!("{socket}://{}/ws", addresses.ws),
        nats,
        token: token.map(|token| token.expose().to_owned()),
        one_session: false,
        missing_keys,
    }
}

/// Returns the address of the web console with the key for it.
fn console_address(run: &RunFile) -> String {
    // The part behind `#` is not sent: the page takes the key from it.
    let key = run.token.as_ref().map(|token| format!("#key={token}")).unwrap_or_default();
    format!("{}/{key}", run.http)
}
