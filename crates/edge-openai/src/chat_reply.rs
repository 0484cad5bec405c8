//! The answer to a request for a chat completion, at once or as it streams.

use std::collections::BTreeSet;

use axum::response::Response;
use axum::response::sse::Event;
use contract::client_tool::Performer;
use contract::event::ClientCallOpened;
use contract::model::FinishReason;
use contract::spent::Spent;
use contract::{CallId, SessionId, Timestamp};
use edge_core::api_error::ApiError;
use edge_core::sse;
use edge_core::turn::{BegunTurn, TurnOutcome, TurnPart, TurnStream, call_id, name_for_client};
use serde_json::{Value, json};

use super::chat_request::ChatRequest;
use super::errors::to_body;

/// Stands between the texts of two steps.
const BETWEEN_STEPS: &str = "\n\n";

/// Fields that all chunks of an answer share, and the progress of the answer.
#[derive(Debug)]
pub(super) struct ChatReply {
    id: String,
    created: u64,
    model: String,
    has_usage: bool,
    /// The step whose text went out last; the texts of steps are set apart.
    last_step: Option<u32>,
    finish_reason: Option<FinishReason>,
    session: SessionId,
    /// Calls of the last reply that may be for the client, and those that wait for it.
    expected: BTreeSet<CallId>,
    waiting: Vec<ClientCallOpened>,
}

/// Piece of the turn for the client.
enum ReplyPiece {
    Text(String),
    Reasoning(String),
    /// The turn waits for all calls of the client, which end the answer.
    Calls,
    End(Box<TurnOutcome>),
}

impl ChatReply {
    pub(super) fn new(request: &ChatRequest, begun: &BegunTurn, now: Timestamp) -> Self {
        Self {
            id: format!("chatcmpl-{}-{}", begun.session_id, begun.seq),
            created: now.as_millis() / 1_000,
            model: request.model.clone(),
            has_usage: request.has_usage(),
            last_step: None,
            finish_reason: None,
            session: begun.session_id.clone(),
            expected: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes the next part of the turn, and returns what the client gets of it.
    fn push(&mut self, part: TurnPart) -> Option<ReplyPiece> {
        match part {
            TurnPart::Text { step, delta } => return Some(ReplyPiece::Text(self.set_apart(step, delta))),
            TurnPart::Reasoning { delta, .. } => return Some(ReplyPiece::Reasoning(delta)),
            TurnPart::End(end) => return Some(ReplyPiece::End(end)),
            TurnPart::ReplyEnd { reply, .. } => {
                self.finish_reason = Some(reply.finish_reason);
                self.expected = reply.tool_calls.iter().filter_map(|call| CallId::new(&call.id).ok()).collect();
                self.waiting.clear();
            }
            TurnPart::Call(call) => match call.performer {
                Performer::Fleet => {
                    self.expected.remove(&call.call);
                }
                Performer::Client => {}
            },
            TurnPart::ClientCall(call) => {
                self.expected.insert(call.call.clone());
                self.waiting.push(*call);
            }
            // A call that was denied, or could not be made.
            TurnPart::Result(result) => {
                self.expected.remove(&result.call);
            }
            TurnPart::GateOpened(_) | TurnPart::GateClosed(_) => {}
        }
        let is_waiting = !self.waiting.is_empty() && self.waiting.len() >= self.expected.len();
        is_waiting.then_some(ReplyPiece::Calls)
    }

    /// Returns the calls that wait, in the form of OpenAI.
    fn tool_calls(&self) -> Vec<Value> {
        let calls = self.waiting.iter().enumerate();
        let call = |(index, call): (usize, &ClientCallOpened)| {
            json!({
                "index": index, "id": call_id(&self.session, &call.call), "type": "function",
                "function": {"name": name_for_client(call.tool.as_str()), "arguments": call.arguments.get()},
            })
        };
        calls.map(call).collect()
    }

    /// Returns the text of a step as it stands in the answer.
    fn set_apart(&mut self, step: u32, delta: String) -> String {
        let is_next = self.last_step.is_some_and(|last| last != step);
        self.last_step = Some(step);
        if is_next { BETWEEN_STEPS.to_owned() + &delta } else { delta }
    }

    fn finish_reason(&self, end: &TurnOutcome) -> &'static str {
        if end.stop_reason.is_limit() || self.finish_reason == Some(FinishReason::Length) {
            "length"
        } else if self.finish_reason == Some(FinishReason::ContentFilter) {
            "content_filter"
        } else {
            "stop"
        }
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        });
        if self.has_usage {
            chunk["usage"] = usage.unwrap_or_default();
        }
        chunk
    }

    fn delta(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null}]), None)
    }
}

/// Waits for the end of the turn, or for calls of the client, and returns the whole answer.
pub(super) async fn collect(mut reply: ChatReply, mut turn: TurnStream) -> Result<Value, ApiError> {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let end = loop {
        match reply.push(turn.next().await?) {
            Some(ReplyPiece::Text(delta)) => text.push_str(&delta),
            Some(ReplyPiece::Reasoning(delta)) => reasoning.push_str(&delta),
            Some(ReplyPiece::Calls) => break None,
            Some(ReplyPiece::End(end)) => break Some(end),
            None => {}
        }
    };
    if let Some(error) = end.as_ref().and_then(|end| end.failure(!text.is_empty())) {
        return Err(error);
    }
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    let finish_reason = end.as_ref().map_or("tool_calls", |end| reply.finish_reason(end));
    if end.is_none() {
        message["tool_calls"] = json!(reply.tool_calls());
    }
    let spent = end.map(|end| end.spent).unwrap_or_default();
    Ok(json!({
        "id": reply.id, "object": "chat.completion", "created": reply.created, "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": null}],
        "usage": to_usage(&spent),
    }))
}

/// Streams the answer as server-sent events. The first one names the role.
pub(super) fn stream(reply: ChatReply, turn: TurnStream) -> Response {
    let role = reply.delta(&json!({"role": "assistant", "content": ""}), None);
    let first = Event::default().data(role.to_string());
    sse::unfold(vec![first], Some(Box::new((reply, turn))), async |state| {
        let (frames, state) = next_frames(state?).await;
        Some((frames.into_iter().map(|frame| Event::default().data(frame)).collect(), state))
    })
}

/// Waits for the next frames. Nothing is left of the state once they are the last ones.
async fn next_frames(mut state: Box<(ChatReply, TurnStream)>) -> (Vec<String>, Option<Box<(ChatReply, TurnStream)>>) {
    let (reply, turn) = &mut *state;
    loop {
        let part = match turn.next().await {
            Ok(part) => part,
            Err(error) => return (vec![to_body(&error).to_string()], None),
        };
        let delta = match reply.push(part) {
            None => continue,
            Some(ReplyPiece::Text(delta)) => json!({"content": delta}),
            Some(ReplyPiece::Reasoning(delta)) => json!({"reasoning_content": delta}),
            Some(ReplyPiece::Calls) => {
                let mut frames = vec![reply.delta(&json!({"tool_calls": reply.tool_calls()}), None).to_string()];
                frames.extend(last_frames(reply, "tool_calls", &Spent::default()));
                return (frames, None);
            }
            Some(ReplyPiece::End(end)) => {
                if let Some(error) = end.failure(reply.last_step.is_some()) {
                    return (vec![to_body(&error).to_string()], None);
                }
                return (last_frames(reply, reply.finish_reason(&end), &end.spent), None);
            }
        };
        return (vec![reply.delta(&delta, None).to_string()], Some(state));
    }
}

/// Returns the frames that end a stream. Nothing may follow the usage but the word of the end.
fn last_frames(reply: &ChatReply, finish_reason: &str, spent: &Spent) -> Vec<String> {
    let mut frames = vec![reply.delta(&json!({}), Some(finish_reason)).to_string()];
    if reply.has_usage {
        frames.push(reply.chunk(&json!([]), Some(to_usage(spent))).to_string());
    }
    frames.push("[DONE]".to_owned());
    frames
}

fn to_usage(spent: &Spent) -> Value {
    let usage = &spent.usage;
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
