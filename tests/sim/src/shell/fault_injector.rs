//! Faults of replicas: decided for each operation on the bus, from the seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bus::transport::{Ack, Read};
use bus_memory::{Action, Fault, Faults, Operation};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::rng::Rng;

/// Replicas that may die in one run.
const DEATHS_MAX: u64 = 6;
/// Operations without time passing. More of them are a loop that never ends: a fleet needs a few hundred.
const OPERATIONS_AT_ONCE_MAX: u64 = 50_000;

/// Injects faults between [`FaultInjector::begin`] and [`FaultInjector::end`].
pub(super) struct FaultInjector {
    rng: Mutex<Rng>,
    on: AtomicBool,
    count: AtomicU64,
    deaths: AtomicU64,
    /// Faults per thousand operations.
    per_thousand: u64,
    /// Stale reads per hundred reads from any replica.
    stale_percent: u64,
    /// Whether messages are delayed.
    slow: bool,
    /// Whether orchestrators die rather than have another fault: while they commit, or before all effects are performed.
    /// Their machines die with them.
    deadly: bool,
    now: Mutex<OperationsAtOnce>,
    endless: Notify,
}

/// Operations since time has last passed.
#[derive(Debug, Default)]
struct OperationsAtOnce {
    at: Option<Instant>,
    count: u64,
    /// The last of them, if there are too many.
    last: Option<String>,
}

impl FaultInjector {
    /// A deadly one where it must be, and at times where it need not be.
    pub(super) fn new(seed: u64, must_be_deadly: bool) -> Self {
        let mut rng = Rng::new(seed);
        let deadly = rng.chance(30) || must_be_deadly;
        let per_thousand = if deadly { 40 } else { [0, 5, 15, 40][rng.index(4)] };
        let stale_percent = [0, 4, 20, 60][rng.index(4)];
        let slow = rng.chance(60);
        Self {
            rng: Mutex::new(rng),
            on: false.into(),
            count: 0.into(),
            deaths: 0.into(),
            per_thousand,
            stale_percent,
            slow,
            deadly,
            now: Mutex::default(),
            endless: Notify::new(),
        }
    }

    /// Returns once the fleet loops without time passing; tells one of its operations.
    pub(super) async fn until_endless(&self) -> String {
        loop {
            self.endless.notified().await;
            if let Some(last) = self.now.lock().ok().and_then(|now| now.last.clone()) {
                return last;
            }
        }
    }

    fn note_operation(&self, op: Operation<'_>) {
        let Ok(mut now) = self.now.lock() else { return };
        let at = Some(Instant::now());
        if now.at != at {
            *now = OperationsAtOnce { at, ..OperationsAtOnce::default() };
        }
        now.count += 1;
        if now.count > OPERATIONS_AT_ONCE_MAX {
            now.last = Some(format!("{} {:?} {}", op.client, op.action, op.subject));
            self.endless.notify_one();
        }
    }

    pub(super) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_deadly(&self) -> bool {
        self.deadly
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn pick(&self, rng: &mut Rng, op: Operation<'_>) -> Fault {
        let soon = Duration::from_millis(1 + rng.below(3_000));
        let chance = if self.deadly && is_effect(op) { 100 } else { 15 };
        if rng.chance(chance) && self.deaths.load(Ordering::Relaxed) < DEATHS_MAX {
            self.deaths.fetch_add(1, Ordering::Relaxed);
            return Fault::Crash { done: rng.chance(50) };
        }
        let options: &[Fault] = match op.action {
            Action::Append => &[
                Fault::AckLost,
                Fault::NotDone,
                Fault::Lag(soon),
                Fault::Delay(soon),
                Fault::Doubtful { code: 10_071, stored: true },
                Fault::Doubtful { code: 10_164, stored: false },
                Fault::Doubtful { code: 10_158, stored: true },
                Fault::Doubtful { code: 10_077, stored: false },
                Fault::Doubtful { code: 0, stored: false },
            ],
            Action::Last(Read::Any) | Action::LastMany => {
                &[Fault::Stale(1), Fault::Stale(2), Fault::Stale(5), Fault::NotDone, Fault::Delay(soon)]
            }
            Action::Ack(Ack::Done) => &[Fault::AckLost, Fault::NotDone, Fault::Delay(soon)],
            Action::Pull => &[Fault::Redeliver, Fault::NotDone, Fault::Delay(soon)],
            // No `Lag`: a delayed answer is an old view of the log, which the recorder cannot tell from a wrong one.
            Action::Last(Read::Leader) => &[Fault::NotDone, Fault::Delay(soon)],
            Action::Publish
            | Action::Reply
            | Action::Request
            | Action::Purge
            | Action::Delete
            | Action::Ack(Ack::Progress | Ack::Retry(_))
            | Action::PauseDeliveries
            | Action::Reset
            | Action::KvPut
            | Action::KvGet
            | Action::KvDelete
            | Action::KvList
            | Action::PutObject
            | Action::GetObject
            | Action::DeleteObject => &[Fault::NotDone, Fault::Delay(soon), Fault::Lag(soon)],
            Action::KvCreate | Action::KvUpdate => &[Fault::NotDone, Fault::AckLost, Fault::Delay(soon)],
            // No fault between a worker's read of the log and its call: the recorder could not tell what is right.
            Action::RequestMany | Action::Subscribe | Action::Ping => &[Fault::None],
        };
        *rng.pick(options)
    }
}

/// Whether an orchestrator commits, or performs what it has committed.
fn is_effect(op: Operation<'_>) -> bool {
    op.client.starts_with("Orchestrator") && matches!(op.action, Action::Append | Action::Publish | Action::Request)
}

impl Faults for FaultInjector {
    fn decide(&self, op: Operation<'_>) -> Fault {
        self.note_operation(op);
        let steady = !self.on.load(Ordering::Relaxed) || op.client == "client" || op.client == "tools";
        if steady {
            return Fault::None;
        }
        let Ok(mut rng) = self.rng.lock() else { return Fault::None };
        let read = matches!(op.action, Action::Last(Read::Any) | Action::LastMany);
        let fault = if read && rng.chance(self.stale_percent) {
            Fault::Stale(1 + rng.below(3))
        } else if rng.below(1_000) < self.per_thousand {
            self.pick(&mut rng, op)
        } else if self.slow && matches!(op.action, Action::Append | Action::Pull | Action::Publish) && rng.chance(30) {
            return Fault::Delay(Duration::from_millis(1 + rng.below(300)));
        } else {
            Fault::None
        };
        if fault != Fault::None {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        fault
    }
}
