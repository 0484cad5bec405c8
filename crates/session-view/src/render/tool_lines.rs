//! The lines of tool calls: what was asked, and what came out.

use std::collections::HashMap;

use contract::CallId;
use contract::event::{ToolCallIdentified, ToolCallProgress, ToolCallResult};
use contract::tool::Outcome;
use terminal::columns::{clip, width};
use terminal::format;
use terminal::{Output, Style};

use super::shorten::shorten;
use crate::tool_summary::{summarize_arguments, summarize_result, to_line};

/// Calls whose arguments are remembered for the line of their result.
const CALLS_MAX: usize = 1_000;
/// Columns of a tool's name; the model may write anything in its place.
const NAME_COLUMNS_MAX: usize = 64;
/// Fewest columns that arguments and result get together.
const ROOM_MIN: usize = 16;

/// The calls that have no result yet.
#[derive(Debug)]
pub(super) struct ToolLines {
    columns: usize,
    arguments: HashMap<CallId, String>,
}

impl ToolLines {
    pub(super) fn new(columns: usize) -> Self {
        Self { columns, arguments: HashMap::new() }
    }

    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    pub(super) fn record_call(&mut self, call: &ToolCallIdentified) {
        if self.arguments.len() >= CALLS_MAX {
            self.arguments.clear();
        }
        self.arguments.insert(call.call.clone(), summarize_arguments(call.arguments.get()));
    }

    pub(super) fn render_progress(&self, progress: &ToolCallProgress) -> String {
        let arguments = self.arguments.get(&progress.call).map(String::as_str).unwrap_or_default();
        let text = to_line(progress.text.lines().next().unwrap_or_default());
        self.join(progress.tool.as_str(), arguments, &format!("… {text}"), "")
    }

    pub(super) fn render_result(&mut self, result: &ToolCallResult) -> Output {
        let arguments = self.arguments.remove(&result.call).unwrap_or_default();
        let outcome = result.outcome.as_str();
        let time = format::duration(std::time::Duration::from_millis(result.duration_ms));
        if result.outcome == Outcome::Ok {
            let summary = summarize_result(&result.content);
            let summary = if summary.is_empty() { outcome } else { &summary };
            return Output::Note(Style::Faint, self.join(&result.tool, &arguments, summary, &time));
        }
        let code = result.code.as_ref().map_or_else(String::new, |code| format!("[{code}]"));
        let line = self.join(&result.tool, &arguments, &format!("{outcome}{code}"), &time);
        // The content says more than the code of a failure, and is not cut to the width.
        let detail = shorten(&result.content);
        let detail = if detail.is_empty() { detail } else { format!("  {detail}") };
        Output::Note(Style::Warn, format!("{line}{detail}"))
    }

    /// Joins the parts of a line; arguments and result share what is left of the width.
    fn join(&self, tool: &str, arguments: &str, result: &str, time: &str) -> String {
        let tool = clip(&to_line(tool), NAME_COLUMNS_MAX);
        let time = if time.is_empty() { String::new() } else { format!("  {time}") };
        let fixed = "  ".len() + width(&tool) + " ".len() + "  ".len() + width(&time);
        let room = self.columns.saturating_sub(fixed).max(ROOM_MIN);
        let result = clip(result, room.saturating_sub(width(arguments)).max(room / 2));
        let arguments = clip(arguments, room - width(&result));
        let space = if arguments.is_empty() { "" } else { " " };
        format!("  {tool}{space}{arguments}  {result}{time}")
    }
}
