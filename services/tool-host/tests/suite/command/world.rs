//! Commands in a directory of one test, and a search for their remaining processes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};
use tool_host::command::{CommandArguments, CommandConfig, Commands};

/// Longer than any step of a test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// User id that no other process has.
const USER: u32 = 64_123;

/// One test at a time, since each searches all remaining children of this process.
static ONE: Mutex<()> = Mutex::const_new(());

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) commands: Commands,
    _one: MutexGuard<'static, ()>,
}

impl World {
    /// `more` is merged into a configuration that permits a shell and little else.
    pub(crate) async fn new(more: Value) -> Self {
        let one = ONE.lock().await;
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let allow = ["sh", "cat", "echo", "env", "false", "head", "pwd", "seq", "sleep", "dd", "nice", "mine"];
        let mut config = json!({"allow": allow, "cwd": dir.path().join("work"), "timeout": 50});
        // Root must configure a user, who needs access to the directory.
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            config["user"] = json!({"uid": USER, "gid": USER});
            for path in [dir.path().to_owned(), dir.path().join("work")] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            }
        }
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let config: CommandConfig = serde_json::from_value(config).unwrap();
        let commands = Commands::new(&config, Tasks::new()).unwrap();
        Self { dir, commands, _one: one }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Writes a script below the working directory; its path is in the command lines of its processes.
    pub(crate) fn script(&self, text: &str) -> String {
        let path = self.work().join("script.sh");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    pub(crate) async fn run(&self, arguments: Value) -> Result<Value, String> {
        self.run_within(arguments, None).await
    }

    pub(crate) async fn run_within(&self, arguments: Value, left: Option<Duration>) -> Result<Value, String> {
        let arguments: CommandArguments = serde_json::from_value(arguments).unwrap();
        self.commands.run(&arguments, left).await.map_err(|error| error.message().to_owned())
    }

    pub(crate) async fn sh(&self, script: &str) -> Value {
        self.run(json!({"command": ["sh", "-c", script]})).await.unwrap()
    }

    /// Lists processes in the directory of this test, and children in sessions of their own, zombies included.
    pub(crate) fn list_remaining(&self) -> Vec<String> {
        let (me, mine) = (std::process::id().to_string(), self.dir.path().canonicalize().unwrap());
        let ours = session("self");
        let mut left = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let pid = entry.file_name().to_string_lossy().into_owned();
            if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&mine)) {
                left.push(format!("{pid}: {line}"));
            }
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> =
                stat.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
            if fields.get(2) == Some(&me.as_str()) && fields.get(4).map(ToString::to_string) != ours {
                left.push(stat);
            }
        }
        left
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.list_remaining(), Vec::<String>::new());
    }

    /// Waits until no process remains.
    pub(crate) async fn wait_until_nothing_is_left(&self) {
        let end = Instant::now() + LONG;
        while !self.list_remaining().is_empty() {
            assert!(Instant::now() < end, "{:?}", self.list_remaining());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for a file below the working directory.
    pub(crate) async fn wait_for_file(&self, name: &str) {
        wait_until(|| self.work().join(name).exists()).await;
    }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(holds: impl Fn() -> bool) -> impl Future<Output = ()> {
    let (caller, end) = (std::panic::Location::caller(), Instant::now() + LONG);
    async move {
        while !holds() {
            assert!(Instant::now() < end, "what {caller} waits for does not come");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Whether commands get a PID namespace on this machine by default.
pub(crate) fn can_make_namespaces() -> bool {
    let made = std::process::Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    fs::metadata("/proc/self").unwrap().uid() == 0 && made.is_ok_and(|made| made.status.success())
}

/// Lists the processes whose working directory is `dir` or below.
pub(crate) fn list_running_in(dir: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let there = processes.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir)));
    there.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn session(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split(' ').nth(4).map(ToOwned::to_owned)
}

/// Reads the resident memory of this process in bytes.
pub(crate) fn read_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
