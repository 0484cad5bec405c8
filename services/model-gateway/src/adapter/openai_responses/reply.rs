//! Reads the events and items of Responses.

use std::collections::BTreeMap;

use contract::model::{FailureKind, FinishReason, Usage};
use serde_json::{Value, json};

use crate::adapter::response::{self, ReadProgress, ReplyStage, protocol_error};
use crate::adapter::{classify, wire};
use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

/// Reader of one reply.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Outputs by their index.
    outputs: BTreeMap<u64, Output>,
    calls: u32,
    has_reasoning: bool,
}

#[derive(Debug, Default)]
struct Output {
    slot: Option<u32>,
    /// Text or arguments that were emitted as deltas.
    emitted: String,
}

impl response::ProtocolReader for Reader {
    fn read_event(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let index = wire::read_count(&value["output_index"]).unwrap_or(0);
        let kind = value["type"].as_str().unwrap_or_default();
        match kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                progress.advance_to(ReplyStage::Started);
                progress.set_model(&value["response"]["model"]);
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.add_text(index, wire::read_text(&value["delta"]), progress);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.add_reasoning(wire::read_text(&value["delta"]), progress);
            }
            "response.output_item.added" => self.begin_item(index, &value["item"], progress),
            "response.function_call_arguments.delta" => {
                let more = wire::read_arguments(&value["delta"]);
                self.add_arguments(index, &more, progress);
            }
            "response.output_item.done" => self.read_item(index, &value["item"], progress)?,
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.read_end(&value["response"], progress)?;
            }
            "error" => return Err(classify::classify_error(value)),
            // All other events repeat these, or are about tools that the provider runs itself.
            _ => {}
        }
        Ok(())
    }

    fn read_whole(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let Some(output) = value["output"].as_array() else {
            return Err(protocol_error("the answer is JSON, but not a response"));
        };
        for (index, item) in (0..).zip(output) {
            self.read_item(index, item, progress)?;
        }
        self.read_end(value, progress)
    }
}

impl Reader {
    fn add_text(&mut self, index: u64, text: String, progress: &mut ReadProgress) {
        if !text.is_empty() {
            self.outputs.entry(index).or_default().emitted.push_str(&text);
            progress.push_content(Delta::Text(text));
        }
    }

    fn add_reasoning(&mut self, text: String, progress: &mut ReadProgress) {
        self.has_reasoning |= !text.is_empty();
        progress.push_text(Delta::Reasoning, text);
    }

    fn begin_item(&mut self, index: u64, item: &Value, progress: &mut ReadProgress) {
        progress.advance_to(ReplyStage::Started);
        if item["type"] != "function_call" {
            return;
        }
        let output = self.outputs.entry(index).or_default();
        if output.slot.is_some() {
            return;
        }
        let slot = self.calls;
        self.calls += 1;
        output.slot = Some(slot);
        let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let id = some(&item["call_id"]).or_else(|| some(&item["id"]));
        let name = some(&item["name"]);
        progress.push_content(Delta::Call(CallDelta { slot, id, name, arguments: String::new() }));
    }

    fn add_arguments(&mut self, index: u64, more: &str, progress: &mut ReadProgress) {
        let Some(output) = self.outputs.get_mut(&index) else { return };
        if let (Some(slot), false) = (output.slot, more.is_empty()) {
            output.emitted.push_str(more);
            progress.push(Delta::Call(CallDelta { slot, arguments: more.to_owned(), ..CallDelta::default() }));
        }
    }

    /// Reads a complete item, which must agree with the deltas that were emitted before.
    fn read_item(&mut self, index: u64, item: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        match item["type"].as_str() {
            Some("function_call") => {
                self.begin_item(index, item, progress);
                let whole = wire::read_arguments(&item["arguments"]);
                let rest = self
                    .find_rest(index, &whole)
                    .ok_or_else(|| protocol_error("a call's arguments changed at its end"))?;
                self.add_arguments(index, &rest, progress);
            }
            Some("message") => {
                let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
                let part_text = |part: &Value| wire::read_text(&part["text"]) + &wire::read_text(&part["refusal"]);
                let whole: String = parts.iter().map(part_text).collect();
                // If it differs, the emitted text stays, since viewers have read it.
                if let Some(rest) = self.find_rest(index, &whole) {
                    self.add_text(index, rest, progress);
                }
            }
            Some("reasoning") => {
                // A stream has emitted the reasoning before.
                if !self.has_reasoning {
                    let parts = item["summary"].as_array().map(Vec::as_slice).unwrap_or_default();
                    let summary: String = parts.iter().map(|part| wire::read_text(&part["text"])).collect();
                    self.add_reasoning(summary, progress);
                }
                if item["encrypted_content"].is_string() {
                    progress.push(Delta::Replay(to_input_item(item)));
                }
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    /// The part of `complete` that was not emitted yet; `None` if it does not begin with the emitted part.
    fn find_rest(&mut self, index: u64, whole: &str) -> Option<String> {
        let emitted = &self.outputs.entry(index).or_default().emitted;
        if whole.is_empty() { Some(String::new()) } else { whole.strip_prefix(emitted.as_str()).map(str::to_owned) }
    }

    fn read_end(&mut self, response: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        progress.set_model(&response["model"]);
        if let Some(usage) = read_usage(&response["usage"]) {
            progress.push(Delta::Usage(usage));
        }
        let status = response["status"].as_str().unwrap_or("completed");
        let why = response["incomplete_details"]["reason"].as_str().unwrap_or_default();
        let (reason, raw) = match status {
            "failed" => return Err(classify::classify_error(&response["error"])),
            "cancelled" => return Err(CallFailure::new(FailureKind::Truncated, "the provider cancelled the reply")),
            "incomplete" if why == "content_filter" => (FinishReason::ContentFilter, why),
            "incomplete" => (FinishReason::Length, why),
            "in_progress" | "queued" => return Ok(()),
            _ if self.calls > 0 => (FinishReason::ToolCalls, status),
            _ => (FinishReason::Stop, status),
        };
        progress.finish(reason, raw)?;
        progress.set_done();
        Ok(())
    }
}

/// A reasoning item for a later request, without its status.
fn to_input_item(item: &Value) -> Value {
    json!({"type": "reasoning", "id": item["id"], "summary": item["summary"].as_array().cloned().unwrap_or_default(),
           "encrypted_content": item["encrypted_content"]})
}

fn read_usage(value: &Value) -> Option<Usage> {
    let get = |path: &str| value.pointer(path).and_then(wire::read_count);
    let (input, output) = (get("/input_tokens"), get("/output_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    Some(Usage {
        input: input.unwrap_or(0),
        output: output.unwrap_or(0),
        cached: get("/input_tokens_details/cached_tokens").unwrap_or(0),
        reasoning: get("/output_tokens_details/reasoning_tokens").unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
