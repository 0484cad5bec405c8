//! The line that says what a session does now. Pure.

use std::time::Instant;

use contract::CallId;
use contract::event::Event;
use terminal::columns::clip;
use terminal::format;

use crate::notification::{NotificationContent, ParsedNotification};
use crate::render::CallFailures;
use crate::spend_sum::SpendSum;
use crate::tool_summary::{summarize_arguments, to_line};

/// Columns of a tool call in the line.
const CALL_COLUMNS_MAX: usize = 40;
/// Calls that the line names.
const CALLS_SHOWN_MAX: usize = 2;
/// Calls that are remembered.
const CALLS_MAX: usize = 1_000;

/// Current activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The session waits for a message.
    Idle,
    /// A model call was made, and no text of its reply arrived.
    AwaitingModel,
    /// Text of the reply arrives.
    Streaming,
    /// The tool calls of the reply run.
    RunningTools,
    /// No new call starts.
    Paused,
    /// The session has ended.
    Ended,
}

/// Follows the notifications of a session.
#[derive(Debug)]
pub struct StatusLine {
    activity: Activity,
    /// Whether a turn runs, also during a pause.
    has_turn: bool,
    /// Whether no new call starts. Replies and results of calls that run may still come.
    is_paused: bool,
    since: Instant,
    agent: String,
    model: String,
    calls: Vec<(CallId, String)>,
    /// The last failure of the model call that is tried again.
    failure: Option<String>,
    failures: CallFailures,
    step: u32,
    steps_max: Option<u32>,
    spent: SpendSum,
    /// Reason why the fleet cannot be reached.
    outage: Option<String>,
    /// Text that says what Ctrl-C does while a turn runs.
    interrupt_hint: &'static str,
}

impl StatusLine {
    /// Makes the line of a session without a turn.
    pub fn new(agent: &str, model: &str, now: Instant) -> Self {
        Self {
            activity: Activity::Idle,
            has_turn: false,
            is_paused: false,
            since: now,
            agent: agent.to_owned(),
            model: model.to_owned(),
            calls: Vec::new(),
            failure: None,
            failures: CallFailures::default(),
            step: 0,
            steps_max: None,
            spent: SpendSum::default(),
            outage: None,
            interrupt_hint: "Ctrl-C cancels",
        }
    }

    /// Says what Ctrl-C does, if it does not cancel the turn.
    #[must_use]
    pub fn with_interrupt_hint(self, interrupt_hint: &'static str) -> Self {
        Self { interrupt_hint, ..self }
    }

    /// Whether a turn runs.
    pub fn is_working(&self) -> bool {
        self.has_turn
    }

    /// Returns what the session does now.
    pub fn activity(&self) -> Activity {
        if self.is_paused && self.activity != Activity::Ended { Activity::Paused } else { self.activity }
    }

    /// Records that a message was sent.
    pub fn record_send(&mut self, now: Instant) {
        if !self.has_turn && !self.is_paused {
            self.begin_turn(now);
        }
    }

    /// Sets the reason why the fleet cannot be reached.
    pub fn set_outage(&mut self, outage: Option<String>) {
        self.outage = outage;
    }

    /// Follows what the session does.
    pub fn update(&mut self, notification: &ParsedNotification, now: Instant) {
        match &notification.content {
            NotificationContent::Event(event) => self.apply(event, notification.seq, now),
            NotificationContent::Chunk(_) => {
                self.failure = None;
                self.enter(Activity::Streaming, now);
            }
            NotificationContent::Progress(_) | NotificationContent::Other => {}
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    fn apply(&mut self, event: &Event, seq: Option<u64>, now: Instant) {
        self.spent.update(event);
        match event {
            Event::SessionStarted(started) => {
                started.agent.name.as_str().clone_into(&mut self.agent);
                self.model.clone_from(&started.model.id);
                self.steps_max = Some(started.agent.continuation.max_iterations);
            }
            Event::Configured(configured) => {
                configured.agent.name.as_str().clone_into(&mut self.agent);
                self.model.clone_from(&configured.model.id);
                self.steps_max = Some(configured.agent.continuation.max_iterations);
            }
            Event::UserProcessed(_) if !self.has_turn => self.begin_turn(now),
            Event::AiFullReceived(full) => {
                self.step = full.step;
                self.failure = None;
                self.enter(Activity::AwaitingModel, now);
            }
            Event::ToolCallIdentified(call) => {
                let arguments = summarize_arguments(call.arguments.get());
                let text = clip(format!("{} {arguments}", call.tool).trim_end(), CALL_COLUMNS_MAX);
                self.calls.truncate(CALLS_MAX);
                self.calls.push((call.call.clone(), text));
                self.enter(Activity::RunningTools, now);
            }
            Event::ToolCallResult(result) => {
                self.calls.retain(|(call, _)| *call != result.call);
                if self.calls.is_empty() && self.has_turn {
                    self.enter(Activity::AwaitingModel, now);
                }
            }
            Event::StatusPaused(_) => self.is_paused = true,
            Event::StatusResumed(_) => {
                self.is_paused = false;
                self.since = now;
            }
            // A notice about an attempt has no `seq`: the call is tried again.
            Event::Error(error) if seq.is_none() && error.retryable => {
                self.failure = Some(to_line(&self.failures.record(error)));
            }
            Event::TurnCompleted(_) => {
                self.has_turn = false;
                self.calls.clear();
                self.failure = None;
                self.enter(Activity::Idle, now);
            }
            Event::SessionEnded(_) => {
                self.has_turn = false;
                self.enter(Activity::Ended, now);
            }
            _ => {}
        }
    }

    /// Formats the line. `is_asking`: the session waits for an answer of the person.
    pub fn format(&self, is_asking: bool, now: Instant) -> String {
        let time = now.saturating_duration_since(self.since).as_secs();
        let place = self.format_place();
        if let Some(outage) = &self.outage {
            return format!("no connection: {outage}; trying again");
        }
        if is_asking {
            return format!("waits for your answer · {place}");
        }
        let what = match self.activity() {
            Activity::Idle => return format!("ready · {place}"),
            Activity::Paused => return format!("paused; /resume goes on · {place}"),
            Activity::Ended => return format!("ended · {place}"),
            Activity::AwaitingModel => match &self.failure {
                Some(failure) => format!("{failure} · waiting {time} s"),
                None => format!("waiting for {} {time} s", self.model_name()),
            },
            Activity::Streaming => format!("{} writes {time} s", self.model_name()),
            Activity::RunningTools => {
                let shown: Vec<&str> = self.calls.iter().take(CALLS_SHOWN_MAX).map(|(_, text)| text.as_str()).collect();
                let more = self.calls.len().saturating_sub(CALLS_SHOWN_MAX);
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!("running {}{more} {time} s", shown.join(", "))
            }
        };
        let steps = self.steps_max.map_or_else(String::new, |max| format!("step {}/{max} · ", self.step + 1));
        format!("{what} · {steps}{}", self.interrupt_hint)
    }

    /// Formats agent, model and what the session spent, with what it delegated.
    fn format_place(&self) -> String {
        let mut parts = vec![to_line(&self.agent), to_line(&self.model)];
        let spent = self.spent.total();
        if spent.usage.total() > 0 {
            parts.push(format::plural(spent.usage.total(), "token"));
        }
        if spent.cost_usd > 0.0 {
            parts.push(format!("${:.4}", spent.cost_usd));
        }
        if self.spent.has_delegated() {
            parts.push("delegated work included".to_owned());
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" · ")
    }

    fn model_name(&self) -> String {
        if self.model.is_empty() { "the model".to_owned() } else { to_line(&self.model) }
    }

    fn begin_turn(&mut self, now: Instant) {
        self.has_turn = true;
        self.step = 0;
        self.failure = None;
        self.enter(Activity::AwaitingModel, now);
    }

    fn enter(&mut self, activity: Activity, now: Instant) {
        if self.activity != activity {
            self.activity = activity;
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::Notification;
    use serde_json::json;

    use super::*;

    fn notify(topic: &str, seq: Option<u64>, data: &serde_json::Value) -> ParsedNotification {
        ParsedNotification::parse(&Notification {
            topic: topic.into(),
            id: String::new(),
            seq,
            time: String::new(),
            trace_id: String::new(),
            data_json: data.to_string(),
        })
    }

    /// Applies notifications at second 0 and compares the line at second 5.
    fn check(rows: &[ParsedNotification], expect: &str) {
        let begin = Instant::now();
        let mut status = StatusLine::new("Eamonn", "qwen", begin);
        for row in rows {
            status.update(row, begin);
        }
        assert_eq!(status.format(false, begin + Duration::from_secs(5)), expect);
    }

    #[test]
    fn line_says_what_the_session_waits_for() {
        let user =
            || notify("message.user_processed", Some(1), &json!({"message_id": "u", "content": "x", "mode": "steer"}));
        let notice = || {
            let data = json!({"code": "model_unreachable", "message": "connection refused, next try in 0.5 s",
                "retryable": true, "during": "model call m1-1"});
            notify("error", None, &data)
        };
        let chunk = || {
            let data = json!({"turn": 1, "step": 1, "attempt": "1.1", "index": 0, "channel": "text", "delta": "x",
                "final": false});
            notify("message.ai_chunk_received", None, &data)
        };
        let call = |id: &str, path: &str| {
            let data = json!({"call": id, "tool": "read_file", "arguments": {"path": path}, "effect": "pure",
                "approval": "never", "timeout_ms": 1, "max_output": 1});
            notify("tool_call.identified", Some(2), &data)
        };
        let result = |id: &str| {
            let data = json!({"call": id, "tool": "read_file", "outcome": "ok", "content": ""});
            notify("tool_call.result_processed", Some(3), &data)
        };
        let end = || {
            let data =
                json!({"turn": 1, "stop_reason": "completed", "iterations": 1, "final_response": "", "spent": {}});
            notify("turn.completed", Some(4), &data)
        };
        check(&[], "ready · Eamonn · qwen");
        check(&[user()], "waiting for qwen 5 s · Ctrl-C cancels");
        let failed = "connection refused, next try in 0.5 s · waiting 5 s · Ctrl-C cancels";
        check(&[user(), notice()], &format!("failure 1: {failed}"));
        check(&[user(), notice(), notice()], &format!("failure 2: {failed}"));
        check(&[user(), notice(), chunk()], "qwen writes 5 s · Ctrl-C cancels");
        check(&[user(), call("c1-1-1", "a.rs")], "running read_file a.rs 5 s · Ctrl-C cancels");
        let three = [user(), call("c1-1-1", "a"), call("c1-1-2", "b"), call("c1-1-3", "c")];
        check(&three, "running read_file a, read_file b and 1 more 5 s · Ctrl-C cancels");
        check(&[user(), call("c1-1-1", "a"), result("c1-1-1")], "waiting for qwen 5 s · Ctrl-C cancels");
        let pause = || notify("status.paused", Some(2), &json!({}));
        check(&[user(), pause()], "paused; /resume goes on · Eamonn · qwen");
        // The reply that ran was not interrupted by the pause.
        check(&[user(), pause(), call("c1-1-1", "a")], "paused; /resume goes on · Eamonn · qwen");
        let resume = notify("status.resumed", Some(3), &json!({}));
        check(&[user(), pause(), call("c1-1-1", "a"), resume], "running read_file a 5 s · Ctrl-C cancels");
        check(&[user(), call("c1-1-1", "a"), end()], "ready · Eamonn · qwen");
    }

    #[test]
    fn line_of_a_session_that_delegated_has_the_cost_of_its_child() {
        let spent = |input: u64, usd: f64| json!({"usage": {"input": input}, "cost_usd": usd});
        let reply = notify(
            "message.ai_full_received",
            Some(1),
            &json!({"call": "m1-1", "turn": 1, "step": 1, "text": "", "finish_reason": "tool_calls",
                "spent": spent(5_668, 0.0174)}),
        );
        let result = notify(
            "tool_call.result_processed",
            Some(2),
            &json!({"call": "c1-1-1", "tool": "delegate", "outcome": "ok", "content": "",
                "used": {"spent": spent(18_500, 0.0651), "tool_calls": 2}}),
        );
        // The turn's own figure has what failed attempts cost, too.
        let end = notify(
            "turn.completed",
            Some(3),
            &json!({"turn": 1, "stop_reason": "completed", "iterations": 1, "final_response": "",
                "spent": spent(24_268, 0.0835)}),
        );
        check(&[reply, result, end], "ready · Eamonn · qwen · 24,268 tokens · $0.0835 · delegated work included");
    }

    #[test]
    fn line_has_no_control_characters() {
        let mut status = StatusLine::new("e\u{1b}[2J", "m\u{202e}", Instant::now());
        status.set_outage(None);
        assert_eq!(status.format(false, Instant::now()), "ready · e<U+001B>[2J · m<U+202E>");
    }
}
