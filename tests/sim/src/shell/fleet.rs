//! Two replicas of each service; a replica that dies is replaced after a while.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::rpc::RpcServer;
use bus_memory::{ClientLifecycle, MemoryServer};
use configuration::{Paths, TextFile, models};
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::settings::{AgentSettings, ContinuationSettings, ModelSettings, ToolFilter};
use contract::subject::ControlSubject;
use contract::{AgentId, ErrorCode, Timestamp};
use futures::FutureExt;
use loop_orchestrator::{Orchestrator, OrchestratorConfig};
use model_gateway::{Gateway, Providers};
use service::clock::Clock;
use tokio::time::Instant;
use tool_executor::Executor;

use crate::rng::Rng;
use crate::shell::planted_mistake::{PlantedMistake, Promises, plant};

/// The clock of the simulated server.
#[derive(Clone)]
pub(super) struct VirtualClock(MemoryServer);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// A service that runs as replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceKind {
    Orchestrator,
    Gateway,
    Executor,
}

/// The service of each replica.
pub(super) const KINDS: [ServiceKind; 6] = [
    ServiceKind::Orchestrator,
    ServiceKind::Orchestrator,
    ServiceKind::Gateway,
    ServiceKind::Gateway,
    ServiceKind::Executor,
    ServiceKind::Executor,
];

enum Service {
    Orchestrator(#[allow(dead_code, reason = "the service ends when it is dropped")] Orchestrator),
    Gateway(#[allow(dead_code, reason = "the service ends when it is dropped")] Gateway),
    Executor(#[allow(dead_code, reason = "the service ends when it is dropped")] Executor),
}

struct Replica {
    kind: ServiceKind,
    /// Index of the machine, on which one replica of each service runs.
    machine: usize,
    lifecycle: ClientLifecycle,
    _service: Service,
}

/// The replicas, and the composer.
pub(super) struct SimulatedFleet {
    server: MemoryServer,
    mistake: PlantedMistake,
    promises: Promises,
    compact_after: u64,
    replicas: Vec<Replica>,
    started: u64,
    composer: Option<RpcServer>,
    /// A service whose replicas are not replaced before an instant.
    outage: Option<(ServiceKind, Instant)>,
    /// A replica that is frozen until an instant.
    frozen: Option<(ClientLifecycle, Instant)>,
    /// Chooses the deaths that take a machine along.
    rng: Rng,
    /// Deaths of a hundred that do.
    machine_percent: u64,
}

impl SimulatedFleet {
    /// Starts the services; logs of sessions are compacted after `compact_after` seconds without a commit. `seed` chooses
    /// which machines die with a replica, `machine_percent` of a hundred.
    pub(super) async fn start(
        server: MemoryServer,
        mistake: PlantedMistake,
        compact_after: u64,
        seed: u64,
        machine_percent: u64,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self {
            server,
            mistake,
            promises: Promises::default(),
            compact_after,
            replicas: Vec::new(),
            started: 0,
            composer: None,
            outage: None,
            frozen: None,
            rng: Rng::new(seed),
            machine_percent,
        };
        fleet.set_composer(true).await?;
        for (index, kind) in KINDS.into_iter().enumerate() {
            fleet.add(kind, index % 2).await?;
        }
        Ok(fleet)
    }

    /// Starts or ends the composer.
    pub(super) async fn set_composer(&mut self, runs: bool) -> anyhow::Result<()> {
        let bus = self.server.client("client").0;
        let answer = |request: ComposeRequest| {
            let agent = request.agent.as_ref().map_or("e", AgentId::as_str).to_owned();
            std::future::ready(compose(&agent)).boxed()
        };
        self.composer = if runs { Some(bus.serve_compose(answer).await?) } else { None };
        Ok(())
    }

    /// Kills every replica of a service; they are replaced after `time`, so that work waits.
    pub(super) fn outage(&mut self, kind: ServiceKind, time: Duration) {
        self.replicas.iter().filter(|replica| replica.kind == kind).for_each(|replica| replica.lifecycle.kill());
        self.outage = Some((kind, Instant::now() + time));
    }

    /// Freezes the first replica of a service for `time`.
    pub(super) fn freeze(&mut self, kind: ServiceKind, time: Duration) {
        self.thaw();
        if let Some(replica) = self.replicas.iter().find(|replica| replica.kind == kind) {
            replica.lifecycle.freeze();
            self.frozen = Some((replica.lifecycle.clone(), Instant::now() + time));
        }
    }

    fn thaw(&mut self) {
        if let Some((lifecycle, _)) = self.frozen.take() {
            lifecycle.thaw();
        }
    }

    /// The results of which workers learned that the log has them.
    pub(super) fn promises(&self) -> Vec<ControlSubject> {
        self.promises.all()
    }

    /// Number of replicas that died.
    pub(super) fn deaths(&self) -> u64 {
        self.started - KINDS.len() as u64
    }

    async fn add(&mut self, kind: ServiceKind, machine: usize) -> anyhow::Result<()> {
        self.started += 1;
        let (bus, lifecycle) = self.server.client(&format!("{kind:?}-{}", self.started));
        let bus: Bus = plant(bus, self.mistake, self.promises.clone());
        let clock = Arc::new(VirtualClock(self.server.clone()));
        let service = match kind {
            ServiceKind::Orchestrator => {
                let compact_after = self.compact_after;
                // Parts of a few messages, as long transcripts have them.
                let config =
                    OrchestratorConfig { compact_after, transcript_part_bytes: 200, ..OrchestratorConfig::default() };
                Service::Orchestrator(Orchestrator::with_clock(config, bus, clock).await?)
            }
            ServiceKind::Gateway => {
                let config = model_gateway::GatewayConfig::default();
                Service::Gateway(Gateway::start_with(config, bus, providers()?, clock).await)
            }
            ServiceKind::Executor => {
                let config = tool_executor::ExecutorConfig::default();
                Service::Executor(Executor::with_clock(config, bus, clock))
            }
        };
        self.replicas.push(Replica { kind, machine, lifecycle, _service: service });
        Ok(())
    }

    /// Kills the other replicas of a machine whose replica has just died, at times: nobody is left who knows what it did.
    fn kill_machines(&mut self) {
        let died: Vec<usize> =
            self.replicas.iter().filter(|replica| replica.lifecycle.is_dead()).map(|replica| replica.machine).collect();
        for machine in died {
            if self.rng.chance(self.machine_percent) {
                self.replicas.iter().filter(|other| other.machine == machine).for_each(|other| other.lifecycle.kill());
            }
        }
    }

    /// Lets time pass; dead replicas are replaced, and the frozen one goes on when its time is over.
    pub(super) async fn sleep(&mut self, time: Duration) -> Result<(), String> {
        const TICK: Duration = Duration::from_millis(250);
        let end = Instant::now() + time;
        loop {
            tokio::time::sleep_until(end.min(Instant::now() + TICK)).await;
            if self.frozen.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
                self.thaw();
            }
            let away = self.outage.filter(|(_, until)| *until > Instant::now()).map(|(kind, _)| kind);
            self.kill_machines();
            let (dead, stay): (Vec<Replica>, Vec<Replica>) = std::mem::take(&mut self.replicas)
                .into_iter()
                .partition(|replica| replica.lifecycle.is_dead() && away != Some(replica.kind));
            self.replicas = stay;
            for replica in dead {
                let Replica { kind, machine, .. } = replica;
                drop(replica);
                self.add(kind, machine).await.map_err(|error| error.to_string())?;
            }
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    /// Lets time pass until a condition holds.
    pub(super) async fn until<F>(&mut self, max: Duration, condition: impl Fn() -> F) -> Result<(), String>
    where
        F: Future<Output = bool>,
    {
        let end = Instant::now() + max;
        while !condition().await {
            if Instant::now() > end {
                return Err(format!("not within {max:?} of virtual time"));
            }
            self.sleep(Duration::from_secs(1)).await?;
        }
        Ok(())
    }
}

fn compose(agent: &str) -> ComposeReply {
    match AgentId::new(agent) {
        Ok(agent) if agent.as_str() != "nobody" => ComposeReply::Composed(Box::new(composed(agent))),
        Ok(_) | Err(_) => {
            let (code, message) = (ErrorCode::UnknownAgent, format!("there is no agent {agent}"));
            ComposeReply::Refused { code, message }
        }
    }
}

fn composed(agent: AgentId) -> Composed {
    let continuation = ContinuationSettings { max_iterations: 6, timeout: 300, ..ContinuationSettings::default() };
    Composed {
        ai_config: None,
        streaming: contract::model::StreamingOverride::default(),
        fallbacks: Vec::new(),
        prompt: "You are a simulation.".to_owned(),
        fingerprint: "f".to_owned(),
        components: Vec::new(),
        warnings: Vec::new(),
        agent: AgentSettings {
            id: agent,
            name: "E".to_owned(),
            continuation,
            tools: ToolFilter { allow: vec!["*".to_owned()], deny: Vec::new() },
            approvals: Vec::new(),
        },
        model: ModelSettings {
            id: "sim".to_owned(),
            multi_tool: true,
            max_parallel_tools: 4,
            ..ModelSettings::default()
        },
    }
}

fn providers() -> anyhow::Result<Providers> {
    let models =
        "providers: {sim: {kind: scripted, script: sim.yaml}}\nmodels: {sim: {provider: sim, multi_tool: true}}\n";
    let file = TextFile { origin: "simulation".to_owned(), text: models.to_owned() };
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/shell");
    let paths = Paths { config: Some(dir.into()), ..Paths::default() };
    Ok(Providers::new(models::parse(&file)?, &paths)?)
}
