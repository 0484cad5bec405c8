//! Checks of sessions after a nats-server was restored with an older store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use bus::{Bus, BusError};
use contract::commit::{Commit, Phase};
use contract::event::Event;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::commands::{CommandOutcome, Response, Sessions};
use crate::effects::EffectRecorder;
use crate::fleet::key;
use crate::judge;
use crate::wait::PATIENCE;

/// Pause between two reads of the log.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of steps of a turn.
const STEPS_MAX: u32 = 10;

/// An older store that was restored, and which losses it explains.
#[derive(Debug)]
pub struct Restore {
    /// Commits after the copy are lost.
    pub loses_log: bool,
    /// A call that was dispatched after the copy may be dispatched again: its claim or its commit is lost.
    pub loses_claims: bool,
    /// Sessions that the copy may not contain.
    pub begun_after_copy: BTreeSet<String>,
    /// Time at which the copy was taken; it contains everything stored before.
    pub copied: SystemTime,
    /// Time at which the server with the older store answered.
    pub restored: SystemTime,
}

/// The result of the checks.
#[derive(Default)]
pub struct Verdict {
    /// Violations; none must be there.
    pub findings: Vec<String>,
    /// Unusual facts that the restore explains.
    pub notes: Vec<String>,
}

/// Checks sessions; commands were sent before and after the restore.
pub async fn judge(
    restore: &Restore,
    sessions: &Sessions,
    effects: &EffectRecorder,
    all: &[&str],
    sent_before: &[CommandOutcome],
    sent_after: &[CommandOutcome],
    bus: &Bus,
) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    for outcome in sent_before {
        if !matches!(outcome.response, Response::Accepted) {
            verdict
                .findings
                .push(format!("{}: {} was not accepted before the restore: {outcome:?}", outcome.session, outcome.id));
        }
    }
    for outcome in sent_after {
        command(restore, bus, outcome, &mut verdict).await;
    }
    for session in all {
        // A session that is not in the store cannot go on.
        if bus.head(&key(session)?, bus::Read::Leader).await?.is_none() {
            verdict.notes.push(format!("{session}: has no log"));
            continue;
        }
        if let Err(error) = sessions.wait_for_rest(session).await {
            let last = last_commits(bus, &key(session)?).await;
            verdict.findings.push(format!("{session}: makes no progress: {error:#}; {last}"));
        }
        if let Err(error) = judge::log(bus, &key(session)?, STEPS_MAX).await {
            verdict.findings.push(format!("{session}: its log breaks a rule: {error:#}"));
        }
        if let Err(error) = one_history(bus, &key(session)?).await {
            verdict.findings.push(format!("{session}: its log has two histories: {error:#}"));
        }
        if let Err(error) = runs(restore, effects, session, &mut verdict.notes) {
            verdict.findings.push(format!("{session}: {error:#}"));
        }
    }
    if let Ok(Some(dead)) = bus.dead_letters(&key("any")?.tenant, None).await {
        verdict.notes.extend(dead.iter().map(|(at, letter)| format!("dead letter: {at:?} {}", letter.reason)));
    }
    Ok(verdict)
}

/// A command that was sent after the restore is in the log, or was refused for a reason that the restore explains.
async fn command(restore: &Restore, bus: &Bus, outcome: &CommandOutcome, verdict: &mut Verdict) {
    let CommandOutcome { session, id, response } = outcome;
    match response {
        Response::Accepted => match handled(bus, outcome).await {
            Ok(handled) => verdict.notes.extend(handled),
            Err(error) => verdict.findings.push(format!("{session}: command {id} was lost: {error:#}")),
        },
        Response::Refused(why) => {
            let lost =
                restore.loses_log && restore.begun_after_copy.contains(session) && why.starts_with("unknown_session");
            let (ended, head) =
                if why.starts_with("session_ended") { has_ended(bus, session).await } else { (false, String::new()) };
            let target = if lost || ended { &mut verdict.notes } else { &mut verdict.findings };
            target.push(format!("{session}: command {id} was refused: {why} {head}"));
        }
        Response::None(why) => verdict.findings.push(format!("{session}: command {id} got no response: {why}")),
    }
}

/// Whether the log says that a session has ended; else a description of the end of the log.
async fn has_ended(bus: &Bus, session: &str) -> (bool, String) {
    let (Ok(key), deadline) = (key(session), Instant::now() + PATIENCE) else { return (false, String::new()) };
    loop {
        let head = bus.head(&key, bus::Read::Leader).await;
        if let Ok(Some(head)) = &head
            && head.meta.phase == Phase::Ended
        {
            return (true, String::new());
        }
        // The server may be unavailable for a moment.
        if head.is_ok() || Instant::now() > deadline {
            return (false, format!("; the end of its log is {head:?}; {}", last_commits(bus, &key).await));
        }
        sleep(READ_EVERY).await;
    }
}

/// Waits until the log holds a command; returns a note about how it was handled.
async fn handled(bus: &Bus, outcome: &CommandOutcome) -> anyhow::Result<Option<String>> {
    let (key, deadline) = (key(&outcome.session)?, Instant::now() + PATIENCE);
    loop {
        let commits = bus.history(&key, 0).await;
        let commits = match commits {
            Ok(commits) => commits,
            Err(BusError::Malformed(why)) => anyhow::bail!("its log cannot be read: {why}"),
            Err(_) => Vec::new(),
        };
        for event in commits.iter().flat_map(|(_, commit)| &commit.events) {
            if let Event::InputHandled(handled) = event
                && handled.input.id.as_str() == outcome.id
            {
                let before: Vec<u64> = commits.iter().map(|(_, commit)| commit.meta.control_seq).collect();
                let note = format!("{}: {} is handled as {:?}", outcome.session, outcome.id, handled.control_seq);
                return Ok(Some(format!("{note}; control_seq of its commits {before:?}")));
            }
            if let Event::InputIgnored(ignored) = event
                && ignored.input.id.as_str() == outcome.id
            {
                return Ok(Some(format!("{}: {} was ignored: {:?}", outcome.session, outcome.id, ignored.refusal)));
            }
        }
        if Instant::now() > deadline {
            let waits = bus.inbox(&key).await;
            let waits = match waits {
                Ok(bus::Inbox::Messages(waiting)) => {
                    let waiting: Vec<String> =
                        waiting.into_iter().map(|stored| format!("{} at {}", stored.subject, stored.seq)).collect();
                    format!("{waiting:?}")
                }
                other => format!("{other:?}"),
            };
            let head = commits.last().map(|(slot, commit)| (*slot, commit.meta.control_seq));
            anyhow::bail!(
                "it was accepted and is not in the log after {PATIENCE:?}; last slot and control_seq {head:?}; \
                 in its inbox: {waits}"
            );
        }
        sleep(READ_EVERY).await;
    }
}

/// No commit id is in two slots, and each commit that names its predecessor follows that one.
async fn one_history(bus: &Bus, key: &SessionKey) -> anyhow::Result<()> {
    let commits = bus.history(key, 0).await?;
    let Some(last) = commits.last().map(|(slot, _)| *slot) else { return Ok(()) };
    let (mut ids, mut before) = (BTreeSet::new(), None::<String>);
    for page in 0..=last / SLOTS_PER_PAGE {
        let (first, end) = (page * SLOTS_PER_PAGE, ((page + 1) * SLOTS_PER_PAGE - 1).min(last));
        let bodies = bus.bodies(key, first, end).await?.context("a page of the log")?;
        for (slot, body) in bodies.into_iter().filter(|(slot, _)| (first..=end).contains(slot)) {
            let commit: Value = serde_json::from_slice(&body)?;
            let id = commit["meta"]["commit"].as_str().context("the id of a commit")?.to_owned();
            ensure!(ids.insert(id.clone()), "commit {id} is in two slots, the second one is {slot}");
            if let (Some(before), Some(prev)) = (&before, commit["meta"]["prev"].as_str()) {
                ensure!(
                    before == prev,
                    "the commit in slot {slot} names {prev} as its predecessor, but follows {before}"
                );
            }
            before = Some(id);
        }
    }
    Ok(())
}

/// No `at_most_once` call ran twice, except those whose claim or commit was lost in the restore.
fn runs(restore: &Restore, effects: &EffectRecorder, session: &str, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let since = |at: SystemTime| u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis());
    let (copied, restored) = (since(restore.copied)?, since(restore.restored)?);
    let mut calls: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for run in effects.runs(Effect::AtMostOnce, session)? {
        calls.entry(run.call).or_default().push((run.at_ms, run.mark));
    }
    for (call, mut runs) in calls {
        if runs.len() < 2 {
            continue;
        }
        runs.sort();
        let first = runs[0].0;
        let line = format!("at_most_once call {call} ran {} times: {runs:?}", runs.len());
        let excused = restore.loses_claims && (copied..=restored).contains(&first);
        ensure!(excused, "{line}; the copy was taken at {copied} ms, the server restored at {restored} ms");
        notes.push(format!("{session}: {line}, first after the copy"));
    }
    Ok(())
}

/// The last three commits of a log, for an error text.
async fn last_commits(bus: &Bus, key: &SessionKey) -> String {
    let commits = bus.history(key, 0).await.unwrap_or_default();
    let line = |(slot, commit): &(u64, Commit)| {
        let events: String = format!("{:?}", commit.events).chars().take(300).collect();
        format!("slot {slot} at {} open {:?}: {events}", commit.meta.time, commit.meta.open)
    };
    let lines: Vec<String> = commits.iter().rev().take(3).map(line).collect();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use bus_memory::MemoryServer;
    use serde_json::json;

    use super::*;

    /// Writes a log of commit ids with the predecessors that they name.
    async fn log(prevs: &[(&str, Option<&str>)]) -> anyhow::Result<(Bus, SessionKey)> {
        let (bus, key) = (MemoryServer::new().bus(), key("s")?);
        for (slot, (id, prev)) in (0..).zip(prevs) {
            let mut meta = json!({
                "v": 1, "commit": id, "fold": 1, "phase": "idle", "open": [], "control_seq": 0, "seq": 1,
                "time": contract::Timestamp::default(),
            });
            if let Some(prev) = prev {
                meta["prev"] = (*prev).into();
            }
            let body = json!({"meta": meta, "events": []}).to_string();
            bus.commit(&key, slot, id, body.into()).await?;
        }
        Ok((bus, key))
    }

    #[tokio::test(start_paused = true)]
    async fn log_with_or_without_links_has_one_history() -> anyhow::Result<()> {
        for prevs in [[("a", None), ("b", Some("a")), ("c", Some("b"))], [("a", None), ("b", None), ("c", None)]] {
            let (bus, key) = log(&prevs).await?;
            one_history(&bus, &key).await?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn commit_after_another_predecessor_is_found() -> anyhow::Result<()> {
        let (bus, key) = log(&[("a", None), ("b", Some("a")), ("c", Some("lost"))]).await?;
        let error = one_history(&bus, &key).await.expect_err("two histories");
        // The bus itself refuses to read such a log.
        assert!(error.to_string().contains("follows commit lost, but b stands before it"), "{error}");
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn commit_in_two_slots_is_found() -> anyhow::Result<()> {
        let (bus, key) = log(&[("a", None), ("b", Some("a")), ("a", Some("b"))]).await?;
        assert!(one_history(&bus, &key).await.is_err());
        Ok(())
    }
}
