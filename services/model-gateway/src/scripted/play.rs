//! Plays a step of a script as a streamed reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use contract::limits::TOOL_CALLS_PER_REPLY_MAX;
use contract::model::{FailureKind, FinishReason, ModelItem, SIGNAL_TOOL};
use minijinja::value::Serde;
use minijinja::{Environment, Value as Any};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::context::ScriptContext;
use super::script::{Script, ScriptArguments, ScriptCall, ScriptFailure, ScriptStep, environment, is_template};
use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

/// Plays the steps of a script as replies.
#[derive(Debug, Clone)]
pub(crate) struct ScriptPlayer {
    script: Script,
    environment: Environment<'static>,
    failure_counts: Arc<[AtomicU32]>,
}

impl ScriptPlayer {
    pub(crate) fn new(script: Script) -> Self {
        let failure_counts = script.steps.iter().map(|_| AtomicU32::new(0)).collect();
        Self { script, environment: environment(), failure_counts }
    }

    /// Streams the reply word by word, and then its calls.
    pub(crate) async fn play(&self, item: &ModelItem, deltas: &mpsc::Sender<Vec<Delta>>) -> Result<(), CallFailure> {
        let pause = Duration::from_millis(self.script.delay_ms);
        let (reply, failure) = self.build_reply(item)?;
        for delta in reply {
            let is_text = matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
            if deltas.send(vec![delta]).await.is_err() {
                break;
            }
            if is_text && !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Builds the reply to a call as deltas, and the failure that replaces its end.
    pub(crate) fn build_reply(&self, item: &ModelItem) -> Result<(Vec<Delta>, Option<CallFailure>), CallFailure> {
        let context =
            ScriptContext::from_item(item).map_err(|_| bad_request("a message of the transcript cannot be read"))?;
        let can_signal = context.can_signal;
        let at = context.step;
        let context = Any::from(Serde(&context));
        for (step, failure_counts) in self.script.steps.iter().zip(&*self.failure_counts) {
            if !self.matches(step, at, &context).map_err(|error| step_failure(step, &error))? {
                continue;
            }
            let mut reply = self.render_step(step, &context, can_signal).map_err(|error| step_failure(step, &error))?;
            let failure = step.fail.as_ref().filter(|fail| {
                let before = failure_counts.fetch_add(1, Ordering::Relaxed);
                fail.times.is_none_or(|times| before < times)
            });
            if failure.is_some() {
                reply.retain(|delta| !matches!(delta, Delta::Finish { .. }));
            }
            return Ok((reply, failure.map(|fail| fail.to_failure(step))));
        }
        Err(bad_request("no step of the script matches this call"))
    }

    fn matches(&self, step: &ScriptStep, at: u32, context: &Any) -> Result<bool, minijinja::Error> {
        Ok(step.at.is_none_or(|position| position == at) && self.evaluate_condition(step.when.as_deref(), context)?)
    }

    fn evaluate_condition(&self, when: Option<&str>, context: &Any) -> Result<bool, minijinja::Error> {
        let Some(when) = when else { return Ok(true) };
        Ok(self.environment.compile_expression(when)?.eval(context.clone())?.is_true())
    }

    fn render_step(&self, step: &ScriptStep, context: &Any, can_signal: bool) -> Result<Vec<Delta>, minijinja::Error> {
        let mut calls = Vec::new();
        for call in &step.tool_calls {
            self.render_calls(call, context, &mut calls)?;
        }
        calls.truncate(TOOL_CALLS_PER_REPLY_MAX);
        let mut text = self.render(&step.text, context)?.trim().to_owned();
        if let Some(signal) = &step.signal {
            let fields: Map<String, Value> = signal.clone().into_iter().collect();
            let signal = self.render_value(&Value::Object(fields), context)?;
            if can_signal {
                calls.push((SIGNAL_TOOL.to_owned(), signal.to_string()));
            } else {
                text = format!("{text}\n\n```json\n{}\n```", json!({ "continuation": signal }));
            }
        }
        let reasoning = self.render(&step.reasoning, context)?;
        let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        let raw = if calls.is_empty() { "stop" } else { "tool_calls" };
        let words = split_words(reasoning.trim()).map(|word| Delta::Reasoning(word.to_owned()));
        let words = words.chain(text_deltas(&text));
        let calls = (0..).zip(calls).map(|(slot, (name, arguments))| {
            Delta::Call(CallDelta { slot, id: Some(format!("call_{slot}")), name: Some(name), arguments })
        });
        let end = Delta::Finish { reason, raw: raw.to_owned() };
        let usage = step.usage.map(Delta::Usage);
        let model = Delta::Model("script".to_owned());
        Ok(std::iter::once(model).chain(usage).chain(words).chain(calls).chain([end]).collect())
    }

    /// Renders the calls of one entry.
    fn render_calls(
        &self,
        call: &ScriptCall,
        context: &Any,
        out: &mut Vec<(String, String)>,
    ) -> Result<(), minijinja::Error> {
        let Some(list) = &call.for_each else { return self.render_call(call, context, out) };
        for item in self.evaluate_list(list, context)? {
            let named = Any::from_pairs([(call.item.clone(), item)]);
            let context = minijinja::value::merge_maps([named, context.clone()]);
            self.render_call(call, &context, out)?;
        }
        Ok(())
    }

    fn evaluate_list(&self, list: &str, context: &Any) -> Result<Vec<Any>, minijinja::Error> {
        if !is_template(list) {
            let list = self.environment.compile_expression(list)?.eval(context.clone())?;
            return if list.is_undefined() { Ok(Vec::new()) } else { Ok(list.try_iter()?.collect()) };
        }
        let items: Vec<Value> = serde_json::from_str(&self.render(list, context)?).map_err(|error| {
            minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, format!("for_each is not a list: {error}"))
        })?;
        Ok(items.iter().map(|item| Any::from(Serde(item))).collect())
    }

    fn render_call(
        &self,
        call: &ScriptCall,
        context: &Any,
        out: &mut Vec<(String, String)>,
    ) -> Result<(), minijinja::Error> {
        if !self.evaluate_condition(call.when.as_deref(), context)? {
            return Ok(());
        }
        let arguments = match &call.arguments {
            ScriptArguments::Text(text) => self.render(text, context)?.trim().to_owned(),
            ScriptArguments::Object(fields) => {
                let fields: Map<String, Value> = fields.clone().into_iter().collect();
                self.render_value(&Value::Object(fields), context)?.to_string()
            }
        };
        out.push((self.render(&call.name, context)?.trim().to_owned(), arguments));
        Ok(())
    }

    /// Renders each text in a value.
    fn render_value(&self, value: &Value, context: &Any) -> Result<Value, minijinja::Error> {
        Ok(match value {
            Value::String(text) => Value::String(self.render(text, context)?),
            Value::Array(items) => {
                items.iter().map(|item| self.render_value(item, context)).collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, field)| Ok((name.clone(), self.render_value(field, context)?)))
                    .collect::<Result<_, minijinja::Error>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn render(&self, template: &str, context: &Any) -> Result<String, minijinja::Error> {
        self.environment.render_str(template, context.clone())
    }
}

impl ScriptFailure {
    fn to_failure(&self, step: &ScriptStep) -> CallFailure {
        let message = format!("step {:?} of the script fails as scripted", step.name);
        CallFailure { retry_after: self.retry_after.map(Duration::from_secs), ..CallFailure::new(self.kind, message) }
    }
}

fn text_deltas(text: &str) -> impl Iterator<Item = Delta> {
    split_words(text).map(|word| Delta::Text(word.to_owned()))
}

/// Splits a text into words, each with the white space after it.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

fn bad_request(message: &str) -> CallFailure {
    CallFailure::new(FailureKind::BadRequest, message)
}

fn step_failure(step: &ScriptStep, error: &minijinja::Error) -> CallFailure {
    bad_request(&format!("step {:?} of the script: {error:#}", step.name))
}

#[cfg(test)]
#[path = "play_tests.rs"]
mod tests;
