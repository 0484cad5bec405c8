//! The variables of a script: the transcript of the turn, with the results of its tools.

use std::collections::BTreeMap;

use contract::Json;
use contract::model::{Message, ModelItem, SIGNAL_TOOL};
use serde::Serialize;
use serde_json::Value;

/// First words of the result of a failed call.
const FAILURE_WORDS: &[&str] = &["error", "denied", "timeout", "cancelled", "unknown"];

/// Variables that templates and expressions can use.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ScriptContext {
    pub(crate) model: String,
    /// Number of the turn, from 1.
    pub(crate) turn: u32,
    /// Number of the step in its turn, from 1.
    pub(crate) step: u32,
    /// Message of the user that began the turn.
    pub(crate) prompt: String,
    /// Names of the available tools, without the pseudo-tool `continuation`.
    pub(crate) tools: Vec<String>,
    /// Whether the pseudo-tool `continuation` is available.
    pub(crate) can_signal: bool,
    /// All messages, with their contents as text.
    pub(crate) messages: Vec<ScriptMessage>,
    /// Results of the calls of this turn, in order.
    pub(crate) tool_results: Vec<ScriptToolResult>,
    /// The same results by tool: `results.read_file[0].content.lines`.
    pub(crate) results: BTreeMap<String, Vec<ScriptToolResult>>,
}

/// A message, with its content as text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ScriptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub(crate) role: &'static str,
    pub(crate) content: String,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ScriptToolResult {
    pub(crate) name: String,
    pub(crate) call_id: String,
    /// Arguments of the call; a text if they are no JSON.
    pub(crate) arguments: Value,
    /// Content of the result; a text if it is no JSON.
    pub(crate) content: Value,
    /// Whether the call succeeded.
    pub(crate) ok: bool,
}

impl ScriptContext {
    /// Builds the variables for a call.
    pub(crate) fn from_item(item: &ModelItem) -> Result<Self, serde_json::Error> {
        let messages: Vec<Message> =
            item.messages.iter().map(|raw| serde_json::from_str(raw.get())).collect::<Result<_, _>>()?;
        let names: Vec<String> = item.tools.iter().filter_map(parse_tool_name).collect();
        let can_signal = names.iter().any(|name| name == SIGNAL_TOOL);
        let tools = names.into_iter().filter(|name| name != SIGNAL_TOOL).collect();
        let turn = find_turn_start(&messages, item.meta.step);
        let tool_results = collect_results(&messages[turn..]);
        let mut by_name: BTreeMap<String, Vec<ScriptToolResult>> = BTreeMap::new();
        for result in &tool_results {
            by_name.entry(result.name.clone()).or_default().push(result.clone());
        }
        Ok(Self {
            model: item.model.clone(),
            turn: item.meta.turn,
            step: item.meta.step,
            prompt: find_prompt(&messages[..turn]),
            tools,
            can_signal,
            messages: messages.iter().map(to_script_message).collect(),
            tool_results,
            results: by_name,
        })
    }
}

fn parse_tool_name(raw: &Json) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str::<Named>(raw.get()).ok().map(|named| named.name)
}

/// Index of the first reply of the turn: each earlier step added one assistant message. Roles alone do not show it,
/// since messages of the orchestrator to the model have the role of the user too.
fn find_turn_start(messages: &[Message], step: u32) -> usize {
    let earlier = (step.max(1) - 1) as usize;
    let replies = (0..messages.len()).rev().filter(|at| matches!(messages[*at], Message::Assistant { .. }));
    replies.take(earlier).last().unwrap_or(messages.len())
}

fn find_prompt(before: &[Message]) -> String {
    let user = before.iter().rev().find_map(|message| {
        let Message::User { content } = message else { return None };
        Some(content.text())
    });
    user.unwrap_or_default()
}

fn to_script_message(message: &Message) -> ScriptMessage {
    match message {
        Message::System { content } => ScriptMessage { role: "system", content: content.clone() },
        Message::User { content } => ScriptMessage { role: "user", content: content.text() },
        Message::Assistant { content, .. } => ScriptMessage { role: "assistant", content: content.clone() },
        Message::Tool { content, .. } => ScriptMessage { role: "tool", content: content.clone() },
    }
}

fn collect_results(turn: &[Message]) -> Vec<ScriptToolResult> {
    let mut calls = BTreeMap::new();
    let mut results = Vec::new();
    for message in turn {
        match message {
            Message::Assistant { tool_calls, .. } => {
                calls.extend(tool_calls.iter().map(|call| (call.id.clone(), call.function.clone())));
            }
            Message::Tool { tool_call_id, content } => {
                let Some(call) = calls.get(tool_call_id) else { continue };
                results.push(ScriptToolResult {
                    name: call.name.clone(),
                    call_id: tool_call_id.clone(),
                    arguments: parse_or_text(&call.arguments),
                    content: parse_or_text(content),
                    ok: is_ok(content),
                });
            }
            Message::System { .. } | Message::User { .. } => {}
        }
    }
    results
}

fn parse_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A failed result begins with `<word>: …` or `<word> <code>: …`.
fn is_ok(content: &str) -> bool {
    let Some((head, _)) = content.split_once(':') else { return true };
    let mut words = head.split(' ');
    !(words.next().is_some_and(|word| FAILURE_WORDS.contains(&word)) && words.count() <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_with_a_failure_word_is_not_ok() {
        for (content, ok) in [
            ("{\"a\": 1}", true),
            ("plain", true),
            ("error: no", false),
            ("error no_tool_available: nobody", false),
            ("denied: no", false),
            ("an error: no", true),
            ("error messages are: fine", true),
        ] {
            assert_eq!(is_ok(content), ok, "{content}");
        }
    }
}
