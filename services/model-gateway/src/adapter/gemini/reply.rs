//! Reads the parts of generateContent responses, in which function calls are never split.

use contract::model::{FailureKind, FinishReason, Usage};
use serde_json::{Value, json};

use crate::adapter::response::{self, ReadProgress, ReplyStage, protocol_error};
use crate::adapter::wire;
use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

/// Reader of one reply.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    calls: u32,
}

impl response::ProtocolReader for Reader {
    fn read_event(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        progress.set_model(&value["modelVersion"]);
        if let Some(usage) = read_usage(&value["usageMetadata"]) {
            progress.push(Delta::Usage(usage));
        }
        if let Some(why) = value["promptFeedback"]["blockReason"].as_str() {
            return Err(CallFailure::new(FailureKind::Refused, format!("the provider blocks the request: {why}")));
        }
        let Some(candidate) = find_first_candidate(value) else { return Ok(()) };
        progress.advance_to(ReplyStage::Started);
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.read_part(part, progress);
        }
        self.read_end(candidate, progress)
    }

    fn read_whole(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        // Without `alt=sse`, a stream is a list of events.
        let answers = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        for answer in answers {
            if find_first_candidate(answer).is_none()
                && answer["promptFeedback"].is_null()
                && answer["usageMetadata"].is_null()
            {
                return Err(protocol_error("the answer is JSON, but no content was generated"));
            }
            self.read_event(answer, progress)?;
        }
        Ok(())
    }
}

impl Reader {
    fn read_part(&mut self, part: &Value, progress: &mut ReadProgress) {
        let signature = &part["thoughtSignature"];
        let variant: fn(String) -> Delta = if part["thought"] == true { Delta::Reasoning } else { Delta::Text };
        progress.push_text(variant, wire::read_text(&part["text"]));
        let call = &part["functionCall"];
        if call.is_object() {
            let slot = self.calls;
            self.calls += 1;
            let some = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let arguments = if call["args"].is_object() { call["args"].to_string() } else { "{}".to_owned() };
            let (id, name) = (some(&call["id"]), some(&call["name"]));
            progress.push_content(Delta::Call(CallDelta { slot, id, name, arguments }));
            if signature.is_string() {
                progress.push(Delta::Replay(json!({"call": self.calls, "thoughtSignature": signature})));
            }
        } else if signature.is_string() && part["thought"] != true {
            progress.push(Delta::Replay(json!({"thoughtSignature": signature})));
        }
    }

    fn read_end(&self, candidate: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let Some(raw) = candidate["finishReason"].as_str() else { return Ok(()) };
        let reason = match raw {
            "FINISH_REASON_UNSPECIFIED" => return Ok(()),
            // Some compatible servers have other reasons for calls.
            "STOP" if self.calls > 0 => FinishReason::ToolCalls,
            "FUNCTION_CALL" | "TOOL_CALLS" => FinishReason::ToolCalls,
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" => FinishReason::Length,
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
                FinishReason::ContentFilter
            }
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
                return Err(protocol_error("the model wrote a function call that cannot be read"));
            }
            _ => FinishReason::Other,
        };
        progress.finish(reason, raw)
    }
}

fn find_first_candidate(value: &Value) -> Option<&Value> {
    let candidates = value["candidates"].as_array()?;
    candidates.iter().find(|candidate| wire::read_count(&candidate["index"]).unwrap_or(0) == 0)
}

/// Google counts reasoning tokens beside the candidate tokens.
fn read_usage(value: &Value) -> Option<Usage> {
    let get = |name: &str| wire::read_count(&value[name]);
    let (input, output) = (get("promptTokenCount"), get("candidatesTokenCount"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let reasoning = get("thoughtsTokenCount").unwrap_or(0);
    Some(Usage {
        input: input.unwrap_or(0).saturating_add(get("toolUsePromptTokenCount").unwrap_or(0)),
        output: output.unwrap_or(0).saturating_add(reasoning),
        cached: get("cachedContentTokenCount").unwrap_or(0),
        reasoning,
    })
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
