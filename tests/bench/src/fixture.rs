//! Everything that a session needs, each part in a process of its own.

use std::path::Path;
use std::process::Command;

use contract::TenantId;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::nats::{Durability, NatsNodes};
use crate::process::{Process, Usage, own_usage};
use crate::tool::TOOL;

/// The services, in the order in which they start.
const SERVICES: [&str; 5] = ["composer", "gateway", "executor", "orchestrator", "edge"];
/// Variables that services are given as they are.
const TRIED: [&str; 3] = ["AILOOP__", "TOKIO_", "MIMALLOC_"];
/// All of them in one process.
const TOGETHER: &str = "up";

/// The agent: its turn goes on as long as there are tool calls.
const AGENTS: &str = "
default_agent: e
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: [word_count]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
  guest:
    name: Guest
    prompt_file: eamonn_executioner.md
    tools: {allow: [silent, strict]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 600}
  long:
    name: Long
    prompt_file: eamonn_executioner.md
    tools: {allow: [word_count]}
    continuation_config: {require_explicit_signal: true, max_iterations: 200, timeout: 600}
  talk:
    name: Talk
    prompt_file: eamonn_executioner.md
    tools: {allow: []}
    continuation_config: {require_explicit_signal: false, max_iterations: 10, timeout: 600}
";

/// Configuration of the fleet under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FleetShape {
    /// Number of replicas of each service, each a process of its own; `None`: one of each in one process, as with
    /// `ailoop up`.
    pub(crate) apart: Option<usize>,
    /// Traces and metrics that it sends.
    pub(crate) telemetry: Telemetry,
    /// Replication and sync settings of NATS.
    pub(crate) durability: Durability,
    /// Seconds after which ended sessions leave the log, where not as by default.
    pub(crate) archive_after: Option<u64>,
    /// Seconds after which the logs of idle sessions are compacted, where not as by default.
    pub(crate) compact_after: Option<u64>,
}

impl FleetShape {
    /// One of each service in one process, on one nats-server.
    pub(crate) const PLAIN: Self = Self {
        apart: None,
        telemetry: Telemetry::Unread,
        durability: Durability::ONE,
        archive_after: None,
        compact_after: None,
    };
}

/// Traces and metrics that the fleet sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telemetry {
    /// Nothing, and no metric is counted.
    Off,
    /// Metrics are counted, and nobody reads them.
    Unread,
    /// Metrics can be scraped at [`Fixture::health`].
    Scraped,
    /// Traces go to a collector, as many as by default.
    Sampled,
    /// All traces go to a collector.
    Full,
}

/// The running parts. They end in the order of the fields: clients before their server.
#[derive(Debug)]
pub(crate) struct Fixture {
    services: Vec<Process>,
    model: Process,
    /// Base URL of the model server.
    pub(crate) model_url: String,
    tool: Process,
    collector: Option<Process>,
    pub(crate) nats: NatsNodes,
    /// gRPC addresses of the edges, for clients.
    pub(crate) edges: Vec<String>,
    /// Host and port at which clients of HTTP find the edges that are processes of their own.
    pub(crate) http_edges: Vec<String>,
    /// Address at which the first service can be scraped.
    pub(crate) health: Option<String>,
    /// Files of all of them.
    dir: TempDir,
}

/// Resource usage of each part.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used {
    /// The processes of the fleet, by name.
    pub(crate) services: Vec<(String, Usage)>,
    pub(crate) nats: Usage,
    pub(crate) model: Usage,
    pub(crate) tool: Usage,
    /// The load generator: this process.
    pub(crate) load: Usage,
}

impl FleetShape {
    /// Sets what a service of this shape has beside its defaults; spans go to `traces`.
    fn configure(&self, command: &mut Command, traces: Option<&str>) {
        if let Some(seconds) = self.archive_after {
            command.env("AILOOP__ORCHESTRATOR__ARCHIVE_AFTER", seconds.to_string());
        }
        if let Some(seconds) = self.compact_after {
            command.env("AILOOP__ORCHESTRATOR__COMPACT_AFTER", seconds.to_string());
        }
        if let Some(traces) = traces {
            command.env("AILOOP__TELEMETRY__OTLP_ENDPOINT", traces);
        }
        match self.telemetry {
            Telemetry::Off => drop(command.env("OTEL_SDK_DISABLED", "true")),
            // It says its address in a line that is not printed by default.
            Telemetry::Scraped => {
                command.env("AILOOP__HEALTH__LISTEN", "127.0.0.1:0").env("RUST_LOG", "warn,service::health=info");
            }
            Telemetry::Full => drop(command.env("AILOOP__TELEMETRY__SAMPLE_RATIO", "1")),
            Telemetry::Unread | Telemetry::Sampled => {}
        }
    }
}

impl Fixture {
    /// Starts everything and returns when sessions can begin.
    pub(crate) async fn start(shape: FleetShape) -> anyhow::Result<Self> {
        Self::start_with(shape, &[]).await
    }

    /// As [`Fixture::start`], with further models, each at an address of its own.
    pub(crate) async fn start_with(shape: FleetShape, more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("ailoop-bench-")?;
        let nats = NatsNodes::start(dir.path(), shape.durability).await?;
        let replicas = shape.durability.replicas;
        let bus = ready(&bus::NatsConfig { url: nats.url(), replicas, ..Default::default() }).await?;

        let mut model = Process::start("model", Process::part(&["model"])?, dir.path())?;
        let models = model.says(|log| Some(log.lines().next()?.to_owned())).await?;
        let mut tool = Process::start("tool", Process::part(&["tool", &nats.url()])?, dir.path())?;
        tool.says(|log| log.contains("serving").then_some(())).await?;
        let mut collector = None;
        let mut traces = None;
        if matches!(shape.telemetry, Telemetry::Sampled | Telemetry::Full) {
            let mut process = Process::start("collector", Process::part(&["collector"])?, dir.path())?;
            traces = Some(process.says(|log| Some(log.lines().next()?.to_owned())).await?);
            collector = Some(process);
        }

        write_configuration(dir.path(), &models, more)?;
        let (mut services, mut edges, mut http_edges, mut health_address) = (Vec::new(), Vec::new(), Vec::new(), None);
        let names = match shape.apart {
            None => vec![TOGETHER],
            Some(times) => SERVICES.into_iter().flat_map(|name| std::iter::repeat_n(name, times)).collect(),
        };
        for (n, name) in names.into_iter().enumerate() {
            let mut command = service(name, &nats, replicas, &dir)?;
            shape.configure(&mut command, traces.as_deref());
            // Every replica writes a log of its own.
            let home = dir.path().join(format!("{name}-{n}"));
            std::fs::create_dir(&home)?;
            let mut process = Process::start(name, command, &home)?;
            match name {
                TOGETHER => edges.push(process.says(up).await?),
                "edge" => {
                    edges.push(process.says(grpc).await?);
                    http_edges.push(process.says(|log| address(log, "ws=")).await?);
                }
                _ => process.says(|log| log.contains(" started").then_some(())).await?,
            }
            if shape.telemetry == Telemetry::Scraped && health_address.is_none() {
                health_address = Some(process.says(health).await?);
            }
            services.push(process);
        }
        knows_tool(&bus).await?;
        bus.close().await;
        anyhow::ensure!(!edges.is_empty(), "there is no edge");
        Ok(Self {
            services,
            model,
            model_url: models,
            tool,
            collector,
            nats,
            edges,
            http_edges,
            health: health_address,
            dir,
        })
    }

    /// Starts an edge for another tenant; returns where its clients find it.
    pub(crate) async fn add_edge(&mut self, tenant: &str) -> anyhow::Result<String> {
        let mut command = service("edge", &self.nats, 1, &self.dir)?;
        command.env("AILOOP__EDGE__TENANT", tenant);
        let home = self.dir.path().join(format!("edge-{tenant}"));
        std::fs::create_dir(&home)?;
        let mut process = Process::start("edge", command, &home)?;
        let url = process.says(grpc).await?;
        self.services.push(process);
        Ok(url)
    }

    /// Returns the resource usage of each part so far. Replicas of a service are counted as one.
    pub(crate) fn used(&self) -> anyhow::Result<Used> {
        let mut used = Used {
            services: Vec::new(),
            nats: self.nats.usage()?,
            model: self.model.usage()?,
            tool: self.tool.usage()?,
            load: own_usage()?,
        };
        for process in &self.services {
            let usage = process.usage()?;
            match used.services.iter_mut().find(|(name, _)| name == process.name()) {
                Some((_, sum)) => *sum = sum.plus(usage),
                None => used.services.push((process.name().to_owned(), usage)),
            }
        }
        Ok(used)
    }

    /// Process ids of the services and of the nats-server, to attach a profiler.
    pub(crate) fn ids(&self) -> String {
        let all = self.services.iter().chain(&self.collector).chain(self.nats.processes());
        all.map(|process| format!("{}={}", process.name(), process.id())).collect::<Vec<_>>().join(" ")
    }

    /// The first warnings of each service, for when something went wrong.
    pub(crate) fn warnings(&self) -> String {
        let tail = |process: &Process| {
            let log = process.log();
            let bad = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
            bad.take(5).map(|line| format!("{}: {line}", process.name())).collect::<Vec<_>>()
        };
        self.services.iter().flat_map(tail).collect::<Vec<_>>().join("\n")
    }
}

/// A service as it runs anywhere: its defaults, but for addresses.
fn service(name: &str, nats: &NatsNodes, replicas: usize, dir: &TempDir) -> anyhow::Result<Command> {
    let mut command = Process::part(&["service", name])?;
    if name == TOGETHER {
        command.args([
            "--nats",
            &nats.url(),
            "--ws-port",
            "0",
            "--grpc-port",
            "0",
            "--model",
            "bench",
            "--no-credentials",
        ]);
    }
    command.current_dir(dir.path()).env_clear();
    command.env("AILOOP_CONFIG", dir.path()).env("AILOOP__NATS__URL", nats.url());
    // Settings that are being tried out.
    for (name, value) in std::env::vars().filter(|(name, _)| TRIED.iter().any(|prefix| name.starts_with(prefix))) {
        command.env(name, value);
    }
    command.env("AILOOP__NATS__REPLICAS", replicas.to_string());
    // Sessions of the load share connections, as those of no client do: the pace of one connection would be measured.
    command.env("AILOOP__EDGE__CONNECTIONS__REQUESTS_PER_S", "100000");
    command.env("AILOOP__EDGE__WS__LISTEN", "127.0.0.1:0").env("AILOOP__EDGE__GRPC__LISTEN", "127.0.0.1:0");
    Ok(command)
}

/// Writes the models, each further one at an address of its own, and the agents.
fn write_configuration(dir: &Path, models: &str, more: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut config = json!({
        "default": "bench",
        "providers": {"bench": {"kind": "openai_chat", "base_url": models}},
        "models": {"bench": {"provider": "bench", "multi_tool": true, "max_parallel_tools": 8}},
    });
    for (name, url) in more {
        config["providers"][name] = json!({"kind": "openai_chat", "base_url": url});
        config["models"][name] = json!({"provider": name});
    }
    std::fs::write(dir.join("models.yaml"), config.to_string())?;
    std::fs::write(dir.join("agents.yaml"), AGENTS)?;
    Ok(())
}

/// Finds the gRPC address of the edge in its log.
fn grpc(log: &str) -> Option<String> {
    Some(format!("http://{}", address(log, "grpc=")?))
}

/// The address at which the edge says that it listens for a protocol.
fn address(log: &str, protocol: &str) -> Option<String> {
    log.split_once(protocol)?.1.split_whitespace().next().map(str::to_owned)
}

/// Finds the address in its log at which a service can be scraped.
fn health(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("health server listens"))?;
    line.split_once("address=")?.1.split_whitespace().next().map(str::to_owned)
}

/// Finds the gRPC address of the edge in the output of a fleet in one process.
fn up(log: &str) -> Option<String> {
    log.contains("Ctrl-C").then_some(())?;
    let line = log.lines().find_map(|line| line.trim().strip_prefix("gRPC"))?;
    Some(line.trim().to_owned())
}

/// A connection to servers whose streams are there: a cluster needs a while to elect its leaders.
async fn ready(config: &bus::NatsConfig) -> anyhow::Result<bus::Bus> {
    let deadline = Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let ready = async {
            let bus = bus::Bus::connect(config).await?;
            bus.ensure().await.map(|()| bus)
        };
        match ready.await {
            Ok(bus) => return Ok(bus),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn knows_tool(bus: &bus::Bus) -> anyhow::Result<()> {
    let deadline = Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let known = bus.tools(&TenantId::default()).await?;
        if known.iter().any(|tool| tool.name.as_str() == TOOL) {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "the tool does not come into the catalogue");
        sleep(std::time::Duration::from_millis(50)).await;
    }
}
