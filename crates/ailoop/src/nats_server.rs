//! A private nats-server: started for a fleet in this process, and never left behind.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use contract::ErrorCode;
use contract::backoff::Backoff;
use serde::Deserialize;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

const START_MAX: Duration = Duration::from_secs(15);
const END_MAX: Duration = Duration::from_secs(10);
/// How long [`NatsServer::supervise`] may take to end: a start that is under way goes on to its end, after the server that
/// was left behind has ended, and what it started is ended then.
pub(crate) const SUPERVISED_END_MAX: Duration = Duration::from_secs(36);
/// Starts of a server that ended by itself, within [`RESTARTS_WINDOW`].
const RESTARTS_MAX: usize = 5;
const RESTARTS_WINDOW: Duration = Duration::from_mins(5);
/// Pauses before each of them.
const RESTART: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs the server until our end of the pipe is closed, which the kernel does however we end. It stands in a process
/// group of its own, so that Ctrl-C reaches us alone and the fleet can hand back its work before the server goes.
const GUARD: &str = r#"
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
pub struct NatsServer {
    url: String,
    binary: PathBuf,
    dir: PathBuf,
    log: PathBuf,
    /// Our end of the pipe. Not left in `guard`: waiting for a child closes its stdin.
    lifeline: Option<ChildStdin>,
    guard: Child,
}

/// When a server was started again: a few times at once is bad luck, more is a fault that a further start does not mend.
#[derive(Debug, Default)]
struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// The pause before the next start; none where there were too many of late.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        self.0.retain(|restart| now.duration_since(*restart) < RESTARTS_WINDOW);
        if self.0.len() >= RESTARTS_MAX {
            return None;
        }
        let pause = RESTART.pause(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.push_back(now);
        Some(pause)
    }
}

#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
}

impl NatsServer {
    /// Starts `binary` on loopback with its data below `dir`; port -1 takes a free one. Whoever calls it holds the
    /// lock of `dir`'s fleet: a server that a killed one has left behind is ended first.
    pub async fn start(binary: &Path, dir: &Path, port: i32) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::new(ErrorCode::NatsUnreachable, format!("nats-server cannot be started: {error}"))
                .at(dir.display())
        };
        std::fs::create_dir_all(dir).map_err(cannot)?;
        let dir = dir.canonicalize().map_err(cannot)?;
        let files = Files::below(&dir);
        end_left_behind(binary, &files).await;
        files.remove_ports();
        std::fs::write(&files.config, files.configuration(port)).map_err(cannot)?;
        // What the last one said before it ended is kept beside it.
        let _absent = std::fs::rename(&files.log, dir.join("nats.log.old"));
        let log = std::fs::File::create(&files.log).map_err(cannot)?;
        let mut guard = Command::new("/bin/sh")
            .arg("-c")
            .arg(GUARD)
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
        let mut server = Self { url: String::new(), binary, dir, log: files.log.clone(), lifeline, guard };
        server.url = server.listening(&files).await?;
        Ok(server)
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns when the server ends by itself, with the reason that it gives.
    pub async fn ended(&mut self) -> Failure {
        let _status = self.guard.wait().await;
        Failure::new(ErrorCode::NatsUnreachable, "the private nats-server has ended").at(self.log.display())
    }

    /// Starts it again where it was, after it has ended: its clients look for it there.
    async fn restart(&mut self) -> Result<(), Failure> {
        let port = self.url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(-1);
        *self = Self::start(&self.binary.clone(), &self.dir.clone(), port).await?;
        Ok(())
    }

    /// Keeps it running until `ending` is cancelled, and ends it then. Returns earlier, with the reason, where it ends
    /// again and again.
    pub async fn supervise(mut self, ending: CancellationToken) -> Option<Failure> {
        let mut restarts = Restarts::default();
        loop {
            let Some(mut failure) = ending.run_until_cancelled(self.ended()).await else {
                self.end().await;
                return None;
            };
            loop {
                let Some(pause) = restarts.next(Instant::now()) else {
                    let message = format!("{}, {RESTARTS_MAX} times within minutes", failure.message());
                    return Some(Failure::new(failure.code().clone(), message).at(self.log.display()));
                };
                tracing::error!(log = %self.log.display(), "{}: starting it again", failure.message());
                ending.run_until_cancelled(sleep(pause)).await?;
                // A start goes on to its end, so that the process that it began is waited for.
                match self.restart().await {
                    Ok(()) => break,
                    Err(refusal) => failure = refusal,
                }
            }
            tracing::warn!(url = self.url, "the private nats-server runs again");
        }
    }

    /// Ends the server and waits for it.
    pub async fn end(mut self) {
        drop(self.lifeline.take());
        if timeout(END_MAX, self.guard.wait()).await.is_err() {
            tracing::warn!("the nats-server does not end");
        }
    }

    /// Waits until the server has written where it listens.
    async fn listening(&mut self, files: &Files) -> Result<String, Failure> {
        let latest = Instant::now() + START_MAX;
        loop {
            if let Some(url) = files.url() {
                return Ok(url);
            }
            let ended = self.guard.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > latest {
                return Err(files.refusal(ended.is_some()));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// What a server keeps in its directory.
struct Files {
    dir: PathBuf,
    config: PathBuf,
    log: PathBuf,
    pid: PathBuf,
}

impl Files {
    fn below(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            config: dir.join("nats.conf"),
            log: dir.join("nats.log"),
            pid: dir.join("nats.pid"),
        }
    }

    fn configuration(&self, port: i32) -> String {
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let mut text = String::from("# Written at each start.\nserver_name: ailoop\n");
        let _ = writeln!(text, "host: \"127.0.0.1\"\nport: {port}");
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
        let ports: Ports = serde_json::from_slice(&text).ok()?;
        ports.nats.into_iter().next()
    }

    /// Why it does not listen, in its own words.
    fn refusal(&self, ended: bool) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let why = log.lines().rev().find(|line| line.contains("[FTL]") || line.contains("[ERR]"));
        let why = why.unwrap_or(if ended { "it ended at once" } else { "it does not say where it listens" });
        let taken = why.contains("address already in use");
        let code = if taken { ErrorCode::PortInUse } else { ErrorCode::NatsUnreachable };
        Failure::new(code, format!("nats-server does not start: {why}")).at(self.log.display())
    }
}

/// Ends the server of a fleet that was killed together with its guard. Its pid is believed only when a process of that
/// id runs with our configuration file.
async fn end_left_behind(binary: &Path, files: &Files) {
    let Some(pid) = std::fs::read_to_string(&files.pid).ok().and_then(|text| text.trim().parse::<u32>().ok()) else {
        return;
    };
    if !runs_with(pid, &files.config).await {
        return;
    }
    tracing::warn!(pid, "ending the nats-server of a fleet that was killed");
    let told = Command::new(binary).arg("--signal").arg(format!("term={pid}")).output().await;
    if let Err(error) = told {
        tracing::warn!(pid, %error, "it cannot be told");
    }
    let latest = Instant::now() + END_MAX;
    while runs_with(pid, &files.config).await && Instant::now() < latest {
        sleep(LOOK_EVERY).await;
    }
}

/// Whether a process of that id runs with this configuration file. Linux tells in `/proc`, other systems by `ps`.
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
    use super::*;
    use crate::nats_binary::{Places, find};

    async fn binary() -> PathBuf {
        let named = service::config::env("AILOOP_NATS_SERVER").map(PathBuf::from);
        let from = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        find(&Places { named, from, path: std::env::var_os("PATH") }).await.expect("make setup brings a nats-server")
    }

    async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let latest = Instant::now() + START_MAX;
        while !holds().await {
            assert!(Instant::now() < latest, "never: {what}");
            sleep(LOOK_EVERY).await;
        }
    }

    async fn answers(url: &str) -> bool {
        let address = url.trim_start_matches("nats://").to_owned();
        tokio::net::TcpStream::connect(address).await.is_ok()
    }

    #[tokio::test]
    async fn starts_answers_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1).await.unwrap();
        let url = server.url().to_owned();
        assert!(answers(&url).await);
        server.end().await;
        assert!(!answers(&url).await);
    }

    #[tokio::test]
    async fn a_dropped_server_ends() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1).await.unwrap();
        let url = server.url().to_owned();
        drop(server);
        until("the server has ended", async || !answers(&url).await).await;
    }

    #[tokio::test]
    async fn a_server_that_was_left_behind_gives_way() {
        let dir = tempfile::tempdir().unwrap();
        let binary = binary().await;
        let dir_path = dir.path().canonicalize().unwrap();
        let files = Files::below(&dir_path);
        std::fs::write(&files.config, files.configuration(-1)).unwrap();
        let mut orphan = Command::new(&binary);
        let mut orphan = orphan.arg("-c").arg(&files.config).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        until("the orphan listens", async || files.url().is_some() && files.pid.exists()).await;

        let server = NatsServer::start(&binary, dir.path(), -1).await.unwrap();
        until("the orphan has ended", async || orphan.try_wait().unwrap().is_some()).await;
        assert!(answers(server.url()).await);
        server.end().await;
    }

    #[tokio::test]
    async fn killed_server_is_started_again_at_the_same_address() {
        let dir = tempfile::tempdir().unwrap();
        let server = NatsServer::start(&binary().await, dir.path(), -1).await.unwrap();
        let (url, files) = (server.url().to_owned(), Files::below(&dir.path().canonicalize().unwrap()));
        let pid = || std::fs::read_to_string(&files.pid).unwrap_or_default().trim().to_owned();
        let (first, ending) = (pid(), CancellationToken::new());
        let kill = async {
            assert!(Command::new("kill").args(["-KILL", &first]).status().await.unwrap().success());
            until("another process answers", async || pid() != first && answers(&url).await).await;
            ending.cancel();
        };
        let (ended, ()) = tokio::join!(server.supervise(ending.clone()), kill);
        assert_eq!(ended, None);
        assert!(!answers(&url).await, "it ends when it is told to");
    }

    #[test]
    fn restarts_are_bounded_and_pause_longer_each_time() {
        let (mut restarts, now) = (Restarts::default(), Instant::now());
        let pauses: Vec<_> = (0..7).map(|_| restarts.next(now).map(|pause| pause.as_millis())).collect();
        assert_eq!(pauses, [Some(100), Some(200), Some(400), Some(800), Some(1_600), None, None]);
        assert_eq!(restarts.next(now + RESTARTS_WINDOW), Some(RESTART.pause(0)), "long ago does not count");
    }

    #[tokio::test]
    async fn a_taken_port_is_said() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = i32::from(taken.local_addr().unwrap().port());
        let dir = tempfile::tempdir().unwrap();
        let failure = NatsServer::start(&binary().await, dir.path(), port).await.unwrap_err();
        assert_eq!(failure.code(), &ErrorCode::PortInUse, "{failure}");
    }
}
