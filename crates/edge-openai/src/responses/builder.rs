//! Builds a response from the parts of its turn: the events of its stream, and its items.
//!
//! Every replica, now or later, gives an event the same number, so that a client can take up a stream anywhere: a piece of
//! text counts as many numbers as it has characters, and each reply begins its numbers anew at a multiple of
//! [`NUMBERS_PER_REPLY`], since the end of a reply may be cut after some of it went out.

use std::collections::{BTreeMap, BTreeSet};

use contract::client_tool::Performer;
use contract::event::{ClientCallOpened, GateKind, GateOpened, StopKind, ToolCallIdentified, ToolCallResult};
use contract::model::FinishReason;
use contract::spent::Spent;
use contract::tool::{ASK_USER, ApprovalPolicy, Outcome};
use contract::{CallId, ErrorCode};
use edge_core::turn::{TurnOutcome, TurnPart, call_id, name_for_client};
use serde_json::{Map, Value, json};

use super::ids::{self, ResponseId};
use super::{items, question};
use crate::errors::to_error;
use crate::function::SERVER_LABEL;

/// Numbers of events between two replies. More characters than that take the next multiple.
const NUMBERS_PER_REPLY: u64 = 1 << 20;

/// A response in its progress.
#[derive(Debug)]
pub(super) struct ResponseBuilder {
    id: ResponseId,
    /// Fields of the response that do not change.
    fields: Map<String, Value>,
    status: &'static str,
    error: Option<(ErrorCode, String)>,
    incomplete_reason: Option<&'static str>,
    output: Vec<Value>,
    spent: Spent,
    /// Number of the last event.
    number: u64,
    /// Events up to this number are left out.
    starting_after: u64,
    /// Events that are ready to go out.
    ready: Vec<Value>,
    message: Option<OpenMessage>,
    /// Items of calls that run in the fleet.
    running: BTreeMap<CallId, usize>,
    /// Calls of the last reply of which it is not known yet whether somebody outside is needed.
    undecided: BTreeSet<CallId>,
    /// Calls that somebody outside has to perform or to allow; `true` once the client knows.
    outside: BTreeMap<CallId, bool>,
    finish_reason: Option<FinishReason>,
}

/// The message of a reply while its text comes.
#[derive(Debug)]
struct OpenMessage {
    /// Position in the output; `None` until there is more than white space.
    index: Option<usize>,
    text: String,
}

impl ResponseBuilder {
    pub(super) fn new(id: ResponseId, fields: Map<String, Value>, starting_after: Option<u64>) -> Self {
        let mut builder = Self {
            status: if id.waiting.is_some() { "queued" } else { "in_progress" },
            id,
            fields,
            error: None,
            incomplete_reason: None,
            output: Vec::new(),
            spent: Spent::default(),
            number: 0,
            starting_after: starting_after.unwrap_or(0),
            ready: Vec::new(),
            message: None,
            running: BTreeMap::new(),
            undecided: BTreeSet::new(),
            outside: BTreeMap::new(),
            finish_reason: None,
        };
        builder.emit_response("response.created");
        builder.emit_response(if builder.status == "queued" { "response.queued" } else { "response.in_progress" });
        builder
    }

    /// Takes the events that are ready.
    pub(super) fn take_ready(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the events that end a stream which cannot go on, for a reason outside of the turn.
    pub(super) fn fail_stream(&mut self, code: &str, message: &str) -> Vec<Value> {
        self.emit("error", json!({"code": code, "message": message, "param": null}));
        self.take_ready()
    }

    /// Whether the response has ended.
    pub(super) fn is_over(&self) -> bool {
        !matches!(self.status, "queued" | "in_progress")
    }

    /// Returns the items of the response so far.
    pub(super) fn output(&self) -> &[Value] {
        &self.output
    }

    /// Returns the response as it is now.
    pub(super) fn response(&self) -> Value {
        let usage = self.is_over().then(|| items::usage(&self.spent));
        let mut response = self.fields.clone();
        let own = json!({
            "id": self.id.to_string(),
            "object": "response",
            "status": self.status,
            "output": self.output,
            "error": self.error.as_ref().map(|(code, message)| to_error(code, message)),
            "incomplete_details": self.incomplete_reason.map(|reason| json!({"reason": reason})),
            "conversation": ids::conversation_of(&self.id.session).map(|id| json!({"id": id})),
            "usage": usage,
        });
        if let Value::Object(own) = own {
            response.extend(own);
        }
        Value::Object(response)
    }

    /// Takes the next part; returns whether the response has ended with it.
    pub(super) fn push(&mut self, part: TurnPart) -> bool {
        if self.is_over() {
            return true;
        }
        self.status = "in_progress";
        match part {
            TurnPart::Text { delta, .. } => self.push_text(&delta),
            // It stands behind the text, since a replica that comes late finds it in the whole reply only.
            TurnPart::Reasoning { .. } | TurnPart::GateClosed(_) => {}
            TurnPart::ReplyEnd { reply, .. } => {
                self.finish_message();
                self.add_reasoning(&reply.reasoning);
                self.spent = self.spent.plus(reply.spent);
                self.finish_reason = Some(reply.finish_reason);
                self.undecided = reply.tool_calls.iter().filter_map(|call| CallId::new(&call.id).ok()).collect();
            }
            TurnPart::Call(call) => self.push_call(&call),
            TurnPart::Result(result) => self.push_result(&result),
            TurnPart::ClientCall(call) => self.push_client_call(&call),
            TurnPart::GateOpened(gate) => {
                self.push_gate(&gate);
                if matches!(gate.kind, GateKind::Limit(_) | GateKind::Error(_)) {
                    self.complete();
                }
            }
            TurnPart::End(end) => self.end(*end),
        }
        // The client is asked for everything at once.
        if !self.is_over()
            && self.undecided.is_empty()
            && !self.outside.is_empty()
            && self.outside.values().all(|known| *known)
        {
            self.complete();
        }
        self.is_over()
    }

    fn push_text(&mut self, delta: &str) {
        let message = self.message.get_or_insert(OpenMessage { index: None, text: String::new() });
        message.text.push_str(delta);
        let mut delta = delta.to_owned();
        if message.index.is_none() {
            if message.text.trim().is_empty() {
                return;
            }
            delta.clone_from(&message.text);
            let index = self.output.len();
            message.index = Some(index);
            self.add_message(index);
        }
        let Some(index) = self.message.as_ref().and_then(|message| message.index) else { return };
        let length = delta.chars().count() as u64;
        let known = self.starting_after.saturating_sub(self.number);
        self.number += length;
        if known < length {
            let rest: String = delta.chars().skip(usize::try_from(known).unwrap_or(usize::MAX)).collect();
            self.push_ready(
                "response.output_text.delta",
                json!({
                    "item_id": self.id.message(index), "output_index": index, "content_index": 0, "delta": rest,
                    "logprobs": [],
                }),
            );
        }
    }

    fn add_message(&mut self, index: usize) {
        let item = message_item(&self.id.message(index), "in_progress", None);
        self.add_item(index, item);
        let part = text_part("");
        self.emit(
            "response.content_part.added",
            json!({"item_id": self.id.message(index), "output_index": index, "content_index": 0, "part": part}),
        );
    }

    /// Ends the message, if one is open. Its numbers differ by replica until here, and are the same again from here on.
    fn finish_message(&mut self) {
        self.number = self.number.div_ceil(NUMBERS_PER_REPLY) * NUMBERS_PER_REPLY;
        let Some(OpenMessage { index: Some(index), text }) = self.message.take() else { return };
        let item_id = self.id.message(index);
        self.emit(
            "response.output_text.done",
            json!({"item_id": item_id, "output_index": index, "content_index": 0, "text": text, "logprobs": []}),
        );
        let part = text_part(&text);
        self.emit(
            "response.content_part.done",
            json!({"item_id": item_id, "output_index": index, "content_index": 0, "part": part}),
        );
        self.output[index] = message_item(&item_id, "completed", Some(&text));
        self.finish_item(index);
    }

    fn add_reasoning(&mut self, reasoning: &str) {
        if reasoning.trim().is_empty() {
            return;
        }
        let index = self.output.len();
        let item_id = self.id.reasoning(index);
        let item = |summary: Value| json!({"id": item_id, "type": "reasoning", "summary": summary});
        self.add_item(index, item(json!([])));
        let event = |field: &str, value: Value| {
            let mut fields = json!({"item_id": item_id, "output_index": index, "summary_index": 0});
            fields[field] = value;
            fields
        };
        let whole = json!({"type": "summary_text", "text": reasoning});
        let empty = json!({"type": "summary_text", "text": ""});
        self.emit("response.reasoning_summary_part.added", event("part", empty));
        self.emit("response.reasoning_summary_text.delta", event("delta", json!(reasoning)));
        self.emit("response.reasoning_summary_text.done", event("text", json!(reasoning)));
        self.emit("response.reasoning_summary_part.done", event("part", whole.clone()));
        self.output[index] = item(json!([whole]));
        self.finish_item(index);
    }

    fn push_call(&mut self, call: &ToolCallIdentified) {
        self.undecided.remove(&call.call);
        let is_question = call.tool.as_str() == ASK_USER;
        if call.performer == Performer::Client || call.approval == ApprovalPolicy::Always || is_question {
            self.outside.insert(call.call.clone(), false);
            return;
        }
        self.add_call(call.call.clone(), call.tool.as_str(), call.arguments.get());
    }

    fn add_call(&mut self, call: CallId, tool: &str, arguments: &str) {
        let index = self.output.len();
        let item_id = self.call_item_id(&call);
        let item = json!({
            "id": item_id, "type": "mcp_call", "server_label": SERVER_LABEL, "name": tool, "arguments": arguments,
            "status": "in_progress", "output": null, "error": null, "approval_request_id": null,
        });
        self.add_item(index, item);
        let place = json!({"item_id": item_id, "output_index": index});
        self.emit("response.mcp_call.in_progress", place.clone());
        let mut done = place;
        done["arguments"] = json!(arguments);
        self.emit("response.mcp_call_arguments.done", done);
        self.running.insert(call, index);
    }

    fn push_result(&mut self, result: &ToolCallResult) {
        self.undecided.remove(&result.call);
        self.outside.remove(&result.call);
        // The client knows what it answered.
        if result.performer == Performer::Client || result.tool == ASK_USER {
            return;
        }
        if !self.running.contains_key(&result.call) {
            // It was allowed in an earlier response, or never began.
            self.add_call(result.call.clone(), &result.tool, "");
        }
        let Some(index) = self.running.remove(&result.call) else { return };
        let has_failed = result.outcome != Outcome::Ok;
        let item = &mut self.output[index];
        item["status"] = json!(if has_failed { "failed" } else { "completed" });
        item[if has_failed { "error" } else { "output" }] = json!(result.content);
        let event = if has_failed { "response.mcp_call.failed" } else { "response.mcp_call.completed" };
        self.emit(event, json!({"item_id": self.call_item_id(&result.call), "output_index": index}));
        self.finish_item(index);
    }

    fn push_client_call(&mut self, call: &ClientCallOpened) {
        let index = self.output.len();
        let item_id = ids::function_call(&self.id.session, &call.call);
        let (name, arguments) = (name_for_client(call.tool.as_str()), call.arguments.get());
        let item = |status: &str, arguments: &str| {
            json!({
                "id": item_id, "type": "function_call", "call_id": call_id(&self.id.session, &call.call),
                "name": name, "arguments": arguments, "status": status,
            })
        };
        let (begun, done) = (item("in_progress", ""), item("completed", arguments));
        self.add_item(index, begun);
        let place = json!({"item_id": item_id, "output_index": index});
        let (mut delta, mut whole) = (place.clone(), place);
        delta["delta"] = json!(arguments);
        whole["arguments"] = json!(arguments);
        whole["name"] = json!(name);
        self.emit("response.function_call_arguments.delta", delta);
        self.emit("response.function_call_arguments.done", whole);
        self.output[index] = done;
        self.finish_item(index);
        self.outside.insert(call.call.clone(), true);
    }

    fn push_gate(&mut self, gate: &GateOpened) {
        let arguments = gate.arguments.as_ref().map_or("{}", |arguments| arguments.get());
        if gate.kind == GateKind::Question {
            self.finish_message();
            self.push_text(&question::text(arguments));
            self.finish_message();
        } else {
            let index = self.output.len();
            let item = json!({
                "id": ids::approval(&self.id.session, &gate.gate), "type": "mcp_approval_request",
                "server_label": SERVER_LABEL, "name": question::name(gate.tool.as_ref(), gate.kind), "arguments": arguments,
            });
            self.add_item(index, item);
            self.finish_item(index);
        }
        self.outside.insert(gate.gate.clone(), true);
    }

    fn end(&mut self, end: TurnOutcome) {
        match end.stop_reason.kind() {
            StopKind::Error => {
                let error = end.error.unwrap_or((ErrorCode::Internal, "the turn failed".to_owned()));
                self.error = Some(error);
                self.close("failed", "response.failed");
            }
            StopKind::Stopped => self.close("cancelled", "response.incomplete"),
            StopKind::Completed => match self.finish_reason {
                Some(FinishReason::ContentFilter) => self.close_incomplete("content_filter"),
                Some(FinishReason::Length) => self.close_incomplete("max_output_tokens"),
                Some(FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Cancelled | FinishReason::Other)
                | None => self.complete(),
            },
            StopKind::Limit => self.close_incomplete("max_output_tokens"),
        }
    }

    fn close_incomplete(&mut self, reason: &'static str) {
        self.incomplete_reason = Some(reason);
        self.close("incomplete", "response.incomplete");
    }

    fn complete(&mut self) {
        self.close("completed", "response.completed");
    }

    /// Closes what is open: calls that still run are shown again, with their results, in the next response.
    fn close(&mut self, status: &'static str, event: &str) {
        self.finish_message();
        for index in std::mem::take(&mut self.running).into_values() {
            self.output[index]["status"] = json!("incomplete");
            self.finish_item(index);
        }
        self.status = status;
        self.emit_response(event);
    }

    fn call_item_id(&self, call: &CallId) -> String {
        ids::fleet_call(&self.id.session, call)
    }

    fn add_item(&mut self, index: usize, item: Value) {
        self.emit("response.output_item.added", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn finish_item(&mut self, index: usize) {
        let item = self.output[index].clone();
        self.emit("response.output_item.done", json!({"output_index": index, "item": item}));
    }

    fn emit_response(&mut self, name: &str) {
        let response = self.response();
        self.emit(name, json!({"response": response}));
    }

    /// Adds an event with the next number, unless the client has it.
    fn emit(&mut self, name: &str, fields: Value) {
        self.number += 1;
        if self.number > self.starting_after {
            self.push_ready(name, fields);
        }
    }

    fn push_ready(&mut self, name: &str, mut fields: Value) {
        fields["type"] = json!(name);
        fields["sequence_number"] = json!(self.number);
        self.ready.push(fields);
    }
}

fn message_item(id: &str, status: &str, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(text_part).into_iter().collect();
    json!({"id": id, "type": "message", "role": "assistant", "status": status, "content": content})
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}
