//! The shell around the loop, for one delivered input: load, decide, commit, perform (architecture, "The shell").

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::log::Committed;
use bus::{Bus, BusError, Read};
use contract::commit::{Commit, Phase};
use contract::event::{Event, InputIgnored};
use contract::subject::SessionKey;
use contract::{ErrorCode, command::Refusal};
use session::{Decision, Input, Session};

use crate::Config;
use crate::cache::Cache;
use crate::commit::{Prepared, prepare};
use crate::input::Sent;
use service::clock::Clock;

/// Times that one input is decided again because another replica was faster, before it is handed back.
const ROUNDS_MAX: u32 = 32;
/// Slots that are read one by one to bring a cached state up to date; with more, the page is read.
const CATCH_UP_MAX: u64 = 8;

/// What all inputs of a replica share.
pub(crate) struct Shell {
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: Cache,
    pub(crate) archive_after: Duration,
}

/// Why an input is not done.
#[derive(Debug)]
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
    /// Our own mistake.
    Internal(String),
}

impl From<BusError> for Trouble {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl Shell {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, config: &Config) -> Self {
        let archive_after = Duration::from_secs(config.archive_after);
        Self { bus, clock, cache: Cache::new(config.cached_sessions, config.cache_bytes), archive_after }
    }

    /// Handles inputs of one session so that each of them is in the log when this returns, and everything that they
    /// ask of the world is done. `place` is the session's place in the cache, locked.
    pub(crate) async fn handle(
        &self,
        key: &SessionKey,
        place: &mut Option<Session>,
        inputs: &[Sent],
    ) -> Result<(), Trouble> {
        let mut at_least = inputs.iter().filter_map(|sent| sent.hint).max();
        for round in 0..ROUNDS_MAX {
            let session = match place.take() {
                Some(session) => self.at_least(key, session, at_least.unwrap_or(0)).await?,
                None => self.load(key, at_least.unwrap_or(0)).await?,
            };
            let mut seen = BTreeSet::new();
            let new: Vec<&Sent> =
                inputs.iter().filter(|sent| !folded(&session, sent) && seen.insert(&sent.reference)).collect();
            if new.is_empty() {
                // What is owed is read from the state, so it must be the latest one: an older state would put the
                // session's timer back.
                let head = self.bus.head(key, Read::Leader).await?.map_or(0, |head| head.slot);
                if head >= session.next_slot() {
                    at_least = Some(head);
                    continue;
                }
                let result = self.perform_again(key, &session, inputs).await;
                *place = Some(session);
                return result;
            }
            let mut complete = Vec::with_capacity(new.len());
            for sent in &new {
                complete.push(sent.complete(&self.bus, &session, self.archive_after).await?);
            }
            let decided = self.decide(&session, &complete);
            let poisoned = decided.is_none();
            if poisoned && complete.len() > 1 {
                *place = Some(session);
                return Err(Trouble::Split);
            }
            let decision = decided.unwrap_or_else(|| self.poison(&complete));
            let prepared = prepare(session, &decision).map_err(|error| Trouble::Internal(error.to_string()))?;
            let life = prepared.fades.then(|| self.bus.transport().retention());
            match self.bus.commit_for(key, prepared.slot, &prepared.meta.commit, prepared.body.clone(), life).await? {
                Committed::Ours => {
                    let Prepared { slot, meta, after, .. } = prepared;
                    let result = self.perform(key, &after, slot, &meta, &decision, inputs).await;
                    // Little comes after the end; whatever does reads the log.
                    *place = (after.phase() != Phase::Ended).then_some(after);
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

    /// A cached state with slot `at_least` folded. Where another replica wrote the few slots that it lacks, these are
    /// read and not the page: two replicas that take turns at a session would read it again at each turn.
    async fn at_least(&self, key: &SessionKey, mut session: Session, at_least: u64) -> Result<Session, Trouble> {
        let missing = session.next_slot()..=at_least;
        if missing.is_empty() {
            return Ok(session);
        }
        if at_least - missing.start() >= CATCH_UP_MAX {
            return self.load(key, at_least).await;
        }
        let Some(commits) = self.bus.slots(key, missing).await? else { return self.load(key, at_least).await };
        refuse_newer(&commits)?;
        for (slot, commit) in &commits {
            session.fold(*slot, commit.meta.time, &commit.events);
        }
        Ok(session)
    }

    async fn load(&self, key: &SessionKey, at_least: u64) -> Result<Session, Trouble> {
        let commits = self.bus.load_from(key, at_least).await?.unwrap_or_default();
        refuse_newer(&commits)?;
        Session::replay(key.clone(), &commits).map_err(|error| Trouble::Internal(format!("snapshot: {error}")))
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

/// What a newer version wrote is not folded here.
fn refuse_newer(commits: &[(u64, Commit)]) -> Result<(), Trouble> {
    match commits.iter().find(|(_, commit)| commit.is_newer()) {
        Some((_, commit)) => Err(Trouble::Newer { fold: commit.meta.fold }),
        None => Ok(()),
    }
}

/// Whether the log holds this input. "Yes" may be believed of any state, "no" of none: that is what slots are for.
pub(crate) fn folded(session: &Session, sent: &Sent) -> bool {
    session.handled(&sent.reference).is_some() || sent.control_seq.is_some_and(|seq| seq <= session.control_seq())
}
