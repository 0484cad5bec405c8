//! Tool calls: identified in a reply, approved by a person, answered by an executor.

use std::time::Duration;

use contract::client_tool::Performer;
use contract::command::{Answer, AnswerDecision};
use contract::event::{Event, GateClosed, GateKind, GateOpened, ToolCallExtended, ToolCallIdentified, ToolCallResult};
use contract::ids::{CallId, ToolName};
use contract::json::Size;
use contract::limits::{GATE_SHOWN_BYTES, TOOL_CALLS_PER_REPLY_MAX};
use contract::model::ToolCall;
use contract::text::show_json;
use contract::tool::{
    ASK_USER, ApprovalPolicy, DELEGATE, ExtendToolCall, Outcome, ToolResult, ToolSpec, arguments_sha256, sha256_hex,
};
use contract::{ErrorCode, Json};

use super::ask;
use super::builder::{DecisionBuilder, Rejection};
use crate::check;
use crate::state::{Activity, CallStage, Question, RunsAt, ToolCallState, ToolRequest};

/// Result of a call that stands in the text of a reply with native calls.
const WRITTEN_BESIDE_NATIVE: &str = "not run: the reply has calls of its own beside those in its JSON. Make this call in \
                                     the same way as the others.";

impl DecisionBuilder<'_> {
    /// Looks at each call of a reply: what cannot be run gets its error at once, the others go on. The last `refused` ones
    /// are written beside native calls.
    pub(super) fn identify(&mut self, calls: &[ToolCall], refused: usize) {
        let refused_from = calls.len() - refused;
        for (index, (position, call)) in calls.iter().enumerate().filter(|(_, call)| !call.is_signal()).enumerate() {
            let Ok(id) = CallId::new(&call.id) else { continue };
            let Some(state) = self.state.turn.as_ref().and_then(|turn| turn.call(&id)).cloned() else { continue };
            let runnable = if position < refused_from {
                self.runnable(index, call)
            } else {
                Err((ErrorCode::BadRequest, WRITTEN_BESIDE_NATIVE.to_owned()))
            };
            match runnable {
                Ok((called, arguments)) => self.identified(id, &called, arguments),
                Err((code, message)) => self.result(&state, Outcome::Error, Some(code), &message),
            }
        }
    }

    fn runnable(&self, index: usize, call: &ToolCall) -> Result<(CalledTool, Json), (ErrorCode, String)> {
        if index >= TOOL_CALLS_PER_REPLY_MAX {
            let message = format!("at most {TOOL_CALLS_PER_REPLY_MAX} calls in one reply");
            return Err((ErrorCode::TooLarge, message));
        }
        let name = &call.function.name;
        let Some(called) = self.called(name) else {
            let of_agent = self.state.tools.resolved.tools.iter().map(|spec| spec.name.as_str());
            let of_clients = self.state.client_tools.tools.iter().map(|tool| tool.name.as_str());
            let known: Vec<&str> = of_agent.chain(of_clients).collect();
            let message = format!("there is no tool {name:?}; there are: {}", known.join(", "));
            return Err((ErrorCode::UnknownTool, message));
        };
        let arguments = call.function.arguments.trim();
        let arguments = if arguments.is_empty() { "{}" } else { arguments };
        check::json("the arguments", Size::of(arguments.as_bytes()))
            .map_err(|refusal| (ErrorCode::InvalidArguments, refusal.message))?;
        if let Err(error) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(arguments) {
            let message = format!("the arguments are not a JSON object: {error}");
            return Err((ErrorCode::InvalidArguments, message));
        }
        if name == DELEGATE {
            self.delegable(arguments)?;
        }
        if name == ASK_USER {
            ask::askable(arguments)?;
        }
        // What a person is shown is what is hashed and what runs: letters that cannot be seen are written out.
        let arguments = Json::parse(&show_json(arguments)).unwrap_or_default();
        // A rule, a person and the tool might each read another one of its values.
        if let Some(why) = arguments.ambiguity() {
            return Err((ErrorCode::InvalidArguments, format!("the arguments are ambiguous: {why}")));
        }
        Ok((called, arguments))
    }

    /// The tool of this name. That of a client was there first, if the agent has got one of its name since.
    fn called(&self, name: &str) -> Option<CalledTool> {
        if let Some(tool) = self.state.client_tools.get(name) {
            return Some(CalledTool { spec: tool.spec(), performer: Performer::Client, timeout: tool.timeout() });
        }
        let spec = self.state.tools.resolved.tools.iter().find(|spec| spec.name.as_str() == name)?;
        Some(CalledTool { spec: spec.clone(), performer: Performer::Fleet, timeout: spec.timeout() })
    }

    fn identified(&mut self, call: CallId, called: &CalledTool, arguments: Json) {
        let CalledTool { spec, performer, timeout } = called;
        let question = spec.name.as_str() == ASK_USER;
        let Some(mut asked) = self.state.setup.as_ref().map(|setup| setup.approvals().of(spec, &arguments)) else {
            return;
        };
        if question {
            asked.approval = ApprovalPolicy::Always;
        }
        self.emit(Event::ToolCallIdentified(ToolCallIdentified {
            call: call.clone(),
            tool: ToolName::clone(&spec.name),
            arguments: arguments.clone(),
            effect: spec.effect,
            approval: asked.approval,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            max_output: spec.output_bytes_max(),
            performer: *performer,
        }));
        match asked.approval {
            ApprovalPolicy::Never => {}
            ApprovalPolicy::Always => self.emit(Event::GateOpened(GateOpened {
                gate: call,
                kind: if question { GateKind::Question } else { GateKind::Approval },
                arguments_sha256: arguments_sha256(&arguments),
                expires: self.at.after(asked.expires),
                tool: Some(ToolName::clone(&spec.name)),
                arguments: Some(arguments),
                on_expiry: asked.on_expiry,
            })),
        }
    }

    pub(super) fn answer(&mut self, answer: &Answer) -> Result<(), Rejection> {
        let activity = self.state.turn.as_ref().map(|turn| &turn.activity);
        if let Some(Activity::AwaitingUser { gate, question, .. }) = activity
            && *gate == answer.gate
        {
            let question = *question;
            return self.answer_question(answer, question);
        }
        let state = self.state.turn.as_ref().and_then(|turn| turn.call(&answer.gate)).cloned();
        let Some(state) = state.filter(ToolCallState::is_gated) else {
            return Err(Rejection::new(ErrorCode::GateClosed, "the gate was answered before, or is not there"));
        };
        let shown = state.request().map(|request| arguments_sha256(&request.arguments)).unwrap_or_default();
        if shown != answer.arguments_sha256 {
            let message = "the answer is to other arguments than the call has; look at the gate again";
            return Err(Rejection::new(ErrorCode::BadRequest, message));
        }
        let question = state.request().is_some_and(ToolRequest::is_question);
        let settled =
            read_gate_answer(answer, question).map_err(|message| Rejection::new(ErrorCode::BadRequest, message))?;
        // What a child is asked must be readable, also when a person wrote it.
        if let (GateDecision::Run(Some(changed)), true) = (&settled, state.name == DELEGATE) {
            let delegable = self.delegable(changed.get());
            delegable.map_err(|(code, message)| Rejection::new(code, message))?;
        }
        self.handled();
        let changed = match &settled {
            GateDecision::Run(changed) => changed.clone(),
            GateDecision::Deny(_) | GateDecision::Answer(_) => None,
        };
        self.emit(Event::GateClosed(GateClosed {
            gate: answer.gate.clone(),
            decision: answer.decision,
            by: self.input.by.clone(),
            arguments_sha256: changed.as_ref().map(arguments_sha256),
            arguments: changed,
            note: answer.note.clone(),
        }));
        match settled {
            GateDecision::Run(_) => {}
            GateDecision::Deny(note) => self.result(&state, Outcome::Denied, None, &note),
            GateDecision::Answer(content) => self.result(&state, Outcome::Ok, None, &content),
        }
        Ok(())
    }

    /// As much again, or another attempt, or the turn's end.
    fn answer_question(&mut self, answer: &Answer, question: Question) -> Result<(), Rejection> {
        if answer.arguments_sha256 != sha256_hex(question.word().as_bytes()) {
            let message = "the answer is to another question than the gate asks; look at it again";
            return Err(Rejection::new(ErrorCode::BadRequest, message));
        }
        if answer.decision == AnswerDecision::Answer || answer.arguments.is_some() || answer.content.is_some() {
            let message = "whether to go on is answered with `approve` or `deny` alone";
            return Err(Rejection::new(ErrorCode::BadRequest, message));
        }
        self.handled();
        self.close_gate(&answer.gate, answer.decision, self.input.by.clone(), answer.note.clone());
        if answer.decision == AnswerDecision::Deny {
            match question {
                Question::Limit(limit) => self.end_at_limit(limit),
                Question::Failed { .. } => self.end_turn(question.denied()),
            }
        }
        Ok(())
    }

    pub(super) fn tool_result(&mut self, result: &ToolResult) -> Result<(), Rejection> {
        let state = self.state.turn.as_ref().and_then(|turn| turn.call(&result.meta.call)).cloned();
        let Some(state) = state else {
            return Err(self.late(ErrorCode::NotNow, "the call was answered, cancelled or superseded"));
        };
        let takes = match &state.stage {
            // An executor has nothing to say about the call of a client.
            _ if !state.performer.is_fleet() => false,
            CallStage::Open { attempt, .. } => *attempt == result.meta.attempt,
            // The truth about a call that was given up, while the model has not read otherwise.
            CallStage::Done(Outcome::Unknown | Outcome::Timeout) => result.outcome == Outcome::Ok,
            CallStage::Done(Outcome::Ok | Outcome::Error | Outcome::Denied | Outcome::Cancelled)
            | CallStage::Announced
            | CallStage::Pending(_)
            | CallStage::Gated { .. } => false,
        };
        if !takes {
            return Err(self.late(ErrorCode::NotNow, "the call has its result, or that attempt of it is not running"));
        }
        self.handled();
        self.emit(Event::ToolCallResult(ToolCallResult {
            call: result.meta.call.clone(),
            tool: state.name.clone(),
            outcome: result.outcome,
            content: annotate_result(&state, &result.content),
            code: result.code.clone(),
            duration_ms: result.duration_ms,
            whole: result.whole.clone(),
            used: result.used,
            replaces: state.is_done(),
            performer: Performer::Fleet,
            by: None,
        }));
        Ok(())
    }

    /// A call that shows progress may take longer, but no longer than its turn.
    pub(super) fn extend(&mut self, extension: &ExtendToolCall) -> Result<(), Rejection> {
        let (call, attempt) = (&extension.meta.call, extension.meta.attempt);
        let turn = self.state.turn.as_ref();
        let open = turn.and_then(|turn| Some((turn.clock.deadline_from(self.at), turn.call(call)?)));
        let at_executor = open.filter(|(_, state)| matches!(state.runs_at(), Some(RunsAt::Executor)));
        let Some((end, CallStage::Open { attempt: current, deadline, .. })) =
            at_executor.map(|(end, state)| (end, &state.stage))
        else {
            return Err(Rejection::new(ErrorCode::NotNow, "the call is not running"));
        };
        let later = extension.deadline.min(end);
        if *current != attempt || later <= *deadline {
            return Err(Rejection::new(ErrorCode::NotNow, "the call has no more time than that"));
        }
        self.handled();
        self.emit(Event::ToolCallExtended(ToolCallExtended { call: call.clone(), attempt, deadline: later }));
        Ok(())
    }
}

/// The result as the model reads it. If a person changed the arguments, it says so.
pub(super) fn annotate_result(state: &ToolCallState, content: &str) -> String {
    let Some(changed) = state.changed.as_ref().map(Json::get) else { return content.to_owned() };
    let shown = &changed[..changed.floor_char_boundary(GATE_SHOWN_BYTES)];
    let more = if shown.len() < changed.len() { " …" } else { "" };
    format!("(A person changed the arguments to {shown}{more}.)\n{content}")
}

/// The tool that a call names, and who performs it.
struct CalledTool {
    spec: ToolSpec,
    performer: Performer,
    timeout: Duration,
}

/// Decision about a gated call, from the answer to its gate.
enum GateDecision {
    /// Run the call, with these arguments if a person changed them.
    Run(Option<Json>),
    /// Do not run the call, for this reason.
    Deny(String),
    /// Give the model this answer to its question.
    Answer(String),
}

/// Checks an answer. The error is for the person who gave it.
fn read_gate_answer(answer: &Answer, question: bool) -> Result<GateDecision, String> {
    let note = |otherwise: &str| answer.note.clone().unwrap_or_else(|| otherwise.to_owned());
    let has_unexpected_field = answer.arguments.is_some() && answer.decision != AnswerDecision::Approve
        || answer.content.is_some() && answer.decision != AnswerDecision::Answer;
    if has_unexpected_field {
        return Err("arguments go with `approve`, content goes with `answer`".to_owned());
    }
    match (answer.decision, question) {
        (AnswerDecision::Deny, true) => Ok(GateDecision::Deny(note("the user gives no answer"))),
        (AnswerDecision::Deny, false) => Ok(GateDecision::Deny(note("a person said no"))),
        (AnswerDecision::Approve, false) => match &answer.arguments {
            Some(changed) if !changed.get().starts_with('{') => {
                Err("the changed arguments are not a JSON object".to_owned())
            }
            changed => match changed.as_ref().and_then(Json::ambiguity) {
                Some(why) => Err(format!("the changed arguments are ambiguous: {why}")),
                None => Ok(GateDecision::Run(changed.clone())),
            },
        },
        (AnswerDecision::Answer, true) => match &answer.content {
            Some(content) => Ok(GateDecision::Answer(content.clone())),
            None => Err("an answer has content".to_owned()),
        },
        (AnswerDecision::Approve, true) => Err("this gate asks a question: give `answer` with content".to_owned()),
        (AnswerDecision::Answer, false) => Err("this gate asks for `approve` or `deny`".to_owned()),
    }
}
