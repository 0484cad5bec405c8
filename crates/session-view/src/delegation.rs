//! Display of a delegation: its agent and task, and the lines of the child session indented below. Pure.

use contract::event::ToolCallIdentified;
use contract::tool::DELEGATE;
use serde::Deserialize;
use terminal::columns::clip;
use terminal::format;
use terminal::{Layout, Output, Style, StyledSpan};

use crate::tool_summary::to_line;

/// Levels of child sessions that are shown; the ones below are only counted.
pub const DEPTH_MAX: usize = 3;
/// Columns by which a child is indented more than its parent.
const INDENT: usize = 4;
/// Columns of an agent's name; the model may write anything in its place.
const AGENT_COLUMNS_MAX: usize = 64;
/// Fewest columns that the lines of a child are laid out for.
const COLUMNS_MIN: usize = 20;

/// A task that an agent gives to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// The agent, as the model named it.
    agent: String,
    /// The first line of the task.
    task: String,
}

/// The arguments of the tool.
#[derive(Deserialize)]
struct DelegateArguments {
    agent: String,
    task: String,
}

impl Delegation {
    /// Reads the delegation from a call; none of another tool, and of arguments that cannot be read.
    pub fn from_call(call: &ToolCallIdentified) -> Option<Self> {
        if call.tool.as_str() != DELEGATE {
            return None;
        }
        let DelegateArguments { agent, task } = serde_json::from_str(call.arguments.get()).ok()?;
        let agent = clip(&to_line(&agent), AGENT_COLUMNS_MAX);
        Some(Self { agent, task: to_line(task.trim().lines().next().unwrap_or_default()) })
    }

    /// Shows the agent and the task. `depth` is the level of the child, from 1.
    pub fn render_header(&self, depth: usize, columns: usize) -> Output {
        let Self { agent, task } = self;
        let line = format!("{}→ {agent}  {task}", " ".repeat(header_indent(depth)));
        Output::Note(Style::Plain, clip(&line, columns))
    }

    /// Says who goes on, after the lines of another session.
    pub fn render_return(&self, depth: usize, columns: usize) -> Output {
        let line = format!("{}→ {}", " ".repeat(header_indent(depth)), self.agent);
        Output::Note(Style::Faint, clip(&line, columns))
    }
}

/// Says how many delegations of a child are too deep to be shown; none if there is none.
pub fn render_deeper(count: u64, depth: usize) -> Option<Output> {
    let count = (count > 0).then(|| format::plural(count, "deeper delegation"))?;
    Some(Output::Note(Style::Faint, format!("{}{count} not shown", " ".repeat(header_indent(depth + 1)))))
}

/// Returns the layout of a child's own lines.
pub fn child_layout(layout: Layout, depth: usize) -> Layout {
    Layout { columns: layout.columns.saturating_sub(INDENT * depth).max(COLUMNS_MIN), ..layout }
}

/// Indents the lines of a child. Its text never is data for stdout: that is the text of the session itself.
pub fn indent(outputs: Vec<Output>, depth: usize) -> Vec<Output> {
    let indent = " ".repeat(INDENT * depth);
    let indent_lines = |text: &str| {
        let lines = text.trim_end().lines();
        let lines = lines.map(|line| if line.is_empty() { String::new() } else { format!("{indent}{line}") });
        lines.collect::<Vec<_>>().join("\n")
    };
    let indented = outputs.into_iter().map(|output| match output {
        Output::Data(text) => Output::Note(Style::Plain, indent_lines(&text)),
        Output::Note(style, text) => Output::Note(style, indent_lines(&text)),
        Output::Line(mut line) => {
            if !line.is_empty() {
                line.insert(0, StyledSpan::new(Style::Plain, indent.clone()));
            }
            Output::Line(line)
        }
    });
    indented.collect()
}

fn header_indent(depth: usize) -> usize {
    INDENT * depth.saturating_sub(1) + INDENT / 2
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn delegation(tool: &str, arguments: &Value) -> Option<Delegation> {
        let call = json!({"call": "c1-1-1", "tool": tool, "arguments": arguments, "effect": "idempotent",
            "approval": "never", "timeout_ms": 1, "max_output": 1});
        Delegation::from_call(&serde_json::from_value(call).unwrap())
    }

    #[test]
    fn header_has_agent_and_first_line_of_the_task_cut_to_the_width() {
        let found = delegation("delegate", &json!({"agent": "eamonn", "task": "\nRead the plan, \nthen do it."}));
        let header = found.unwrap().render_header(2, 24);
        assert_eq!(header, Output::Note(Style::Plain, "      → eamonn  Read th…".to_owned()));
        assert_eq!(delegation("read_file", &json!({"agent": "eamonn", "task": "x"})), None);
        assert_eq!(delegation("delegate", &json!({"agent": "eamonn"})), None);
        let hostile = delegation("delegate", &json!({"agent": "e\u{1b}[2J\u{202e}", "task": "\u{7}x"})).unwrap();
        let header = hostile.render_header(1, 80);
        assert_eq!(header, Output::Note(Style::Plain, "  → e<U+001B>[2J<U+202E>  <U+0007>x".to_owned()));
    }

    #[test]
    fn lines_of_a_child_are_indented_and_its_text_is_no_data() {
        let line = vec![StyledSpan::new(Style::Strong, "b")];
        let outputs = vec![
            Output::Data("one\n\ntwo\n".to_owned()),
            Output::Note(Style::Warn, "  a gate\n    a command".to_owned()),
            Output::Line(line.clone()),
            Output::Line(Vec::new()),
        ];
        let expected = [
            Output::Note(Style::Plain, "    one\n\n    two".to_owned()),
            Output::Note(Style::Warn, "      a gate\n        a command".to_owned()),
            Output::Line([vec![StyledSpan::new(Style::Plain, "    ")], line].concat()),
            Output::Line(Vec::new()),
        ];
        assert_eq!(indent(outputs, 1), expected);
        assert_eq!(render_deeper(0, 3), None);
        let deeper = Output::Note(Style::Faint, "              2 deeper delegations not shown".to_owned());
        assert_eq!(render_deeper(2, 3), Some(deeper));
    }
}
