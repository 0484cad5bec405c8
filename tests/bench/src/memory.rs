//! Memory of a session that is kept in memory, next to the size of its transcript.
//!
//! Each size is measured in a process of its own that does nothing else: what the kernel says that it holds grows by
//! the sessions that are folded in it, and by what folding leaves behind. So the allocator's own share is counted too,
//! and the services that this binary plays keep the allocator that they ship with.

use std::process::Command;

use anyhow::{Context, ensure};
use contract::commit::{Commit, CommitMeta, FOLD};
use contract::subject::SessionKey;
use contract::{SessionId, TenantId, limits};
use session::Session;

use crate::figure::Timed;
use crate::process::{announce, own_usage};

use crate::pure_session::{NOW, PureSession};

/// Bytes of all transcripts together: enough to leave nothing to chance.
const ALL_BYTES: usize = 64 << 20;
const BYTES_PER_MIB: f64 = 1_048_576.0;
/// Steps of a transcript: as many as one turn may have, and some to spare.
const STEPS: usize = 150;
/// Measured sizes: name of the figure, and bytes of the transcript.
const SIZES: &[(&str, usize)] =
    &[("core.session_memory_ratio_100k", 100_000), ("core.session_memory_ratio_1m", 1_000_000)];

/// Measures all sizes, and says which is the worst.
pub(crate) fn measure() -> anyhow::Result<Vec<Timed>> {
    let mut figures = Vec::new();
    for (name, bytes) in SIZES {
        let output = Command::new(std::env::current_exe()?).args(["memory", &bytes.to_string()]).output()?;
        let ratio = String::from_utf8_lossy(&output.stdout).trim().parse();
        let ratio = ratio.with_context(|| format!("{name}: {}", String::from_utf8_lossy(&output.stderr)))?;
        figures.push((*name, ratio));
    }
    let worst = figures.iter().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    figures.push(("core.session_memory_ratio", worst));
    Ok(figures)
}

/// Plays the process: says what a session of so many bytes takes, as a multiple of them.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
pub(crate) fn print_ratio(bytes: usize) -> anyhow::Result<()> {
    let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s")? };
    let commits = commits(bytes)?;
    let folded = || -> anyhow::Result<Session> {
        // As from the log: what one session holds is shared with no other.
        let mut session = Session::new(key.clone());
        for (slot, commit) in (0..).zip(&commits) {
            let commit: Commit = serde_json::from_str(commit)?;
            session.fold(slot, commit.meta.time, &commit.events);
        }
        Ok(session)
    };
    let transcript: usize = folded()?.messages().iter().map(|message| message.get().len()).sum();
    ensure!(transcript.abs_diff(bytes) * 10 < bytes, "the transcript has {transcript} bytes instead of {bytes}");
    let before = own_usage()?.rss_mb;
    let sessions = (0..ALL_BYTES / transcript).map(|_| folded()).collect::<anyhow::Result<Vec<_>>>()?;
    let took = (own_usage()?.rss_mb - before) * BYTES_PER_MIB;
    announce(&(took / (sessions.len() * transcript) as f64).to_string());
    Ok(())
}

/// The log of a session whose transcript has about so many bytes: a question, then steps with a tool call each.
fn commits(bytes: usize) -> anyhow::Result<Vec<String>> {
    let (mut pure_session, begun) = PureSession::begin()?;
    let mut all = vec![begun];
    let line = "a line of what was found\n";
    // Beside the result: the reply with its call, and what makes messages of both.
    let found = line.repeat((bytes / STEPS).saturating_sub(250) / (line.len() + 1));
    ensure!(STEPS < limits::ITERATIONS_MAX as usize, "more steps than a turn may have");
    for _ in 0..STEPS {
        all.push(pure_session.fold(&pure_session.reply("I look further, since the last result did not tell.", true)?));
        all.push(pure_session.fold(&pure_session.result(&found)?));
    }
    let meta = CommitMeta {
        v: 1,
        commit: String::new(),
        fold: FOLD,
        phase: pure_session.session.phase(),
        open: Vec::new(),
        control_seq: 0,
        prev: String::new(),
        timers: 0,
        seq: 0,
        time: NOW,
        trace_id: String::new(),
        archived: None,
        log_start: None,
        moved: None,
    };
    let body = |events| serde_json::to_string(&Commit { meta: meta.clone(), snapshot: None, transcript: None, events });
    Ok(all.into_iter().map(body).collect::<Result<_, _>>()?)
}
