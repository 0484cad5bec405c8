//! `pause`, `resume`, `stop`, `clear_history`.

use contract::ErrorCode;
use contract::command::{ControlReason, Verb};
use contract::event::{ContextCleared, EndReason, Event, StatusChanged, StopReason};

use super::{DecisionBuilder, Ignored};

impl DecisionBuilder<'_> {
    fn status(&self, because: &ControlReason) -> StatusChanged {
        StatusChanged { by: self.input.by.clone(), reason: because.reason.clone() }
    }

    pub(super) fn pause(&mut self, because: &ControlReason) -> Result<(), Ignored> {
        if self.core.paused {
            return Err(Ignored::because(ErrorCode::NotNow, "the session is paused already"));
        }
        self.handled();
        let status = self.status(because);
        self.emit(Event::StatusPaused(status));
        self.tell_children(Verb::Pause);
        Ok(())
    }

    pub(super) fn resume(&mut self, because: &ControlReason) -> Result<(), Ignored> {
        if !self.core.paused {
            return Err(Ignored::because(ErrorCode::NotNow, "the session is not paused"));
        }
        self.handled();
        let status = self.status(because);
        self.emit(Event::StatusResumed(status));
        self.tell_children(Verb::Resume);
        Ok(())
    }

    pub(super) fn stop(&mut self, because: &ControlReason) {
        self.handled();
        if self.core.turn.is_some() {
            self.end_turn(StopReason::Stopped);
        }
        let status = self.status(because);
        self.end_session_because(EndReason::Stopped, None, Some(status));
    }

    pub(super) fn clear(&mut self, because: &ControlReason) -> Result<(), Ignored> {
        if self.core.turn.is_some() {
            let message = "a turn is running; stop it or wait for its end, then clear";
            return Err(Ignored::because(ErrorCode::NotNow, message));
        }
        self.handled();
        let StatusChanged { by, reason } = self.status(because);
        self.emit(Event::ContextCleared(ContextCleared { turns: self.core.turns, by, reason }));
        Ok(())
    }
}
