//! The line at the end of a turn.

use contract::Timestamp;
use contract::event::{StopReason, ToolCallResult, TurnCompleted};
use contract::tool::Outcome;
use serde_json::Value;
use terminal::format;
use terminal::{Output, Style};

use crate::tool_summary::to_line;

/// The tool whose results name written files.
const WRITE_FILE: &str = "write_file";

/// Counts and times of the current turn.
#[derive(Debug, Default)]
pub(super) struct TurnSummary {
    pub(super) tools: u64,
    /// Files that the tools of ailoop wrote, each once.
    written: Vec<String>,
    began: Option<Timestamp>,
    trace_id: String,
    /// URL template of a trace, with the placeholder `{trace_id}`; none if traces are not shown anywhere.
    pub(super) trace_url: Option<String>,
}

impl TurnSummary {
    /// Records the time of the first notification of the turn, and its trace.
    pub(super) fn record_notification(&mut self, time: Option<Timestamp>, trace_id: &str) {
        self.began = self.began.or(time);
        if !trace_id.is_empty() {
            trace_id.clone_into(&mut self.trace_id);
        }
    }

    /// Records a result of a tool.
    pub(super) fn record_result(&mut self, result: &ToolCallResult) {
        self.tools += 1;
        if result.outcome != Outcome::Ok || result.tool.as_str() != WRITE_FILE {
            return;
        }
        let content: Option<Value> = serde_json::from_str(&result.content).ok();
        let path = content.and_then(|content| content.get("path")?.as_str().map(to_line));
        self.written.extend(path.filter(|path| !self.written.contains(path)));
    }

    /// Renders the summary and resets the counts for the next turn.
    pub(super) fn finish(&mut self, turn: &TurnCompleted, time: Option<Timestamp>) -> Output {
        let next = Self { trace_url: self.trace_url.clone(), ..Self::default() };
        let summary = std::mem::replace(self, next);
        let (style, how) = match turn.stop_reason {
            StopReason::Completed => (Style::Good, "✓ done"),
            StopReason::MaxIterations => (Style::Warn, "‼ stopped at the limit of iterations"),
            StopReason::Timeout => (Style::Warn, "‼ stopped at the limit of time"),
            StopReason::TokenLimit => (Style::Warn, "‼ stopped at the limit of tokens"),
            StopReason::CostLimit => (Style::Warn, "‼ stopped at the limit of cost"),
            StopReason::ToolCallLimit => (Style::Warn, "‼ stopped at the limit of tool calls"),
            StopReason::Repetition => (Style::Warn, "‼ stopped: the model repeats the same call"),
            StopReason::NoProgress => (Style::Warn, "‼ stopped: nothing new for several steps"),
            StopReason::Stopped => (Style::Warn, "‼ stopped"),
            StopReason::Error => (Style::Bad, "× failed"),
        };
        let mut parts = vec![
            format::plural(turn.iterations.into(), "step"),
            format::plural(summary.tools, "tool"),
            format::plural(turn.spent.usage.total(), "token"),
        ];
        if turn.spent.cost_usd > 0.0 {
            parts.push(format!("${:.4}", turn.spent.cost_usd));
        }
        if let (Some(began), Some(time)) = (summary.began, time) {
            parts.push(format::duration(time.since(began)));
        }
        match summary.written.as_slice() {
            [] => {}
            [one] => parts.push(format!("wrote {one}")),
            [one, rest @ ..] => {
                parts.push(format!("wrote {one} and {}", format::plural(rest.len() as u64, "other file")));
            }
        }
        if let Some(url) = summary.trace_url.filter(|_| !summary.trace_id.is_empty()) {
            parts.push(format!("trace {}", url.replace("{trace_id}", &summary.trace_id)));
        }
        Output::Note(style, format!("{how}  {}", parts.join(" · ")))
    }
}
