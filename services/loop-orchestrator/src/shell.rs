//! The shell around the loop, for one delivered input: load, decide, commit, perform (architecture, "The shell").

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bus::log::Committed;
use bus::work::Publication;
use bus::{Bus, BusError, Offer, Read};
use contract::commit::Phase;
use contract::event::{Envelope, ErrorEvent, Event, InputIgnored, Topic};
use contract::limits::{CLOCK_SKEW_MAX, QUIET_MAX, TIMER_LATE_MAX};
use contract::subject::SessionKey;
use contract::{ErrorCode, Json, Timestamp, command::Refusal};
use session::{Decision, Effect, Input, RestoreError, RunningTurn, Session};
use tracing::Instrument;

use crate::Config;
use crate::cache::Cache;
use crate::commit::{Prepared, prepare};
use crate::drive::span;
use crate::failures::Failures;
use crate::input::Sent;
use crate::skew::{Skew, SkewCheck};
use service::clock::Clock;

/// Times that one input is decided again because another replica was faster, before it is handed back.
const ROUNDS_MAX: u32 = 32;
/// Slots that are read one by one to bring a cached state up to date; with more, the page is read.
const CATCH_UP_MAX: u64 = 8;

/// How far apart the clocks of two replicas that decide may be. A commit that is at most this much younger than the connection
/// counts as older than it.
const CLOCKS_APART: Duration = Duration::from_secs(2 * CLOCK_SKEW_MAX.as_secs());

/// What all inputs of a replica share.
pub(crate) struct Shell {
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: Cache,
    pub(crate) failures: Failures,
    pub(crate) archive_after: Duration,
    skew: SkewCheck,
    owed: OwedSessions,
    connected_since: ConnectedSince,
}

/// The generation of the connection that the bus has, and when this replica first saw it.
#[derive(Debug)]
struct ConnectedSince(Mutex<(u64, Timestamp)>);

impl ConnectedSince {
    fn new(generation: u64, now: Timestamp) -> Self {
        Self(Mutex::new((generation, now)))
    }

    /// When the connection of this generation was seen first. For an earlier generation it says when the latest one was,
    /// which is later.
    fn of(&self, generation: u64, now: Timestamp) -> Timestamp {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 < generation {
            *seen = (generation, now);
        }
        seen.1
    }
}

/// Sessions whose state was not kept and that are owed something. With more than [`OWED_MAX`] the rest waits until it was quiet.
#[derive(Debug, Default)]
struct OwedSessions(Mutex<BTreeSet<SessionKey>>);

/// Sessions that are remembered as owed something.
const OWED_MAX: usize = 10_000;

impl OwedSessions {
    fn put(&self, key: &SessionKey) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < OWED_MAX {
            keys.insert(key.clone());
        }
    }

    fn take(&self, key: &SessionKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

/// A session's state that this version may decide on: the log that it was read from was written by no newer version. Only this
/// module makes one, so that nobody decides on anything else.
#[derive(Debug)]
pub(crate) struct Loaded {
    session: Session,
    /// The generation of the connection by which it was read, or by which its last commit was stored.
    generation: u64,
    /// Whether something that the session is owed may never have been performed, or was lost since.
    is_owed: bool,
}

impl Loaded {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// A state that was read from no log.
    #[cfg(test)]
    pub(crate) fn unverified(session: Session) -> Self {
        Self { session, generation: 0, is_owed: false }
    }
}

/// Why an input is not done.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// The bus; try again.
    Bus(BusError),
    /// A newer version of the loop wrote this session: one of its replicas will take the input.
    Newer { fold: u32 },
    /// Other replicas were faster again and again.
    Busy,
    /// The input makes the loop panic; that is in the log now.
    Poison,
    /// One of several inputs makes the loop panic: handle them one by one.
    Split,
    /// The clock of this replica is too far from the server's to decide by: another replica takes the input.
    Skewed(Skew),
    /// Our own mistake.
    Internal(String),
}

impl From<RestoreError> for Trouble {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Newer { fold } => Self::Newer { fold },
            RestoreError::Snapshot(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<BusError> for Trouble {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl Shell {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, config: &Config) -> Self {
        let archive_after = Duration::from_secs(config.archive_after);
        let connected_since = ConnectedSince::new(bus.transport().generation(), clock.now());
        Self {
            connected_since,
            bus,
            clock,
            cache: Cache::new(config.cached_sessions, config.cache_bytes),
            failures: Failures::default(),
            archive_after,
            skew: SkewCheck::default(),
            owed: OwedSessions::default(),
        }
    }

    /// Refuses to decide while the clock of this replica is far from the server's: deadlines and ages would be wrong, and those of
    /// the future would stay in the log. `stored_at` is when the server took the input.
    pub(crate) async fn check_clock(&self, stored_at: Timestamp) -> Result<(), Trouble> {
        match self.skew.check(&self.bus, self.clock.now(), stored_at).await? {
            None => Ok(()),
            Some(skew) => Err(Trouble::Skewed(skew)),
        }
    }

    /// Handles inputs of one session so that each of them is in the log when this returns, and everything that they
    /// ask of the world is done. `place` is the session's place in the cache, locked.
    pub(crate) async fn handle(
        &self,
        key: &SessionKey,
        place: &mut Option<Loaded>,
        inputs: &[Sent],
    ) -> Result<(), Trouble> {
        let mut is_owed = self.owed.take(key);
        let result = self.handle_owed(key, place, inputs, &mut is_owed).await;
        if is_owed && place.is_none() {
            self.owed.put(key);
        }
        result
    }

    /// As [`Shell::handle`]. `is_owed` says whether something that the session is owed may still have to be performed, also where this
    /// ends early and the state is not kept.
    async fn handle_owed(
        &self,
        key: &SessionKey,
        place: &mut Option<Loaded>,
        inputs: &[Sent],
        is_owed: &mut bool,
    ) -> Result<(), Trouble> {
        let mut at_least = inputs.iter().filter_map(|sent| sent.hint).max();
        for round in 0..ROUNDS_MAX {
            let loaded = self.take(key, place, at_least.unwrap_or(0)).await?;
            *is_owed |= loaded.is_owed;
            let Loaded { session, generation, .. } = loaded;
            let mut seen = BTreeSet::new();
            let new: Vec<&Sent> =
                inputs.iter().filter(|sent| !folded(&session, sent) && seen.insert(&sent.reference)).collect();
            if new.is_empty() {
                // What is owed is read from the state, so it must be the latest one: an older state would put the
                // session's timer back.
                let head = self.bus.head(key, Read::Leader).await?;
                let (end, commit) = head.map_or((0, String::new()), |head| (head.slot + 1, head.meta.commit));
                if end > session.next_slot() {
                    at_least = Some(end - 1);
                    continue;
                }
                if commit != session.commit_id() {
                    // The state is of a history that the log does not have: what it calls handled may never have been.
                    continue;
                }
                let again = inputs.first().map_or_else(tracing::Span::none, |first| span(&session, first));
                let result =
                    self.perform_again(key, &session, inputs, Publication::Again).instrument(again).await.map(drop);
                *is_owed = result.is_err();
                *place = Some(Loaded { session, generation, is_owed: *is_owed });
                return result;
            }
            // Only the state says under which trace an input stands: what came with it may be of another one, or nothing.
            let span = new.first().map_or_else(tracing::Span::none, |first| span(&session, first));
            let turn = session.running_turn();
            let mut complete = Vec::with_capacity(new.len());
            for sent in &new {
                let completed = sent.complete(&self.bus, &session, self.archive_after);
                complete.push(completed.instrument(span.clone()).await?);
            }
            let decided = span.in_scope(|| self.decide(&session, &complete));
            let poisoned = decided.is_none();
            if poisoned && complete.len() > 1 {
                *place = Some(Loaded { session, generation, is_owed: *is_owed });
                return Err(Trouble::Split);
            }
            let decision = decided.unwrap_or_else(|| self.poison(&complete));
            *is_owed |= self.lost_its_timer(&session);
            let prepared = prepare(session, &decision).map_err(|error| Trouble::Internal(error.to_string()))?;
            match self.commit(key, &prepared).instrument(span.clone()).await? {
                Committed::Ours => {
                    turn_span(key, turn.as_ref(), &decision);
                    let Prepared { slot, meta, after, .. } = prepared;
                    let performed = self.perform(key, &after, slot, &meta, &decision, inputs, *is_owed);
                    let result = performed.instrument(span).await;
                    // Little comes after the end; whatever does reads the log.
                    *is_owed = result.is_err();
                    let loaded = Loaded { session: after, generation, is_owed: *is_owed };
                    *place = (loaded.session.phase() != Phase::Ended).then_some(loaded);
                    result?;
                    return if poisoned { Err(Trouble::Poison) } else { Ok(()) };
                }
                Committed::Theirs => {
                    tracing::debug!(session = %key, slot = prepared.slot, round, "the slot is another one's");
                }
            }
        }
        Err(Trouble::Busy)
    }

    async fn commit(&self, key: &SessionKey, prepared: &Prepared) -> Result<Committed, BusError> {
        let life = prepared.fades.then(|| self.bus.transport().retention());
        let Prepared { slot, meta, body, .. } = prepared;
        let offer = Offer { slot: *slot, prev: &meta.prev, commit: &meta.commit, body: body.clone(), life };
        self.bus.commit_for(key, offer).await
    }

    /// The session's state with slot `at_least` folded, where the log reaches that far: the cached one, as long as the connection
    /// stands by which it was read.
    pub(crate) async fn take(
        &self,
        key: &SessionKey,
        place: &mut Option<Loaded>,
        at_least: u64,
    ) -> Result<Loaded, Trouble> {
        let generation = self.bus.transport().generation();
        match place.take() {
            Some(loaded) if loaded.generation == generation => self.catch_up(key, loaded, at_least).await,
            Some(loaded) => match self.load_again(key, &loaded, at_least).await {
                Ok(again) => Ok(again),
                Err(trouble) => {
                    // The next one compares as well.
                    *place = Some(loaded);
                    Err(trouble)
                }
            },
            None => self.load(key, at_least).await,
        }
    }

    /// The state of a session that was read by an earlier connection.
    async fn load_again(&self, key: &SessionKey, before: &Loaded, at_least: u64) -> Result<Loaded, Trouble> {
        // A replica of the server that is behind must not pass for a server with an older store.
        let known = before.session.next_slot().saturating_sub(1);
        let mut again = self.load(key, at_least.max(known)).await?;
        // Whoever performed what the session was owed may have told a server that knows nothing of it now.
        again.is_owed = true;
        self.report_rewound(key, &before.session, &again.session).await?;
        Ok(again)
    }

    /// A cached state with slot `at_least` folded. Where another replica wrote the few slots that it lacks, these are
    /// read and not the page: two replicas that take turns at a session would read it again at each turn.
    async fn catch_up(&self, key: &SessionKey, mut loaded: Loaded, at_least: u64) -> Result<Loaded, Trouble> {
        let missing = loaded.session.next_slot()..=at_least;
        if missing.is_empty() {
            return Ok(loaded);
        }
        if at_least - missing.start() >= CATCH_UP_MAX {
            return self.load(key, at_least).await;
        }
        let Some(commits) = self.bus.slots(key, missing).await? else { return self.load(key, at_least).await };
        for (slot, commit) in &commits {
            if commit.is_newer() {
                return Err(Trouble::Newer { fold: commit.meta.fold });
            }
            if !commit.meta.follows(loaded.session.commit_id()) {
                // The log has another history than the cached state.
                return self.load(key, at_least).await;
            }
            loaded.session.fold_commit(*slot, commit);
        }
        Ok(loaded)
    }

    /// Reads the session's state from the log: the only way to one that may be decided on.
    pub(crate) async fn load(&self, key: &SessionKey, at_least: u64) -> Result<Loaded, Trouble> {
        let generation = self.bus.transport().generation();
        let commits = self.bus.load_from(key, at_least).await?.unwrap_or_default();
        let session = Session::restore(key.clone(), &commits)?;
        // A session that was quiet may wait for something that got lost. So may one whose last commit is older than the
        // connection: the server may have come back with an older store, whose log ends where the session's does, and which
        // does not have the work that followed. One whose log ends before the slot that a worker was given its call in has
        // lost commits.
        let now = self.clock.now();
        let connected = self.connected_since.of(generation, now);
        let may_miss = |last: Timestamp| now.since(last) > QUIET_MAX || last.since(connected) < CLOCKS_APART;
        let is_owed =
            commits.last().is_some_and(|(_, commit)| may_miss(commit.meta.time)) || session.next_slot() <= at_least;
        Ok(Loaded { session, generation, is_owed })
    }

    /// As [`Shell::load`], up to the head that the leader has now, for a session that is to be repaired.
    async fn load_latest(&self, key: &SessionKey) -> Result<Loaded, Trouble> {
        let generation = self.bus.transport().generation();
        let commits = self.bus.load_latest(key).await?.unwrap_or_default();
        let session = Session::restore(key.clone(), &commits)?;
        Ok(Loaded { session, generation, is_owed: true })
    }

    /// Performs again what a session is owed. Items that wait are replaced, since the server may deliver them to nobody.
    /// Returns what was performed.
    pub(crate) async fn repair(&self, key: &SessionKey) -> Result<Vec<Effect>, Trouble> {
        let mut place = self.cache.lock(key).await;
        // The cached state stays until its loss was reported: it is all that knows what the log had.
        let Loaded { session, generation, .. } = self.load_latest(key).await?;
        if let Some(before) = place.as_ref() {
            self.report_rewound(key, &before.session, &session).await?;
        }
        *place = None;
        let effects = self.perform_again(key, &session, &[], Publication::Anew).await?;
        *place = (session.phase() != Phase::Ended).then_some(Loaded { session, generation, is_owed: false });
        Ok(effects)
    }

    /// Tells the viewers of a session whose log ends before where this replica knew it to end, or ends otherwise.
    async fn report_rewound(&self, key: &SessionKey, before: &Session, now: &Session) -> Result<(), Trouble> {
        let is_other = match (before.next_slot().checked_sub(1), now.next_slot() > before.next_slot()) {
            (None, _) => false,
            (Some(_), false) => now.commit_id() != before.commit_id(),
            (Some(slot), true) => {
                let there = self.bus.commit_at(key, slot).await?;
                there.is_some_and(|commit| commit.meta.commit != before.commit_id())
            }
        };
        if !is_other {
            return Ok(());
        }
        let (reached, lost) = (now.seq(), before.seq());
        tracing::error!(session = %key, reached, lost, "the log was put back to an older state");
        let data = ErrorEvent {
            code: ErrorCode::HistoryLost,
            message: format!(
                "the server was put back to an older state: a part of this session's history up to seq {lost} is lost; \
                 the session goes on from what is there, up to seq {reached}"
            ),
            retryable: false,
            during: "reading the session's log".to_owned(),
        };
        Ok(self.publish_error(key, format!("{}-lost-{lost}", key.session), &data).await?)
    }

    /// Publishes an error of a session that is not in its log.
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

    /// Whether the session's timer should have fired long ago: then the server lost it.
    fn lost_its_timer(&self, session: &Session) -> bool {
        session.timer().is_some_and(|due| self.clock.now().since(due) > TIMER_LATE_MAX)
    }

    /// Decides; `None` when the loop panics.
    fn decide(&self, session: &Session, inputs: &[Input]) -> Option<Decision> {
        let began = Instant::now();
        let decided = catch_unwind(AssertUnwindSafe(|| session.decide(self.clock.now(), inputs)));
        telemetry::metric::decide_duration(began.elapsed());
        decided.ok()
    }

    /// What is written of an input that makes the loop panic: it must be in the log like any other.
    fn poison(&self, inputs: &[Input]) -> Decision {
        let message = "the loop could not handle this input; it is kept among the dead letters".to_owned();
        let refusal = Refusal { code: ErrorCode::Poison, message };
        let ignored = |input: &Input| {
            Event::InputIgnored(InputIgnored {
                input: input.reference.clone(),
                control_seq: input.control_seq,
                control_at: input.control_at,
                refusal: refusal.clone(),
                usage: None,
                late: None,
                told: None,
                parent: None,
            })
        };
        Decision { at: self.clock.now(), events: inputs.iter().map(ignored).collect(), effects: Vec::new() }
    }
}

/// Sends the span of a turn that ended with this commit, once, by the replica that wrote it.
fn turn_span(key: &SessionKey, turn: Option<&RunningTurn>, decision: &Decision) {
    let Some(RunningTurn { number, started: Some(started), agent, traceparent: Some(traceparent) }) = turn else {
        return;
    };
    let reason = decision.events.iter().find_map(|event| {
        let Event::TurnCompleted(completed) = event else { return None };
        (completed.turn == *number).then(|| completed.stop_reason.as_str())
    });
    if let Some(stop_reason) = reason {
        telemetry::span::turn(&telemetry::span::Turn {
            traceparent,
            session: key.session.as_str(),
            number: *number,
            agent,
            started_ms: started.as_millis(),
            ended_ms: decision.at.as_millis(),
            stop_reason,
        });
    }
}

/// Whether the log holds this input.
pub(crate) fn folded(session: &Session, sent: &Sent) -> bool {
    session.has_handled(&sent.reference, sent.control_seq, sent.control_at)
}
