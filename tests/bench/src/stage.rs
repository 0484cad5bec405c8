//! Everything that a session needs, each part in a process of its own.

use std::process::Command;

use anyhow::Context;
use contract::TenantId;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::nats::Nats;
use crate::process::{Process, Usage, own_usage};
use crate::tool::TOOL;

/// The services, in the order in which they start.
pub(crate) const SERVICES: [&str; 5] = ["composer", "gateway", "executor", "orchestrator", "edge"];

/// The agent: its turn goes on as long as there are tool calls.
const AGENTS: &str = "
default_agent: e
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: [\"*\"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
";

/// The running parts. They end in the order of the fields: clients before their server.
#[derive(Debug)]
pub(crate) struct Stage {
    services: Vec<Process>,
    model: Process,
    tool: Process,
    /// The nats-server.
    pub(crate) nats: Nats,
    /// Where clients find the edge.
    pub(crate) edge: String,
    /// Files of all of them.
    dir: TempDir,
}

/// What each part has used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Those of [`SERVICES`].
    pub(crate) services: [Usage; SERVICES.len()],
    /// The nats-server.
    pub(crate) nats: Usage,
    /// The model server.
    pub(crate) model: Usage,
    /// The tool.
    pub(crate) tool: Usage,
    /// The load generator: this process.
    pub(crate) load: Usage,
}

impl Stage {
    /// Starts everything and returns when sessions can begin.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("ailoop-bench-")?;
        let nats = Nats::start(dir.path()).await?;
        let bus = bus::Bus::connect(&bus::NatsConfig { url: nats.url.clone(), ..Default::default() }).await?;
        bus.ensure().await?;

        let mut model = Process::start("model", Process::part(&["model"])?, dir.path())?;
        let models = model.says(|log| Some(log.lines().next()?.to_owned())).await?;
        let mut tool = Process::start("tool", Process::part(&["tool", &nats.url])?, dir.path())?;
        tool.says(|log| log.contains("serving").then_some(())).await?;

        let config = json!({
            "default": "bench",
            "providers": {"bench": {"kind": "openai_chat", "base_url": models}},
            "models": {"bench": {"provider": "bench", "multi_tool": true, "max_parallel_tools": 8}},
        });
        std::fs::write(dir.path().join("models.yaml"), config.to_string())?;
        std::fs::write(dir.path().join("agents.yaml"), AGENTS)?;
        let mut services = Vec::new();
        let mut edge = None;
        for name in SERVICES {
            let mut process = Process::start(name, service(name, &nats, &dir)?, dir.path())?;
            process.says(|log| log.contains(" started").then_some(())).await?;
            if name == "edge" {
                edge = Some(process.says(grpc).await?);
            }
            services.push(process);
        }
        knows_tool(&bus).await?;
        bus.close().await;
        let edge = edge.context("there is no edge")?;
        Ok(Self { services, model, tool, nats, edge, dir })
    }

    /// What each part has used so far.
    pub(crate) fn used(&self) -> anyhow::Result<Used> {
        let mut used = Used {
            nats: self.nats.process.usage()?,
            model: self.model.usage()?,
            tool: self.tool.usage()?,
            load: own_usage()?,
            ..Used::default()
        };
        for (usage, process) in used.services.iter_mut().zip(&self.services) {
            *usage = process.usage()?;
        }
        Ok(used)
    }

    /// The ids of the services and of the nats-server, for whoever wants to look into them.
    pub(crate) fn ids(&self) -> String {
        let all = self.services.iter().chain([&self.nats.process]);
        all.map(|process| format!("{}={}", process.name(), process.id())).collect::<Vec<_>>().join(" ")
    }

    /// The first warnings of each service, for when something went wrong.
    pub(crate) fn warnings(&self) -> String {
        let tail = |name: &str| {
            let log = std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default();
            let bad = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
            bad.take(5).map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        SERVICES.into_iter().flat_map(tail).collect::<Vec<_>>().join("\n")
    }
}

/// A service as it runs anywhere: its defaults, but for addresses.
fn service(name: &str, nats: &Nats, dir: &TempDir) -> anyhow::Result<Command> {
    let mut command = Process::part(&["service", name])?;
    command.current_dir(dir.path()).env_clear();
    command.env("AILOOP_CONFIG", dir.path()).env("AILOOP__NATS__URL", &nats.url);
    command.env("AILOOP__EDGE__WS__LISTEN", "127.0.0.1:0").env("AILOOP__EDGE__GRPC__LISTEN", "127.0.0.1:0");
    Ok(command)
}

/// Where the edge says that it listens.
fn grpc(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("grpc=")?;
    rest.split_whitespace().next().map(|address| format!("http://{address}"))
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
