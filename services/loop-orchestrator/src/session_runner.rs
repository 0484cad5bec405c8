//! Runs the loop for the inputs of a session: load, decide, commit, perform. ARCHITECTURE.md, "The shell", explains the
//! steps.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bus::log::Committed;
use bus::work::Publication;
use bus::{Bus, BusError, Read};
use contract::commit::{Commit, Phase, envelopes};
use contract::event::{Envelope, ErrorEvent, Event, InputIgnored, InputKind, TimerSet, Topic};
use contract::subject::SessionKey;
use contract::{ErrorCode, Json, Timestamp, command::Refusal};
use session::{Decision, Input, Session, SessionEffect};
use telemetry::metric::Who;
use telemetry::trace::scope;

use crate::cache::{Cache, Weighted};
use crate::commit::{Prepared, prepare};
use crate::config::{IdleTimes, OrchestratorConfig};
use crate::failure_counts::FailureCounts;
use crate::handle_error::HandleError;
use crate::input::DeliveredInput;
use crate::repair_due::{ConnectedSince, EffectsEvidence, FailedEffects, is_timer_lost};
use crate::skew::SkewCheck;
use crate::start::StartReads;
use crate::turn_trace::{self, EndedTurn};
use service::clock::Clock;

/// Decisions about one input while other replicas win the slot, before the input is returned to the queue.
const ROUNDS_MAX: u32 = 32;
/// Slots that are read one by one to update a cached state; if more are missing, the page is read.
const CATCH_UP_MAX: u64 = 8;

/// Ends of another history that one load of a log removes; a writer may add one meanwhile.
const FOREIGN_ENDS_MAX: u32 = 4;

/// Pause before a timer whose decision panics fires again: each firing leaves a dead letter.
const POISON_TIMER_PAUSE: Duration = Duration::from_hours(1);

/// Handles the inputs of all sessions of a replica.
pub(crate) struct SessionRunner {
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: Cache<Loaded>,
    pub(crate) failures: FailureCounts,
    pub(crate) start_reads: StartReads,
    pub(crate) idle_times: IdleTimes,
    part_bytes: usize,
    skew: SkewCheck,
    failed_effects: FailedEffects,
    connected_since: ConnectedSince,
    /// Whether a log was found to lack commits: other sessions lost work items or timers as well.
    pub(crate) lost_commits: AtomicBool,
}

/// Inputs were handled: each of them is in the log and its effects are performed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Handled {
    /// Whether spans were sent that nobody sends again once the inputs are acknowledged.
    pub(crate) sent_spans: bool,
}

/// A state of a session that this version may decide on, since no newer version wrote its log. Only this module creates
/// one, so that no other state is decided on.
#[derive(Debug)]
pub(crate) struct Loaded {
    session: Session,
    /// Generation of the connection over which the state was read, or over which its last commit was stored.
    generation: u64,
    /// Whether outstanding effects may never have been performed, or may have been lost since.
    is_repair_due: bool,
}

impl Weighted for Loaded {
    fn weight(&self) -> usize {
        self.session.weight()
    }
}

impl SessionRunner {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, config: &OrchestratorConfig) -> Self {
        let connected_since = ConnectedSince::new(bus.transport().generation(), clock.now());
        Self {
            connected_since,
            lost_commits: AtomicBool::new(false),
            bus,
            clock,
            cache: Cache::new(config.cached_sessions, config.cache_bytes),
            failures: FailureCounts::default(),
            start_reads: StartReads::default(),
            idle_times: IdleTimes::of(config),
            part_bytes: config.transcript_part_bytes,
            skew: SkewCheck::default(),
            failed_effects: FailedEffects::default(),
        }
    }

    /// Fails while the clock of this replica is far from the server's: deadlines and ages would be wrong, and future
    /// ones would stay in the log. The server stored the input at `stored_at`.
    pub(crate) async fn check_clock(&self, stored_at: Timestamp) -> Result<(), HandleError> {
        match self.skew.check(&self.bus, self.clock.now(), stored_at).await? {
            None => Ok(()),
            Some(skew) => Err(HandleError::Skewed(skew)),
        }
    }

    /// Handles inputs of one session. When this succeeds, each of them is in the log and its effects are performed.
    /// `cached` is the locked entry of the session in the cache.
    pub(crate) async fn handle(
        &self,
        key: &SessionKey,
        cached: &mut Option<Loaded>,
        inputs: &[DeliveredInput],
    ) -> Result<Handled, HandleError> {
        let mut is_repair_due = self.failed_effects.take(key);
        let result = self.handle_with_state(key, cached, inputs, &mut is_repair_due).await;
        if is_repair_due && cached.is_none() {
            self.failed_effects.put(key);
        }
        result
    }

    /// Implements [`SessionRunner::handle`]. `is_repair_due` tells whether outstanding effects may be left, also if
    /// this fails and the state is not cached.
    ///
    /// A round ends with a commit, or the next one begins with a newer state:
    ///
    /// 1. Load the state, from the cache or the log, at least up to the slot that an input knows.
    /// 2. Leave out inputs that are in the log. If none is left and the leader has no newer slot, perform the outstanding
    ///    effects again, and end.
    /// 3. Drop results and timers of a session without a log.
    /// 4. Resolve the inputs: prompts, tools and bodies.
    /// 5. Decide. If the loop panics, several inputs are handled one by one, and a single one is committed as poison.
    /// 6. Commit to the next slot. A compaction that is too large is left out in the next round.
    /// 7. Perform the effects if the commit was accepted. Begin again if another replica won the slot.
    async fn handle_with_state(
        &self,
        key: &SessionKey,
        cached: &mut Option<Loaded>,
        inputs: &[DeliveredInput],
        is_repair_due: &mut bool,
    ) -> Result<Handled, HandleError> {
        let mut at_least = inputs.iter().filter_map(|input| input.known_slot).max();
        let mut idle_times = self.idle_times;
        for round in 0..ROUNDS_MAX {
            let loaded = self.load_through_cache(key, cached, at_least).await?;
            *is_repair_due |= loaded.is_repair_due;
            let Loaded { session, generation, .. } = loaded;
            let new = not_applied(&session, inputs);
            if new.is_empty() {
                if !self.is_newest(key, &session, &mut at_least).await? {
                    continue;
                }
                let performed = self.perform_outstanding(key, &session, inputs, Publication::Again);
                let result = scope(session.turn_trace(), performed).await;
                *is_repair_due = !matches!(result, Ok(_) | Err(HandleError::Poison | HandleError::Split));
                *cached = Some(Loaded { session, generation, is_repair_due: *is_repair_due });
                return result.map(|(_, handled)| handled);
            }
            if session.next_slot() == 0 && !new.iter().any(|input| input.is_client()) {
                // The session was erased, or never existed. A log of one refused result would stay for ever.
                tracing::info!(session = %key, inputs = new.len(), "a result or a timer of a session without a log is dropped");
                return Ok(Handled::default());
            }
            // The trace follows from the state: the input may have another trace or none.
            let position = new.first().and_then(|first| turn_trace::input_position(&session, first));
            let resolved = scope(position, self.resolve(&new, &session, idle_times)).await?;
            let decided = self.decide(&session, &resolved);
            let is_poison = decided.is_none();
            if is_poison && resolved.len() > 1 {
                *cached = Some(Loaded { session, generation, is_repair_due: *is_repair_due });
                return Err(HandleError::Split);
            }
            let decision = decided.unwrap_or_else(|| self.poison_decision(&session, &resolved));
            *is_repair_due |= is_timer_lost(session.timer(), self.clock.now());
            let (ended, began) = (EndedTurn::find(&session, &decision.events), session.turn_began());
            let prepared = prepare(session, &decision, self.part_bytes)?;
            let committed = match scope(position, self.commit(key, &prepared)).await {
                // The session goes on with the log that it has: its timer must not be lost.
                Err(error @ BusError::TooLarge { .. }) if compacts(&decision) => {
                    tracing::warn!(session = %key, %error, "the log is not compacted: its session is too large for one commit");
                    idle_times.compact_after = Duration::MAX;
                    continue;
                }
                committed => committed?,
            };
            match committed {
                Committed::Ours => {
                    count_turn(ended.as_ref(), began, &decision);
                    let slot = prepared.slot;
                    let performed = self.perform_commit(key, &prepared, &decision, inputs, *is_repair_due);
                    let result = Box::pin(performed).await;
                    // An ended session gets few inputs, so its state is not cached.
                    *is_repair_due = result.is_err();
                    let loaded = Loaded { session: prepared.after, generation, is_repair_due: *is_repair_due };
                    *cached = (loaded.session.phase() != Phase::Ended).then_some(loaded);
                    result?;
                    let handled = self.send_spans(key, slot, ended.as_ref()).await?;
                    return if is_poison { Err(HandleError::Poison) } else { Ok(handled) };
                }
                Committed::Theirs => tracing::debug!(session = %key, round, "another replica won the slot"),
            }
        }
        Err(HandleError::Busy)
    }

    /// Whether a state is that of the leader, so that its outstanding effects may be performed: those of an older state
    /// would set an older timer. Otherwise `at_least` has the last slot of the leader, or the log has another history,
    /// in which the inputs may not be handled.
    async fn is_newest(
        &self,
        key: &SessionKey,
        session: &Session,
        at_least: &mut Option<u64>,
    ) -> Result<bool, HandleError> {
        let head = self.bus.head(key, Read::Leader).await?;
        let (end, commit) = head.map_or((0, String::new()), |head| (head.slot + 1, head.meta.commit));
        if end > session.next_slot() {
            *at_least = Some(end - 1);
            return Ok(false);
        }
        Ok(commit == session.commit_id())
    }

    /// Loads what the decision about inputs needs: prompts, tools and bodies.
    async fn resolve(
        &self,
        inputs: &[&DeliveredInput],
        session: &Session,
        idle_times: IdleTimes,
    ) -> Result<Vec<Input>, HandleError> {
        let mut resolved = Vec::with_capacity(inputs.len());
        for input in inputs {
            let resolving = input.resolve(&self.bus, &self.start_reads, session, idle_times);
            // Boxed: the future of an input would be too large for a stack otherwise.
            resolved.push(Box::pin(resolving).await?);
        }
        Ok(resolved)
    }

    /// Performs the effects of a commit that is in the log.
    async fn perform_commit(
        &self,
        key: &SessionKey,
        prepared: &Prepared,
        decision: &Decision,
        inputs: &[DeliveredInput],
        is_repair_due: bool,
    ) -> Result<(), HandleError> {
        let Prepared { slot, meta, texts, after, .. } = prepared;
        let events = envelopes(meta, &decision.events, texts, key, *slot);
        scope(after.turn_trace(), self.perform(key, after, (*slot, events), decision, inputs, is_repair_due)).await
    }

    /// Sends the spans of a turn that a commit ended, if it did.
    async fn send_spans(&self, key: &SessionKey, slot: u64, ended: Option<&EndedTurn>) -> Result<Handled, HandleError> {
        let mut handled = Handled::default();
        if let Some(ended) = ended {
            handled.sent_spans = turn_trace::send_turn(&self.bus, ended, key, slot).await?;
        }
        Ok(handled)
    }

    async fn commit(&self, key: &SessionKey, prepared: &Prepared) -> Result<Committed, BusError> {
        let offer = prepared.offer(&self.bus);
        if prepared.meta.moved.is_some() {
            // A session that comes back takes another slot than the next one.
            return self.bus.commit_behind_head(key, offer, &prepared.meta.prev).await;
        }
        self.bus.commit_for(key, offer).await
    }

    /// Returns the state with slot `at_least` applied, if the log has that slot. A cached state is used while the
    /// connection is the one over which it was read.
    async fn load_through_cache(
        &self,
        key: &SessionKey,
        cached: &mut Option<Loaded>,
        at_least: Option<u64>,
    ) -> Result<Loaded, HandleError> {
        let generation = self.bus.transport().generation();
        match cached.take() {
            Some(loaded) if loaded.generation == generation => match at_least {
                Some(slot) => self.catch_up(key, loaded, slot).await,
                None => Ok(loaded),
            },
            Some(loaded) => {
                let reloaded = self.reload(key, &loaded, at_least.unwrap_or(0)).await;
                if reloaded.is_err() {
                    // The next load compares with it again.
                    *cached = Some(loaded);
                }
                reloaded
            }
            None => self.load(key, at_least).await,
        }
    }

    /// Makes the cached state one that was read over the present connection. Another one may know commits that the log
    /// has lost.
    pub(crate) async fn refresh<'a>(
        &self,
        key: &SessionKey,
        cached: &'a mut Option<Loaded>,
    ) -> Result<&'a Session, HandleError> {
        let loaded = self.load_through_cache(key, cached, None).await?;
        Ok(&cached.insert(loaded).session)
    }

    /// Reads a state again that was read over an earlier connection.
    async fn reload(&self, key: &SessionKey, before: &Loaded, at_least: u64) -> Result<Loaded, HandleError> {
        // A stream replica that lags must not look like a server with an older store.
        let known = before.session.next_slot().saturating_sub(1);
        let at_least = at_least.max(known);
        let generation = self.bus.transport().generation();
        let commits = self.read_commits(key, || self.bus.load_from(key, at_least)).await?;
        let reloaded = self.restore(key, &commits, Some(at_least), generation, true)?;
        self.report_rewound(key, &before.session, &reloaded.session).await?;
        Ok(reloaded)
    }

    /// Applies the slots up to `at_least` to a cached state. If only a few are missing, they are read one by one: two
    /// replicas that alternate on a session would otherwise read the whole page each time.
    async fn catch_up(&self, key: &SessionKey, mut loaded: Loaded, at_least: u64) -> Result<Loaded, HandleError> {
        let missing = loaded.session.next_slot()..=at_least;
        if missing.is_empty() {
            return Ok(loaded);
        }
        if at_least - missing.start() >= CATCH_UP_MAX {
            return self.load(key, Some(at_least)).await;
        }
        let Some(commits) = self.bus.slots(key, missing).await? else { return self.load(key, Some(at_least)).await };
        for (slot, commit) in &commits {
            if commit.is_newer() {
                return Err(HandleError::Newer { fold: commit.meta.fold });
            }
            if !commit.meta.follows(loaded.session.commit_id()) {
                // The log has another history than the cached state.
                return self.load(key, Some(at_least)).await;
            }
            loaded.session.fold_commit(*slot, commit);
        }
        Ok(loaded)
    }

    /// The state of a session without a log.
    pub(crate) fn assume_new(&self, key: &SessionKey) -> Result<Loaded, HandleError> {
        self.restore(key, &[], None, self.bus.transport().generation(), false)
    }

    /// Reads the state of a session from the log, which has slot `at_least` as far as the caller knows.
    pub(crate) async fn load(&self, key: &SessionKey, at_least: Option<u64>) -> Result<Loaded, HandleError> {
        let generation = self.bus.transport().generation();
        let commits = self.read_commits(key, || self.bus.load_from(key, at_least.unwrap_or(0))).await?;
        self.restore(key, &commits, at_least, generation, false)
    }

    /// Reads the log of a session. An end that is of another history than what stands before it is removed first: no
    /// state can be made of it, and what it was decided on is lost.
    async fn read_commits<R>(&self, key: &SessionKey, read: impl Fn() -> R) -> Result<Vec<(u64, Commit)>, HandleError>
    where
        R: Future<Output = Result<Option<Vec<(u64, Commit)>>, BusError>>,
    {
        for _ in 0..FOREIGN_ENDS_MAX {
            match read().await {
                Err(BusError::TwoHistories { slot, .. }) => {
                    if self.bus.remove_foreign_end(key, slot).await? > 0 {
                        // The store lacks what was before those commits, and maybe more.
                        self.lost_commits.store(true, Ordering::Relaxed);
                    }
                }
                commits => return Ok(commits?.unwrap_or_default()),
            }
        }
        Err(HandleError::Busy)
    }

    /// Makes the state of commits that were read over the connection of `generation`; `was_known` says whether this
    /// replica knew a state of the session over an earlier one.
    fn restore(
        &self,
        key: &SessionKey,
        commits: &[(u64, Commit)],
        at_least: Option<u64>,
        generation: u64,
        was_known: bool,
    ) -> Result<Loaded, HandleError> {
        let session = Session::restore(key.clone(), commits)?;
        let now = self.clock.now();
        let evidence = EffectsEvidence {
            now,
            last_commit: commits.last().map(|(_, commit)| commit.meta.time),
            connected: self.connected_since.first_seen(generation, now),
            was_known,
            lacks_slot: at_least.is_some_and(|slot| session.next_slot() <= slot),
            timer: session.timer(),
        };
        let is_repair_due = evidence.may_miss_effects();
        Ok(Loaded { session, generation, is_repair_due })
    }

    /// Performs the outstanding effects of a session again, and returns them.
    pub(crate) async fn repair(
        &self,
        key: &SessionKey,
        publication: Publication,
    ) -> Result<Vec<SessionEffect>, HandleError> {
        let mut cached = self.cache.lock(key).await;
        // The cached state stays until its loss is reported, since only it shows what the log had.
        let generation = self.bus.transport().generation();
        let commits = self.read_commits(key, || self.bus.load_latest(key)).await?;
        let session = Session::restore(key.clone(), &commits)?;
        if let Some(before) = cached.as_ref() {
            self.report_rewound(key, &before.session, &session).await?;
        }
        *cached = None;
        let performed = self.perform_outstanding(key, &session, &[], publication);
        let (effects, _) = scope(session.turn_trace(), performed).await?;
        *cached = (session.phase() != Phase::Ended).then_some(Loaded { session, generation, is_repair_due: false });
        Ok(effects)
    }

    /// Publishes an error to the viewers if the log no longer contains the last commit that this replica knew.
    async fn report_rewound(&self, key: &SessionKey, before: &Session, now: &Session) -> Result<(), HandleError> {
        let is_other_history = match (before.next_slot().checked_sub(1), now.next_slot() > before.next_slot()) {
            (None, _) => false,
            (Some(_), false) => now.commit_id() != before.commit_id(),
            (Some(slot), true) => {
                let stored = self.bus.commit_at(key, slot).await?;
                stored.is_some_and(|commit| commit.meta.commit != before.commit_id())
            }
        };
        if !is_other_history {
            return Ok(());
        }
        let (reached, lost) = (now.seq(), before.seq());
        tracing::error!(session = %key, reached, lost, "the log was restored to an older state");
        self.lost_commits.store(true, Ordering::Relaxed);
        let data = ErrorEvent {
            code: ErrorCode::HistoryLost,
            message: format!(
                "the server was restored to an older state: a part of this session's history up to seq {lost} is lost; \
                 the session continues after seq {reached}"
            ),
            retryable: false,
            during: "reading the session's log".to_owned(),
        };
        Ok(self.publish_error(key, format!("{}-lost-{lost}", key.session), &data).await?)
    }

    /// Publishes an error to the viewers of a session. The log does not contain it.
    pub(crate) async fn publish_error(&self, key: &SessionKey, id: String, data: &ErrorEvent) -> Result<(), BusError> {
        let envelope = Envelope {
            id,
            session_id: key.session.clone(),
            tenant: key.tenant.clone(),
            seq: None,
            time: self.clock.now(),
            trace_id: String::new(),
            data: Json::of(data),
        };
        self.bus.publish_event(key, Topic::Error, &envelope).await
    }

    /// Decides about inputs. Returns `None` if the loop panics.
    fn decide(&self, session: &Session, inputs: &[Input]) -> Option<Decision> {
        let began = Instant::now();
        let decided = catch_unwind(AssertUnwindSafe(|| session.decide(self.clock.now(), inputs)));
        telemetry::metric::decide_duration(began.elapsed());
        decided.ok()
    }

    /// The decision about inputs that make the loop panic: they must be in the log, like all others. A timer that fired
    /// is set again, since the session has no other one.
    fn poison_decision(&self, session: &Session, inputs: &[Input]) -> Decision {
        let message = "the loop could not handle this input; it is among the dead letters".to_owned();
        let refusal = Refusal { code: ErrorCode::Poison, message };
        let ignored = |input: &Input| {
            Event::InputIgnored(InputIgnored {
                input: input.reference.clone(),
                control_seq: input.control_seq,
                control_at: input.control_at,
                refusal: refusal.clone(),
                usage: None,
                call: None,
                late: None,
                parent_command_number: None,
                parent: None,
            })
        };
        let mut decision =
            Decision { at: self.clock.now(), events: inputs.iter().map(ignored).collect(), effects: Vec::new() };
        let is_timer = inputs.iter().any(|input| input.reference.kind == InputKind::Timer);
        if is_timer && session.timer().is_some() {
            let (number, at) = (session.timers() + 1, decision.at.after(POISON_TIMER_PAUSE));
            decision.events.push(Event::TimerSet(TimerSet { number, at }));
            decision.effects.push(SessionEffect::SetTimer { number, at });
        }
        decision
    }
}

fn compacts(decision: &Decision) -> bool {
    decision.events.iter().any(|event| matches!(event, Event::LogCompacted(_)))
}

/// Measures a turn that ended with this commit.
fn count_turn(ended: Option<&EndedTurn>, began: Option<Timestamp>, decision: &Decision) {
    let (Some(ended), Some(began)) = (ended, began) else { return };
    let who = Who { agent: &ended.facts.agent_id, model: &ended.facts.model };
    for event in &decision.events {
        if let Event::TurnCompleted(completed) = event {
            telemetry::metric::turn_duration(who, completed.stop_reason.as_str(), decision.at.since(began));
        }
    }
}

/// Whether the log contains this input.
/// Returns the inputs that are not in the log, each once.
fn not_applied<'a>(session: &Session, inputs: &'a [DeliveredInput]) -> Vec<&'a DeliveredInput> {
    let mut references = BTreeSet::new();
    let is_new =
        |input: &&'a DeliveredInput| !is_already_applied(session, input) && references.insert(&input.reference);
    inputs.iter().filter(is_new).collect()
}

pub(crate) fn is_already_applied(session: &Session, input: &DeliveredInput) -> bool {
    let position = input.position;
    session.has_handled(&input.reference, position.map(|at| at.seq), position.map(|at| at.stored_at))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use bus_memory::MemoryServer;
    use contract::ids::{SessionId, TenantId};
    use service::clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn poison_that_is_in_the_log_is_still_poison_when_it_comes_again() {
        let config = OrchestratorConfig::default();
        let runner = SessionRunner::new(MemoryServer::new().bus(), Arc::new(SystemClock), &config);
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let session = Session::new(key.clone());
        let poison = DeliveredInput::timer(key.clone(), 1).unwrap();
        let input = poison.resolve(&runner.bus, &runner.start_reads, &session, runner.idle_times).await.unwrap();
        let decision = runner.poison_decision(&session, &[input]);
        let prepared = prepare(session, &decision, config.transcript_part_bytes).unwrap();
        assert_eq!(runner.commit(&key, &prepared).await.unwrap(), Committed::Ours);
        let again = runner.handle(&key, &mut None, std::slice::from_ref(&poison)).await;
        assert!(matches!(again, Err(HandleError::Poison)), "{again:?}");
        let two = runner.handle(&key, &mut None, &[poison.clone(), poison]).await;
        assert!(matches!(two, Err(HandleError::Split)), "{two:?}");
    }

    #[tokio::test]
    async fn timer_makes_the_loop_panic_it_is_set_again() {
        let config = OrchestratorConfig::default();
        let runner = SessionRunner::new(MemoryServer::new().bus(), Arc::new(SystemClock), &config);
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let mut session = Session::new(key.clone());
        let due = runner.clock.now();
        session.fold(0, due, &[Event::TimerSet(TimerSet { number: 1, at: due })]);
        let input = DeliveredInput::timer(key, 1).unwrap();
        let input = input.resolve(&runner.bus, &runner.start_reads, &session, runner.idle_times).await.unwrap();
        let decision = runner.poison_decision(&session, &[input]);
        session.fold(1, decision.at, &decision.events);
        let at = decision.at.after(POISON_TIMER_PAUSE);
        assert_eq!((session.timers(), session.timer()), (2, Some(at)));
        assert_eq!(decision.effects, [SessionEffect::SetTimer { number: 2, at }]);
    }
}
