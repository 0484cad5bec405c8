//! A private nats-server for a fleet in this process. It ends with the process, however that ends.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use configuration::Secret;
use contract::ErrorCode;
use contract::backoff::Backoff;
use fleet_connection::private_file::write_private;
use serde::Deserialize;
use terminal::failure::CommandFailure;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const START_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that [`NatsServer::supervise`] may take to end. It completes a start that has begun, which includes
/// ending an orphan server, and then ends the new server.
pub(crate) const SUPERVISED_END_MAX: Duration = Duration::from_secs(36);
/// Restarts of a server within [`RESTARTS_WINDOW`].
const RESTARTS_MAX: usize = 5;
const RESTARTS_WINDOW: Duration = Duration::from_mins(5);
/// Pause before each restart.
const RESTART_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The only user of a server with a password.
const USER: &str = "ailoop";

/// Runs the server until this process closes its end of the pipe, which the kernel does however the process ends. The
/// server has its own process group, so that Ctrl-C reaches only this process and the fleet can drain before the server
/// ends.
const GUARD_SCRIPT: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r _ <&3; kill "$server"; } 2>/dev/null &
guard=$!
wait "$server"; code=$?
kill "$guard" 2>/dev/null
exit "$code"
"#;

/// A running nats-server. When it is dropped, the server ends.
#[derive(Debug)]
pub(crate) struct NatsServer {
    /// Its address without user and password.
    address: String,
    password: Option<Secret>,
    binary: PathBuf,
    dir: PathBuf,
    log: PathBuf,
    /// This process's end of the pipe. It is taken from `guard`, since waiting for a child closes its stdin.
    lifeline: Option<ChildStdin>,
    guard: Child,
}

/// Times of the recent restarts. Their number is bounded, since a persistent fault is not repaired by another restart.
#[derive(Debug, Default)]
struct RestartHistory(VecDeque<Instant>);

impl RestartHistory {
    /// Records a restart and returns the pause before it; none if there were too many.
    fn record(&mut self, now: Instant) -> Option<Duration> {
        self.0.retain(|restart| now.duration_since(*restart) < RESTARTS_WINDOW);
        if self.0.len() >= RESTARTS_MAX {
            return None;
        }
        let pause = RESTART_BACKOFF.pause(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.push_back(now);
        Some(pause)
    }
}

#[derive(Deserialize)]
struct PortsFile {
    nats: Vec<String>,
}

impl NatsServer {
    /// Starts `binary` on loopback with its data below `dir`; port -1 takes a free port. With a password, nobody connects
    /// without it. The caller holds the lock of the fleet of `dir`, so a server that still runs there is an orphan and is
    /// ended first.
    pub(crate) async fn start(
        binary: &Path,
        dir: &Path,
        port: i32,
        password: Option<Secret>,
    ) -> Result<Self, CommandFailure> {
        let cannot = |error: std::io::Error| {
            CommandFailure::new(ErrorCode::NatsUnreachable, format!("nats-server cannot be started: {error}"))
                .at(dir.display())
        };
        std::fs::create_dir_all(dir).map_err(cannot)?;
        let dir = dir.canonicalize().map_err(cannot)?;
        let files = ServerFiles::new(&dir);
        end_orphan(binary, &files).await;
        files.remove_ports();
        let configuration = files.configuration(port, password.as_ref());
        write_private(&files.config, configuration.as_bytes()).map_err(cannot)?;
        // The log of the previous server is kept: it may say why that server ended.
        let _absent = std::fs::rename(&files.log, dir.join("nats.log.old"));
        let log = std::fs::File::create(&files.log).map_err(cannot)?;
        let mut guard = Command::new("/bin/sh")
            .arg("-c")
            .arg(GUARD_SCRIPT)
            .arg("nats-guard")
            .arg(binary)
            .arg("-c")
            .arg(&files.config)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(cannot)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let lifeline = guard.stdin.take();
        let binary = binary.to_owned();
        let log = files.log.clone();
        let mut server = Self { address: String::new(), password, binary, dir, log, lifeline, guard };
        server.address = server.wait_until_listening(&files).await?;
        Ok(server)
    }

    /// Returns the address for clients, with the user and the password if the server wants them.
    pub(crate) fn url(&self) -> String {
        match &self.password {
            Some(password) => self.address.replacen("://", &format!("://{USER}:{}@", password.expose()), 1),
            None => self.address.clone(),
        }
    }

    /// Waits until the server ends by itself.
    async fn wait_for_exit(&mut self) -> CommandFailure {
        let _status = self.guard.wait().await;
        CommandFailure::new(ErrorCode::NatsUnreachable, "the private nats-server has ended").at(self.log.display())
    }

    /// Starts the server again at the same address, since its clients reconnect there.
    async fn restart(&mut self) -> Result<(), CommandFailure> {
        let port = self.address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(-1);
        *self = Self::start(&self.binary.clone(), &self.dir.clone(), port, self.password.clone()).await?;
        Ok(())
    }

    /// Restarts the server whenever it ends, until `ending` is cancelled, and then ends it. Returns a failure earlier
    /// if the server ends again and again.
    pub(crate) async fn supervise(mut self, ending: CancellationToken) -> Option<CommandFailure> {
        let mut restarts = RestartHistory::default();
        loop {
            let Some(mut failure) = ending.run_until_cancelled(self.wait_for_exit()).await else {
                self.end().await;
                return None;
            };
            loop {
                let Some(pause) = restarts.record(Instant::now()) else {
                    let message = format!("{}, {RESTARTS_MAX} times within minutes", failure.message());
                    return Some(CommandFailure::new(failure.code().clone(), message).at(self.log.display()));
                };
                tracing::error!(log = %self.log.display(), "{}: starting it again", failure.message());
                ending.run_until_cancelled(sleep(pause)).await?;
                // A start is not cancelled, so that its process is waited for.
                match self.restart().await {
                    Ok(()) => break,
                    Err(start_failure) => failure = start_failure,
                }
            }
            tracing::warn!(url = self.address, "the private nats-server runs again");
        }
    }

    /// Ends the server and waits for it.
    pub(crate) async fn end(mut self) {
        drop(self.lifeline.take());
        if timeout(STOP_TIMEOUT, self.guard.wait()).await.is_err() {
            tracing::warn!("the nats-server does not end");
        }
    }

    /// Waits until the server has written its ports file; returns its address.
    async fn wait_until_listening(&mut self, files: &ServerFiles) -> Result<String, CommandFailure> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(url) = files.url() {
                return Ok(url);
            }
            let has_ended = self.guard.try_wait().ok().flatten().is_some();
            if has_ended || Instant::now() > deadline {
                return Err(files.start_failure(has_ended));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// The files of a server in its directory.
struct ServerFiles {
    dir: PathBuf,
    config: PathBuf,
    log: PathBuf,
    pid: PathBuf,
}

impl ServerFiles {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            config: dir.join("nats.conf"),
            log: dir.join("nats.log"),
            pid: dir.join("nats.pid"),
        }
    }

    fn configuration(&self, port: i32, password: Option<&Secret>) -> String {
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let mut text = String::from("# Written at each start.\nserver_name: ailoop\n");
        let _ = writeln!(text, "host: \"127.0.0.1\"\nport: {port}");
        if let Some(password) = password {
            let _ = writeln!(text, "authorization {{\n  user: {USER}\n  password: {:?}\n}}", password.expose());
        }
        let _ = writeln!(text, "ports_file_dir: {}\npid_file: {}", quoted(&self.dir), quoted(&self.pid));
        let _ = writeln!(text, "jetstream {{\n  store_dir: {}\n  sync_interval: \"1s\"\n}}", quoted(&self.dir));
        text
    }

    fn ports_files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|is| is == "ports"))
    }

    fn remove_ports(&self) {
        for path in self.ports_files().chain([self.pid.clone()]) {
            let _absent = std::fs::remove_file(path);
        }
    }

    fn url(&self) -> Option<String> {
        let text = std::fs::read(self.ports_files().next()?).ok()?;
        let ports: PortsFile = serde_json::from_slice(&text).ok()?;
        ports.nats.into_iter().next()
    }

    /// Returns the process id of the server if it runs. The pid file may be stale, so the process must run with this
    /// configuration file.
    async fn running_pid(&self) -> Option<u32> {
        let pid = std::fs::read_to_string(&self.pid).ok()?.trim().parse().ok()?;
        runs_with(pid, &self.config).await.then_some(pid)
    }

    /// Makes the failure of a start, with the last error in the log.
    fn start_failure(&self, has_ended: bool) -> CommandFailure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let why = log.lines().rev().find(|line| line.contains("[FTL]") || line.contains("[ERR]"));
        let why = why.unwrap_or(if has_ended { "it ended at once" } else { "it does not report its address" });
        let is_port_taken = why.contains("address already in use");
        let code = if is_port_taken { ErrorCode::PortInUse } else { ErrorCode::NatsUnreachable };
        CommandFailure::new(code, format!("nats-server does not start: {why}")).at(self.log.display())
    }
}

/// Waits until no nats-server that a fleet started with its data below `dir` runs any more; returns false if one still
/// does after `wait_max`. The caller holds the lock of the fleet.
pub(crate) async fn wait_until_unused(dir: &Path, wait_max: Duration) -> bool {
    let Ok(dir) = dir.canonicalize() else { return true };
    let (files, deadline) = (ServerFiles::new(&dir), Instant::now() + wait_max);
    while files.running_pid().await.is_some() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

/// Ends the server of a fleet that was killed together with its guard.
async fn end_orphan(binary: &Path, files: &ServerFiles) {
    let Some(pid) = files.running_pid().await else { return };
    tracing::warn!(pid, "ending the nats-server of a fleet that was killed");
    let signalled = Command::new(binary).arg("--signal").arg(format!("term={pid}")).output().await;
    if let Err(error) = signalled {
        tracing::warn!(pid, %error, "the nats-server cannot be signalled");
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while runs_with(pid, &files.config).await && Instant::now() < deadline {
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether a process of this id runs with this configuration file: by `/proc` on Linux, by `ps` on other systems.
async fn runs_with(pid: u32, config: &Path) -> bool {
    let arguments = if Path::new("/proc/self/cmdline").exists() {
        std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
    } else {
        let listed = Command::new("ps").args(["-o", "args=", "-p"]).arg(pid.to_string()).output().await;
        listed.map(|listed| listed.stdout).unwrap_or_default()
    };
    String::from_utf8_lossy(&arguments).contains(&*config.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::nats_binary::{SearchPaths, find};

    async fn binary() -> PathBuf {
        let brought = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats-server");
        let named = configuration::env("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(PathBuf::from);
        let configured = named.or_else(|| brought.is_file().then_some(brought));
        find(&SearchPaths { configured, path: std::env::var_os("PATH") })
            .await
            .expect("make setup brings a nats-server")
    }

    async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !holds().await {
            assert!(Instant::now() < deadline, "never: {what}");
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn accepts_connections(url: &str) -> bool {
        let address = url.trim_start_matches("nats://").to_owned();
        tokio::net::TcpStream::connect(address).await.is_ok()
    }

    #[tokio::test]
    async fn started_server_accepts_connections_until_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1, None).await.unwrap();
        let url = server.url();
        assert!(accepts_connections(&url).await);
        server.end().await;
        assert!(!accepts_connections(&url).await);
    }

    #[tokio::test]
    async fn dropped_server_ends() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1, None).await.unwrap();
        let url = server.url();
        drop(server);
        wait_until("the server has ended", async || !accepts_connections(&url).await).await;
    }

    #[tokio::test]
    async fn start_orphan_of_killed_fleet_is_ended_first() {
        let dir = tempfile::tempdir().unwrap();
        let binary = binary().await;
        let dir_path = dir.path().canonicalize().unwrap();
        let files = ServerFiles::new(&dir_path);
        std::fs::write(&files.config, files.configuration(-1, None)).unwrap();
        let mut orphan = Command::new(&binary);
        let mut orphan = orphan.arg("-c").arg(&files.config).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        wait_until("the orphan listens", async || files.url().is_some() && files.pid.exists()).await;

        let server = NatsServer::start(&binary, dir.path(), -1, None).await.unwrap();
        wait_until("the orphan has ended", async || orphan.try_wait().unwrap().is_some()).await;
        assert!(accepts_connections(&server.url()).await);
        server.end().await;
    }

    #[tokio::test]
    async fn killed_server_is_restarted_at_the_same_address() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1, None).await.unwrap();
        let (url, files) = (server.url(), ServerFiles::new(&dir.path().canonicalize().unwrap()));
        let pid = || std::fs::read_to_string(&files.pid).unwrap_or_default().trim().to_owned();
        let (first, ending) = (pid(), CancellationToken::new());
        let kill = async {
            assert!(Command::new("kill").args(["-KILL", &first]).status().await.unwrap().success());
            wait_until("another process answers", async || pid() != first && accepts_connections(&url).await).await;
            ending.cancel();
        };
        let (ended, ()) = tokio::join!(server.supervise(ending.clone()), kill);
        assert_eq!(ended, None);
        assert!(!accepts_connections(&url).await, "it runs after its end was requested");
    }

    #[tokio::test]
    async fn connection_without_the_password_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let password = Some(Secret::new("the-password"));
        let server = NatsServer::start(&binary().await, dir.path(), -1, password).await.unwrap();
        let connect = async |url: String| bus::Bus::connect(&bus::NatsConfig { url, ..Default::default() }).await;
        for url in [server.address.clone(), server.url().replace("the-password", "another")] {
            let refused = connect(url).await.unwrap_err();
            assert_eq!(contract::Coded::code(&refused), ErrorCode::Unauthorized, "{refused}");
            assert!(!refused.to_string().contains("another"), "{refused}");
        }
        connect(server.url()).await.unwrap().close().await;
        let mode = std::fs::metadata(dir.path().join("nats.conf")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        server.end().await;
    }

    #[test]
    fn restarts_are_bounded_and_pause_longer_each_time() {
        let (mut restarts, now) = (RestartHistory::default(), Instant::now());
        let pauses: Vec<_> = (0..7).map(|_| restarts.record(now).map(|pause| pause.as_millis())).collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(400), Some(800), Some(1_600), None, None]);
        assert_eq!(
            restarts.record(now + RESTARTS_WINDOW),
            Some(RESTART_BACKOFF.pause(0)),
            "restarts before the window do not count"
        );
    }

    #[tokio::test]
    async fn start_port_in_use_is_reported() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = i32::from(taken.local_addr().unwrap().port());
        let dir = tempfile::tempdir().unwrap();
        let failure = NatsServer::start(&binary().await, dir.path(), port, None).await.unwrap_err();
        assert_eq!(failure.code(), &ErrorCode::PortInUse, "{failure}");
    }
}
