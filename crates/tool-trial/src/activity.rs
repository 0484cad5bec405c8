//! Changes of the catalogue and tool calls, line by line.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bus::CoreMessage;
use contract::tool::ToolSpec;
use contract::{Timestamp, ToolName};
use serde_json::{Value, json};
use terminal::Style;
use terminal::format;

/// Running calls whose tool is remembered.
const CALLS_MAX: usize = 10_000;
/// Characters of arguments or of a result in a line.
const TEXT_CHARS_MAX: usize = 80;

/// One change or call event.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityLine {
    pub(crate) style: Style,
    /// The line for people.
    pub text: String,
    /// The line for programs.
    pub json: Value,
}

/// The known tools and running calls.
#[derive(Debug, Default)]
pub struct ActivityTracker {
    only: Option<ToolName>,
    known: Option<BTreeMap<ToolName, ToolSpec>>,
    calls: HashMap<(String, String), String>,
}

impl ActivityTracker {
    /// Tracks one tool, or all of them.
    pub fn new(only: Option<ToolName>) -> Self {
        Self { only, ..Self::default() }
    }

    /// Compares the catalogue with the last one; returns the changes, and at first all tools.
    pub fn update_catalogue(&mut self, now: Timestamp, specs: Vec<ToolSpec>) -> Vec<ActivityLine> {
        let is_tracked = |spec: &ToolSpec| self.only.as_ref().is_none_or(|only| *only == spec.name);
        let specs: BTreeMap<_, _> =
            specs.into_iter().filter(is_tracked).map(|spec| (spec.name.clone(), spec)).collect();
        let before = self.known.take();
        let came = if before.is_some() { "came" } else { "there" };
        let before = before.unwrap_or_default();
        let line = |what: &str, spec: &ToolSpec, style| {
            let text = format!("{what:<8} {}  {}  {}", spec.name, spec.effect, spec.version);
            let json = json!({"what": what, "tool": spec.name, "effect": spec.effect, "version": spec.version});
            ActivityLine::new(now, style, &text, json)
        };
        let mut lines = Vec::new();
        for (name, spec) in &specs {
            match before.get(name) {
                None => lines.push(line(came, spec, Style::Good)),
                Some(known) if known != spec => lines.push(line("changed", spec, Style::Plain)),
                Some(_) => {}
            }
        }
        lines.extend(
            before
                .iter()
                .filter(|(name, _)| !specs.contains_key(*name))
                .map(|(_, spec)| line("gone", spec, Style::Warn)),
        );
        self.known = Some(specs);
        lines
    }

    /// Formats an event of `ai_loop.tool_call.<what>.<tenant>.<session>`. An event of a kind that this version does not
    /// know is shown with its data.
    pub fn format_event(&mut self, message: &CoreMessage) -> Option<ActivityLine> {
        let rest = message.subject.strip_prefix("ai_loop.tool_call.")?;
        let mut tokens = rest.split('.');
        let (what, _tenant, session) = (tokens.next()?, tokens.next()?, tokens.next()?);
        let event: Value = serde_json::from_slice(&message.payload).ok()?;
        let at = event["time"].as_str().and_then(Timestamp::parse)?;
        let data = &event["data"];
        let text = |field: &str| data[field].as_str().unwrap_or_default();
        let call = text("call");
        let key = (session.to_owned(), call.to_owned());
        let known = || self.calls.get(&key).map(String::as_str).unwrap_or_default();
        let tool = if text("tool").is_empty() { known() } else { text("tool") }.to_owned();
        if self.only.as_ref().is_some_and(|only| only.as_str() != tool) {
            return None;
        }
        let (style, text) = match what {
            // The complete arguments follow in `identified`.
            "partial" => return None,
            "identified" => {
                if self.calls.len() < CALLS_MAX {
                    self.calls.insert(key, tool.clone());
                }
                (Style::Plain, format!("begins   {tool}  {session}/{call}  {}", shorten(&data["arguments"])))
            }
            "result_processed" => {
                self.calls.remove(&key);
                let time = format::duration(Duration::from_millis(data["duration_ms"].as_u64().unwrap_or_default()));
                let outcome = text("outcome");
                let style = if outcome == "ok" { Style::Good } else { Style::Warn };
                (style, format!("ends     {tool}  {session}/{call}  {outcome}, {time}: {}", shorten(&data["content"])))
            }
            other => (Style::Faint, format!("{other:<8} {tool}  {session}/{call}  {}", shorten(data))),
        };
        let json = json!({"what": what, "tool": tool, "session": session, "call": call, "data": data});
        Some(ActivityLine::new(at, style, &text, json))
    }
}

impl ActivityLine {
    fn new(at: Timestamp, style: Style, text: &str, mut json: Value) -> Self {
        let time = at.to_string();
        let clock = time.get(11..19).unwrap_or_default().to_owned();
        json["time"] = json!(time);
        Self { style, text: format!("{clock}  {}", text.trim_end()), json }
    }
}

fn shorten(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format::cut(format::join_words(&text), TEXT_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use contract::Json;
    use contract::tool::{ApprovalPolicy, EffectClass};

    use super::*;

    fn spec(name: &str, version: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: String::new(),
            parameters: Json::default(),
            effect: EffectClass::Pure,
            approval: ApprovalPolicy::Never,
            timeout_ms: None,
            max_output: None,
            instructions: None,
            version: version.to_owned(),
        }
    }

    fn event(what: &str, data: &Value) -> CoreMessage {
        let body = json!({"time": "2026-01-15T10:30:45.123Z", "data": data}).to_string();
        let subject = format!("ai_loop.tool_call.{what}.default.s1");
        CoreMessage { subject, reply: None, headers: Vec::new(), payload: Bytes::from(body) }
    }

    fn texts(lines: &[ActivityLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn catalogue_changes_are_reported() {
        let mut tracker = ActivityTracker::new(None);
        let now = Timestamp::from_millis(1_000);
        let mut look = |specs: &[ToolSpec]| tracker.update_catalogue(now, specs.to_vec());
        assert_eq!(texts(&look(&[spec("a", "1")])), ["00:00:01  there    a  pure  1"]);
        assert_eq!(texts(&look(&[spec("a", "1")])), [""; 0]);
        assert_eq!(
            texts(&look(&[spec("a", "2"), spec("b", "1")])),
            ["00:00:01  changed  a  pure  2", "00:00:01  came     b  pure  1"]
        );
        assert_eq!(texts(&look(&[spec("b", "1")])), ["00:00:01  gone     a  pure  2"]);
        let mut one = ActivityTracker::new(Some(ToolName::new("b").unwrap()));
        assert_eq!(
            texts(&one.update_catalogue(now, vec![spec("a", "1"), spec("b", "1")])),
            ["00:00:01  there    b  pure  1"]
        );
    }

    #[test]
    fn events_of_calls_and_of_unknown_kinds_are_reported() {
        let identified = event("identified", &json!({"call": "c1-1-1", "tool": "a", "arguments": {"n": 1}}));
        let unknown_kind = event("progress", &json!({"call": "c1-1-1", "text": "half"}));
        let result =
            json!({"call": "c1-1-1", "tool": "a", "outcome": "error", "content": "no\nluck", "duration_ms": 1_500});
        let mut tracker = ActivityTracker::new(Some(ToolName::new("a").unwrap()));
        let mut format =
            |message: &CoreMessage| tracker.format_event(message).map(|line| line.text).unwrap_or_default();
        assert_eq!(format(&identified), "10:30:45  begins   a  s1/c1-1-1  {\"n\":1}");
        assert_eq!(format(&unknown_kind), "10:30:45  progress a  s1/c1-1-1  {\"call\":\"c1-1-1\",\"text\":\"half\"}");
        assert_eq!(
            format(&event("result_processed", &result)),
            "10:30:45  ends     a  s1/c1-1-1  error, 1.5 s: no luck"
        );
        assert_eq!(format(&event("partial", &json!({"name": "a"}))), "");
        // The call has ended, so its tool is no longer known.
        assert_eq!(format(&unknown_kind), "");
        assert_eq!(format(&event("identified", &json!({"call": "c", "tool": "b"}))), "");
        let garbage = CoreMessage { payload: Bytes::from_static(b"{"), ..unknown_kind };
        assert_eq!(format(&garbage), "");
    }
}
