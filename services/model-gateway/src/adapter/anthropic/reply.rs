//! Reads the events and blocks of Messages.

use std::collections::BTreeMap;

use contract::model::{FailureKind, FinishReason, Usage};
use serde_json::{Value, json};

use crate::adapter::response::{self, ReadProgress, ReplyStage, protocol_error};
use crate::adapter::wire;
use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

/// Reader of one reply.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    blocks: BTreeMap<u64, Block>,
    calls: u32,
    usage: UsageCounts,
}

/// A content block that has not ended.
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
        has_arguments: bool,
    },
    /// A block of a tool that the provider runs itself, or of an unknown type.
    Other,
}

/// Token counts; a later value replaces an earlier one.
#[derive(Debug, Default)]
struct UsageCounts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    output: Option<u64>,
}

impl response::ProtocolReader for Reader {
    fn read_event(
        &mut self,
        value: &Value,
        progress: &mut ReadProgress,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), CallFailure> {
        let index = wire::read_count(&value["index"]).unwrap_or(0);
        match value["type"].as_str().unwrap_or_default() {
            "message_start" => {
                progress.advance_to(ReplyStage::Started);
                progress.set_model(&value["message"]["model"], deltas);
                self.count_usage(&value["message"]["usage"], deltas);
            }
            "content_block_start" => self.begin_block(index, &value["content_block"], progress, deltas),
            "content_block_delta" => self.read_delta(index, &value["delta"], progress, deltas),
            "content_block_stop" => self.end_block(index, deltas),
            "message_delta" => {
                self.count_usage(&value["usage"], deltas);
                read_end(&value["delta"], progress, deltas)?;
            }
            "message_stop" => progress.set_done(),
            // `ping`, and events of later versions.
            _ => {}
        }
        Ok(())
    }

    fn read_whole(
        &mut self,
        value: &Value,
        progress: &mut ReadProgress,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), CallFailure> {
        let Some(content) = value["content"].as_array() else {
            return Err(protocol_error("the answer is JSON, but not a message"));
        };
        progress.set_model(&value["model"], deltas);
        for (index, block) in (0..).zip(content) {
            self.begin_block(index, block, progress, deltas);
            self.end_block(index, deltas);
        }
        self.count_usage(&value["usage"], deltas);
        read_end(value, progress, deltas)
    }
}

impl Reader {
    fn begin_block(&mut self, index: u64, block: &Value, progress: &mut ReadProgress, deltas: &mut Vec<Delta>) {
        progress.advance_to(ReplyStage::Started);
        let new = match block["type"].as_str().unwrap_or_default() {
            "text" => Block::Text,
            "thinking" => {
                let signature = wire::read_text(&block["signature"]);
                Block::Thinking { thinking: String::new(), signature }
            }
            "redacted_thinking" => {
                deltas.push(Delta::Replay(block.clone()));
                Block::Other
            }
            "tool_use" => {
                let (slot, some) = (self.calls, |value: &Value| value.as_str().map(str::to_owned));
                self.calls += 1;
                progress.advance_to(ReplyStage::Content);
                let (id, name) = (some(&block["id"]), some(&block["name"]));
                deltas.push(Delta::Call(CallDelta { slot, id, name, arguments: String::new() }));
                let empty = block["input"].as_object().is_none_or(serde_json::Map::is_empty);
                let input = if empty { String::new() } else { block["input"].to_string() };
                Block::Call { slot, input, has_arguments: false }
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, new);
        // A complete block has content, and so may the start of a streamed one.
        for (kind, field) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
            if !wire::read_text(&block[field]).is_empty() {
                self.read_delta(index, &json!({"type": kind, field: block[field]}), progress, deltas);
            }
        }
    }

    fn read_delta(&mut self, index: u64, delta: &Value, progress: &mut ReadProgress, deltas: &mut Vec<Delta>) {
        let kind = delta["type"].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), kind) {
            (Some(Block::Text), "text_delta") => {
                push_text(Delta::Text, wire::read_text(&delta["text"]), progress, deltas);
            }
            (Some(Block::Thinking { thinking, .. }), "thinking_delta") => {
                let more = wire::read_text(&delta["thinking"]);
                thinking.push_str(&more);
                push_text(Delta::Reasoning, more, progress, deltas);
            }
            (Some(Block::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&wire::read_text(&delta["signature"]));
            }
            (Some(Block::Call { slot, has_arguments, .. }), "input_json_delta") => {
                let arguments = wire::read_text(&delta["partial_json"]);
                *has_arguments |= !arguments.is_empty();
                deltas.push(Delta::Call(CallDelta { slot: *slot, arguments, ..CallDelta::default() }));
            }
            // Citations, and deltas of later versions.
            _ => {}
        }
    }

    fn end_block(&mut self, index: u64, deltas: &mut Vec<Delta>) {
        match self.blocks.remove(&index) {
            Some(Block::Call { slot, input, has_arguments: false }) if !input.is_empty() => {
                deltas.push(Delta::Call(CallDelta { slot, arguments: input, ..CallDelta::default() }));
            }
            // A later request with an unsigned block would be refused.
            Some(Block::Thinking { thinking, signature }) if !signature.is_empty() => {
                let part = json!({"type": "thinking", "thinking": thinking, "signature": signature});
                deltas.push(Delta::Replay(part));
            }
            Some(_) | None => {}
        }
    }

    /// Counts tokens that were read from a cache or written to it as input.
    fn count_usage(&mut self, usage: &Value, deltas: &mut Vec<Delta>) {
        let counts = &mut self.usage;
        for (figure, name) in [
            (&mut counts.input, "input_tokens"),
            (&mut counts.cache_read, "cache_read_input_tokens"),
            (&mut counts.cache_written, "cache_creation_input_tokens"),
            (&mut counts.output, "output_tokens"),
        ] {
            *figure = wire::read_count(&usage[name]).or(*figure);
        }
        if counts.input.is_none() && counts.output.is_none() {
            return;
        }
        let or_none = |figure: Option<u64>| figure.unwrap_or(0);
        let cached = or_none(counts.cache_read);
        let input = or_none(counts.input).saturating_add(cached).saturating_add(or_none(counts.cache_written));
        deltas.push(Delta::Usage(Usage { input, output: or_none(counts.output), cached, reasoning: 0 }));
    }
}

fn push_text(variant: fn(String) -> Delta, text: String, progress: &mut ReadProgress, deltas: &mut Vec<Delta>) {
    if !text.is_empty() {
        progress.advance_to(ReplyStage::Content);
        deltas.push(variant(text));
    }
}

fn read_end(delta: &Value, progress: &mut ReadProgress, deltas: &mut Vec<Delta>) -> Result<(), CallFailure> {
    let Some(raw) = delta["stop_reason"].as_str() else { return Ok(()) };
    let reason = match raw {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    };
    if reason == FinishReason::ContentFilter && progress.stage() < ReplyStage::Content {
        return Err(CallFailure::new(FailureKind::Refused, "the provider's content filter withheld the reply"));
    }
    progress.finish(reason, raw, deltas);
    Ok(())
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
