//! Streams that go back to an older state while every connection stays, as in a cluster that lost its newest messages.
//!
//! Only streams go back whose messages the log can bring again: items of calls, and timers. The log and the commands
//! hold what nobody else has.

use std::time::Duration;

use bus_memory::{Backup, MemoryServer};
use contract::streams::Stream;

use crate::rng::Rng;
use crate::shell::fleet::{ServiceKind, SimulatedFleet};

/// Maximum number of times that streams go back in one run.
const REPLACEMENTS_MAX: u64 = 2;
/// The streams that may go back together.
const STREAMS: [&[Stream]; 4] = [
    &[Stream::Model, Stream::Timer],
    &[Stream::Tool, Stream::Timer],
    &[Stream::Model, Stream::Tool],
    &[Stream::Model, Stream::Tool, Stream::Timer],
];

/// Copies some streams, and puts the copy back later, once or twice.
pub(super) struct OlderStreams {
    server: MemoryServer,
    rng: Rng,
    /// Whether streams go back in this run.
    is_on: bool,
    copy: Option<Backup>,
    replacements: u64,
}

impl OlderStreams {
    pub(super) fn new(server: MemoryServer, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let is_on = rng.chance(80);
        Self { server, rng, is_on, copy: None, replacements: 0 }
    }

    /// Number of replacements so far.
    pub(super) fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Makes the copy, or puts it back. Then one of the replicas that may notice it is frozen at times, some of them for
    /// longer than the others wait for its reset.
    pub(super) fn copy_or_put_back(&mut self, fleet: &mut SimulatedFleet) {
        if !self.is_on || self.replacements == REPLACEMENTS_MAX {
            return;
        }
        let Some(copy) = &self.copy else {
            self.copy = Some(self.server.backup(self.rng.pick::<&[Stream]>(&STREAMS)));
            return;
        };
        if self.rng.chance(60) {
            return;
        }
        self.server.replace(copy);
        self.replacements += 1;
        if self.rng.chance(40) {
            fleet.freeze(ServiceKind::Orchestrator, Duration::from_millis(self.rng.below(8_000)));
        }
    }
}
