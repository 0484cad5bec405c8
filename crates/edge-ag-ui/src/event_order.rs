//! The order of the events of a run, by the rules that clients enforce. Tests of several packages use it.

use std::collections::BTreeSet;

use serde_json::Value;

/// Open and earlier parts of a run, by kind and id.
#[derive(Default)]
struct OpenParts {
    open: BTreeSet<(&'static str, String)>,
    seen: BTreeSet<(&'static str, String)>,
}

impl OpenParts {
    fn open(&mut self, kind: &'static str, id: &str) -> Result<(), String> {
        self.open.insert((kind, id.to_owned()));
        if self.seen.insert((kind, id.to_owned())) { Ok(()) } else { Err(format!("{kind} {id} is opened twice")) }
    }

    fn require(&self, kind: &'static str, id: &str) -> Result<(), String> {
        if self.open.contains(&(kind, id.to_owned())) { Ok(()) } else { Err(format!("{kind} {id} is not open")) }
    }

    fn close(&mut self, kind: &'static str, id: &str) -> Result<(), String> {
        self.require(kind, id)?;
        self.open.remove(&(kind, id.to_owned()));
        Ok(())
    }
}

/// Checks all events of one run, from the first to the last.
pub(crate) fn check(events: &[Value]) -> Result<(), String> {
    let mut parts = OpenParts::default();
    let mut results = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        let failed = |why: String| format!("event {index}: {why}: {event}");
        check_fields(event).map_err(failed)?;
        let kind = text(event, "type");
        let is_end = ["RUN_FINISHED", "RUN_ERROR"].contains(&kind);
        if (index == 0) != (kind == "RUN_STARTED") && !(index == 0 && kind == "RUN_ERROR") {
            return Err(failed("a run begins with RUN_STARTED, once".to_owned()));
        }
        if is_end != (index + 1 == events.len()) {
            return Err(failed("a run ends with RUN_FINISHED or RUN_ERROR, and nothing follows".to_owned()));
        }
        check_event(event, kind, &mut parts, &mut results).map_err(failed)?;
        if kind == "RUN_FINISHED" {
            let before: Vec<&str> = events[..index].iter().map(|event| text(event, "type")).collect();
            check_end(event, &before, &parts, &results).map_err(failed)?;
        }
    }
    if events.is_empty() { Err("there is no event".to_owned()) } else { Ok(()) }
}

fn check_fields(event: &Value) -> Result<(), String> {
    let fields = event.as_object().ok_or("it is no object")?;
    if let Some((name, _)) = fields.iter().find(|(_, value)| value.is_null()) {
        return Err(format!("{name} is null"));
    }
    if fields.get("delta").is_some_and(|delta| delta.as_str().is_none_or(str::is_empty)) {
        return Err("the delta is empty".to_owned());
    }
    Ok(())
}

fn check_event(event: &Value, kind: &str, parts: &mut OpenParts, results: &mut BTreeSet<String>) -> Result<(), String> {
    let (message, call, step) = (text(event, "messageId"), text(event, "toolCallId"), text(event, "stepName"));
    match kind {
        "STEP_STARTED" => parts.open("step", step),
        "STEP_FINISHED" => parts.close("step", step),
        "TEXT_MESSAGE_START" => parts.open("message", message),
        "TEXT_MESSAGE_CONTENT" => parts.require("message", message),
        "TEXT_MESSAGE_END" => parts.close("message", message),
        "REASONING_START" => parts.open("reasoning", message),
        "REASONING_MESSAGE_START" => {
            parts.require("reasoning", message)?;
            parts.open("reasoning message", message)
        }
        "REASONING_MESSAGE_CONTENT" => parts.require("reasoning message", message),
        "REASONING_MESSAGE_END" => parts.close("reasoning message", message),
        "REASONING_END" => parts.close("reasoning", message),
        "TOOL_CALL_START" => parts.open("call", call),
        "TOOL_CALL_ARGS" => parts.require("call", call),
        "TOOL_CALL_END" => parts.close("call", call),
        "TOOL_CALL_RESULT" if results.insert(call.to_owned()) && !message.is_empty() => Ok(()),
        "TOOL_CALL_RESULT" => Err(format!("call {call} has two results, or one without a message")),
        "RUN_STARTED" | "RUN_FINISHED" | "RUN_ERROR" | "STATE_SNAPSHOT" | "MESSAGES_SNAPSHOT" | "CUSTOM" => Ok(()),
        other => Err(format!("{other:?} is no event of a run")),
    }
}

fn check_end(event: &Value, before: &[&str], parts: &OpenParts, results: &BTreeSet<String>) -> Result<(), String> {
    if let Some((kind, id)) = parts.open.first() {
        return Err(format!("{kind} {id} is open at the end"));
    }
    let outcome = &event["outcome"];
    let pending = outcome["pendingToolCallIds"].as_array().into_iter().flatten();
    if let Some(call) = pending.filter_map(Value::as_str).find(|call| results.contains(*call)) {
        return Err(format!("call {call} is pending and has a result"));
    }
    let is_interrupt = outcome["type"] == "interrupt";
    if is_interrupt
        && (!before.ends_with(&["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]) || outcome["interrupts"][0].is_null())
    {
        return Err("an interrupt needs snapshots before it, and something to answer".to_owned());
    }
    Ok(())
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}
