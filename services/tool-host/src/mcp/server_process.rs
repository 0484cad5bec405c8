//! The process of an MCP server: it is started with an environment of its own, and killed with all its descendants.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use configuration::env;
use rustix::process::{Pid, Signal, kill_process_group};
use service::tasks::Tasks;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::config::ServerProgram;
use super::pace::ReadPace;
use crate::server_name::ServerName;

/// Variables of this process that every server gets: those for finding programs and files, and for the language.
const ENV_DEFAULT: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Time for a server to end when its input ends, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of one line of stderr; a longer one is cut.
const STDERR_LINE_MAX: usize = 2 << 10;
/// Last lines of stderr that are logged when a server ends.
const STDERR_LINES_MAX: usize = 10;

/// A running server. Dropping it kills its process group.
pub(super) struct ServerProcess {
    process: tokio::process::Child,
    group: ProcessGroup,
    stderr_tail: oneshot::Receiver<Vec<String>>,
    _reading: DropGuard,
}

impl ServerProcess {
    /// Starts a server in a process group of its own; returns our ends of its standard input and output, too.
    pub(super) fn start(
        server: &ServerName,
        program: &ServerProgram,
        tasks: &Tasks,
    ) -> std::io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = Command::new(&program.command);
        command.args(&program.args).env_clear().process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let inherited = ENV_DEFAULT.into_iter().chain(program.env_from.iter().map(String::as_str));
        command.envs(inherited.filter_map(|name| Some((name, env(name)?))));
        command.envs(program.env.iter().map(|(name, value)| (name, value.expose())));
        if let Some(dir) = &program.cwd {
            command.current_dir(dir);
        }
        let mut process = command.spawn()?;
        let group = ProcessGroup(process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err(std::io::Error::other("a pipe is missing"));
        };
        let (sender, stderr_tail) = oneshot::channel();
        let reading = tasks.token().child_token();
        tasks.spawn("mcp stderr", log_stderr(server.clone(), stderr, reading.clone(), sender));
        Ok((Self { process, group, stderr_tail, _reading: reading.drop_guard() }, stdin, stdout))
    }

    /// Waits until the server ends; returns how.
    pub(super) async fn wait(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => format!("its process ended: {status}"),
            Err(error) => format!("its process cannot be waited for: {error}"),
        }
    }

    /// Stops the server, whose input has ended already: waits, then sends SIGTERM, then kills its process group.
    /// Returns the last lines of its stderr.
    pub(super) async fn stop(mut self) -> Vec<String> {
        if timeout(GRACE, self.process.wait()).await.is_err() {
            self.group.send(Signal::TERM);
            let _killed_otherwise = timeout(GRACE, self.process.wait()).await.is_err();
        }
        self.group.send(Signal::KILL);
        let _reaped = timeout(GRACE, self.process.wait()).await;
        timeout(GRACE, &mut self.stderr_tail).await.ok().and_then(Result::ok).unwrap_or_default()
    }
}

/// The process group of a server.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// An error means that no process is left. The number of the group is not reused while one of them lives, and
    /// nothing is awaited between the end of the last one and this call.
    fn send(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _none_left = kill_process_group(group, signal).is_err();
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.send(Signal::KILL);
    }
}

/// Logs stderr line by line to its end, and sends the last lines.
async fn log_stderr(
    server: ServerName,
    stderr: impl AsyncRead + Unpin,
    ending: CancellationToken,
    sender: oneshot::Sender<Vec<String>>,
) {
    let mut lines = StderrLines::default();
    let (mut stderr, mut chunk) = (stderr, [0; 4 << 10]);
    let pace = ReadPace::new(server.clone());
    let all = async {
        while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
            let whole = lines.push(&chunk[..length]);
            let pause = pace.count(whole.len(), length);
            for line in whole {
                tracing::debug!(%server, line, "stderr");
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    };
    ending.run_until_cancelled(all).await;
    // The receiver is gone where the server was dropped.
    let _receiver_gone = sender.send(lines.into_last()).is_err();
}

/// Splits a stream into lines and keeps the last ones.
#[derive(Default)]
struct StderrLines {
    line: Vec<u8>,
    last_lines: VecDeque<String>,
}

impl StderrLines {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = STDERR_LINE_MAX - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                whole.extend(self.finish_line());
            }
        }
        whole
    }

    fn finish_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        // Control characters could move the cursor of a terminal that shows the log.
        let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
        let text = text.trim_end();
        if text.is_empty() {
            return None;
        }
        if self.last_lines.len() == STDERR_LINES_MAX {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(text.to_owned());
        Some(text.to_owned())
    }

    fn into_last(mut self) -> Vec<String> {
        let _rest = self.finish_line();
        self.last_lines.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stderr_lines_are_split_capped_and_cleaned() {
        let mut lines = StderrLines::default();
        assert_eq!(lines.push(b"one\ntw"), ["one"]);
        assert_eq!(lines.push(b"o\r\n\n\x1b[2Jthree\n"), ["two", " [2Jthree"]);
        let long = lines.push(&[&[b'x'; 3 * STDERR_LINE_MAX][..], b"\n"].concat());
        assert_eq!(long.iter().map(String::len).collect::<Vec<_>>(), [STDERR_LINE_MAX]);
        for number in 0..20 {
            lines.push(format!("{number}\n").as_bytes());
        }
        lines.push(b"rest");
        let last = lines.into_last();
        assert_eq!((last.len(), last[0].as_str(), last[9].as_str()), (STDERR_LINES_MAX, "11", "rest"));
    }
}
