//! A session that comes from elsewhere: what it says at first, in its new place.

use contract::Timestamp;
use contract::event::{Event, SessionArchived, SessionImported, TimerSet};

use crate::state::{Lifecycle, State};
use crate::{Decision, Session, effect};

impl Session {
    /// The first commit of a log here, for a session that was folded from a file of `exported`: what was before is in
    /// the archive. `None` for one that never started, or is in a turn: its calls are open elsewhere.
    pub fn import(&self, now: Timestamp, exported: Timestamp) -> Option<Decision> {
        if self.state.life == Lifecycle::NotStarted || self.state.turn.is_some() {
            return None;
        }
        let mut state = self.state.clone();
        let at = now.max(state.updated);
        state.begin_commit(state.next_slot(), at);
        let slots = state.slot();
        let mut events = Vec::new();
        let mut emit = |state: &mut State, event: Event| {
            state.apply(at, &event);
            events.push(event);
        };
        emit(&mut state, Event::SessionImported(SessionImported { slots, exported }));
        match state.next_deadline() {
            Some(at) => {
                let number = state.timers + 1;
                emit(&mut state, Event::TimerSet(TimerSet { number, at }));
            }
            None => emit(&mut state, Event::SessionArchived(SessionArchived { slots })),
        }
        let effects = effect::of_all(&state, &events);
        Some(Decision { at, events, effects })
    }
}
