//! A session that comes from elsewhere, and one that goes elsewhere: its first commit there, and its last one here.

use contract::event::{Event, SessionArchived, SessionImported, SessionMoved, TimerSet};
use contract::{CellName, Timestamp};

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

    /// Whether it rests: it waits for its user, and owes nothing to anybody. A child does not rest before its end, since
    /// its parent waits in the same cell.
    pub fn is_resting(&self) -> bool {
        let state = &self.state;
        let is_child = state.setup.as_ref().is_some_and(|setup| setup.parent.is_some());
        state.life == Lifecycle::Alive
            && state.turn.is_none()
            && state.waiting.is_empty()
            && state.children.is_empty()
            && state.cancels.is_empty()
            && !is_child
    }

    /// The commit that says that another cell has the session, or expects it. After it nothing happens here. `None` for a
    /// session that does not rest. One that never began here leaves nothing for the archive, and so does one that is
    /// elsewhere already.
    pub fn move_to(&self, now: Timestamp, to: CellName) -> Option<Decision> {
        let is_here = match self.state.life {
            Lifecycle::NotStarted => false,
            Lifecycle::Ended if self.state.moved.is_some() => false,
            Lifecycle::Alive if self.is_resting() => true,
            Lifecycle::Alive | Lifecycle::Ended => return None,
        };
        let mut state = self.state.clone();
        let at = now.max(state.updated);
        state.begin_commit(state.next_slot(), at);
        let slots = if is_here { state.slot() } else { 0 };
        let event = Event::SessionMoved(SessionMoved { to, slots });
        state.apply(at, &event);
        let effects = effect::of_all(&state, std::slice::from_ref(&event));
        Some(Decision { at, events: vec![event], effects })
    }
}
