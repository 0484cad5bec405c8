//! Runs the command in a temporary directory. All processes end with the test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "only tests use it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use local_fleet::nats_binary::{SearchPaths, find};
use tempfile::TempDir;

/// Longest wait for anything: a way for a test to end, also on a machine that is busy with something else.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A temporary directory with one source file, and the directory for configuration of a user.
pub(crate) struct World {
    dir: TempDir,
    user: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap(), user: tempfile::tempdir().unwrap() };
        std::fs::write(world.path("hello.rs"), "fn main() {}\n").unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the command, without the variables of this machine that choose models and fleets.
    pub(crate) fn ailoop(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ailoop"));
        command.args(line).current_dir(self.dir.path()).env("AILOOP_NATS_SERVER", nats_server());
        for name in [
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
            "OPENROUTER_API_KEY",
            "AILOOP_GRPC_URL",
            "AILOOP_URL",
            "AILOOP_TOKEN",
            "AILOOP_NATS_URL",
            "RUST_LOG",
        ] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).env_remove("AILOOP_CONFIG").env("XDG_CONFIG_HOME", self.user.path());
        if self.path("config").is_dir() {
            // A directory that is named needs no trust.
            command.env("AILOOP_CONFIG", "config");
        }
        command
    }

    /// Runs the command and returns its output.
    pub(crate) fn output(&self, line: &[&str]) -> Output {
        self.ailoop(line).output().unwrap()
    }

    pub(crate) fn with_stdin(&self, line: &[&str], stdin: &str) -> Output {
        let mut command = self.ailoop(line);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The command may end before it has read all of stdin.
        let _closed = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Writes a configuration in which `write_file` needs approval.
    pub(crate) fn require_approval_for_writes(&self) {
        let agents = "default_agent: e\napprovals:\n  - {tool: write_file, ask: always}\nagents:\n  e:\n    \
                      name: Eamonn the Executioner\n    prompt_file: eamonn_executioner.md\n    \
                      tools: {allow: [list_files, read_file, search_text, write_file]}\n    \
                      continuation_config: {max_iterations: 10}\n";
        self.configure("agents.yaml", agents);
    }

    /// Writes a file of the configuration.
    pub(crate) fn configure(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path("config")).unwrap();
        std::fs::write(self.path("config").join(name), text).unwrap();
    }

    /// Returns the process id of the private nats-server.
    pub(crate) fn nats_pid(&self) -> String {
        std::fs::read_to_string(self.path(".ailoop/nats/nats.pid")).unwrap().trim().to_owned()
    }

    /// Whether the private nats-server runs.
    pub(crate) fn is_nats_running(&self) -> bool {
        is_running(&self.path(".ailoop/nats").canonicalize().unwrap())
    }

    /// Sends a signal to the private nats-server.
    pub(crate) fn signal_nats(&self, signal: &str) {
        assert!(Command::new("kill").arg(format!("-{signal}")).arg(self.nats_pid()).status().unwrap().success());
    }

    /// Starts the command in the background.
    pub(crate) fn spawn(&self, line: &[&str]) -> Running {
        let child = self.ailoop(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Running::new(child.unwrap())
    }

    /// Starts `ailoop up` on free ports, and returns when it is up.
    pub(crate) fn start_fleet(&self) -> Running {
        self.start_fleet_with(&[]).0
    }

    /// As [`Self::start_fleet`], with further arguments; also returns what the command printed.
    pub(crate) fn start_fleet_with(&self, arguments: &[&str]) -> (Running, String) {
        let line = [&["up", "--model", "rehearsal", "--ws-port", "0", "--grpc-port", "0"], arguments].concat();
        let mut child = self.ailoop(&line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut stdout, mut printed) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        while !printed.contains("Ctrl-C ends it") {
            assert_ne!(stdout.read_line(&mut printed).unwrap(), 0, "it does not come up: {printed}");
        }
        (Running::new(child), printed)
    }

    /// Waits until the private nats-server has ended.
    pub(crate) fn wait_for_nats_end(&self) {
        let store = self.path(".ailoop/nats").canonicalize().unwrap();
        wait_until("the nats-server has ended", || !is_running(&store));
    }
}

/// A command in the background, which is killed if the test ends before it.
pub(crate) struct Running {
    child: Child,
    stderr: String,
}

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        Self { child, stderr: String::new() }
    }

    /// Sends a signal and returns the exit code; none when the signal ended it.
    pub(crate) fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        let mut rest = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }

    /// As [`Self::end`], with the text of stderr.
    pub(crate) fn end_with_stderr(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let mut rest = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
        let exit = self.child.wait().unwrap().code();
        (exit, std::mem::take(&mut self.stderr) + &rest)
    }

    /// Reads stderr up to a text.
    pub(crate) fn read_stderr_until(&mut self, wanted: &str) {
        let stderr = self.child.stderr.as_mut().unwrap();
        let mut byte = [0];
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(wanted) {
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "stderr ended without {wanted:?}");
            read.push(byte[0]);
        }
        self.stderr = String::from_utf8_lossy(&read).into_owned();
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{signal}")).arg(pid).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

pub(crate) fn exit_code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn nats_server() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let brought = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats-server");
        let named = std::env::var_os("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(PathBuf::from);
        let configured = named.or_else(|| brought.is_file().then_some(brought));
        let paths = SearchPaths { configured, path: std::env::var_os("PATH") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(find(&paths)).expect("make setup brings a nats-server")
    })
}

/// Whether a nats-server runs over this store.
fn is_running(store: &Path) -> bool {
    let Ok(pid) = std::fs::read_to_string(store.join("nats.pid")) else { return false };
    let listed = Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output().unwrap();
    let state = text(&listed.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}
