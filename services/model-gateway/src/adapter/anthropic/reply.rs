//! What the events and blocks of a Messages answer mean.

use std::collections::BTreeMap;

use contract::model::{FailureKind, FinishReason, Usage};
use serde_json::{Value, json};

use crate::adapter::frame::{self, Progress, Stage, garbage};
use crate::adapter::wire;
use crate::failure::Failure;
use crate::reply::{CallDelta, Delta};

/// Reads one reply.
#[derive(Debug, Default)]
pub struct Reader {
    blocks: BTreeMap<u64, Block>,
    calls: u32,
    usage: Counted,
}

/// A block of the content that is not over.
#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        thinking: String,
        signature: String,
    },
    Call {
        slot: u32,
        input: String,
        told: bool,
    },
    /// Of a tool that the provider runs itself, or of a kind that we do not know.
    Other,
}

/// Figures so far; a later one of a kind replaces an earlier one.
#[derive(Debug, Default)]
struct Counted {
    input: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
}

impl frame::Reader for Reader {
    fn event(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let index = wire::count(&value["index"]).unwrap_or(0);
        match value["type"].as_str().unwrap_or_default() {
            "message_start" => {
                progress.reach(Stage::Begun);
                progress.model(&value["message"]["model"], deltas);
                self.count(&value["message"]["usage"], deltas);
            }
            "content_block_start" => self.begin(index, &value["content_block"], progress, deltas),
            "content_block_delta" => self.delta(index, &value["delta"], progress, deltas),
            "content_block_stop" => self.over(index, deltas),
            "message_delta" => {
                self.count(&value["usage"], deltas);
                end(&value["delta"], progress, deltas)?;
            }
            "message_stop" => progress.done(),
            // `ping`, and whatever comes to be.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let Some(content) = value["content"].as_array() else {
            return Err(garbage("the answer is JSON, but not a message"));
        };
        progress.model(&value["model"], deltas);
        for (index, block) in (0..).zip(content) {
            self.begin(index, block, progress, deltas);
            self.over(index, deltas);
        }
        self.count(&value["usage"], deltas);
        end(value, progress, deltas)
    }
}

impl Reader {
    fn begin(&mut self, index: u64, block: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) {
        progress.reach(Stage::Begun);
        let new = match block["type"].as_str().unwrap_or_default() {
            "text" => Block::Text,
            "thinking" => {
                let signature = wire::text(&block["signature"]);
                Block::Thinking { thinking: String::new(), signature }
            }
            "redacted_thinking" => {
                deltas.push(Delta::Replay(block.clone()));
                Block::Other
            }
            "tool_use" => {
                let (slot, some) = (self.calls, |value: &Value| value.as_str().map(str::to_owned));
                self.calls += 1;
                progress.reach(Stage::Content);
                let (id, name) = (some(&block["id"]), some(&block["name"]));
                deltas.push(Delta::Call(CallDelta { slot, id, name, arguments: String::new() }));
                let empty = block["input"].as_object().is_none_or(serde_json::Map::is_empty);
                let input = if empty { String::new() } else { block["input"].to_string() };
                Block::Call { slot, input, told: false }
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, new);
        // A whole block, and the beginning of a streamed one, may hold something already.
        for (kind, field) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
            if !wire::text(&block[field]).is_empty() {
                self.delta(index, &json!({"type": kind, field: block[field]}), progress, deltas);
            }
        }
    }

    fn delta(&mut self, index: u64, delta: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) {
        let kind = delta["type"].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), kind) {
            (Some(Block::Text), "text_delta") => {
                say(Delta::Text, wire::text(&delta["text"]), progress, deltas);
            }
            (Some(Block::Thinking { thinking, .. }), "thinking_delta") => {
                let more = wire::text(&delta["thinking"]);
                thinking.push_str(&more);
                say(Delta::Reasoning, more, progress, deltas);
            }
            (Some(Block::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&wire::text(&delta["signature"]));
            }
            (Some(Block::Call { slot, told, .. }), "input_json_delta") => {
                let arguments = wire::text(&delta["partial_json"]);
                *told |= !arguments.is_empty();
                deltas.push(Delta::Call(CallDelta { slot: *slot, arguments, ..CallDelta::default() }));
            }
            // Citations, and whatever comes to be.
            _ => {}
        }
    }

    fn over(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.blocks.remove(&index) {
            Some(Block::Call { slot, input, told: false }) if !input.is_empty() => {
                deltas.push(Delta::Call(CallDelta { slot, arguments: input, ..CallDelta::default() }));
            }
            // Without a signature it would be refused.
            Some(Block::Thinking { thinking, signature }) if !signature.is_empty() => {
                let kept = json!({"type": "thinking", "thinking": thinking, "signature": signature});
                deltas.push(Delta::Replay(kept));
            }
            Some(_) | None => {}
        }
    }

    /// What was read from a cache, or written to it, was sent too.
    fn count(&mut self, usage: &Value, deltas: &mut Vec<Delta>) {
        let counted = &mut self.usage;
        for (figure, name) in [
            (&mut counted.input, "input_tokens"),
            (&mut counted.read, "cache_read_input_tokens"),
            (&mut counted.written, "cache_creation_input_tokens"),
            (&mut counted.output, "output_tokens"),
        ] {
            *figure = wire::count(&usage[name]).or(*figure);
        }
        if counted.input.is_none() && counted.output.is_none() {
            return;
        }
        let or_none = |figure: Option<u64>| figure.unwrap_or(0);
        let cached = or_none(counted.read);
        let input = or_none(counted.input).saturating_add(cached).saturating_add(or_none(counted.written));
        deltas.push(Delta::Usage(Usage { input, output: or_none(counted.output), cached, reasoning: 0 }));
    }
}

fn say(what: fn(String) -> Delta, text: String, progress: &mut Progress, deltas: &mut Vec<Delta>) {
    if !text.is_empty() {
        progress.reach(Stage::Content);
        deltas.push(what(text));
    }
}

fn end(delta: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
    let Some(raw) = delta["stop_reason"].as_str() else { return Ok(()) };
    let reason = match raw {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    };
    if reason == FinishReason::ContentFilter && progress.stage() < Stage::Content {
        return Err(Failure::new(FailureKind::Refused, "the provider's content filter withheld the reply"));
    }
    progress.finish(reason, raw, deltas);
    Ok(())
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
