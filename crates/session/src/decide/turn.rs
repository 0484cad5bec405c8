//! End of turns and sessions.

use contract::command::AnswerDecision;
use contract::event::{
    CallCancelled, EndReason, ErrorEvent, Event, GateClosed, GateKind, GateOpened, LimitReached, ModelCallInterrupted,
    SessionEnded, StatusChanged, StopReason, TimerSet, ToolCallResult, TurnCompleted,
};
use contract::ids::ToolName;
use contract::limits::{GATE_MAX, INTERRUPT_GRACE, LAST_WORD_TOKENS};
use contract::model::FailureKind;
use contract::settings::{LimitAction, OnExpiry};
use contract::tool::{EffectClass, Outcome, sha256_hex};
use contract::{CallId, ErrorCode};

use super::builder::DecisionBuilder;
use super::tool::annotate_result;
use crate::apply::status_of;
use crate::continuation;
use crate::readable::shortened;
use crate::repetition_guard::RepetitionGuard;
use crate::state::{Activity, CallStage, ToolCallState, TurnState};

/// Bytes of the last result that the user reads where the model gave no answer.
const LAST_RESULT_BYTES: usize = 1_000;

impl DecisionBuilder<'_> {
    /// Ends the running turn: what is open is cancelled, each call gets its one result.
    pub(super) fn end_turn(&mut self, reason: StopReason) {
        self.end_turn_because(reason, None);
    }

    /// As [`Self::end_turn`], with who cancelled it and why.
    pub(super) fn end_turn_because(&mut self, reason: StopReason, status: Option<StatusChanged>) {
        let Some(turn) = self.state.turn.clone() else { return };
        self.close_all(&turn, reason);
        self.complete(turn, reason, status);
    }

    /// Calls off what is open of a turn, and gives each call its one result.
    fn close_all(&mut self, turn: &TurnState, reason: StopReason) {
        match &turn.activity {
            Activity::AwaitingModel(model)
            | Activity::Summarising { model, .. }
            | Activity::Judging { judge: model, .. } => {
                self.cancel(&model.call, model.attempt, None);
            }
            Activity::RunningTools(calls) => {
                for state in calls {
                    self.close_call(state, reason);
                }
            }
            Activity::AwaitingUser { gate, .. } => self.close_gate(gate, AnswerDecision::Deny, None, None),
            Activity::Ready | Activity::Backoff { .. } | Activity::Deciding => {}
        }
    }

    /// Ends the turn at a limit at which the model gave no answer: the user reads that, and the last results.
    pub(super) fn end_without_answer(&mut self, limit: StopReason) {
        let (Some(mut turn), Some(setup)) = (self.state.turn.clone(), self.state.setup.clone()) else { return };
        self.close_all(&turn, limit);
        let why = continuation::used_up(&setup.agent.continuation, limit);
        let mut answer = format!("The turn ended without an answer: {why}.");
        if let Some(found) = self.transcript.last_result(turn.number) {
            answer.push_str(" The last result: ");
            answer.push_str(&shortened(&found, LAST_RESULT_BYTES));
        }
        if !turn.text.is_empty() {
            turn.text.push_str("\n\n");
        }
        turn.text.push_str(&answer);
        self.complete(turn, limit, None);
    }

    /// Nothing of the turn is open any more.
    fn complete(&mut self, turn: TurnState, reason: StopReason, status: Option<StatusChanged>) {
        let (by, note) = status.map_or((None, None), |status| (status.by, status.reason));
        let step = turn.iterations();
        let TurnState { number, text, spent, spent_own, .. } = turn;
        self.emit(Event::TurnCompleted(TurnCompleted {
            turn: number,
            stop_reason: reason,
            status: status_of(reason),
            iterations: step,
            final_response: text.clone(),
            spent,
            spent_own,
            by,
            note,
        }));
        let interactive = self.state.setup.as_ref().is_some_and(|setup| setup.interactive);
        if interactive || !self.state.waiting.is_empty() || reason == StopReason::Stopped {
            return;
        }
        let end = match reason {
            StopReason::Error => EndReason::Error,
            StopReason::Completed
            | StopReason::Stopped
            | StopReason::MaxIterations
            | StopReason::Timeout
            | StopReason::TokenLimit
            | StopReason::CostLimit
            | StopReason::ToolCallLimit
            | StopReason::Repetition
            | StopReason::NoProgress => EndReason::Completed,
        };
        self.end_session(end, Some((reason, step, text)));
    }

    /// The turn is at a limit: it ends, or a person is asked. Between steps only; what runs is not held up for a
    /// question.
    pub(super) fn at_limit(&mut self, limit: StopReason) {
        let asks = self.state.setup.as_ref().is_some_and(|setup| setup.agent.continuation.on_limit == LimitAction::Ask);
        let Some(turn) = &self.state.turn else { return };
        if let Some(last) = turn.last_step {
            return self.end_turn(last.limit);
        }
        if !asks || !turn.is_between_steps() {
            return self.end_at_limit(limit);
        }
        let gate = CallId::new(&format!("limit-{}-{}", turn.number, turn.guard.asked() + 1));
        let Ok(gate) = gate else { return self.end_at_limit(limit) };
        self.emit(Event::GateOpened(GateOpened {
            gate,
            kind: GateKind::Limit(limit),
            arguments_sha256: sha256_hex(limit.as_str().as_bytes()),
            expires: self.at.after(GATE_MAX),
            tool: None,
            arguments: None,
            on_expiry: OnExpiry::Deny,
        }));
    }

    /// Ends the turn at its limit: with one last step for a word to the user where that is wanted and there is time and
    /// money for it, else at once.
    pub(super) fn end_at_limit(&mut self, limit: StopReason) {
        let (Some(turn), Some(setup)) = (self.state.turn.clone(), self.state.setup.clone()) else { return };
        let settings = &setup.agent.continuation;
        if settings.on_limit == LimitAction::End {
            return self.end_turn(limit);
        }
        // The limit of time has time of its own for the answer.
        let has_time = limit == StopReason::Timeout || turn.clock.deadline_from(self.at) > self.at;
        let request = self.transcript.tokens_at_most(&self.events).saturating_add(LAST_WORD_TOKENS);
        if !has_time || !RepetitionGuard::affords_last_step(settings, turn.spent, request) {
            return self.end_without_answer(limit);
        }
        let reason = continuation::used_up(settings, limit);
        let nudge = format!(
            "This turn is at a limit ({reason}) and ends with your next message. Call no tool. Answer the user now: \
             say what you found and did, and what is left to do."
        );
        let reached = Event::LimitReached(LimitReached { limit, nudge });
        // Only the limit of time comes while something runs. A reply is awaited as far as it came.
        let Activity::AwaitingModel(model) = &turn.activity else {
            self.close_all(&turn, limit);
            return self.emit(reached);
        };
        self.emit(reached);
        if model.interrupted.is_none() {
            let (call, attempt, until) = (model.call.clone(), model.attempt, self.at.after(INTERRUPT_GRACE));
            self.emit(Event::ModelCallInterrupted(ModelCallInterrupted { call, attempt, until }));
        }
    }

    /// A model call has failed for good: a person is asked whether it should be tried again.
    pub(super) fn ask_about(&mut self, kind: FailureKind) {
        let Some(turn) = &self.state.turn else { return };
        let gate = CallId::new(&format!("error-{}-{}", turn.number, turn.guard.asked() + 1));
        let Ok(gate) = gate else { return self.end_turn(StopReason::Error) };
        self.emit(Event::GateOpened(GateOpened {
            gate,
            kind: GateKind::Error(kind),
            arguments_sha256: sha256_hex(kind.code().as_str().as_bytes()),
            expires: self.at.after(GATE_MAX),
            tool: None,
            arguments: None,
            on_expiry: OnExpiry::Deny,
        }));
    }

    /// Ends the session. `last` is its last turn's reason, steps and answer, where that ends it.
    pub(super) fn end_session(&mut self, reason: EndReason, last: Option<(StopReason, u32, String)>) {
        self.end_session_because(reason, last, None);
    }

    /// The same; `status` says who stopped it and why.
    pub(super) fn end_session_because(
        &mut self,
        reason: EndReason,
        last: Option<(StopReason, u32, String)>,
        status: Option<StatusChanged>,
    ) {
        let (by, note) = status.map_or((None, None), |status| (status.by, status.reason));
        let stopped = (reason == EndReason::Stopped).then_some(StopReason::Stopped);
        let stop_reason = last.as_ref().map(|(reason, ..)| *reason).or(stopped).or(self.state.last_stop);
        let (iterations, final_response) = last.map(|(_, step, text)| (step, text)).unwrap_or_default();
        self.emit(Event::SessionEnded(SessionEnded {
            reason,
            stop_reason,
            status: stop_reason.and_then(status_of),
            final_response,
            iterations,
            spent: self.state.spent,
            spent_own: self.state.spent_own,
            by,
            note,
        }));
        // It stays as it is for a while, for those who are late; then it leaves the log.
        let (number, at) = (self.state.timers + 1, self.at.after(self.input.archive_after));
        self.emit(Event::TimerSet(TimerSet { number, at }));
    }

    /// Says that something went wrong.
    pub(super) fn error(&mut self, code: ErrorCode, message: &str, retryable: bool, during: String) {
        self.emit(Event::Error(ErrorEvent { code, message: message.to_owned(), retryable, during }));
    }

    pub(super) fn cancel(&mut self, call: &CallId, attempt: u32, tool: Option<ToolName>) {
        self.emit(Event::CallCancelled(CallCancelled { call: call.clone(), attempt, tool }));
    }

    fn close_call(&mut self, state: &ToolCallState, reason: StopReason) {
        let (outcome, content) = match &state.stage {
            CallStage::Done(_) => return,
            CallStage::Open { request, attempt, .. } => {
                self.call_off(state, *attempt, request.tool.clone());
                match (reason == StopReason::Timeout, request.effect) {
                    (true, EffectClass::Pure) => (Outcome::Timeout, "the turn's time is used up"),
                    (true, EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable) => {
                        (Outcome::Unknown, UNKNOWN)
                    }
                    (false, _) => {
                        (Outcome::Cancelled, "the call was called off while it ran; it may have taken effect")
                    }
                }
            }
            CallStage::Gated { .. } => {
                self.close_gate(&state.call, AnswerDecision::Deny, None, None);
                (Outcome::Cancelled, "the turn ended before anybody answered")
            }
            CallStage::Announced | CallStage::Pending(_) => (Outcome::Cancelled, "the call was never made"),
        };
        self.result(state, outcome, None, content);
    }

    pub(super) fn close_gate(
        &mut self,
        gate: &CallId,
        decision: AnswerDecision,
        by: Option<String>,
        note: Option<String>,
    ) {
        let (arguments, arguments_sha256) = (None, None);
        self.emit(Event::GateClosed(GateClosed {
            gate: gate.clone(),
            decision,
            by,
            arguments,
            arguments_sha256,
            note,
        }));
    }

    /// Gives a call its result.
    pub(super) fn result(&mut self, state: &ToolCallState, outcome: Outcome, code: Option<ErrorCode>, content: &str) {
        self.emit(Event::ToolCallResult(ToolCallResult {
            call: state.call.clone(),
            tool: state.name.clone(),
            outcome,
            content: annotate_result(state, content),
            code,
            duration_ms: 0,
            whole: None,
            used: None,
            replaces: state.is_done(),
            performer: state.performer,
            by: None,
        }));
    }
}

/// Result text of a call that may have taken effect and whose outcome is unknown. A repetition by the model is another
/// call, also of a tool that takes effect once per call.
pub(super) const UNKNOWN: &str = "nobody answered in time; the call may or may not have taken effect. Find out before \
                                  you try again.";
