//! Real nats-servers for tests: one node, or three on the loopback interface. A server ends when its value is dropped.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bus::{Bus, NatsConfig};
use contract::streams::Stream;
use nats_auth::{AUTH_FILE, Installation, ServerLayout, Store};
use service::clock::{Clock as _, SystemClock};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::disk::Disk;
use crate::process::signal;

/// Directory of the accounts in `auth.conf`; each node has its own in its place.
const RESOLVER: &str = "/data/jwt";
/// Deadline until a started server answers.
const START_MAX: Duration = Duration::from_secs(20);

/// Options with which a server is started.
#[derive(Debug, Clone)]
struct ServerSpec {
    name: String,
    port: u16,
    jetstream: bool,
    limits: StorageLimits,
    /// More text of its configuration, such as `auth.conf`. `None`: anybody may do everything, in clear.
    settings: Option<String>,
    /// The node's own cluster port, and those of all nodes.
    cluster: Option<(u16, Vec<u16>)>,
}

/// Bytes that the streams of a server may use; `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct StorageLimits {
    /// Bytes on the whole server.
    pub server_bytes: Option<u64>,
    /// Bytes of the account.
    pub account_bytes: Option<u64>,
    /// Bytes of a disk of its own.
    pub disk_bytes: Option<u64>,
}

/// A running nats-server with a store of its own.
#[derive(Debug)]
pub struct NatsServer {
    dir: TempDir,
    plan: ServerSpec,
    child: Option<Child>,
    disk: Option<Disk>,
    /// Keys and credentials, which the nodes of a cluster share.
    auth: Option<Arc<TempDir>>,
}

impl NatsServer {
    /// Starts one node with JetStream, on a port that the system chooses.
    pub async fn start() -> anyhow::Result<Self> {
        Self::launch_one(None).await
    }

    /// As [`NatsServer::start`], with more settings.
    pub async fn start_with(settings: String) -> anyhow::Result<Self> {
        Self::launch_one(Some(settings)).await
    }

    async fn launch_one(settings: Option<String>) -> anyhow::Result<Self> {
        Self::launch(ServerSpec {
            name: "one".to_owned(),
            port: 0,
            jetstream: true,
            limits: StorageLimits::default(),
            settings,
            cluster: None,
        })
        .await
    }

    /// Starts one node without JetStream.
    pub async fn start_without_jetstream() -> anyhow::Result<Self> {
        Self::launch(ServerSpec {
            name: "plain".to_owned(),
            port: 0,
            jetstream: false,
            limits: StorageLimits::default(),
            settings: None,
            cluster: None,
        })
        .await
    }

    /// Starts one node with limited storage.
    pub async fn start_limited(limits: StorageLimits) -> anyhow::Result<Self> {
        Self::launch(ServerSpec {
            name: "limited".to_owned(),
            port: 0,
            jetstream: true,
            limits,
            settings: None,
            cluster: None,
        })
        .await
    }

    /// Starts one node that accepts only users with the roles of `nats-permissions`; `bootstrap` creates the streams.
    pub async fn start_guarded() -> anyhow::Result<Self> {
        Self::start_guarded_for(nats_permissions::roles()).await
    }

    /// As [`NatsServer::start_guarded`], with other roles.
    pub async fn start_guarded_for(roles: Vec<nats_permissions::Role>) -> anyhow::Result<Self> {
        let auth = AuthFiles::create(roles)?;
        let plan = ServerSpec {
            name: "guarded".to_owned(),
            port: 0,
            jetstream: true,
            limits: StorageLimits::default(),
            settings: Some(auth.text_for("one")?),
            cluster: None,
        };
        let server = Self::launch_with(plan, Some(auth.dir)).await?;
        let bus = connect(&server.config_of("bootstrap")).await?;
        bus.ensure().await?;
        bus.close().await;
        Ok(server)
    }

    async fn launch(plan: ServerSpec) -> anyhow::Result<Self> {
        Self::launch_with(plan, None).await
    }

    async fn launch_with(plan: ServerSpec, auth: Option<Arc<TempDir>>) -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("ailoop-nats-")?;
        let disk = plan.limits.disk_bytes.map(|bytes| Disk::mount(&dir.path().join("store"), bytes)).transpose()?;
        let mut server = Self { dir, plan, child: None, disk, auth };
        server.spawn().await?;
        Ok(server)
    }

    /// The URL that clients connect to.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.plan.port)
    }

    /// The configuration with which services connect.
    pub fn config(&self) -> NatsConfig {
        NatsConfig { url: self.url(), ..NatsConfig::default() }
    }

    /// The configuration with which the user of a role connects.
    pub fn config_of(&self, role: &str) -> NatsConfig {
        NatsConfig { credentials: Some(self.credentials_of(role)), ..self.config() }
    }

    /// The credentials file of a role.
    pub fn credentials_of(&self, role: &str) -> PathBuf {
        self.auth_directory().join("users").join(format!("{role}.creds"))
    }

    /// The directory of keys, credentials and `auth.conf`, as `ailoop nats-auth init --directory` makes it.
    pub fn auth_directory(&self) -> PathBuf {
        self.auth.as_ref().map_or_else(PathBuf::new, |dir| dir.path().to_owned())
    }

    /// The log of the server since its last start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default()
    }

    /// Opens a new connection.
    pub async fn connect(&self) -> anyhow::Result<Bus> {
        connect(&self.config()).await
    }

    /// Opens a new connection and creates the streams.
    pub async fn ready(&self) -> anyhow::Result<Bus> {
        let bus = self.connect().await?;
        bus.ensure().await?;
        Ok(bus)
    }

    /// Kills the server (SIGKILL); its store stays.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended by itself: then there is nothing to do.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Sends SIGTERM and returns when the server has ended.
    pub async fn terminate(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        signal(&child, "-TERM")?;
        tokio::task::spawn_blocking(move || child.wait()).await??;
        Ok(())
    }

    /// Stops the process (SIGSTOP) until [`NatsServer::thaw`].
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| signal(child, "-STOP"))
    }

    /// Continues a process that [`NatsServer::freeze`] stopped.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| signal(child, "-CONT"))
    }

    /// The disk that it was started with, if `disk_bytes` was set.
    pub fn disk(&self) -> anyhow::Result<&Disk> {
        self.disk.as_ref().context("the server was started without `disk_bytes`")
    }

    /// As [`NatsServer::restart`], with or without JetStream.
    pub async fn restart_with_jetstream(&mut self, jetstream: bool) -> anyhow::Result<()> {
        self.plan.jetstream = jetstream;
        self.restart().await
    }

    /// Starts a server that was ended, on the same port and store.
    pub async fn resume(&mut self) -> anyhow::Result<()> {
        self.spawn().await
    }

    /// Copies its store to a directory; the server may run meanwhile.
    pub fn copy_store(&self, to: &Path) -> anyhow::Result<()> {
        copy_tree(&self.store(), to)
    }

    /// Removes the accounts that a guarded node keeps; it begins with those of `auth.conf` as it is now. Kill the server
    /// first.
    pub fn remove_accounts(&mut self) -> anyhow::Result<()> {
        let auth = AuthFiles { dir: self.auth.clone().context("the server is not guarded")? };
        std::fs::remove_dir_all(auth.accounts_of("one"))?;
        self.plan.settings = Some(auth.text_for("one")?);
        Ok(())
    }

    /// Removes the store. Kill the server first.
    pub fn remove_store(&self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.store()).context("the store cannot be removed")
    }

    /// Replaces the store, or one stream of it, by a copy. Kill the server first.
    pub fn put_store_back(&self, copy: &Path, stream: Option<&str>) -> anyhow::Result<()> {
        let part = stream.map_or_else(PathBuf::new, |stream| Path::new("jetstream/$G/streams").join(stream));
        let (from, to) = (copy.join(&part), self.store().join(&part));
        anyhow::ensure!(from.is_dir(), "{} is not in the copy", from.display());
        std::fs::remove_dir_all(&to).with_context(|| format!("{} cannot be removed", to.display()))?;
        copy_tree(&from, &to)
    }

    /// The directory of its store.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Kills the server and starts it again on the same port and store.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        self.resume().await
    }

    async fn spawn(&mut self) -> anyhow::Result<()> {
        let dir = self.dir.path();
        let config = dir.join("nats.conf");
        std::fs::write(&config, config_text(&self.plan, dir))?;
        let log = std::fs::File::create(dir.join("nats.log"))?;
        let binary = binary()?;
        let mut command = self.disk.as_ref().map_or_else(|| Command::new(&binary), |disk| disk.command(&binary));
        command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().context("nats-server does not start")?;
        let ports = dir.join(format!("nats-server_{}.ports", child.id()));
        self.child = Some(child);
        let deadline = Instant::now() + START_MAX;
        let port = loop {
            if let Some(port) = client_port(&ports) {
                break port;
            }
            let ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            if ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(dir.join("nats.log")).unwrap_or_default();
                bail!("nats-server did not start within {START_MAX:?}: {log}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        self.plan.port = port;
        Ok(())
    }
}

/// Keys and credentials in a directory of their own.
struct AuthFiles {
    dir: Arc<TempDir>,
}

impl AuthFiles {
    fn create(roles: Vec<nats_permissions::Role>) -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("ailoop-auth-")?;
        let layout = ServerLayout { resolver: RESOLVER.to_owned(), ..ServerLayout::default() };
        Installation::init(Store::Directory(dir.path().to_owned()), roles, &layout, now())?;
        Ok(Self { dir: Arc::new(dir) })
    }

    /// The text of `auth.conf` for a node, which keeps the accounts in a directory of its own.
    fn text_for(&self, node: &str) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(self.dir.path().join(AUTH_FILE))?;
        let text = format!("max_control_line: 32KB\n{text}");
        Ok(text.replace(RESOLVER, &self.accounts_of(node).display().to_string()))
    }

    fn accounts_of(&self, node: &str) -> PathBuf {
        self.dir.path().join(format!("jwt-{node}"))
    }
}

/// Copies a directory whose files may change or disappear meanwhile.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| from.display().to_string()),
    };
    std::fs::create_dir_all(to)?;
    for entry in entries {
        let path = entry?.path();
        let target = to.join(path.file_name().context("a name")?);
        if path.is_dir() {
            copy_tree(&path, &target)?;
        } else if let Err(error) = std::fs::copy(&path, &target)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| path.display().to_string());
        }
    }
    Ok(())
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster of three nats-servers.
#[derive(Debug)]
pub struct NatsCluster {
    /// The three servers of the cluster.
    pub nodes: Vec<NatsServer>,
}

impl NatsCluster {
    /// Starts three nodes; each stream has three replicas.
    pub async fn start3() -> anyhow::Result<Self> {
        Self::start3_with(None).await
    }

    /// As [`NatsCluster::start3`], for users with the roles of `nats-permissions` only; `bootstrap` creates the streams.
    pub async fn start3_guarded() -> anyhow::Result<Self> {
        let cluster = Self::start3_with(Some(AuthFiles::create(nats_permissions::roles())?)).await?;
        let bus = connect(&cluster.config_of("bootstrap")).await?;
        bus.ensure().await?;
        bus.close().await;
        Ok(cluster)
    }

    async fn start3_with(auth: Option<AuthFiles>) -> anyhow::Result<Self> {
        let routes = free_ports(3)?;
        let mut nodes = Vec::new();
        for (n, own) in routes.iter().enumerate() {
            let cluster = Some((*own, routes.clone()));
            let name = format!("n{n}");
            let settings = auth.as_ref().map(|auth| auth.text_for(&name)).transpose()?;
            let limits = StorageLimits::default();
            let spec = ServerSpec { name, port: 0, jetstream: true, limits, settings, cluster };
            nodes.push(NatsServer::launch_with(spec, auth.as_ref().map(|auth| auth.dir.clone())).await?);
        }
        Ok(Self { nodes })
    }

    /// The configuration with which services connect to any node, `first` before the others.
    pub fn config(&self, first: usize) -> NatsConfig {
        let urls: Vec<String> =
            (0..self.nodes.len()).map(|n| self.nodes[(first + n) % self.nodes.len()].url()).collect();
        NatsConfig { url: urls.join(","), replicas: self.nodes.len(), ..NatsConfig::default() }
    }

    /// The configuration with which the user of a role connects to any node.
    pub fn config_of(&self, role: &str) -> NatsConfig {
        NatsConfig { credentials: Some(self.nodes[0].credentials_of(role)), ..self.config(0) }
    }

    /// Opens a new connection to one node only.
    pub async fn connect(&self, node: usize) -> anyhow::Result<Bus> {
        let replicas = self.nodes.len();
        connect(&NatsConfig { url: self.nodes[node].url(), replicas, ..NatsConfig::default() }).await
    }

    /// Opens a new connection and creates the streams.
    pub async fn ready(&self) -> anyhow::Result<Bus> {
        let bus = connect(&self.config(0)).await?;
        bus.ensure().await?;
        Ok(bus)
    }

    /// The node that leads a stream now; `None` while no leader is elected.
    pub async fn leader(&self, stream: Stream) -> anyhow::Result<Option<usize>> {
        let client = async_nats::connect(self.config(0).url.split(',').collect::<Vec<_>>()).await?;
        let reply = client.request(format!("$JS.API.STREAM.INFO.{}", stream.name()), "".into()).await?;
        let info: serde_json::Value = serde_json::from_slice(&reply.payload)?;
        let leader = info["cluster"]["leader"].as_str();
        Ok(self.nodes.iter().position(|node| Some(node.plan.name.as_str()) == leader))
    }
}

/// Connects; retries until the server answers or [`START_MAX`] is over.
async fn connect(config: &NatsConfig) -> anyhow::Result<Bus> {
    let deadline = Instant::now() + START_MAX;
    loop {
        match Bus::connect(config).await {
            Ok(bus) => return Ok(bus),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn config_text(plan: &ServerSpec, dir: &Path) -> String {
    let port = if plan.port == 0 { -1 } else { i32::from(plan.port) };
    let mut parts = vec![format!(
        "server_name: {}\nlisten: \"127.0.0.1:{port}\"\nports_file_dir: {:?}\nping_interval: \"5s\"\nping_max: 2\n\
         # On a busy machine two seconds pass before a client has signed.\n\
         authorization: {{timeout: 60}}\n",
        plan.name,
        dir.display()
    )];
    if plan.jetstream {
        let store = dir.join("store");
        let most = plan.limits.server_bytes.map(|bytes| format!(", max_file_store: {bytes}")).unwrap_or_default();
        parts.push(format!("jetstream {{ store_dir: {:?}, sync_interval: \"1s\"{most} }}\n", store.display()));
    }
    if let Some(bytes) = plan.limits.account_bytes {
        let account = format!("jetstream: {{ max_file: {bytes} }}, users: [{{ user: a }}]");
        parts.push(format!("accounts {{ A {{ {account} }} }}\nno_auth_user: a\n"));
    }
    parts.extend(plan.settings.clone());
    if let Some((own, all)) = &plan.cluster {
        let routes: Vec<String> = all.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let routes = routes.join(", ");
        // Without `no_advertise` clients would learn the addresses of the nodes and bypass a proxy.
        let listen = format!("listen: \"127.0.0.1:{own}\", no_advertise: true");
        parts.push(format!("cluster {{ name: c, {listen}, routes: [{routes}] }}\n"));
    }
    parts.concat()
}

/// Now, in seconds since 1970.
pub fn now() -> i64 {
    i64::try_from(SystemClock.now().as_millis() / 1_000).unwrap_or(i64::MAX)
}

/// The client port that the server wrote to its ports file, once it is listening.
fn client_port(ports: &Path) -> Option<u16> {
    let ports: serde_json::Value = serde_json::from_slice(&std::fs::read(ports).ok()?).ok()?;
    ports.get("nats")?.get(0)?.as_str()?.rsplit(':').next()?.parse().ok()
}

/// Free ports below the ephemeral range: a connection could take an ephemeral port while its server is down.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let mut listeners = Vec::new();
    for _ in 0..COUNT {
        if listeners.len() == count {
            break;
        }
        // Each process begins at another port, since test processes run in parallel.
        let tried = std::process::id().wrapping_mul(101).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + tried % COUNT)?;
        listeners.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    ensure!(listeners.len() == count, "no port is free between {FIRST} and {}", FIRST + COUNT);
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The server's binary: `AILOOP_NATS_SERVER`, else `.tools/nats-server` of the workspace, else the one on the path.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(set) = configuration::env("AILOOP_NATS_SERVER") {
        return Ok(set.into());
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/nats-server");
    if tools.exists() {
        return Ok(tools);
    }
    let path = configuration::env("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.exists());
    found.context("no nats-server: put one into .tools, or set AILOOP_NATS_SERVER")
}
