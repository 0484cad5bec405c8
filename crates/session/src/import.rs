//! A session that comes from elsewhere: what it says at first, in its new place.

use contract::Timestamp;
use contract::event::{Event, SessionArchived, SessionImported, TimerSet};

use crate::state::{Life, State};
use crate::{Decision, Session, effect};

impl Session {
    /// The first commit of a log here, for a session that was folded from a file of `exported`: what was before is in
    /// the archive. `None` for one that never started, or is in a turn: its calls are open elsewhere.
    pub fn import(&self, now: Timestamp, exported: Timestamp) -> Option<Decision> {
        if self.core.life == Life::NotStarted || self.core.turn.is_some() {
            return None;
        }
        let mut core = self.core.clone();
        let at = now.max(core.updated);
        core.begin_commit(core.next_slot(), at);
        let slots = core.slot();
        let mut events = Vec::new();
        let mut emit = |core: &mut State, event: Event| {
            core.apply(at, &event);
            events.push(event);
        };
        emit(&mut core, Event::SessionImported(SessionImported { slots, exported }));
        match core.wake() {
            Some(at) => {
                let number = core.timers + 1;
                emit(&mut core, Event::TimerSet(TimerSet { number, at }));
            }
            None => emit(&mut core, Event::SessionArchived(SessionArchived { slots })),
        }
        let effects = effect::of_all(&core, &events);
        Some(Decision { at, events, effects })
    }
}
