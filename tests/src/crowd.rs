//! A fleet of separate processes, as many of each service as a test wants, that can be killed and frozen.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bus::{Bus, NatsConfig};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::client::{Client, Ws};
use crate::fleet::{configuration, eventually};
use crate::nats::NatsServer;
use crate::{cli, fleet};

/// Where processes are started: their configuration, what they log, and variables for all of them.
#[derive(Debug)]
pub struct Site {
    config: TempDir,
    logs: TempDir,
    environment: Vec<(String, String)>,
}

/// A nats-server, and what processes need to join.
#[derive(Debug)]
pub struct Crowd {
    /// The nats-server.
    pub nats: NatsServer,
    /// A connection to it.
    pub bus: Bus,
    site: Site,
    /// Whether each service is a NATS user of its own.
    guarded: bool,
    /// It is asked by orchestrators and edges; it ends with the value.
    composer: Option<Replica>,
}

/// A service in a process of its own; it is killed with the value.
#[derive(Debug)]
pub struct Replica {
    service: String,
    child: Child,
    log: PathBuf,
}

/// An edge in a process of its own.
#[derive(Debug)]
pub struct EdgeReplica {
    /// The process.
    pub replica: Replica,
    ws: String,
    grpc: String,
}

impl Site {
    /// A site whose models are served at these addresses.
    pub fn new(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Ok(Self { config: configuration(models)?, logs: TempDir::with_prefix("ailoop-logs-")?, environment })
    }

    /// Starts a replica of a service that reaches NATS like this, and returns when it works.
    pub async fn spawn(&self, service: &str, nats: &NatsConfig) -> anyhow::Result<Replica> {
        self.spawn_binary(&cli::binary()?, service, nats).await
    }

    /// As [`Site::spawn`], with another binary: that of another version.
    pub async fn spawn_binary(&self, binary: &Path, service: &str, nats: &NatsConfig) -> anyhow::Result<Replica> {
        let log = self.logs.path().join(format!("{service}-{}.log", uuid::Uuid::now_v7().simple()));
        let mut command = Command::new(binary);
        command.arg(service).current_dir(self.logs.path()).env_clear();
        command.env("AILOOP_CONFIG", self.config.path()).env("AILOOP__NATS__URL", &nats.url);
        command.env("AILOOP__NATS__REPLICAS", nats.replicas.to_string());
        command.env("AILOOP__EDGE__WS__LISTEN", "127.0.0.1:0").env("AILOOP__EDGE__GRPC__LISTEN", "127.0.0.1:0");
        if let (Some(user), Some(password)) = (&nats.user, &nats.password) {
            command.env("AILOOP__NATS__USER", user).env("AILOOP__NATS__PASSWORD", password);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let mut replica = Replica { service: service.to_owned(), child: command.spawn()?, log };
        replica.started().await?;
        Ok(replica)
    }

    /// Keeps what every process logged, for whoever looks into it later.
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

    /// What every process logged about something, those that have ended included, in the order of time.
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

impl Crowd {
    /// The process that every crowd has from its beginning.
    pub fn composer(&self) -> anyhow::Result<&Replica> {
        self.composer.as_ref().context("a crowd has a composer")
    }

    /// Puts another `models.yaml` in the place of the one that processes read.
    pub fn write_models(&self, models: &serde_json::Value) -> anyhow::Result<()> {
        Ok(std::fs::write(self.site.config.path().join("models.yaml"), models.to_string())?)
    }

    /// Starts the nats-server and one prompt-composer; models are served at these addresses.
    pub async fn start(models: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::with(models, &[]).await
    }

    /// As [`Crowd::start`], with variables for every process.
    pub async fn with(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let nats = NatsServer::start().await?;
        let bus = nats.ready().await?;
        Self::around(nats, bus, models, environment, false).await
    }

    /// As [`Crowd::with`], with every service as the NATS user that it is in production; `bus` is an orchestrator's.
    pub async fn guarded(models: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        let nats = NatsServer::start_guarded().await?;
        let bus = Bus::connect(&nats.config_of("orchestrator")).await?;
        Self::around(nats, bus, models, environment, true).await
    }

    async fn around(
        nats: NatsServer,
        bus: Bus,
        models: &[(&str, &str)],
        environment: &[(&str, &str)],
        guarded: bool,
    ) -> anyhow::Result<Self> {
        let site = Site::new(models, environment)?;
        let mut crowd = Self { nats, bus, site, guarded, composer: None };
        crowd.composer = Some(crowd.spawn("composer").await?);
        Ok(crowd)
    }

    /// Starts one more replica of a service, and returns when it works.
    pub async fn spawn(&self, service: &str) -> anyhow::Result<Replica> {
        // Each kind of tools of the tool host is a user by itself.
        let is_user = self.guarded && service != "tool-host";
        let nats = if is_user { self.nats.config_of(service) } else { self.nats.config() };
        self.site.spawn(service, &nats).await
    }

    /// Starts one more edge.
    pub async fn edge(&self) -> anyhow::Result<EdgeReplica> {
        EdgeReplica::of(self.spawn("edge").await?)
    }

    /// As [`Site::keep_logs`].
    pub fn keep_logs(&self, to: &Path) -> anyhow::Result<()> {
        self.site.keep_logs(to)
    }

    /// As [`Site::logged`].
    pub fn logged(&self, about: &str) -> anyhow::Result<Vec<String>> {
        self.site.logged(about)
    }

    /// Returns when these tools are in the catalogue.
    pub async fn knows(&self, tools: &[&str]) -> anyhow::Result<()> {
        fleet::knows(&self.bus, tools).await
    }
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

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Its service.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// What it logged so far.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Tells it to end, as whoever restarts a service does, and returns when it has; an error when it is not in time or
    /// does not end well.
    pub async fn terminate(&mut self, within: Duration) -> anyhow::Result<()> {
        self.signal("-TERM")?;
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{} ended with {status}: {}", self.service, self.log()?);
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} does not end: {}", self.service, self.log()?);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops it in the middle of whatever it does, until it is thawed.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal("-STOP")
    }

    /// Lets it go on.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        cli::signal(&self.child, signal).with_context(|| self.service.clone())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to do.
        drop(self.kill());
        keep(&self.log);
    }
}

/// A test that fails shows what its processes said.
fn keep(log: &Path) {
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
    /// The edge that this process is.
    pub fn of(replica: Replica) -> anyhow::Result<Self> {
        let log = replica.log()?;
        let told = |field: &str| {
            let found = regex::Regex::new(&format!(r"\b{field}=(127\.0\.0\.1:\d+)"))?.captures(&log);
            found.map(|found| found[1].to_owned()).with_context(|| format!("the edge does not tell {field}: {log}"))
        };
        let (ws, grpc) = (told("ws")?, told("grpc")?);
        Ok(Self { replica, ws, grpc })
    }

    /// A gRPC client.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.url()).await
    }

    /// Its gRPC address, as `--url` takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// A WebSocket client.
    pub async fn ws(&self) -> anyhow::Result<Ws> {
        Ws::connect(&format!("ws://{}/ws", self.ws)).await
    }

    /// Where it takes WebSocket and HTTP connections, and where gRPC ones.
    pub fn addresses(&self) -> anyhow::Result<(std::net::SocketAddr, std::net::SocketAddr)> {
        Ok((self.ws.parse()?, self.grpc.parse()?))
    }
}
