//! Checks of a session after a fault: its log, against the records of tools, model and proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use ailoop_tests::effects::EffectRecorder;
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::tool_server::EFFECTS;
use ailoop_tests::wait::PATIENCE;
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use bus::{Bus, BusError};
use contract::Timestamp;
use contract::command::Verb;
use contract::commit::Commit;
use contract::event::{Event, InputKind, InputRef, StopReason, ToolCallResult};
use contract::subject::{self, SessionKey};
use contract::tool::Outcome;
use tokio::time::{Instant, sleep};

use crate::chaos::proxy::ObservedTraffic;
use crate::chaos::recorded_model::{RecordedModel, ServedRequest};

/// Maximum number of steps of a turn.
const STEPS_MAX: u32 = 10;
/// Pause between two reads of the stream and the log.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The independent records of what happened.
pub(crate) struct Evidence<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) traffic: &'a ObservedTraffic,
    pub(crate) effects: &'a EffectRecorder,
    pub(crate) model: &'a RecordedModel,
    /// Core NATS may have lost a request to a tool or its answer; then the call times out.
    pub(crate) lossy: bool,
}

impl Evidence<'_> {
    /// Checks a session of `turns` turns that has ended; returns its commits. Retries while the server is unavailable.
    pub(crate) async fn judge(&self, session: &str, turns: usize) -> anyhow::Result<Vec<Commit>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.judge_once(session, turns).await {
                Err(error) if is_away(&error) && Instant::now() < deadline => sleep(POLL_EVERY).await,
                judged => return judged,
            }
        }
    }

    async fn judge_once(&self, session: &str, turns: usize) -> anyhow::Result<Vec<Commit>> {
        let key = key(session)?;
        no_input_is_lost(self.bus, &key, &self.stored_inputs(session)?).await?;
        let commits = judge::log(self.bus, &key, STEPS_MAX).await?;
        nothing_twice(&commits)?;
        completed(&commits, turns)?;
        self.effects(session, &commits)?;
        Ok(commits)
    }

    /// Inputs of a session that the server has acknowledged so far.
    fn stored_inputs(&self, session: &str) -> anyhow::Result<BTreeSet<InputRef>> {
        let stored = self.traffic.stored(session).into_iter().map(|(sent, _)| {
            let sent = subject::parse_control(&sent).with_context(|| format!("{sent} is not a control subject"))?;
            Ok(InputRef { kind: InputKind::Control(sent.verb), id: sent.id })
        });
        stored.collect()
    }

    /// Replies that were requested again after they were stored; and how many of them by a gateway that had not checked
    /// before whether they are stored.
    pub(crate) fn paid_again(&self, session: &str) -> (usize, usize) {
        let stored = self.traffic.stored(session);
        let all = self.model.served(session);
        let of = |served: &ServedRequest| {
            let name = format!("ai_loop.control.model_finished.default.{session}.{}-", served.call);
            stored.iter().find(|(sent, at)| sent.starts_with(&name) && *at < served.at)
        };
        let again: Vec<(&ServedRequest, &(String, SystemTime))> =
            all.iter().filter_map(|served| Some((served, of(served)?))).collect();
        let unchecked = again.iter().filter(|(served, (subject, stored))| {
            let requests: Vec<SystemTime> =
                all.iter().filter(|one| one.call == served.call).map(|one| one.at).collect();
            is_unchecked(&requests, served.at, &self.traffic.checks(subject), *stored)
        });
        (again.len(), unchecked.count())
    }

    /// Checks that the effects that tools recorded agree with the results in the log.
    fn effects(&self, session: &str, commits: &[Commit]) -> anyhow::Result<()> {
        let results = commits.iter().flat_map(|commit| &commit.events).filter_map(|event| {
            let Event::ToolCallResult(result) = event else { return None };
            Some((result.call.to_string(), result))
        });
        let results: BTreeMap<String, &ToolCallResult> = results.collect();
        for effect in EFFECTS {
            for (call, marks) in self.effects.of(effect, session)? {
                ensure!(
                    marks.iter().all(|mark| *mark == marks[0]),
                    "call id {call} was used for several calls: {marks:?}"
                );
                let once = effect != Effect::AtMostOnce || marks.len() == 1;
                ensure!(once, "at_most_once call {call} ran {} times", marks.len());
                ensure!(results.contains_key(&call), "{call} ran and has no result");
            }
        }
        for (call, result) in results {
            let took =
                EFFECTS.iter().map(|effect| self.effects.of(*effect, session)).collect::<anyhow::Result<Vec<_>>>()?;
            let took = took.iter().any(|took| took.contains_key(&call));
            match result.outcome {
                Outcome::Ok => ensure!(took, "the result of {call} is ok, but no tool ran it"),
                Outcome::Unknown => {}
                Outcome::Timeout if self.lossy => {}
                Outcome::Error | Outcome::Denied | Outcome::Timeout | Outcome::Cancelled => {
                    anyhow::bail!("{call} ended as {:?}, which no fault explains: {}", result.outcome, result.content)
                }
            }
        }
        Ok(())
    }
}

fn is_away(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<BusError>().is_some_and(BusError::is_away))
}

/// Whether a request to the model was made after its reply was stored, without a check before. The first request of a
/// call needs no check; each further one needs one of its own.
fn is_unchecked(requests: &[SystemTime], request: SystemTime, checks: &[SystemTime], stored: SystemTime) -> bool {
    let requests = requests.iter().filter(|at| **at <= request).count();
    let checks = checks.iter().filter(|at| **at <= stored).count();
    request > stored && checks + 1 < requests
}

/// Returns when the log holds each of these inputs.
///
/// An executor that was disconnected may send an input after the end of its session. It is committed later, as ignored.
/// So an input that is still in its stream is awaited. It is lost if it has left the stream and is not in the log: an
/// input is acknowledged after its commit, so the stream is read before the log.
async fn no_input_is_lost(bus: &Bus, key: &SessionKey, stored: &BTreeSet<InputRef>) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut waiting = BTreeSet::new();
        for input in stored {
            let InputKind::Control(verb) = input.kind else { continue };
            if bus.waits(key, &[verb], &input.id).await? {
                waiting.insert(input);
            }
        }
        let commits: Vec<Commit> = bus.history(key, 0).await?.into_iter().map(|(_, commit)| commit).collect();
        let handled = inputs(&commits);
        let missing: Vec<&InputRef> = stored.iter().filter(|input| !is_handled(&handled, input)).collect();
        if let Some(lost) = missing.iter().find(|input| !waiting.contains(*input)) {
            anyhow::bail!("input lost: {lost:?} was stored, has left its stream and is not in the log");
        }
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "inputs are not handled after {PATIENCE:?}: {missing:?}");
        sleep(POLL_EVERY).await;
    }
}

/// Whether the log holds a stored input. The id of a model result is that of its attempt when it is stored, and gets a
/// suffix for the run when it is handled.
fn is_handled(handled: &BTreeSet<InputRef>, stored: &InputRef) -> bool {
    let of_run = |input: &&InputRef| {
        let rest = input.id.as_str().strip_prefix(stored.id.as_str());
        input.kind == stored.kind && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    match stored.kind {
        InputKind::Control(Verb::ModelFinished | Verb::ModelFailed) => handled.iter().any(|input| of_run(&input)),
        InputKind::Control(_) | InputKind::Timer => handled.contains(stored),
    }
}

fn inputs(commits: &[Commit]) -> BTreeSet<InputRef> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    events.filter_map(Event::closed_input).cloned().collect()
}

/// Checks that no commit is in two slots; `judge::log` checks the slots themselves.
fn nothing_twice(commits: &[Commit]) -> anyhow::Result<()> {
    let mut ids = BTreeSet::new();
    for commit in commits {
        ensure!(ids.insert(&commit.meta.commit), "commit {} is in two slots", commit.meta.commit);
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
    ensure!(ends == vec![StopReason::Completed; turns], "the turns ended as {ends:?}, expected {turns} completed ones");
    Ok(())
}

/// The time from `at` to the next commit; zero if no commit follows.
pub(crate) fn resumed(commits: &[Commit], at: SystemTime) -> Duration {
    let at = timestamp(at);
    let next = commits.iter().map(|commit| commit.meta.time).find(|time| *time > at);
    next.map_or(Duration::ZERO, |next| next.since(at))
}

/// The longest time between two consecutive commits that overlaps with a time span.
pub(crate) fn gap(commits: &[Commit], from: SystemTime, to: SystemTime) -> Duration {
    let (from, to) = (timestamp(from), timestamp(to));
    let pairs = commits.windows(2).map(|pair| (pair[0].meta.time, pair[1].meta.time));
    pairs.filter(|(a, b)| *a < to && *b > from).map(|(a, b)| b.since(a)).max().unwrap_or_default()
}

fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::default().after(at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bus::transport::Ack;
    use bus_memory::MemoryServer;
    use bytes::Bytes;
    use contract::CommandId;
    use contract::command::Verb;
    use contract::commit::{CommitMeta, Phase};
    use contract::event::InputHandled;
    use contract::streams::Queue;
    use futures::StreamExt;
    use tokio_util::sync::CancellationToken;

    use super::*;

    async fn commit(bus: &Bus, key: &SessionKey, slot: u64, input: &InputRef) -> anyhow::Result<()> {
        let handled =
            InputHandled { input: input.clone(), control_seq: None, control_at: None, parent_command_number: None };
        let meta = serde_json::json!({
            "v": 1, "commit": format!("c{slot}"), "fold": 1, "phase": Phase::Ended, "open": [], "control_seq": 0,
            "seq": 1, "time": Timestamp::default(),
        });
        let meta: CommitMeta = serde_json::from_value(meta)?;
        let commit = Commit { meta, snapshot: None, transcript: None, events: vec![Event::InputHandled(handled)] };
        bus.commit(key, slot, &format!("c{slot}"), serde_json::to_vec(&commit)?.into()).await?;
        Ok(())
    }

    #[test]
    fn request_after_its_reply_was_stored_needs_an_earlier_check() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // Times of requests, of the stored reply and of checks; and whether the last request lacks a check.
        for (requests, stored, checks, expected) in [
            (vec![1], 2, vec![], false),
            (vec![1, 3], 2, vec![], true),
            (vec![1, 4], 3, vec![2], false),
            (vec![1, 4], 2, vec![3], true),
            (vec![1, 4, 5], 3, vec![2], true),
            (vec![1, 2], 3, vec![], false),
        ] {
            let times = |seconds: &[u64]| -> Vec<SystemTime> { seconds.iter().map(|s| at(*s)).collect() };
            let all = times(&requests);
            let is_unchecked = is_unchecked(&all, all[all.len() - 1], &times(&checks), at(stored));
            assert_eq!(is_unchecked, expected, "{requests:?}, {checks:?}");
        }
    }

    /// A session that has ended, and an input that was sent afterwards.
    async fn late_input() -> anyhow::Result<(Bus, SessionKey, InputRef)> {
        let (bus, key) = (MemoryServer::new().bus(), key("s")?);
        let stop = InputRef { kind: InputKind::Control(Verb::Stop), id: CommandId::new("end")? };
        commit(&bus, &key, 0, &stop).await?;
        let late = InputRef { kind: InputKind::Control(Verb::ExtendToolCall), id: CommandId::new("more")? };
        bus.send_control(&key, Verb::ExtendToolCall, &late.id, Bytes::from_static(b"{}")).await?;
        Ok((bus, key, late))
    }

    async fn acknowledge(bus: &Bus) -> anyhow::Result<()> {
        let mut pulled =
            bus.transport().pull(Queue::Inputs, 1, Duration::from_secs(1), CancellationToken::new()).await?;
        let delivery = pulled.next().await.context("the input")??;
        Ok(bus.transport().ack(&delivery, Ack::Done).await?)
    }

    #[tokio::test(start_paused = true)]
    async fn input_after_the_end_committed_later_is_not_lost() -> anyhow::Result<()> {
        let (bus, key, late) = late_input().await?;
        let stored = BTreeSet::from([late.clone()]);
        let judged = no_input_is_lost(&bus, &key, &stored);
        let handled = async {
            sleep(Duration::from_secs(6)).await;
            commit(&bus, &key, 1, &late).await?;
            acknowledge(&bus).await
        };
        tokio::try_join!(judged, handled)?;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn input_acknowledged_without_commit_is_lost() -> anyhow::Result<()> {
        let (bus, key, late) = late_input().await?;
        acknowledge(&bus).await?;
        let error = no_input_is_lost(&bus, &key, &BTreeSet::from([late])).await.expect_err("it is lost");
        assert!(error.to_string().starts_with("input lost"), "{error}");
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn input_never_handled_is_reported() -> anyhow::Result<()> {
        let (bus, key, late) = late_input().await?;
        let error =
            no_input_is_lost(&bus, &key, &BTreeSet::from([late])).await.expect_err("the input is never handled");
        assert!(error.to_string().starts_with("inputs are not handled"), "{error}");
        Ok(())
    }
}
