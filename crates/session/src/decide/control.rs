//! `pause`, `resume`, `stop`, `cancel_turn`, `clear_history`.

use contract::ErrorCode;
use contract::command::{ControlReason, Verb};
use contract::event::{ContextCleared, EndReason, Event, StatusChanged, StopReason};

use super::builder::{DecisionBuilder, Rejection};

impl DecisionBuilder<'_> {
    fn status(&self, control_reason: &ControlReason) -> StatusChanged {
        StatusChanged { by: self.input.by.clone(), reason: control_reason.reason.clone() }
    }

    pub(super) fn pause(&mut self, control_reason: &ControlReason) -> Result<(), Rejection> {
        if self.state.paused {
            return Err(Rejection::new(ErrorCode::NotNow, "the session is paused already"));
        }
        self.handled();
        let status = self.status(control_reason);
        self.emit(Event::StatusPaused(status));
        self.command_children(Verb::Pause);
        Ok(())
    }

    pub(super) fn resume(&mut self, control_reason: &ControlReason) -> Result<(), Rejection> {
        if !self.state.paused {
            return Err(Rejection::new(ErrorCode::NotNow, "the session is not paused"));
        }
        self.handled();
        let status = self.status(control_reason);
        self.emit(Event::StatusResumed(status));
        self.command_children(Verb::Resume);
        Ok(())
    }

    pub(super) fn stop(&mut self, control_reason: &ControlReason) {
        self.handled();
        if self.state.turn.is_some() {
            self.end_turn(StopReason::Stopped);
        }
        let status = self.status(control_reason);
        self.end_session_because(EndReason::Stopped, None, Some(status));
    }

    /// Ends the running turn. A session that has nothing else to do ends with it.
    pub(super) fn cancel_turn(&mut self, control_reason: &ControlReason) -> Result<(), Rejection> {
        if self.state.turn.is_none() {
            return Err(Rejection::new(ErrorCode::NotNow, "no turn is running"));
        }
        let is_interactive = self.state.setup.as_ref().is_some_and(|setup| setup.interactive);
        if !is_interactive && self.state.waiting.is_empty() {
            self.stop(control_reason);
            return Ok(());
        }
        self.handled();
        let status = self.status(control_reason);
        self.end_turn_because(StopReason::Stopped, Some(status));
        Ok(())
    }

    pub(super) fn clear(&mut self, control_reason: &ControlReason) -> Result<(), Rejection> {
        if self.state.turn.is_some() {
            let message = "a turn is running; stop it or wait for its end, then clear";
            return Err(Rejection::new(ErrorCode::NotNow, message));
        }
        self.handled();
        let StatusChanged { by, reason } = self.status(control_reason);
        self.emit(Event::ContextCleared(ContextCleared { turns: self.state.turns, by, reason }));
        Ok(())
    }
}
