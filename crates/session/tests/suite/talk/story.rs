//! A session as text for people.

use std::fmt::Write as _;

use contract::event::{Event, InputKind, InputRef};
use session::SessionEffect;

use super::Talk;

impl Talk {
    pub(super) fn control(&mut self, input: &InputRef, events: &[Event]) {
        let kind = match input.kind {
            InputKind::Control(verb) => verb.as_str(),
            InputKind::Timer => "timer",
        };
        let _ = writeln!(self.story, "\n{kind} {}", input.id);
        for event in events {
            let mut event = serde_json::to_value(event).unwrap();
            shorten(&mut event);
            let _ = writeln!(self.story, "  {event}");
        }
        let _ = writeln!(self.story, "  performs {}", effects(&self.effects));
        let items: Vec<_> = self.effects.iter().filter_map(|effect| self.sends(effect)).collect();
        for item in items {
            let shown = self.show_difference(item);
            let _ = writeln!(self.story, "    {shown}");
        }
        let owed = effects(&self.session.outstanding());
        let open = self.session.open_calls().join(" ");
        let _ = writeln!(self.story, "  then {:?}, open [{open}], owes {owed}", self.session.phase());
    }

    /// Returns the work item that an effect sends to a worker, with shortened texts; none for any other effect.
    pub(super) fn sends(&self, effect: &SessionEffect) -> Option<serde_json::Value> {
        let item = match effect {
            SessionEffect::CallModel(call) => serde_json::to_value(self.item_of(call)?),
            SessionEffect::CallTool(call) => serde_json::to_value(self.session.tool_item(call)?),
            _ => return None,
        };
        let mut item = item.unwrap();
        shorten(&mut item);
        Some(item)
    }

    /// An item without what the item of the last model call had as well: a transcript grows by a few messages a step.
    fn show_difference(&mut self, item: serde_json::Value) -> serde_json::Value {
        if item.get("messages").is_none() {
            return item;
        }
        let mut shown = item.clone();
        if let Some(last) = self.last_model_item.replace(item)
            && let Some(fields) = shown.as_object_mut()
        {
            for (name, value) in fields {
                omit_same(value, &last[name.as_str()]);
            }
        }
        shown
    }

    /// The session as text for people: each input with the events of its commit, their effects, and
    /// the effects that a reload would repeat.
    pub(crate) fn story(&self) -> &str {
        self.story.trim_start()
    }
}

/// Replaces a value that is long and the same as before, and the beginning of a list that is.
fn omit_same(value: &mut serde_json::Value, last: &serde_json::Value) {
    if value == last && value.to_string().len() > 40 {
        *value = "as before".into();
    } else if let (Some(list), Some(last)) = (value.as_array_mut(), last.as_array()) {
        let same = list.iter().zip(last).take_while(|(one, other)| one == other).count();
        if same > 1 {
            list.splice(..same, [format!("{same} as before").into()]);
        }
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

fn effects(effects: &[SessionEffect]) -> String {
    let one = |effect: &SessionEffect| match effect {
        SessionEffect::CallModel(call) => format!("model {call}"),
        SessionEffect::CallTool(call) => format!("tool {call}"),
        SessionEffect::Cancel { call, tool } => {
            format!("cancel {call}{}", tool.as_ref().map(|tool| format!(" of {tool}")).unwrap_or_default())
        }
        SessionEffect::SetTimer { number, at } => format!("timer {number} at {at}"),
        SessionEffect::StartChild(call) => format!("child {call}"),
        SessionEffect::CommandChild(call) => format!("word to {call}"),
        SessionEffect::ReportToParent => "word to parent".to_owned(),
        SessionEffect::CancelTimer => "no timer".to_owned(),
        SessionEffect::Index => "index".to_owned(),
        SessionEffect::Archive { below } => format!("archive below {below}"),
    };
    if effects.is_empty() { "nothing".to_owned() } else { effects.iter().map(one).collect::<Vec<_>>().join(", ") }
}
