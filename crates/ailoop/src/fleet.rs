//! The whole fleet in this process: the six services, and a private nats-server beside them.

mod plan;

use std::fmt;
use std::time::Duration;

use bus::Bus;
use configuration::ConfigError;
use contract::ErrorCode;
use edge::Edge;
use loop_orchestrator::Orchestrator;
use model_gateway::Gateway;
use prompt_composer::Composer;
use service::health::{self, Health, Readiness};
use service::process::ReadinessWatch;
use service::tasks::Tasks;
use telemetry::Telemetry;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tool_executor::Executor;
use tool_host::ToolHost;

use crate::client::EdgeClient;
use crate::failure::CommandFailure;
use crate::instance::{Lock, RunFile};
use crate::nats_server::{NatsServer, SUPERVISED_END_MAX};
pub(crate) use plan::is_set;
pub use plan::{Nats, Plan};

/// How long the services may take until all of them can work.
const READY_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running fleet.
#[derive(Debug)]
pub struct Fleet {
    services: Services,
    health: Health,
    watch: ReadinessWatch,
    bus: Bus,
    nats: Option<Supervised>,
    run: RunFile,
    token: Option<String>,
    drain_max: Duration,
    telemetry: Telemetry,
    /// Last, so that the directory is free only when nothing uses it any more.
    lock: Lock,
}

/// The private nats-server, kept running by a task of its own.
#[derive(Debug)]
struct Supervised {
    tasks: Tasks,
    /// Why it is not started again.
    given_up: oneshot::Receiver<CommandFailure>,
}

impl Supervised {
    fn start(server: NatsServer) -> Self {
        let (tasks, (sender, given_up)) = (Tasks::new(), oneshot::channel());
        let ending = tasks.token();
        tasks.spawn("nats-server", async move {
            if let Some(failure) = server.supervise(ending).await {
                let _nobody_waits = sender.send(failure);
            }
        });
        Self { tasks, given_up }
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

impl Fleet {
    /// Starts everything and returns when it can work. What was started ends with the error.
    pub async fn start(plan: Plan) -> Result<Self, CommandFailure> {
        Box::pin(Self::bring_up(plan)).await
    }

    async fn bring_up(plan: Plan) -> Result<Self, CommandFailure> {
        service::process::raise_open_files();
        let lock = plan.home.lock()?;
        lock.remove_run_file();
        let telemetry = telemetry::init("ailoop", &plan.common.telemetry).map_err(|error| internal(&error))?;
        let (nats, url) = match &plan.nats {
            Nats::Private { binary, port } => {
                let server = NatsServer::start(binary, &plan.home.nats(), *port).await?;
                let url = server.url().to_owned();
                (Some(server), url)
            }
            Nats::Existing { url } => (None, url.clone()),
        };
        let mut nats_config = plan.common.nats.clone();
        "ailoop".clone_into(&mut nats_config.name);
        nats_config.url.clone_from(&url);
        let at = |failure: CommandFailure| {
            // A fleet of one process can have a server of its own.
            let unreachable = *failure.code() == ErrorCode::NatsUnreachable;
            let failure = failure.at(&url);
            if unreachable {
                return failure.help("see that the nats-server runs, or leave --nats out for a private one");
            }
            failure
        };
        let bus = Bus::connect(&nats_config).await.map_err(|error| at(error.into()))?;
        bus.ensure().await.map_err(|error| at(error.into()))?;

        let token = plan.edge.token.as_ref().map(|token| token.expose().to_owned());
        let (common, home, missing_keys) = (plan.common.clone(), plan.home.clone(), plan.missing_keys.clone());
        let services = Services::start(plan, nats_config, &bus).await?;
        let reachable = Readiness::new("nats");
        let watch = ReadinessWatch::of_bus(bus.clone(), reachable.clone());
        let readiness = Readiness::all([reachable, services.readiness()]);
        ready(&readiness).await?;
        let health = health::serve(common.health, readiness);
        let health = health.await.map_err(|error| CommandFailure::new(error.code(), error.to_string()))?;

        let addresses = services.edge.addresses();
        let run = RunFile {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            grpc: format!("http://{}", addresses.grpc),
            ws: format!("ws://{}/ws", addresses.ws),
            nats: url,
            one_session: false,
            missing_keys,
        };
        let nats = nats.map(Supervised::start);
        tracing::info!(home = %home.nats().display(), "fleet started");
        let drain_max = common.drain_timeout;
        Ok(Self { services, health, watch, bus, nats, run, token, drain_max, telemetry, lock })
    }

    /// Where everything is.
    pub fn addresses(&self) -> &RunFile {
        &self.run
    }

    /// Tells other commands of this directory where the fleet is, which ends with a session of ours.
    pub fn announce_for_one_session(&mut self) -> Result<(), CommandFailure> {
        self.run.one_session = true;
        self.announce()
    }

    /// Tells other commands of this directory where the fleet is.
    pub fn announce(&self) -> Result<(), CommandFailure> {
        let cannot =
            |error: std::io::Error| CommandFailure::new(ErrorCode::BadConfig, format!(".ailoop/run.json: {error}"));
        self.lock.announce(&self.run).map_err(cannot)
    }

    /// A client of its edge.
    pub async fn connect(&self) -> Result<EdgeClient, CommandFailure> {
        EdgeClient::connect(&self.run.grpc, self.token.as_deref()).await
    }

    /// Returns, with the reason, when the private nats-server ends again and again.
    pub async fn broken(&mut self) -> CommandFailure {
        match &mut self.nats {
            Some(nats) => match (&mut nats.given_up).await {
                Ok(failure) => failure,
                Err(_ended) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Takes nothing more in, lets what runs end or hands it back, and ends.
    pub async fn drain(self) {
        self.lock.remove_run_file();
        self.services.drain(self.drain_max).await;
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
    async fn start(plan: Plan, nats: bus::NatsConfig, bus: &Bus) -> Result<Self, CommandFailure> {
        let composer = Composer::start(plan.composer, bus.clone()).await.map_err(|error| refused(&error.into()))?;
        let gateway = Gateway::start(plan.gateway, bus.clone()).await.map_err(|error| refused(&error))?;
        let tool_host = ToolHost::start(&plan.tool_host, &nats).await;
        let tool_host = tool_host.map_err(|error| CommandFailure::new(error.code(), error.to_string()))?;
        let executor = tool_executor::ExecutorConfig { expected: tool_host.names(), ..plan.executor };
        let executor = Executor::start(executor, bus.clone());
        let orchestrator =
            Orchestrator::start(plan.orchestrator, bus.clone()).await.map_err(|error| refused(&error))?;
        let edge = Edge::start(plan.edge, bus.clone()).await;
        let edge = edge.map_err(|error| CommandFailure::new(error.code(), error.to_string()))?;
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

    /// The edge first; the tools after the executor, which waits for calls that run; the composer last, since orchestrators
    /// still ask it.
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

async fn ready(readiness: &Readiness) -> Result<(), CommandFailure> {
    let latest = Instant::now() + READY_MAX;
    while !readiness.is_ready() {
        if Instant::now() > latest {
            let waiting: Vec<_> = readiness.waiting().collect();
            let message = format!("the fleet does not get ready: waiting for {}", waiting.join(", "));
            return Err(CommandFailure::new(ErrorCode::Unavailable, message).help("RUST_LOG=info tells more"));
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Why a service does not start: what the configuration says, or our own mistake.
fn refused(error: &anyhow::Error) -> CommandFailure {
    let config = error.chain().find_map(|cause| cause.downcast_ref::<ConfigError>()).map(ConfigError::code);
    let bus = error.chain().find_map(|cause| cause.downcast_ref::<bus::BusError>()).map(bus::BusError::code);
    CommandFailure::new(config.or(bus).unwrap_or(ErrorCode::Internal), format!("{error:#}"))
}

fn internal(error: &dyn fmt::Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, error.to_string())
}
