//! A fleet whose services are separate processes, any number of each, that a test can kill and freeze.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bus::{Bus, NatsConfig};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::cli;
use crate::client::{TestClient, Ws};
use crate::fleet::{self, configuration};
use crate::nats::NatsServer;
use crate::process;
use crate::wait::eventually;

/// Starts processes with one configuration, one directory of logs, and the same environment variables.
#[derive(Debug)]
pub struct Launcher {
    config: TempDir,
    logs: TempDir,
    environment: Vec<(String, String)>,
}

/// A nats-server, a composer, and a launcher for further processes.
#[derive(Debug)]
pub struct ProcessFleet {
    /// The nats-server of the fleet.
    pub nats: NatsServer,
    /// A connection to `nats`, as an orchestrator where the server is guarded.
    pub bus: Bus,
    launcher: Launcher,
    /// Each service connects as its own NATS user.
    guarded: bool,
    /// Orchestrators and edges need it to start.
    composer: Option<Replica>,
}

/// A process of a service; it is killed when the value is dropped.
#[derive(Debug)]
pub struct Replica {
    service: String,
    child: Child,
    log: PathBuf,
}

/// A process of the edge, with the addresses that it listens on.
#[derive(Debug)]
pub struct EdgeReplica {
    /// The process of this edge.
    pub replica: Replica,
    ws: String,
    grpc: String,
}

impl Launcher {
    /// A launcher whose configuration names models by id and base URL.
    pub fn new(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Ok(Self { config: configuration(models)?, logs: TempDir::with_prefix("ailoop-logs-")?, environment })
    }

    /// Starts a replica of a service and returns when it has logged that it started.
    pub async fn spawn(&self, service: &str, nats: &NatsConfig) -> anyhow::Result<Replica> {
        self.spawn_binary(&cli::binary()?, service, nats).await
    }

    /// As [`Launcher::spawn`], with the binary of another version.
    pub async fn spawn_binary(&self, binary: &Path, service: &str, nats: &NatsConfig) -> anyhow::Result<Replica> {
        let log = self.logs.path().join(format!("{service}-{}.log", uuid::Uuid::now_v7().simple()));
        let mut command = Command::new(binary);
        command.arg(service).current_dir(self.logs.path()).env_clear();
        command.env("AILOOP_CONFIG", self.config.path()).env("AILOOP__NATS__URL", &nats.url);
        command.env("AILOOP__NATS__REPLICAS", nats.replicas.to_string());
        command.env("AILOOP__EDGE__WS__LISTEN", "127.0.0.1:0").env("AILOOP__EDGE__GRPC__LISTEN", "127.0.0.1:0");
        if let Some(credentials) = &nats.credentials {
            command.env("AILOOP__NATS__CREDENTIALS", credentials);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let mut replica = Replica { service: service.to_owned(), child: command.spawn()?, log };
        replica.started().await?;
        Ok(replica)
    }

    /// Copies the logs of all processes to a directory.
    pub fn keep_logs(&self, to: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(self.logs.path())? {
            let path = entry?.path();
            if let Some(name) = path.file_name() {
                std::fs::copy(&path, to.join(name))?;
            }
        }
        Ok(())
    }

    /// Lines of all logs that contain `about` or are warnings, sorted by time; logs of ended processes included.
    pub fn logged(&self, about: &str) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.logs.path())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = std::fs::read_to_string(&path)?;
                let fits = text.lines().filter(|line| line.contains(about) || line.contains("WARN"));
                lines.extend(fits.map(|line| format!("{line} ({name})")));
            }
        }
        lines.sort();
        Ok(lines)
    }
}

impl ProcessFleet {
    /// The composer that [`ProcessFleet::start`] started.
    pub fn composer(&self) -> anyhow::Result<&Replica> {
        self.composer.as_ref().context("the fleet has no composer")
    }

    /// Kills the composer and starts another one.
    pub async fn restart_composer(&mut self) -> anyhow::Result<()> {
        self.composer = None;
        self.composer = Some(self.spawn("composer").await?);
        Ok(())
    }

    /// Replaces the `models.yaml` that the processes read.
    pub fn write_models(&self, models: &serde_json::Value) -> anyhow::Result<()> {
        Ok(std::fs::write(self.launcher.config.path().join("models.yaml"), models.to_string())?)
    }

    /// Starts the nats-server and one composer; `models` are ids and base URLs.
    pub async fn start(models: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::with(models, &[]).await
    }

    /// As [`ProcessFleet::start`], with environment variables for every process.
    pub async fn with(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let nats = NatsServer::start().await?;
        let bus = nats.ready().await?;
        Self::around(nats, bus, models, environment, false).await
    }

    /// As [`ProcessFleet::with`], with every service as the NATS user that it is in production.
    pub async fn guarded(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::guarded_with_logins(models, &[], environment).await
    }

    /// As [`ProcessFleet::guarded`]; the tool host connects these kinds of tools as their users.
    pub async fn guarded_with_logins(
        models: &[(&str, &str)],
        kinds: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let nats = NatsServer::start_guarded().await?;
        let bus = Bus::connect(&nats.config_of("orchestrator")).await?;
        let logins: Vec<(String, String)> = kinds.iter().map(|kind| login_variable(&nats, kind)).collect();
        let logins = logins.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment: Vec<(&str, &str)> = environment.iter().copied().chain(logins).collect();
        Self::around(nats, bus, models, &environment, true).await
    }

    async fn around(
        nats: NatsServer,
        bus: Bus,
        models: &[(&str, &str)],
        environment: &[(&str, &str)],
        guarded: bool,
    ) -> anyhow::Result<Self> {
        let launcher = Launcher::new(models, environment)?;
        let mut fleet = Self { nats, bus, launcher, guarded, composer: None };
        fleet.composer = Some(fleet.spawn("composer").await?);
        Ok(fleet)
    }

    /// Starts one more replica of a service and returns when it has started.
    pub async fn spawn(&self, service: &str) -> anyhow::Result<Replica> {
        // The tool host connects as one user for each kind of tools, not as itself.
        let is_user = self.guarded && service != "tool-host";
        let nats = if is_user { self.nats.config_of(service) } else { self.nats.config() };
        self.launcher.spawn(service, &nats).await
    }

    /// Starts one more replica of each of these services.
    pub async fn spawn_all(&self, services: &[&str]) -> anyhow::Result<Vec<Replica>> {
        let mut replicas = Vec::new();
        for service in services {
            replicas.push(self.spawn(service).await?);
        }
        Ok(replicas)
    }

    /// Kills nats-server, the replicas and the edge, and starts nats-server and other replicas of the same services.
    pub async fn replace_all(
        &mut self,
        mut replicas: Vec<Replica>,
        mut edge: EdgeReplica,
    ) -> anyhow::Result<Vec<Replica>> {
        self.nats.kill();
        for replica in replicas.iter_mut().chain([&mut edge.replica]) {
            replica.kill()?;
        }
        self.nats.resume().await?;
        let services: Vec<&str> = replicas.iter().map(|replica| replica.service.as_str()).collect();
        self.spawn_all(&services).await
    }

    /// Starts one more edge.
    pub async fn edge(&self) -> anyhow::Result<EdgeReplica> {
        EdgeReplica::of(self.spawn("edge").await?)
    }

    /// Copies the logs of all processes; see [`Launcher::keep_logs`].
    pub fn keep_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.launcher.keep_logs(to)
    }

    /// Lines of all logs; see [`Launcher::logged`].
    pub fn logged(&self, about: &str) -> anyhow::Result<Vec<String>> {
        self.launcher.logged(about)
    }

    /// Returns when these tools are in the catalogue.
    pub async fn wait_for_tools(&self, tools: &[&str]) -> anyhow::Result<()> {
        fleet::wait_for_tools(&self.bus, tools).await
    }
}

/// The variable by which a kind of tools gets its credentials file.
fn login_variable(nats: &NatsServer, kind: &str) -> (String, String) {
    let name = format!("AILOOP__TOOL_HOST__{}__LOGIN__CREDENTIALS", kind.to_uppercase());
    (name, nats.credentials_of(kind).display().to_string())
}

impl Replica {
    async fn started(&mut self) -> anyhow::Result<()> {
        let mut ended = false;
        let what = format!("{} starts", self.service);
        eventually(&what, async || {
            ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            ended || self.log().is_ok_and(|log| log.contains(" started"))
        })
        .await
        .with_context(|| self.log().unwrap_or_default())?;
        ensure!(!ended, "{} ended: {}", self.service, self.log()?);
        Ok(())
    }

    /// Id of the operating system process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// The name of the service, such as `gateway`.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Everything that the process has logged.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and returns when the process has ended. Fails when `within` is over or the exit code is not 0.
    pub async fn terminate(&mut self, within: Duration) -> anyhow::Result<()> {
        self.signal("-TERM")?;
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{} ended with {status}: {}", self.service, self.log()?);
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} did not end within {within:?}: {}", self.service, self.log()?);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops the process (SIGSTOP) until [`Replica::thaw`].
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal("-STOP")
    }

    /// Continues a process that [`Replica::freeze`] stopped.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        process::signal(&self.child, signal).with_context(|| self.service.clone())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to do.
        drop(self.kill());
        print_on_failure(&self.log);
    }
}

/// Prints the log of a process when the test is failing.
fn print_on_failure(log: &Path) {
    if std::thread::panicking()
        && let Ok(text) = std::fs::read_to_string(log)
    {
        let name = log.file_stem().unwrap_or_default().to_string_lossy();
        #[allow(clippy::print_stderr, reason = "a test's output")]
        for line in text.lines() {
            eprintln!("{name}: {line}");
        }
    }
}

impl EdgeReplica {
    /// Reads the addresses from the log of an edge that has started.
    pub fn of(replica: Replica) -> anyhow::Result<Self> {
        let log = replica.log()?;
        let address = |field: &str| {
            let found = regex::Regex::new(&format!(r"\b{field}=(127\.0\.0\.1:\d+)"))?.captures(&log);
            found.map(|found| found[1].to_owned()).with_context(|| format!("the edge has not logged {field}: {log}"))
        };
        let (ws, grpc) = (address("ws")?, address("grpc")?);
        Ok(Self { replica, ws, grpc })
    }

    /// A new gRPC client of this edge.
    pub async fn client(&self) -> anyhow::Result<TestClient> {
        TestClient::connect(&self.url()).await
    }

    /// Its gRPC address, as `--url` takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// A new WebSocket client of this edge.
    pub async fn ws(&self) -> anyhow::Result<Ws> {
        Ws::connect(&self.ws_url()).await
    }

    /// Its address for WebSocket.
    pub fn ws_url(&self) -> String {
        format!("ws://{}/ws", self.ws)
    }

    /// Addresses for WebSocket and HTTP, and for gRPC.
    pub fn addresses(&self) -> anyhow::Result<(std::net::SocketAddr, std::net::SocketAddr)> {
        Ok((self.ws.parse()?, self.grpc.parse()?))
    }
}
