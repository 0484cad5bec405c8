//! One command, from its start to the end of all that it started.

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

use super::family::{Family, Left, Most};
use super::launch::{GO, Launcher, Started};
use crate::fit::ROOM;
use crate::kept::Kept;

/// How often the processes of a command are counted.
const WATCH_EVERY: Duration = Duration::from_millis(25);
/// How long the processes of a command may take to end when they are killed: on a busy machine, and there are many.
pub(super) const END_MAX: Duration = Duration::from_secs(10);
/// Looks in a row in which nothing of a command is found, alive or just ended, before it is over.
const GONE_LOOKS: usize = 2;
/// Pause between looks whether they have.
const END_EVERY: Duration = Duration::from_millis(5);
/// How long the program itself may take to be reaped, and what they wrote to be read then.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// A command that may be run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) dir: Dir,
    pub(super) stdin: Vec<u8>,
    pub(super) timeout: Duration,
}

/// What it may take at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) most: Most,
    pub(super) output_bytes: usize,
}

/// Why a command ended.
#[derive(Debug)]
enum End {
    Itself,
    Late,
    Unwanted,
    Over,
    Uncounted,
}

/// Runs a command; when it ends, or `unwanted` is cancelled, nothing of it is left.
pub(super) async fn run(
    launcher: &Arc<Launcher>,
    limits: Limits,
    job: Job,
    unwanted: CancellationToken,
) -> Result<Value, ToolError> {
    let began = Instant::now();
    let Job { program, arguments, dir, stdin, timeout: allowed } = job;
    let name = program.display().to_string();
    let failed = |error: std::io::Error| ToolError::new(format!("{name} cannot be started: {error}"));
    let starting = launcher.clone();
    // It may wait for the end of another command.
    let started = tokio::task::spawn_blocking(move || {
        Family::start(uuid::Uuid::now_v7().simple().to_string(), |mark| {
            starting.start(&program, &arguments, &dir, mark)
        })
    });
    let started = started.await.map_err(std::io::Error::other).map_err(failed)?;
    let (family, Started { mut child, mut holder, root }) = started.map_err(failed)?;
    let family = Arc::new(family);
    launcher.bind(root).map_err(failed)?;
    if let Some(holder) = &mut holder {
        holder.begun().await.map_err(failed)?;
    }

    let (mut out, mut err) = (Kept::new(limits.output_bytes), Kept::new(limits.output_bytes));
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (end, status, left) = {
        let talk = async {
            tokio::join!(feed(pipes.0, &stdin), drain(pipes.1, &mut out), drain(pipes.2, &mut err));
        };
        tokio::pin!(talk);
        let mut talked = false;
        let end = loop {
            tokio::select! {
                // Waiting again is as good as having waited on.
                _ = child.wait() => break End::Itself,
                () = sleep_until(began + allowed) => break End::Late,
                () = unwanted.cancelled() => break End::Unwanted,
                end = watch(&family, limits.most) => break end,
                () = &mut talk, if !talked => talked = true,
            }
        };
        let left = finish(&family).await;
        let status = timeout(DRAIN_MAX, child.wait()).await.ok().and_then(Result::ok);
        if !talked {
            // Who holds the pipes still is left to himself.
            let _late = timeout(DRAIN_MAX, &mut talk).await.is_err();
        }
        if let Some(holder) = &mut holder {
            holder.over(DRAIN_MAX).await;
        }
        (end, status, left)
    };
    let mut told = told(&end, family.over(), status, (&out, &err), began.elapsed());
    if left > 0 {
        told["note"] = json!(format!("{left} of its processes could not be ended"));
    }
    Ok(told)
}

/// Gives the word to begin, then what the command reads. It need not read it.
async fn feed(pipe: Option<impl AsyncWrite + Unpin>, text: &[u8]) {
    let Some(mut pipe) = pipe else { return };
    for part in [GO, text] {
        if pipe.write_all(part).await.is_err() {
            return;
        }
    }
}

/// Reads to the end, so that the command is never held up, and keeps what fits.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Kept) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => kept.add(&buffer[..read]),
        }
    }
}

/// Returns when a command took more than it may, and was killed, or cannot be watched.
async fn watch(family: &Arc<Family>, most: Most) -> End {
    loop {
        sleep(WATCH_EVERY).await;
        let watched = family.clone();
        match tokio::task::spawn_blocking(move || watched.check(most)).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => return End::Over,
            Ok(Err(_)) | Err(_) => return End::Uncounted,
        }
    }
}

/// Kills whatever is left, and waits for its end; returns how many processes would not.
async fn finish(family: &Arc<Family>) -> usize {
    let late = Instant::now() + END_MAX;
    // The kernel's list is not of one moment: who changes his parent meanwhile may be missing from it.
    let mut gone = 0;
    loop {
        let killed = family.clone();
        let left = match tokio::task::spawn_blocking(move || killed.kill()).await {
            Ok(Ok(left)) => left,
            Ok(Err(_)) | Err(_) => Left { processes: 1, restless: true },
        };
        gone = if left.processes == 0 && !left.restless { gone + 1 } else { 0 };
        if gone == GONE_LOOKS || Instant::now() > late {
            return left.processes;
        }
        sleep(END_EVERY).await;
    }
}

/// What the model reads. `over` says of what it took too much.
fn told(
    end: &End,
    over: Option<&str>,
    status: Option<ExitStatus>,
    (out, err): (&Kept, &Kept),
    took: Duration,
) -> Value {
    use std::os::unix::process::ExitStatusExt;
    let killed = match end {
        End::Itself | End::Over => None,
        End::Late => Some("it took too long"),
        End::Unwanted => Some("it was no longer wanted"),
        End::Uncounted => Some("its processes cannot be counted"),
    };
    // What the errors do not need is the output's, and the other way round.
    let half = ROOM / 2;
    let ((stderr, cut_err), (stdout, cut_out)) = (err.text(half), out.text(half));
    let mut result = json!({"stdout": stdout, "stderr": stderr, "truncated": cut_out || cut_err, "timed_out": matches!(end, End::Late),
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
    if let Some(why) = over.or(killed).or(limit) {
        result["killed"] = json!(why);
    }
    result
}
