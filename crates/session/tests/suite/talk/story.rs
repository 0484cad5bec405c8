//! A session as text for people.

use std::fmt::Write as _;

use contract::event::{Event, InputKind, InputRef};
use session::Effect;

use super::Talk;

impl Talk {
    pub(super) fn control(&mut self, input: &InputRef, events: &[Event]) {
        let kind = match input.kind {
            InputKind::Control(verb) => verb.as_str(),
            InputKind::Timer => "timer",
        };
        let _ = writeln!(self.story, "\n{kind} {}", input.id);
        for event in events {
            let _ = writeln!(self.story, "  {}", serde_json::to_string(event).unwrap());
        }
        let _ = writeln!(self.story, "  performs {}", effects(&self.effects));
        let items: Vec<_> = self.effects.iter().filter_map(|effect| self.sends(effect)).collect();
        for item in items {
            let _ = writeln!(self.story, "    {item}");
        }
        let owed = effects(&self.session.outstanding());
        let open = self.session.open_calls().join(" ");
        let _ = writeln!(self.story, "  then {:?}, open [{open}], owes {owed}", self.session.phase());
    }

    /// What goes to a worker, its texts shortened.
    pub(super) fn sends(&self, effect: &Effect) -> Option<serde_json::Value> {
        let item = match effect {
            Effect::CallModel(call) => serde_json::to_value(self.session.model_item(call)?),
            Effect::CallTool(call) => serde_json::to_value(self.session.tool_item(call)?),
            _ => return None,
        };
        let mut item = item.unwrap();
        shorten(&mut item);
        Some(item)
    }

    /// The session as text for people: each input with the events of its commit, their effects, and
    /// the effects that a reload would repeat.
    pub(crate) fn story(&self) -> &str {
        self.story.trim_start()
    }
}

/// The beginning of each long text, and how long it was.
fn shorten(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if text.len() > 60 => {
            let beginning: String = text.chars().take(40).collect();
            *text = format!("{beginning}... ({} bytes)", text.len());
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(shorten),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

fn effects(effects: &[Effect]) -> String {
    let one = |effect: &Effect| match effect {
        Effect::CallModel(call) => format!("model {call}"),
        Effect::CallTool(call) => format!("tool {call}"),
        Effect::Cancel { call, tool } => {
            format!("cancel {call}{}", tool.as_ref().map(|tool| format!(" of {tool}")).unwrap_or_default())
        }
        Effect::SetTimer { number, at } => format!("timer {number} at {at}"),
        Effect::StartChild(call) => format!("child {call}"),
        Effect::CommandChild(call) => format!("word to {call}"),
        Effect::ReportToParent => "word to parent".to_owned(),
        Effect::CancelTimer => "no timer".to_owned(),
        Effect::Index => "index".to_owned(),
        Effect::Archive { below } => format!("archive below {below}"),
    };
    if effects.is_empty() { "nothing".to_owned() } else { effects.iter().map(one).collect::<Vec<_>>().join(", ") }
}
