//! The session's timer: what is due is done, in the order of its weight.

use contract::command::AnswerDecision;
use contract::event::{EndReason, Event, LogCompacted, SessionArchived, Spent, StopReason};
use contract::limits::TOOL_CALL_GRACE;
use contract::settings::OnExpiry;
use contract::tool::{EffectClass, Outcome};
use contract::{ErrorCode, Timestamp};

use super::ask;
use super::builder::{DecisionBuilder, Rejection};
use super::client_tool::late_text;
use super::turn::UNKNOWN;
use crate::state::{Activity, CallStage, Lifecycle, ToolCallState, ToolRequest};

impl DecisionBuilder<'_> {
    pub(super) fn timer(&mut self) -> Result<(), Rejection> {
        let set = self.state.timer.clone();
        let Some(set) = set.filter(|timer| timer.number.to_string() == self.input.reference.id.as_str()) else {
            return Err(Rejection::new(ErrorCode::NotNow, "the timer was set anew"));
        };
        // The server's clock may be ahead of ours: what it calls due is due.
        self.at = self.at.max(set.at);
        self.handled();
        match self.state.life {
            Lifecycle::Alive => self.due(),
            Lifecycle::Ended => self.emit(Event::SessionArchived(SessionArchived { slots: self.state.slot() })),
            Lifecycle::NotStarted => {}
        }
        Ok(())
    }

    fn due(&mut self) {
        let now = self.at;
        let Some(turn) = self.state.turn.clone() else {
            if self.state.idle_end() <= now {
                self.end_session(EndReason::Expired, None);
            } else {
                self.compact_log();
            }
            return;
        };
        if self.state.paused && self.state.idle_end() <= now {
            self.end_turn(StopReason::Stopped);
            self.end_session(EndReason::Expired, None);
            return;
        }
        // A judge has no more time than its turn; the reply that it was asked about is there, and ends the turn.
        if let Activity::Judging { judge, model } = &turn.activity
            && !self.state.paused
            && judge.deadline <= now
        {
            self.cancel(&judge.call, judge.attempt, None);
            self.not_judged(model, "it did not answer in time", Spent::default());
            return;
        }
        if turn.clock.deadline().is_some_and(|deadline| deadline <= now) {
            match turn.last_step {
                Some(last) => self.end_without_answer(last.limit),
                None => self.at_limit(StopReason::Timeout),
            }
            return;
        }
        match &turn.activity {
            Activity::AwaitingModel(model) => {
                let deadline = (!self.state.paused).then_some(model.deadline);
                if model.interrupted.or(deadline).is_some_and(|due| due <= now) {
                    self.model_hung(&model.call, model.attempt, model.interrupted.is_some());
                }
            }
            Activity::RunningTools(calls) => {
                for state in calls {
                    self.due_call(state, now);
                }
            }
            Activity::Summarising { model, before } if !self.state.paused && model.deadline <= now => {
                self.cancel(&model.call, model.attempt, None);
                self.forget(*before, None, Spent::default());
            }
            Activity::AwaitingUser { gate, question, expires } if *expires <= now => {
                self.close_gate(gate, AnswerDecision::Deny, None, None);
                self.end_turn(question.denied());
            }
            // The next attempt opens by itself, like everything that may be opened.
            Activity::Backoff { .. }
            | Activity::Ready
            | Activity::Deciding
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => {}
        }
    }

    /// Begins the log anew if nobody wanted anything for a while. The state says the same after it: an input that
    /// comes later finds everything in the snapshot of this commit.
    fn compact_log(&mut self) {
        // Without this commit, which has counted itself already.
        let due = self.state.compaction_due(self.state.slot(), self.input.compact_after);
        if due.is_some_and(|due| due <= self.at) {
            self.emit(Event::LogCompacted(LogCompacted { slots: self.state.slot() }));
        }
    }

    /// Nobody answered in time: the gate's `on_expiry` counts.
    fn expired(&mut self, state: &ToolCallState, request: &ToolRequest, on_expiry: OnExpiry) {
        if request.is_question() {
            self.close_gate(&state.call, AnswerDecision::Deny, None, None);
            return match ask::default_of(&request.arguments) {
                Some(default) => self.result(state, Outcome::Ok, None, &default),
                None => self.result(state, Outcome::Timeout, None, "nobody answered in time"),
            };
        }
        match on_expiry {
            OnExpiry::Approve => self.close_gate(&state.call, AnswerDecision::Approve, None, None),
            OnExpiry::Deny => {
                self.close_gate(&state.call, AnswerDecision::Deny, None, None);
                self.result(state, Outcome::Denied, None, "nobody answered in time");
            }
        }
    }

    fn due_call(&mut self, state: &ToolCallState, now: Timestamp) {
        match &state.stage {
            CallStage::Gated { request, expires, on_expiry } if *expires <= now => {
                self.expired(state, request, *on_expiry);
            }
            // Nobody knows whether it began: its deadline moves when the pause is over.
            CallStage::Open { .. } if self.state.paused => {}
            CallStage::Open { request, deadline, .. } if state.waits_for_client() && *deadline <= now => {
                self.result(state, Outcome::Timeout, None, late_text(request.effect));
            }
            CallStage::Open { request, attempt, deadline, .. } if deadline.after(TOOL_CALL_GRACE) <= now => {
                self.call_off(state, *attempt, request.tool.clone());
                let (outcome, content) = match request.effect {
                    EffectClass::Pure => (Outcome::Timeout, "nobody answered in time"),
                    EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                        (Outcome::Unknown, UNKNOWN)
                    }
                };
                self.result(state, outcome, None, content);
            }
            CallStage::Announced
            | CallStage::Pending(_)
            | CallStage::Gated { .. }
            | CallStage::Open { .. }
            | CallStage::Done(_) => {}
        }
    }
}
