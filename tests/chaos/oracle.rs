//! What must be true of a session afterwards, by its log, by those who saw what happened, and by what was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::workshop::EFFECTS;
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use bus::Bus;
use contract::Timestamp;
use contract::commit::Commit;
use contract::event::{Event, InputKind, InputRef, StopReason, ToolCallResult};
use contract::subject;
use contract::tool::Outcome;

use crate::proxy::Wires;
use crate::witness::{Effects, Model, Served};

/// Steps that a turn may have.
const STEPS_MAX: u32 = 10;

/// Everybody who knows something.
pub(crate) struct Witnesses<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) wires: &'a Wires,
    pub(crate) effects: &'a Effects,
    pub(crate) model: &'a Model,
    /// Whether core NATS may have lost a request to a tool or its answer: then a call ends when its time is over.
    pub(crate) lossy: bool,
}

impl Witnesses<'_> {
    /// Judges a session of so many turns that has ended; returns its commits.
    pub(crate) async fn judge(&self, session: &str, turns: usize) -> anyhow::Result<Vec<Commit>> {
        let commits = judge::log(self.bus, &key(session)?, STEPS_MAX).await?;
        nothing_twice(&commits)?;
        completed(&commits, turns)?;
        self.inputs(session, &commits)?;
        self.effects(session, &commits)?;
        Ok(commits)
    }

    /// What was stored is in the log: "0 inputs lost".
    fn inputs(&self, session: &str, commits: &[Commit]) -> anyhow::Result<()> {
        let handled = inputs(commits);
        for (sent, _) in self.wires.stored(session) {
            let sent = subject::parse_control(&sent).with_context(|| format!("{sent} is no control message"))?;
            let input = InputRef { kind: InputKind::Control(sent.verb), id: sent.id };
            ensure!(handled.contains(&input), "input lost: {input:?} was stored and is not in the log");
        }
        Ok(())
    }

    /// Replies that were asked for again when they were paid for and stored.
    pub(crate) fn paid_again(&self, session: &str) -> usize {
        let stored = self.wires.stored(session);
        let again = |served: &Served| {
            let name = format!("ai_loop.control.model_finished.default.{session}.{}-", served.call);
            stored.iter().any(|(sent, at)| sent.starts_with(&name) && *at < served.at)
        };
        self.model.served(session).iter().filter(|served| again(served)).count()
    }

    /// What tools did is what the log says of them.
    fn effects(&self, session: &str, commits: &[Commit]) -> anyhow::Result<()> {
        let results = commits.iter().flat_map(|commit| &commit.events).filter_map(|event| {
            let Event::ToolCallResult(result) = event else { return None };
            Some((result.call.to_string(), result))
        });
        let results: BTreeMap<String, &ToolCallResult> = results.collect();
        for effect in EFFECTS {
            for (call, marks) in self.effects.of(effect, session)? {
                ensure!(marks.iter().all(|mark| *mark == marks[0]), "{call} is several calls: {marks:?}");
                let once = effect != Effect::AtMostOnce || marks.len() == 1;
                ensure!(once, "{call} may run once and ran {} times", marks.len());
                ensure!(results.contains_key(&call), "{call} ran and has no result");
            }
        }
        for (call, result) in results {
            let took =
                EFFECTS.iter().map(|effect| self.effects.of(*effect, session)).collect::<anyhow::Result<Vec<_>>>()?;
            let took = took.iter().any(|took| took.contains_key(&call));
            match result.outcome {
                Outcome::Ok => ensure!(took, "{call} is said to be done, and no tool did it"),
                Outcome::Unknown => {}
                Outcome::Timeout if self.lossy => {}
                Outcome::Error | Outcome::Denied | Outcome::Timeout | Outcome::Cancelled => {
                    anyhow::bail!("{call} ended as {:?}, which nobody asked for: {}", result.outcome, result.content)
                }
            }
        }
        Ok(())
    }
}

fn inputs(commits: &[Commit]) -> BTreeSet<InputRef> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    let input = |event: &Event| {
        if let Event::InputHandled(handled) = event {
            return Some(handled.input.clone());
        }
        let Event::InputIgnored(ignored) = event else { return None };
        Some(ignored.input.clone())
    };
    events.filter_map(input).collect()
}

/// "0 commits doubled": the slots are judged by the log's judge, here the bodies.
fn nothing_twice(commits: &[Commit]) -> anyhow::Result<()> {
    let mut ids = BTreeSet::new();
    for commit in commits {
        ensure!(ids.insert(&commit.meta.commit), "commit {} stands in two slots", commit.meta.commit);
    }
    Ok(())
}

fn completed(commits: &[Commit], turns: usize) -> anyhow::Result<()> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    let ends: Vec<StopReason> = events
        .filter_map(|event| {
            let Event::TurnCompleted(turn) = event else { return None };
            Some(turn.stop_reason)
        })
        .collect();
    ensure!(ends == vec![StopReason::Completed; turns], "its turns ended as {ends:?}");
    Ok(())
}

/// The time from a moment to the next commit that was decided after it; nothing where nothing was left to decide.
pub(crate) fn resumed(commits: &[Commit], at: SystemTime) -> Duration {
    let at = timestamp(at);
    let next = commits.iter().map(|commit| commit.meta.time).find(|time| *time > at);
    next.map_or(Duration::ZERO, |next| next.since(at))
}

/// The longest time between two commits that touches this one.
pub(crate) fn gap(commits: &[Commit], from: SystemTime, to: SystemTime) -> Duration {
    let (from, to) = (timestamp(from), timestamp(to));
    let pairs = commits.windows(2).map(|pair| (pair[0].meta.time, pair[1].meta.time));
    pairs.filter(|(a, b)| *a < to && *b > from).map(|(a, b)| b.since(a)).max().unwrap_or_default()
}

fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::default().after(at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}
