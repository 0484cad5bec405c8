//! Tools that clients bring, and their answers to the calls of these tools.

use contract::client_tool::{AnswerToolCall, ClientTool, Performer};
use contract::event::{Event, ToolCallResult};
use contract::limits::TOOL_OUTPUT_BYTES_MAX;
use contract::settings::ToolFilter;
use contract::tool::{EffectClass, Outcome};
use contract::{ErrorCode, Timestamp};

use super::advance::permitted;
use super::builder::{DecisionBuilder, Rejection};
use super::tool::annotate_result;
use crate::shorten::shorten;
use crate::state::{CallStage, ToolCallState};

/// Bytes that the note about the part that is left out may take.
const NOTE_BYTES: usize = 64;

impl DecisionBuilder<'_> {
    /// Refuses tools of a client that the agent has already: a call names its tool by nothing else. `filter` says which
    /// tools of the tenant the agent may use.
    pub(super) fn check_tool_names(&self, brought: &[ClientTool], filter: &ToolFilter) -> Result<(), Rejection> {
        let found = self.input.tools.as_ref().map(|catalogue| permitted(catalogue, filter));
        let of_agent = found.as_ref().unwrap_or(&self.state.tools.resolved.tools);
        let taken = brought.iter().find(|tool| of_agent.iter().any(|spec| spec.name == tool.name));
        let Some(ClientTool { name, .. }) = taken else { return Ok(()) };
        let message = format!(
            "client_tools: the agent has a tool {name:?} already; choose another name, or leave the agent's tool out \
             with `tools`",
            name = name.as_str()
        );
        Err(Rejection::new(ErrorCode::BadRequest, message))
    }

    /// A client answers a call of its tool.
    pub(super) fn answer_tool_call(&mut self, answer: &AnswerToolCall) -> Result<(), Rejection> {
        let state = self.answerable(answer)?;
        let (since, max_output) = match &state.stage {
            CallStage::Open { request, since, .. } => (*since, request.max_output),
            // A late answer: when the call was opened is not known any more.
            CallStage::Announced | CallStage::Pending(_) | CallStage::Gated { .. } | CallStage::Done(_) => {
                let tool = self.state.client_tools.get(&state.name).map(ClientTool::spec);
                (self.at, tool.map_or(TOOL_OUTPUT_BYTES_MAX, |tool| tool.output_bytes_max()))
            }
        };
        self.handled();
        let content = within(&answer.content, max_output);
        self.emit(Event::ToolCallResult(ToolCallResult {
            call: answer.call.clone(),
            tool: state.name.clone(),
            outcome: answer.outcome.into(),
            content: annotate_result(&state, &content),
            code: (Outcome::from(answer.outcome) == Outcome::Error).then_some(ErrorCode::ToolError),
            duration_ms: milliseconds(since, self.at),
            whole: None,
            used: None,
            replaces: state.is_done(),
            performer: Performer::Client,
            by: self.input.by.clone(),
        }));
        Ok(())
    }

    /// The call that an answer is to, if it may still be answered.
    fn answerable(&self, answer: &AnswerToolCall) -> Result<ToolCallState, Rejection> {
        let AnswerToolCall { call, outcome, .. } = answer;
        let refuse = |code, why: &str| Err(Rejection::new(code, format!("call {call}: {why}")));
        let Some(state) = self.state.turn.as_ref().and_then(|turn| turn.call(call)) else {
            return if self.transcript.has_result_of(call) {
                refuse(ErrorCode::NotNow, "it has its result already; no answer changes it")
            } else {
                refuse(ErrorCode::UnknownCall, "the session has no such call; `session.get` lists those that wait")
            };
        };
        match (state.performer, &state.stage) {
            (Performer::Fleet, _) => {
                let why = "it is not a call of a tool that a client brought, and is performed by the fleet";
                refuse(ErrorCode::BadRequest, why)
            }
            (Performer::Client, CallStage::Open { .. }) => Ok(state.clone()),
            // The truth about a call that was given up, while the model has not read otherwise.
            (Performer::Client, CallStage::Done(Outcome::Timeout | Outcome::Unknown))
                if Outcome::from(*outcome) == Outcome::Ok =>
            {
                Ok(state.clone())
            }
            (Performer::Client, CallStage::Done(had)) => {
                refuse(ErrorCode::NotNow, &format!("it has its result already, with the outcome {}", had.as_str()))
            }
            (Performer::Client, CallStage::Gated { .. }) => {
                refuse(ErrorCode::NotNow, "it waits for the approval of a person; answer it when it is open")
            }
            (Performer::Client, CallStage::Announced | CallStage::Pending(_)) => {
                refuse(ErrorCode::NotNow, "it is not open yet; answer it after `tool_call.waiting`")
            }
        }
    }
}

/// Returns the result text that the model reads if a client did not answer in time.
pub(super) fn late_text(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Pure => "the client did not answer in time",
        EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => {
            "the client did not answer in time; the call may or may not have taken effect. Find out before you try \
             again."
        }
    }
}

/// As much of an answer as the model reads. The log keeps no more: the client has the rest.
fn within(content: &str, bytes_max: usize) -> String {
    if content.len() <= bytes_max {
        return content.to_owned();
    }
    shorten(content, bytes_max.saturating_sub(NOTE_BYTES)).unwrap_or_else(|| content.to_owned())
}

fn milliseconds(since: Timestamp, at: Timestamp) -> u64 {
    u64::try_from(at.since(since).as_millis()).unwrap_or(u64::MAX)
}
