//! Tool calls: identified in a reply, approved by a person, answered by an executor.

use contract::command::{Answer, AnswerDecision};
use contract::event::{Event, GateKind, GateOpened, ToolCallIdentified, ToolCallResult};
use contract::ids::{CallId, ToolName};
use contract::limits::{GATE_MAX, TOOL_CALLS_PER_REPLY_MAX};
use contract::model::ToolCall;
use contract::tool::{Approval, DELEGATE, Outcome, ToolResult, ToolSpec, arguments_sha256, sha256_hex};
use contract::{ErrorCode, Json};

use super::{Draft, Ignored};
use crate::state::{Activity, Question, Stage, ToolCallState};

impl Draft<'_> {
    /// Looks at each call of a reply: what cannot be run gets its error at once, the others go on.
    pub(super) fn identify(&mut self, calls: &[ToolCall]) {
        for (index, call) in calls.iter().filter(|call| !reply::is_signal(call)).enumerate() {
            let Ok(id) = CallId::new(&call.id) else { continue };
            let Some(state) = self.core.turn.as_ref().and_then(|turn| turn.call(&id)).cloned() else { continue };
            match self.runnable(index, call) {
                Ok((spec, arguments)) => self.identified(id, &spec, arguments),
                Err((code, message)) => self.result(&state, Outcome::Error, Some(code), &message, 0),
            }
        }
    }

    fn runnable(&self, index: usize, call: &ToolCall) -> Result<(ToolSpec, Json), (ErrorCode, String)> {
        if index >= TOOL_CALLS_PER_REPLY_MAX {
            let message = format!("at most {TOOL_CALLS_PER_REPLY_MAX} calls in one reply");
            return Err((ErrorCode::TooLarge, message));
        }
        let name = &call.function.name;
        let spec = self.core.tools.resolved.tools.iter().find(|spec| spec.name.as_str() == name);
        let Some(spec) = spec else {
            let known: Vec<&str> = self.core.tools.resolved.tools.iter().map(|spec| spec.name.as_str()).collect();
            let message = format!("there is no tool {name:?}; there are: {}", known.join(", "));
            return Err((ErrorCode::UnknownTool, message));
        };
        let arguments = call.function.arguments.trim();
        let arguments = if arguments.is_empty() { "{}" } else { arguments };
        if let Err(error) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
            let message = format!("the arguments are not a JSON object: {error}");
            return Err((ErrorCode::InvalidArguments, message));
        }
        if name == DELEGATE {
            self.delegable(arguments)?;
        }
        Ok((spec.clone(), Json::parse(arguments).unwrap_or_default()))
    }

    fn identified(&mut self, call: CallId, spec: &ToolSpec, arguments: Json) {
        let arguments_sha256 = arguments_sha256(&arguments);
        self.emit(Event::ToolCallIdentified(ToolCallIdentified {
            call: call.clone(),
            tool: ToolName::clone(&spec.name),
            arguments,
            effect: spec.effect,
            approval: spec.approval,
            timeout_ms: u64::try_from(spec.timeout().as_millis()).unwrap_or(u64::MAX),
            max_output: spec.output_bytes_max(),
        }));
        match spec.approval {
            Approval::Never => {}
            Approval::Always => {
                let expires = self.at.after(GATE_MAX);
                self.emit(Event::GateOpened(GateOpened {
                    gate: call,
                    kind: GateKind::Approval,
                    arguments_sha256,
                    expires,
                }));
            }
        }
    }

    pub(super) fn answer(&mut self, answer: &Answer) -> Result<(), Ignored> {
        let activity = self.core.turn.as_ref().map(|turn| &turn.activity);
        if let Some(Activity::Asking { gate, question, .. }) = activity
            && *gate == answer.gate
        {
            let question = *question;
            return self.answer_question(answer, question);
        }
        let state = self.core.turn.as_ref().and_then(|turn| turn.call(&answer.gate)).cloned();
        let Some(state) = state.filter(ToolCallState::is_gated) else {
            return Err(Ignored::because(ErrorCode::GateClosed, "the gate was answered before, or is not there"));
        };
        let shown = state.request().map(|request| arguments_sha256(&request.arguments)).unwrap_or_default();
        if shown != answer.arguments_sha256 {
            let message = "the answer is to other arguments than the call has; look at the gate again";
            return Err(Ignored::because(ErrorCode::BadRequest, message));
        }
        self.handled();
        self.close_gate(&answer.gate, answer.decision, self.input.by.clone(), answer.note.clone());
        match answer.decision {
            AnswerDecision::Approve => {}
            AnswerDecision::Deny => {
                let note = answer.note.as_deref().unwrap_or("a person said no");
                self.result(&state, Outcome::Denied, None, note, 0);
            }
        }
        Ok(())
    }

    /// As much again, or another attempt, or the turn's end.
    fn answer_question(&mut self, answer: &Answer, question: Question) -> Result<(), Ignored> {
        if answer.arguments_sha256 != sha256_hex(question.word().as_bytes()) {
            let message = "the answer is to another question than the gate asks; look at it again";
            return Err(Ignored::because(ErrorCode::BadRequest, message));
        }
        self.handled();
        self.close_gate(&answer.gate, answer.decision, self.input.by.clone(), answer.note.clone());
        if answer.decision == AnswerDecision::Deny {
            self.end_turn(question.denied());
        }
        Ok(())
    }

    pub(super) fn tool_result(&mut self, result: &ToolResult) -> Result<(), Ignored> {
        let state = self.core.turn.as_ref().and_then(|turn| turn.call(&result.meta.call)).cloned();
        let Some(state) = state else {
            return Err(self.late(ErrorCode::NotNow, "the call was answered, cancelled or superseded"));
        };
        let takes = match &state.stage {
            Stage::Open { .. } => true,
            // The truth about a call that was given up, while the model has not read otherwise.
            Stage::Done(Outcome::Unknown | Outcome::Timeout) => result.outcome == Outcome::Ok,
            Stage::Done(Outcome::Ok | Outcome::Error | Outcome::Denied | Outcome::Cancelled)
            | Stage::Announced
            | Stage::Pending(_)
            | Stage::Gated { .. } => false,
        };
        if !takes {
            return Err(self.late(ErrorCode::NotNow, "the call has its result, or is not running"));
        }
        self.handled();
        self.emit(Event::ToolCallResult(ToolCallResult {
            call: result.meta.call.clone(),
            tool: state.name.clone(),
            outcome: result.outcome,
            content: result.content.clone(),
            code: result.code.clone(),
            duration_ms: result.duration_ms,
            used: result.used,
            replaces: state.is_done(),
        }));
        Ok(())
    }
}
