//! The state of a simulated run: the session's log, its replicas, and the actions that are due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::command::Verb;
use contract::commit::Phase;
use contract::event::{Event, InputRef};
use contract::ids::CallAttempt;
use contract::limits::COMPACT_AFTER;
use contract::subject::SessionKey;
use contract::tool::{EffectClass, Outcome};
use contract::{CallId, CommandId, Json, SessionId, TenantId, Timestamp};
use session::{Input, Session};

use crate::children::Children;
use crate::oracle::Oracle;
use crate::planted_bug::PlantedBug;
use crate::rng::Rng;
use crate::world::stats::RunStats;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Deliver(usize),
    /// A client sends a command again under its id.
    Repeat(usize),
    /// A worker gets an item.
    Start(Item),
    /// A worker acknowledges an item, since it found the session paused.
    Park(Item),
    EndModel {
        call: CallAttempt,
        slot: u64,
    },
    /// A tool reports progress.
    Progress {
        call: CallAttempt,
        slot: u64,
    },
    EndTool {
        call: CallAttempt,
        slot: u64,
        outcome: Outcome,
    },
    Timer(u64),
    StartChild {
        call: CallId,
        slot: u64,
    },
    CommandChild {
        call: CallId,
        number: u64,
        verb: Verb,
    },
    EndChild {
        call: CallId,
    },
}

/// A delivered work item.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) call: CallAttempt,
    pub(super) slot: u64,
    /// Number of the message in the queue: an item that replaces another one has a number of its own.
    pub(super) number: u64,
    pub(super) delivery: u32,
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) bug: PlantedBug,
    pub(super) now: u64,
    pub(super) queue: BTreeMap<(u64, u64), Action>,
    pub(super) order: u64,
    pub(super) inputs: Vec<Input>,
    pub(super) known: BTreeMap<InputRef, usize>,
    pub(super) waiting: BTreeMap<u64, usize>,
    pub(super) control_seq: u64,
    pub(super) log: Vec<(Timestamp, Vec<Event>)>,
    /// The slot with which the log begins since it was last compacted, and the snapshot of its commit.
    pub(super) log_start: Option<(u64, Json)>,
    /// Time without an input after which the log is compacted.
    pub(super) compact_after: Duration,
    pub(super) heads: Vec<(Vec<String>, Phase)>,
    pub(super) truth: Session,
    pub(super) replicas: Vec<Session>,
    pub(super) oracle: Oracle,
    pub(super) timer: Option<u64>,
    /// The items in the queues, by call, with the numbers of their messages.
    pub(super) stored_items: BTreeMap<String, u64>,
    /// Number of the last item.
    pub(super) items: u64,
    /// The commit that the items of each call name.
    pub(super) openers: BTreeMap<String, String>,
    pub(super) running: BTreeSet<String>,
    pub(super) claims: BTreeSet<String>,
    pub(super) runs: BTreeMap<String, u32>,
    pub(super) effects: BTreeMap<String, EffectClass>,
    pub(super) cost_micros: u64,
    pub(super) max_iterations: u32,
    /// A person is asked at a limit.
    pub(super) asks: bool,
    pub(super) figures: RunStats,
    pub(super) trace: Vec<String>,
    pub(super) public: u64,
    pub(super) calm: bool,
    pub(super) children: Children,
    /// The messages that each turn began with, by turn.
    pub(super) turn_messages: BTreeMap<u32, Vec<CommandId>>,
    /// Calls that no worker has started, since their session was paused.
    pub(super) not_started: BTreeSet<String>,
}

pub(crate) fn key() -> SessionKey {
    let session = SessionId::new("s").unwrap_or_else(|_| unreachable!("a valid id"));
    SessionKey { tenant: TenantId::default(), session }
}

impl World {
    pub(super) fn new(seed: u64, bug: PlantedBug) -> Self {
        let mut rng = Rng::new(seed);
        let max_iterations = 1 + u32::try_from(rng.below(5)).unwrap_or(0);
        let asks = rng.chance(40);
        let replicas = 1 + rng.below(3);
        let calm = rng.chance(15);
        Self {
            bug,
            now: 1_000_000,
            queue: BTreeMap::new(),
            order: 0,
            inputs: Vec::new(),
            known: BTreeMap::new(),
            waiting: BTreeMap::new(),
            control_seq: 0,
            log: Vec::new(),
            log_start: None,
            compact_after: match seed % 4 {
                0 => Duration::ZERO,
                1 => Duration::from_secs(3),
                2 => Duration::from_secs(20),
                _ => COMPACT_AFTER,
            },
            heads: Vec::new(),
            truth: Session::new(key()),
            replicas: (0..replicas).map(|_| Session::new(key())).collect(),
            oracle: Oracle::new(max_iterations),
            timer: None,
            stored_items: BTreeMap::new(),
            items: 0,
            openers: BTreeMap::new(),
            running: BTreeSet::new(),
            claims: BTreeSet::new(),
            runs: BTreeMap::new(),
            effects: BTreeMap::new(),
            cost_micros: 0,
            max_iterations,
            asks,
            figures: RunStats::default(),
            trace: Vec::new(),
            public: 0,
            calm,
            children: Children::default(),
            turn_messages: BTreeMap::new(),
            not_started: BTreeSet::new(),
            rng,
        }
    }

    /// Decides whether a fault occurs now, and counts it.
    pub(super) fn fault(&mut self, percent: u64) -> bool {
        let happens = !self.calm && self.rng.chance(percent);
        self.figures.faults += u64::from(happens);
        happens
    }

    pub(super) fn at(&mut self, delay: u64, action: Action) {
        self.order += 1;
        self.queue.insert((self.now + delay, self.order), action);
    }
}
