//! `ailoop sessions`, `ailoop tools` and `ailoop queues`.

use proto::{ListRequest, ListToolsRequest, Queue, QueuesRequest, SessionInfo, ToolInfo};
use serde_json::{Value, json};

use super::fleet_location::connect;
use super::output::{finish, format_table, json_lines, shorten};
use crate::args::{FleetTarget, PhaseArg, QueuesArgs, SessionsArgs, SessionsCommand, ToolsArgs};
use crate::client::{EdgeClient, bounded};
use crate::failure::{CommandFailure, Exit};
use crate::format;
use crate::terminal::{Style, Terminal};
use crate::tools::describe;

pub(super) async fn list_sessions(args: &SessionsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    if let Some(SessionsCommand::Rm(args)) = &args.command {
        return super::erase::erase_sessions(args, terminal).await;
    }
    let client = connect(&args.target).await?;
    let phase = args.phase.map_or("", PhaseArg::as_str).to_owned();
    let request = bounded(ListRequest { phase, limit: args.limit, ..ListRequest::default() });
    let reply = client.sessions().list(request).await.map_err(|status| client.failure(&status))?;
    let sessions = reply.into_inner().sessions;
    if args.json {
        return Ok(finish(terminal.print_data(&json_lines(sessions.iter().map(session_json)))));
    }
    if sessions.is_empty() {
        terminal.note(Style::Plain, "there is no session; begin one with `ailoop run`");
        return Ok(Exit::Done);
    }
    let head = ["SESSION", "PHASE", "AGENT", "MODEL", "TURN", "STEP", "TOKENS", "UPDATED", "TITLE"];
    let rows = sessions.iter().map(session_row).collect::<Vec<_>>();
    Ok(finish(terminal.print_data(&format_table(&head, &rows))))
}

pub(super) async fn list_tools(args: &ToolsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let tools = fetch_tools(&args.target).await?;
    if args.json {
        return Ok(finish(terminal.print_data(&json_lines(tools.iter().map(describe::to_json)))));
    }
    if tools.is_empty() {
        terminal.note(Style::Plain, "no tool is announced");
        return Ok(Exit::Done);
    }
    let rows = tools.iter().map(tool_row).collect::<Vec<_>>();
    Ok(finish(terminal.print_data(&format_table(&["TOOL", "EFFECT", "APPROVAL", "TIMEOUT", "DESCRIPTION"], &rows))))
}

/// Fetches the catalogue of the tenant of the caller.
pub(super) async fn fetch_tools(target: &FleetTarget) -> Result<Vec<ToolInfo>, CommandFailure> {
    fetch_tools_of(&connect(target).await?).await
}

pub(super) async fn fetch_tools_of(client: &EdgeClient) -> Result<Vec<ToolInfo>, CommandFailure> {
    let reply = client.sessions().list_tools(bounded(ListToolsRequest {})).await;
    Ok(reply.map_err(|status| client.failure(&status))?.into_inner().tools)
}

pub(super) async fn list_queues(args: &QueuesArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let reply = client.sessions().queues(bounded(QueuesRequest {})).await;
    let found = reply.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        let queue = |queue: &Queue| json!({"queue": queue.queue, "waiting": queue.waiting, "held": queue.held});
        let queues: Vec<Value> = found.queues.iter().map(queue).collect();
        let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
        let all = json!({"queues": queues, "waiting_calls_max": all, "tenant_waiting_calls_max": tenant});
        return Ok(finish(terminal.print_data(&format!("{all}\n"))));
    }
    let row = |queue: &Queue| vec![queue.queue.clone(), queue.waiting.to_string(), queue.held.to_string()];
    let rows: Vec<Vec<String>> = found.queues.iter().map(row).collect();
    let printed = terminal.print_data(&format_table(&["QUEUE", "WAITING", "HELD"], &rows));
    let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
    let limits =
        format!("new turns are refused as `overloaded` while {all} model calls wait, or {tenant} of your tenant");
    terminal.note(Style::Faint, &limits);
    Ok(finish(printed))
}

fn session_row(session: &SessionInfo) -> Vec<String> {
    vec![
        session.session_id.clone(),
        session.phase.clone(),
        session.agent.clone(),
        session.model.clone(),
        session.turn.to_string(),
        session.step.to_string(),
        format::count(session.input_tokens.saturating_add(session.output_tokens)),
        session.updated.clone(),
        shorten(&session.title),
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
        format::duration(std::time::Duration::from_millis(tool.timeout_ms)),
        shorten(&tool.description),
    ]
}
