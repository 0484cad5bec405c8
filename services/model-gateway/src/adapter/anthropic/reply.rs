//! Reads the events and blocks of Messages.

use std::collections::BTreeMap;

use contract::model::{FinishReason, Usage};
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
    fn read_event(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let index = wire::read_count(&value["index"]).unwrap_or(0);
        match value["type"].as_str().unwrap_or_default() {
            "message_start" => {
                progress.advance_to(ReplyStage::Started);
                progress.set_model(&value["message"]["model"]);
                self.count_usage(&value["message"]["usage"], progress);
            }
            "content_block_start" => self.begin_block(index, &value["content_block"], progress),
            "content_block_delta" => self.read_delta(index, &value["delta"], progress),
            "content_block_stop" => self.end_block(index, progress),
            "message_delta" => {
                self.count_usage(&value["usage"], progress);
                read_end(&value["delta"], progress)?;
            }
            "message_stop" => progress.set_done(),
            // `ping`, and events of later versions.
            _ => {}
        }
        Ok(())
    }

    fn read_whole(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let Some(content) = value["content"].as_array() else {
            return Err(protocol_error("the answer is JSON, but not a message"));
        };
        progress.set_model(&value["model"]);
        for (index, block) in (0..).zip(content) {
            self.begin_block(index, block, progress);
            self.end_block(index, progress);
        }
        self.count_usage(&value["usage"], progress);
        read_end(value, progress)
    }
}

impl Reader {
    fn begin_block(&mut self, index: u64, block: &Value, progress: &mut ReadProgress) {
        progress.advance_to(ReplyStage::Started);
        let new = match block["type"].as_str().unwrap_or_default() {
            "text" => Block::Text,
            "thinking" => {
                let signature = wire::read_text(&block["signature"]);
                Block::Thinking { thinking: String::new(), signature }
            }
            "redacted_thinking" => {
                progress.push(Delta::Replay(block.clone()));
                Block::Other
            }
            "tool_use" => {
                let (slot, some) = (self.calls, |value: &Value| value.as_str().map(str::to_owned));
                self.calls += 1;
                let (id, name) = (some(&block["id"]), some(&block["name"]));
                progress.push_content(Delta::Call(CallDelta { slot, id, name, arguments: String::new() }));
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
                self.read_delta(index, &json!({"type": kind, field: block[field]}), progress);
            }
        }
    }

    fn read_delta(&mut self, index: u64, delta: &Value, progress: &mut ReadProgress) {
        let kind = delta["type"].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), kind) {
            (Some(Block::Text), "text_delta") => {
                progress.push_text(Delta::Text, wire::read_text(&delta["text"]));
            }
            (Some(Block::Thinking { thinking, .. }), "thinking_delta") => {
                let more = wire::read_text(&delta["thinking"]);
                thinking.push_str(&more);
                progress.push_text(Delta::Reasoning, more);
            }
            (Some(Block::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&wire::read_text(&delta["signature"]));
            }
            (Some(Block::Call { slot, has_arguments, .. }), "input_json_delta") => {
                let arguments = wire::read_text(&delta["partial_json"]);
                *has_arguments |= !arguments.is_empty();
                progress.push(Delta::Call(CallDelta { slot: *slot, arguments, ..CallDelta::default() }));
            }
            // Citations, and deltas of later versions.
            _ => {}
        }
    }

    fn end_block(&mut self, index: u64, progress: &mut ReadProgress) {
        match self.blocks.remove(&index) {
            Some(Block::Call { slot, input, has_arguments: false }) if !input.is_empty() => {
                progress.push(Delta::Call(CallDelta { slot, arguments: input, ..CallDelta::default() }));
            }
            // A later request with an unsigned block would be refused.
            Some(Block::Thinking { thinking, signature }) if !signature.is_empty() => {
                let part = json!({"type": "thinking", "thinking": thinking, "signature": signature});
                progress.push(Delta::Replay(part));
            }
            Some(_) | None => {}
        }
    }

    /// Counts tokens that were read from a cache or written to it as input.
    fn count_usage(&mut self, usage: &Value, progress: &mut ReadProgress) {
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
        progress.push(Delta::Usage(Usage { input, output: or_none(counts.output), cached, reasoning: 0 }));
    }
}

fn read_end(delta: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
    let Some(raw) = delta["stop_reason"].as_str() else { return Ok(()) };
    let reason = match raw {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    };
    progress.finish(reason, raw)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
