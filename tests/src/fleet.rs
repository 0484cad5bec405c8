//! A fleet within the test's process: a real nats-server, and the six services as libraries.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bus::Bus;
use contract::subject::SessionKey;
use contract::{SessionId, TenantId, ToolName};
use edge::{Addresses, Edge};
use loop_orchestrator::Orchestrator;
use model_gateway::Gateway;
use prompt_composer::Composer;
use service::health::Readiness;
use tempfile::TempDir;
use tool_executor::Executor;
use tool_host::{FilesConfig, ToolHost};

use crate::client::{TestClient, Ws};
use crate::nats::NatsServer;
use crate::wait::{PATIENCE, eventually};

/// Longest time that services may take to end.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The agent of tests: it may use every tool, and continues only on an explicit signal.
const AGENTS: &str = r#"
default_agent: e
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
"#;

/// A configuration directory whose models are served at these addresses, the first one by default.
pub fn configuration(models: &[(&str, &str)]) -> anyhow::Result<TempDir> {
    let dir = TempDir::with_prefix("ailoop-config-")?;
    let provider = |(id, url): &(&str, &str)| {
        let entry = serde_json::json!({"kind": "openai_chat", "base_url": url});
        ((*id).to_owned(), entry)
    };
    let model = |(id, _): &(&str, &str)| {
        let entry = serde_json::json!({"provider": id, "multi_tool": true, "max_parallel_tools": 8});
        ((*id).to_owned(), entry)
    };
    let providers: serde_json::Map<_, _> = models.iter().map(provider).collect();
    let models_of: serde_json::Map<_, _> = models.iter().map(model).collect();
    let default = models.first().map(|(id, _)| *id);
    let file = serde_json::json!({"default": default, "providers": providers, "models": models_of});
    std::fs::write(dir.path().join("models.yaml"), file.to_string())?;
    std::fs::write(dir.path().join("agents.yaml"), AGENTS)?;
    Ok(dir)
}

/// The user that runs the commands of a tool-host: root starts them as another one.
pub fn command_user() -> Option<serde_json::Value> {
    use std::os::unix::fs::MetadataExt as _;
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    is_root.then(|| serde_json::json!({"uid": 64_123, "gid": 64_123}))
}

/// A running fleet; call [`TestFleet::end`] at the end of a test.
#[derive(Debug)]
pub struct TestFleet {
    /// The nats-server of the fleet.
    pub nats: NatsServer,
    /// A connection to `nats` that the services share.
    pub bus: Bus,
    services: Services,
    /// Read by the services as they run.
    config: TempDir,
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

impl TestFleet {
    /// A fleet whose models are served at these addresses; without file tools.
    pub async fn start(models: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::launch(models, None, AGENTS).await
    }

    /// As [`TestFleet::start`], with the agents that are shipped.
    pub async fn as_shipped(models: &[(&str, &str)]) -> anyhow::Result<Self> {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/agents.yaml");
        Self::launch(models, None, &std::fs::read_to_string(shipped)?).await
    }

    /// As [`TestFleet::as_shipped`], with the file tools over a directory.
    pub async fn shipped_with_files(models: &[(&str, &str)], root: &Path, out: &Path) -> anyhow::Result<Self> {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/agents.yaml");
        Self::launch(models, Some((root.to_owned(), out.to_owned())), &std::fs::read_to_string(shipped)?).await
    }

    /// As [`TestFleet::start`], with agents of the test's own.
    pub async fn with_agents(models: &[(&str, &str)], agents: &str) -> anyhow::Result<Self> {
        Self::launch(models, None, agents).await
    }

    /// As [`TestFleet::start`], with the file tools over a directory.
    pub async fn with_files(models: &[(&str, &str)], root: &Path, out: &Path) -> anyhow::Result<Self> {
        Self::launch(models, Some((root.to_owned(), out.to_owned())), AGENTS).await
    }

    async fn launch(models: &[(&str, &str)], files: Option<(PathBuf, PathBuf)>, agents: &str) -> anyhow::Result<Self> {
        ailoop::install_crypto();
        let nats = NatsServer::start().await?;
        let bus = nats.ready().await?;
        let config = configuration(models)?;
        std::fs::write(config.path().join("agents.yaml"), agents)?;
        let services = Services::start(&nats, &bus, config.path(), files).await?;
        let fleet = Self { nats, bus, services, config };
        eventually("the fleet is ready", async || fleet.services.readiness().is_ready()).await?;
        Ok(fleet)
    }

    /// Writes a file of its configuration directory, whose changes the services follow.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.config.path().join(name);
        std::fs::create_dir_all(path.parent().context("a path below a directory")?)?;
        Ok(std::fs::write(path, text)?)
    }

    /// Returns the addresses of its edge.
    pub fn addresses(&self) -> Addresses {
        self.services.edge.addresses()
    }

    /// Its gRPC address, as `--url` takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addresses().grpc)
    }

    /// A new gRPC client of its edge.
    pub async fn client(&self) -> anyhow::Result<TestClient> {
        TestClient::connect(&self.url()).await
    }

    /// A new WebSocket client of its edge.
    pub async fn ws(&self) -> anyhow::Result<Ws> {
        Ws::connect(&format!("ws://{}/ws", self.addresses().ws)).await
    }

    /// Returns when these tools are in the catalogue.
    pub async fn wait_for_tools(&self, tools: &[&str]) -> anyhow::Result<()> {
        wait_for_tools(&self.bus, tools).await
    }

    /// Drains every service, so that a task that does not end fails the test.
    pub async fn end(self) -> anyhow::Result<()> {
        let Services { edge, orchestrator, gateway, executor, tool_host, composer } = self.services;
        let ends = async {
            edge.drain(DRAIN_MAX).await;
            tokio::join!(gateway.drain(DRAIN_MAX), executor.drain(DRAIN_MAX), orchestrator.drain(DRAIN_MAX));
            tool_host.drain(DRAIN_MAX).await;
            composer.drain(DRAIN_MAX).await;
            self.bus.close().await;
        };
        tokio::time::timeout(PATIENCE, ends).await.context("the fleet does not end")
    }
}

impl Services {
    async fn start(
        nats: &NatsServer,
        bus: &Bus,
        config: &Path,
        files: Option<(PathBuf, PathBuf)>,
    ) -> anyhow::Result<Self> {
        let config_dir = Some(config.to_owned());
        let composer = prompt_composer::ComposerConfig { config_dir: config_dir.clone(), ..Default::default() };
        let gateway = model_gateway::GatewayConfig { config_dir, ..Default::default() };
        let files = files.map(|(root, out)| FilesConfig { root, out: Some(out), login: None });
        let results = Some(tool_host::ResultsConfig::default());
        let plans = files.is_some().then(tool_host::PlansConfig::default);
        let reads_sessions = std::fs::read_to_string(config.join("agents.yaml"))?.contains("read_session");
        let sessions = reads_sessions.then(tool_host::SessionsConfig::default);
        let tools = tool_host::ToolHostConfig { files, plans, results, sessions, ..Default::default() };
        let tool_host = ToolHost::start(&tools, &nats.config()).await?;
        let executor = tool_executor::ExecutorConfig { expected: tool_host.names(), ..Default::default() };
        let free = edge::config::ListenConfig { listen: ([127, 0, 0, 1], 0).into() };
        let edge = edge::EdgeConfig { ws: free, grpc: free, ..Default::default() };
        Ok(Self {
            composer: Composer::start(composer, bus.clone()).await?,
            gateway: Gateway::start(gateway, bus.clone()).await?,
            executor: Executor::start(executor, bus.clone()),
            tool_host,
            orchestrator: Orchestrator::start(loop_orchestrator::OrchestratorConfig::default(), bus.clone()).await?,
            edge: Edge::start(edge, bus.clone()).await?,
        })
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
}

/// A session of the default tenant.
pub fn key(session: &str) -> anyhow::Result<SessionKey> {
    Ok(SessionKey { tenant: TenantId::default(), session: SessionId::new(session)? })
}

/// Returns when these tools are in the catalogue.
pub async fn wait_for_tools(bus: &Bus, tools: &[&str]) -> anyhow::Result<()> {
    let wanted: Vec<ToolName> = tools.iter().map(|name| ToolName::new(name)).collect::<Result<_, _>>()?;
    eventually("the tools are known", async || {
        let known = bus.tools(&TenantId::default()).await.unwrap_or_default();
        wanted.iter().all(|name| known.iter().any(|tool| tool.name == *name))
    })
    .await
}
