//! `ailoop sessions`, `ailoop tools` and `ailoop queues`.

use proto::{ListRequest, ListToolsRequest, Queue, QueuesRequest, SessionInfo, ToolInfo};
use serde_json::{Value, json};

use crate::args::{PhaseArg, QueuesArgs, SessionsArgs, Target, ToolsArgs};
use crate::client::{Client, bounded};
use crate::failure::{Exit, Failure};
use crate::figures;
use crate::terminal::{Style, Terminal};
use crate::tools::describe;

/// Characters of a session's title, or a tool's description, in a table.
const TEXT_MAX: usize = 60;

pub(super) async fn sessions(args: &SessionsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let phase = args.phase.map_or("", PhaseArg::as_str).to_owned();
    let request = bounded(ListRequest { phase, limit: args.limit, ..ListRequest::default() });
    let reply = client.sessions().list(request).await.map_err(|status| client.failure(&status))?;
    let sessions = reply.into_inner().sessions;
    if args.json {
        return Ok(super::finish(terminal.data(&lines(sessions.iter().map(session_json)))));
    }
    if sessions.is_empty() {
        terminal.note(Style::Plain, "there is no session; begin one with `ailoop run`");
        return Ok(Exit::Done);
    }
    let head = ["SESSION", "PHASE", "AGENT", "MODEL", "TURN", "STEP", "TOKENS", "UPDATED", "TITLE"];
    let rows = sessions.iter().map(session_row).collect::<Vec<_>>();
    Ok(super::finish(terminal.data(&table(&head, &rows))))
}

pub(super) async fn tools(args: &ToolsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let tools = known_tools(&args.target).await?;
    if args.json {
        return Ok(super::finish(terminal.data(&lines(tools.iter().map(describe::json)))));
    }
    if tools.is_empty() {
        terminal.note(Style::Plain, "no tool is announced");
        return Ok(Exit::Done);
    }
    let rows = tools.iter().map(tool_row).collect::<Vec<_>>();
    Ok(super::finish(terminal.data(&table(&["TOOL", "EFFECT", "APPROVAL", "TIMEOUT", "DESCRIPTION"], &rows))))
}

/// What the fleet's catalogue holds for the caller's tenant.
pub(super) async fn known_tools(target: &Target) -> Result<Vec<ToolInfo>, Failure> {
    known_tools_of(&super::connect(target).await?).await
}

pub(super) async fn known_tools_of(client: &Client) -> Result<Vec<ToolInfo>, Failure> {
    let reply = client.sessions().list_tools(bounded(ListToolsRequest {})).await;
    Ok(reply.map_err(|status| client.failure(&status))?.into_inner().tools)
}

pub(super) async fn queues(args: &QueuesArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let reply = client.sessions().queues(bounded(QueuesRequest {})).await;
    let found = reply.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        let queue = |queue: &Queue| json!({"queue": queue.queue, "waiting": queue.waiting, "held": queue.held});
        let queues: Vec<Value> = found.queues.iter().map(queue).collect();
        let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
        let all = json!({"queues": queues, "waiting_calls_max": all, "tenant_waiting_calls_max": tenant});
        return Ok(super::finish(terminal.data(&format!("{all}\n"))));
    }
    let row = |queue: &Queue| vec![queue.queue.clone(), queue.waiting.to_string(), queue.held.to_string()];
    let rows: Vec<Vec<String>> = found.queues.iter().map(row).collect();
    let printed = terminal.data(&table(&["QUEUE", "WAITING", "HELD"], &rows));
    let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
    let limits =
        format!("new turns are refused as `overloaded` while {all} model calls wait, or {tenant} of your tenant");
    terminal.note(Style::Faint, &limits);
    Ok(super::finish(printed))
}

fn session_row(session: &SessionInfo) -> Vec<String> {
    vec![
        session.session_id.clone(),
        session.phase.clone(),
        session.agent.clone(),
        session.model.clone(),
        session.turn.to_string(),
        session.step.to_string(),
        figures::count(session.input_tokens.saturating_add(session.output_tokens)),
        session.updated.clone(),
        short(&session.title),
    ]
}

fn session_json(session: &SessionInfo) -> Value {
    json!({
        "session_id": session.session_id, "tenant": session.tenant, "phase": session.phase, "agent": session.agent,
        "model": session.model, "title": session.title, "turn": session.turn, "step": session.step,
        "seq": session.seq, "started": session.started, "updated": session.updated,
        "input_tokens": session.input_tokens, "output_tokens": session.output_tokens, "cost_usd": session.cost_usd,
        "stop_reason": session.stop_reason,
    })
}

fn tool_row(tool: &ToolInfo) -> Vec<String> {
    vec![
        tool.name.clone(),
        tool.effect.clone(),
        tool.approval.clone(),
        figures::duration(std::time::Duration::from_millis(tool.timeout_ms)),
        short(&tool.description),
    ]
}

pub(super) fn lines(values: impl Iterator<Item = Value>) -> String {
    values.flat_map(|value| [value.to_string(), "\n".to_owned()]).collect()
}

/// The first line of a text, cut with an ellipsis.
pub(super) fn short(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.chars().count() <= TEXT_MAX {
        return line.to_owned();
    }
    line.chars().take(TEXT_MAX - 1).chain(['…']).collect()
}

/// Columns as wide as their widest cell; the last one is not padded.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells =
        || std::iter::once(head.to_vec()).chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()));
    let width = |column: usize| cells().map(|row: Vec<&str>| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: Vec<&str>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    cells().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "bbb".to_owned()], vec!["äää".to_owned(), "c".to_owned()]];
        assert_eq!(table(&["X", "Y"], &rows), "X    Y\na    bbb\näää  c\n");
    }

    #[test]
    fn a_long_title_is_cut() {
        assert_eq!(short(" one\ntwo"), "one");
        assert_eq!(short(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
        assert_eq!(short(&"ä".repeat(60)), "ä".repeat(60));
    }
}
