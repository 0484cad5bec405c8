//! From the bytes of a response to deltas: streamed or whole, told apart by how the bytes begin.

use contract::limits::{REPLY_BYTES_MAX, SSE_EVENT_BYTES_MAX};
use contract::model::{FailureKind, FinishReason};
use serde_json::Value;

use super::classify;
use super::slots::Slots;
use super::wire;
use crate::failure::Failure;
use crate::reply::{CallDelta, Delta};
use crate::sse::Decoder;

/// Bytes of a whole reply's JSON: the content's limit, and room for its escapes and envelope.
const WHOLE_BYTES_MAX: usize = 3 * REPLY_BYTES_MAX;

/// Reads one response. No half reply passes: [`Response::finish`] fails unless the provider said that it was done.
#[derive(Debug, Default)]
pub struct Response {
    body: Body,
    slots: Slots,
    stage: Stage,
    model: bool,
    done: bool,
}

/// How far a reply has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing of a reply so far.
    #[default]
    Waiting,
    /// The first choice was seen.
    Begun,
    /// It holds something.
    Content,
    /// The provider gave its reason to end.
    Finished,
}

#[derive(Debug, Default)]
enum Body {
    /// Nothing but white space so far.
    #[default]
    Unknown,
    Events(Decoder),
    Whole(Vec<u8>),
}

impl Response {
    /// Takes in the next bytes and yields what they mean.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Failure> {
        if let Body::Unknown = self.body {
            let Some(first) = bytes.iter().find(|b| !b.is_ascii_whitespace()) else { return Ok(Vec::new()) };
            self.body = match first {
                b'{' | b'[' | b'"' => Body::Whole(Vec::new()),
                b'<' => return Err(garbage("the answer is a web page, not a reply of a model: check base_url")),
                // A comment, a field of an event (data, event, id, retry), or a byte order mark.
                b':' | b'd' | b'e' | b'i' | b'r' | 0xEF => Body::Events(Decoder::new(SSE_EVENT_BYTES_MAX)),
                _ => return Err(garbage("the answer is neither JSON nor a stream of events")),
            };
        }
        let mut events = Vec::new();
        match &mut self.body {
            Body::Unknown => {}
            Body::Whole(body) if body.len() + bytes.len() > WHOLE_BYTES_MAX => {
                return Err(garbage(&format!("the reply is over the limit of {WHOLE_BYTES_MAX} bytes")));
            }
            Body::Whole(body) => body.extend_from_slice(bytes),
            Body::Events(decoder) => decoder.push(bytes, &mut events).map_err(|error| garbage(&error.to_string()))?,
        }
        let mut deltas = Vec::new();
        for event in events {
            self.event(&event, &mut deltas)?;
        }
        Ok(deltas)
    }

    /// Whether nothing that matters can follow, so that the connection may be dropped.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the content is complete: only usage may follow, and is not worth a failure.
    pub fn is_finished(&self) -> bool {
        self.stage == Stage::Finished
    }

    /// Ends the response where the provider ended it: yields what is left, or says what is missing.
    pub fn finish(&mut self) -> Result<Vec<Delta>, Failure> {
        let mut deltas = Vec::new();
        match std::mem::take(&mut self.body) {
            Body::Unknown => {}
            Body::Whole(body) => return self.whole(&body),
            Body::Events(mut decoder) => {
                let mut events = Vec::new();
                decoder.finish(&mut events);
                for event in events {
                    self.last_event(&event, &mut deltas)?;
                }
            }
        }
        if self.is_finished() {
            return Ok(deltas);
        }
        if self.done && self.stage == Stage::Content {
            // A server that never gives a reason, but says by `[DONE]` that the reply is complete.
            self.finished(FinishReason::Other, "", &mut deltas);
            return Ok(deltas);
        }
        let message = match self.stage {
            Stage::Waiting => "the answer ended before the reply began",
            Stage::Begun | Stage::Content | Stage::Finished => "the reply broke off",
        };
        Err(Failure::new(FailureKind::Truncated, message))
    }

    /// The last event has no blank line after it: it counts when it is whole, and is part of the loss otherwise.
    fn last_event(&mut self, event: &str, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        if event.trim() != "[DONE]" && serde_json::from_str::<serde::de::IgnoredAny>(event).is_err() {
            return Ok(());
        }
        self.event(event, deltas)
    }

    fn event(&mut self, data: &str, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let data = data.trim();
        if data.is_empty() || self.done {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let value: Value = serde_json::from_str(data).map_err(|_| garbage("an event of the stream is not JSON"))?;
        if !value.is_object() {
            return Err(garbage("an event of the stream is not a JSON object"));
        }
        if let Some(failure) = classify::in_band(&value) {
            return if self.is_finished() { Ok(()) } else { Err(failure) };
        }
        self.common(&value, deltas);
        if let Some(choice) = first_choice(&value) {
            self.reach(Stage::Begun);
            self.content(&choice["delta"], deltas);
            self.content(&choice["message"], deltas);
            self.end(choice, deltas)?;
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<Vec<Delta>, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            if error.is_eof() {
                Failure::new(FailureKind::Truncated, "the reply broke off")
            } else {
                garbage("the answer is not JSON")
            }
        })?;
        if let Some(failure) = classify::in_band(&value) {
            return Err(failure);
        }
        let Some(choice) = first_choice(&value).filter(|choice| choice["message"].is_object()) else {
            return Err(garbage("the answer is JSON, but not a chat completion"));
        };
        let mut deltas = Vec::new();
        self.common(&value, &mut deltas);
        self.content(&choice["message"], &mut deltas);
        self.end(choice, &mut deltas)?;
        self.finished(FinishReason::Other, "", &mut deltas);
        self.done = true;
        Ok(deltas)
    }

    fn common(&mut self, value: &Value, deltas: &mut Vec<Delta>) {
        if let (false, Some(model)) = (self.model, value["model"].as_str().filter(|model| !model.is_empty())) {
            self.model = true;
            deltas.push(Delta::Model(model.to_owned()));
        }
        if let Some(usage) = wire::usage(&value["usage"]).or_else(|| wire::usage(&value["x_groq"]["usage"])) {
            deltas.push(Delta::Usage(usage));
        }
    }

    fn content(&mut self, delta: &Value, deltas: &mut Vec<Delta>) {
        if !delta.is_object() {
            return;
        }
        let before = deltas.len();
        let reasoning = wire::reasoning(delta);
        if !reasoning.is_empty() {
            deltas.push(Delta::Reasoning(reasoning));
        }
        // A refusal in the model's own words is what the user reads.
        for text in [wire::text(&delta["content"]), wire::text(&delta["refusal"])] {
            if !text.is_empty() {
                deltas.push(Delta::Text(text));
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str();
            deltas.push(self.call(wire::count(&call["index"]), id, &call["function"]));
        }
        if delta["function_call"].is_object() {
            deltas.push(self.call(Some(0), None, &delta["function_call"]));
        }
        if deltas.len() > before {
            self.reach(Stage::Content);
        }
    }

    fn call(&mut self, index: Option<u64>, id: Option<&str>, function: &Value) -> Delta {
        let name = function["name"].as_str();
        let slot = self.slots.resolve(index, id, name);
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let arguments = wire::arguments(&function["arguments"]);
        Delta::Call(CallDelta { slot, id: some(id), name: some(name), arguments })
    }

    fn end(&mut self, choice: &Value, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let raw = choice["finish_reason"].as_str().unwrap_or_default();
        if raw == "error" {
            return Err(Failure::new(FailureKind::Unreachable, "the provider broke the reply off with an error"));
        }
        let Some(reason) = wire::finish(raw) else { return Ok(()) };
        if reason == FinishReason::ContentFilter && self.stage < Stage::Content {
            return Err(Failure::new(FailureKind::Refused, "the provider's content filter withheld the reply"));
        }
        self.finished(reason, raw, deltas);
        Ok(())
    }

    /// The first reason counts.
    fn finished(&mut self, reason: FinishReason, raw: &str, deltas: &mut Vec<Delta>) {
        if !self.is_finished() {
            self.stage = Stage::Finished;
            deltas.push(Delta::Finish { reason, raw: raw.to_owned() });
        }
    }

    fn reach(&mut self, stage: Stage) {
        self.stage = self.stage.max(stage);
    }
}

/// The choice with index 0; an index that is missing or no number counts as 0.
fn first_choice(value: &Value) -> Option<&Value> {
    let choices = value["choices"].as_array()?;
    choices.iter().find(|choice| choice.is_object() && wire::count(&choice["index"]).unwrap_or(0) == 0)
}

fn garbage(message: &str) -> Failure {
    Failure::new(FailureKind::Garbage, message)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
