//! What the JSON of chat completions means, as OpenAI and everybody who copied it writes it.

use contract::model::{FailureKind, FinishReason};
use serde_json::Value;

use super::slots::Slots;
use crate::adapter::frame::{Progress, Stage, garbage};
use crate::adapter::{frame, wire};
use crate::failure::Failure;
use crate::reply::{CallDelta, Delta};

/// Reads one reply.
#[derive(Debug, Default)]
pub struct Reader {
    slots: Slots,
}

impl frame::Reader for Reader {
    fn event(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        common(value, progress, deltas);
        if let Some(choice) = first_choice(value) {
            progress.reach(Stage::Begun);
            self.content(&choice["delta"], progress, deltas);
            self.content(&choice["message"], progress, deltas);
            end(choice, progress, deltas)?;
        }
        Ok(())
    }

    fn whole(&mut self, value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        let Some(choice) = first_choice(value).filter(|choice| choice["message"].is_object()) else {
            return Err(garbage("the answer is JSON, but not a chat completion"));
        };
        common(value, progress, deltas);
        self.content(&choice["message"], progress, deltas);
        end(choice, progress, deltas)
    }
}

impl Reader {
    fn content(&mut self, delta: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) {
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
            progress.reach(Stage::Content);
        }
    }

    fn call(&mut self, index: Option<u64>, id: Option<&str>, function: &Value) -> Delta {
        let name = function["name"].as_str();
        let slot = self.slots.resolve(index, id, name);
        let some = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let arguments = wire::arguments(&function["arguments"]);
        Delta::Call(CallDelta { slot, id: some(id), name: some(name), arguments })
    }
}

fn common(value: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) {
    progress.model(&value["model"], deltas);
    if let Some(usage) = wire::usage(&value["usage"]).or_else(|| wire::usage(&value["x_groq"]["usage"])) {
        deltas.push(Delta::Usage(usage));
    }
}

fn end(choice: &Value, progress: &mut Progress, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
    let raw = choice["finish_reason"].as_str().unwrap_or_default();
    if raw == "error" {
        return Err(Failure::new(FailureKind::Unreachable, "the provider broke the reply off with an error"));
    }
    let Some(reason) = wire::finish(raw) else { return Ok(()) };
    if reason == FinishReason::ContentFilter && progress.stage() < Stage::Content {
        return Err(Failure::new(FailureKind::Refused, "the provider's content filter withheld the reply"));
    }
    progress.finish(reason, raw, deltas);
    Ok(())
}

/// The choice with index 0; an index that is missing or no number counts as 0.
fn first_choice(value: &Value) -> Option<&Value> {
    let choices = value["choices"].as_array()?;
    choices.iter().find(|choice| choice.is_object() && wire::count(&choice["index"]).unwrap_or(0) == 0)
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
