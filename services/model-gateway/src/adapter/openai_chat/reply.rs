//! Reads the JSON of chat completions.

use contract::model::FailureKind;
use serde_json::Value;

use super::slots::Slots;
use crate::adapter::response::{ReadProgress, ReplyStage, protocol_error};
use crate::adapter::{response, wire};
use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

/// Reader of one reply.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    slots: Slots,
}

impl response::ProtocolReader for Reader {
    fn read_event(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        read_common(value, progress);
        let Some(choice) = find_first_choice(value) else { return Ok(()) };
        progress.advance_to(ReplyStage::Started);
        self.read_content(&choice["delta"], progress);
        self.read_content(&choice["message"], progress);
        read_end(choice, progress)
    }

    fn read_whole(&mut self, value: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
        let Some(choice) = find_first_choice(value).filter(|choice| choice["message"].is_object()) else {
            return Err(protocol_error("the answer is JSON, but not a chat completion"));
        };
        read_common(value, progress);
        self.read_content(&choice["message"], progress);
        read_end(choice, progress)
    }
}

impl Reader {
    fn read_content(&mut self, delta: &Value, progress: &mut ReadProgress) {
        if !delta.is_object() {
            return;
        }
        progress.push_text(Delta::Reasoning, wire::read_reasoning(delta));
        // A refusal of the model is text for the user.
        for text in [wire::read_text(&delta["content"]), wire::read_text(&delta["refusal"])] {
            progress.push_text(Delta::Text, text);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str();
            progress.push_content(self.read_call(wire::read_count(&call["index"]), id, &call["function"]));
        }
        if delta["function_call"].is_object() {
            progress.push_content(self.read_call(Some(0), None, &delta["function_call"]));
        }
    }

    fn read_call(&mut self, index: Option<u64>, id: Option<&str>, function: &Value) -> Delta {
        let name = function["name"].as_str();
        let slot = self.slots.resolve(index, id, name);
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let arguments = wire::read_arguments(&function["arguments"]);
        Delta::Call(CallDelta { slot, id: some(id), name: some(name), arguments })
    }
}

fn read_common(value: &Value, progress: &mut ReadProgress) {
    progress.set_model(&value["model"]);
    if let Some(usage) = wire::read_usage(&value["usage"]).or_else(|| wire::read_usage(&value["x_groq"]["usage"])) {
        progress.push(Delta::Usage(usage));
    }
}

fn read_end(choice: &Value, progress: &mut ReadProgress) -> Result<(), CallFailure> {
    let raw = choice["finish_reason"].as_str().unwrap_or_default();
    if raw == "error" {
        return Err(CallFailure::new(FailureKind::Unreachable, "the provider broke the reply off with an error"));
    }
    wire::read_finish_reason(raw).map_or(Ok(()), |reason| progress.finish(reason, raw))
}

/// The choice with index 0; an index that is missing or no number counts as 0.
fn find_first_choice(value: &Value) -> Option<&Value> {
    let choices = value["choices"].as_array()?;
    choices.iter().find(|choice| choice.is_object() && wire::read_count(&choice["index"]).unwrap_or(0) == 0)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
