//! Runs one command, from its start to the end of all its processes.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::ToolError;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::launch::{Launcher, START_LINE, SpawnedCommand};
use super::process_tree::{KillReport, ProcessTree, ResourceCap};
use crate::head_tail_buffer::HeadTailBuffer;
use crate::truncate::RESULT_BYTES_MAX;

const WATCH_EVERY: Duration = Duration::from_millis(25);
/// Time that killed processes have to end: the machine may be busy, and they may be many.
pub(super) const END_MAX: Duration = Duration::from_secs(10);
/// Empty lists in a row, without processes that ended just now, after which a command is over.
const EMPTY_SCANS_REQUIRED: usize = 2;
/// Pause between these lists.
const SCAN_EVERY: Duration = Duration::from_millis(5);
/// Time for reaping the program, and then for reading its remaining output.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A command that was permitted.
#[derive(Debug)]
pub(super) struct CommandJob {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) dir: Dir,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CommandLimits {
    pub(super) cap: ResourceCap,
    pub(super) output_bytes: usize,
}

/// Reason why a command ended.
#[derive(Debug)]
enum CommandEnd {
    Exited,
    TimedOut,
    Cancelled,
    CapExceeded,
    NotWatchable,
}

/// Runs a command; when it ends, or `cancelled` is, no process of it is left.
pub(super) async fn run(
    launcher: &Arc<Launcher>,
    limits: CommandLimits,
    job: CommandJob,
    cancelled: CancellationToken,
) -> Result<Value, ToolError> {
    let began = Instant::now();
    let CommandJob { program, arguments, dir, stdin, timeout: allowed } = job;
    let name = program.display().to_string();
    let failed = |error: std::io::Error| ToolError::new(format!("{name} cannot be started: {error}"));
    let starting = launcher.clone();
    // It may block until another command has ended.
    let started = tokio::task::spawn_blocking(move || {
        ProcessTree::start(uuid::Uuid::now_v7().simple().to_string(), |mark| {
            starting.start(&program, &arguments, &dir, mark)
        })
    });
    let started = started.await.map_err(std::io::Error::other).map_err(failed)?;
    let (tree, SpawnedCommand { mut child, mut holder, root }) = started.map_err(failed)?;
    let tree = Arc::new(tree);
    launcher.set_limits(root).map_err(failed)?;
    if let Some(holder) = &mut holder {
        holder.wait_until_ready().await.map_err(failed)?;
    }

    let (mut out, mut err) = (HeadTailBuffer::new(limits.output_bytes), HeadTailBuffer::new(limits.output_bytes));
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (end, status, left) = {
        let pipe_io = async {
            tokio::join!(feed(pipes.0, &stdin), drain(pipes.1, &mut out), drain(pipes.2, &mut err));
        };
        tokio::pin!(pipe_io);
        let mut is_io_done = false;
        let end = loop {
            tokio::select! {
                // `wait` can be cancelled and called again.
                _ = child.wait() => break CommandEnd::Exited,
                () = sleep_until(began + allowed) => break CommandEnd::TimedOut,
                () = cancelled.cancelled() => break CommandEnd::Cancelled,
                end = watch_resources(&tree, limits.cap) => break end,
                () = &mut pipe_io, if !is_io_done => is_io_done = true,
            }
        };
        let left = kill_remaining(&tree).await;
        let status = timeout(DRAIN_MAX, child.wait()).await.ok().and_then(Result::ok);
        if !is_io_done {
            // An escaped process may keep the pipes open; its output is dropped.
            let _late = timeout(DRAIN_MAX, &mut pipe_io).await.is_err();
        }
        if let Some(holder) = &mut holder {
            holder.wait_until_reaped(DRAIN_MAX).await;
        }
        (end, status, left)
    };
    let mut result = build_result(&end, tree.cap_violation(), status, (&out, &err), began.elapsed());
    if left > 0 {
        result["note"] = json!(format!("{left} of its processes could not be ended"));
    }
    Ok(result)
}

/// Writes [`START_LINE`], then the standard input. The command need not read it.
async fn feed(pipe: Option<impl AsyncWrite + Unpin>, text: &[u8]) {
    let Some(mut pipe) = pipe else { return };
    for part in [START_LINE, text] {
        if pipe.write_all(part).await.is_err() {
            return;
        }
    }
}

/// Reads to the end, so that the command never blocks on a full pipe, and keeps what fits.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, output: &mut HeadTailBuffer) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => output.add(&buffer[..read]),
        }
    }
}

/// Returns when a command exceeded its cap and was killed, or cannot be watched.
async fn watch_resources(tree: &Arc<ProcessTree>, cap: ResourceCap) -> CommandEnd {
    loop {
        sleep(WATCH_EVERY).await;
        let watched_tree = tree.clone();
        match tokio::task::spawn_blocking(move || watched_tree.enforce_cap(cap)).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => return CommandEnd::CapExceeded,
            Ok(Err(_)) | Err(_) => return CommandEnd::NotWatchable,
        }
    }
}

/// Kills the remaining processes and waits for their end; returns how many did not end.
async fn kill_remaining(tree: &Arc<ProcessTree>) -> usize {
    let end_at = Instant::now() + END_MAX;
    // The list of the kernel is no snapshot: a process that changes its parent meanwhile may be missing.
    let mut empty_scans = 0;
    loop {
        let killed = tree.clone();
        let left = match tokio::task::spawn_blocking(move || killed.kill()).await {
            Ok(Ok(left)) => left,
            Ok(Err(_)) | Err(_) => KillReport { processes: 1, has_recent_exits: true },
        };
        empty_scans = if left.processes == 0 && !left.has_recent_exits { empty_scans + 1 } else { 0 };
        if empty_scans == EMPTY_SCANS_REQUIRED || Instant::now() > end_at {
            return left.processes;
        }
        sleep(SCAN_EVERY).await;
    }
}

/// Builds the result that the model reads. `violation` is the exceeded limit.
fn build_result(
    end: &CommandEnd,
    violation: Option<&str>,
    status: Option<ExitStatus>,
    (out, err): (&HeadTailBuffer, &HeadTailBuffer),
    took: Duration,
) -> Value {
    use std::os::unix::process::ExitStatusExt;
    let killed = match end {
        CommandEnd::Exited | CommandEnd::CapExceeded => None,
        CommandEnd::TimedOut => Some("it took too long"),
        CommandEnd::Cancelled => Some("it was no longer wanted"),
        CommandEnd::NotWatchable => Some("its processes cannot be counted"),
    };
    // Room that one stream does not need goes to the other one.
    let half = RESULT_BYTES_MAX / 2;
    let ((stderr, cut_err), (stdout, cut_out)) = (err.text(half), out.text(half));
    let mut result = json!({"stdout": stdout, "stderr": stderr, "truncated": cut_out || cut_err, "timed_out": matches!(end, CommandEnd::TimedOut),
        "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX)});
    let signal = status.and_then(|status| status.signal());
    if let Some(code) = status.and_then(|status| status.code()) {
        result["exit_code"] = json!(code);
    }
    if let Some(signal) = signal {
        result["signal"] = json!(signal);
    }
    let limit = match signal {
        Some(signal) if signal == rustix::process::Signal::XCPU.as_raw() => {
            Some("it used more processor time than it may")
        }
        Some(signal) if signal == rustix::process::Signal::XFSZ.as_raw() => Some("it wrote a larger file than it may"),
        Some(_) | None => None,
    };
    if let Some(why) = violation.or(killed).or(limit) {
        result["killed"] = json!(why);
    }
    result
}
