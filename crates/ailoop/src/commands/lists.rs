//! `ailoop sessions`, `ailoop tools` and `ailoop queues`.

use std::collections::BTreeSet;

use contract::tool::ToolSpec;
use fleet_connection::client::{EdgeClient, SessionsApi, read_answer};
use proto::{
    GetQueuesRequest, ListGatesRequest, ListToolsRequest, PendingGate, QueueDepth, SessionPage, SessionSummary, Spent,
};
use serde_json::{Value, json};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableCell, TableColumn};
use terminal::{Style, Terminal};
use tool_trial::describe;

use super::fleet_location::connect;
use super::reading::read_fleet;
use super::selection::list_request;
use crate::args::{QueuesArgs, SessionsArgs, SessionsCommand, ToolsArgs};
use crate::fleet_status::fetch_status;
use crate::output::{finish, first_line, format_session, format_time, json_lines, print_table};

/// Text in the table for a session with a gate that waits for a person.
const ASKS_YOU: &str = "asks you";
/// Gates that an edge lists at most.
pub(super) const GATES_MAX: u32 = 1_000;
const SESSION_COLUMNS: [TableColumn; 9] = [
    TableColumn::name("SESSION"),
    TableColumn::name("PHASE"),
    TableColumn::name("AGENT").optional(2),
    TableColumn::name("MODEL").optional(4),
    TableColumn::number("TURN").optional(5),
    TableColumn::number("STEP").optional(6),
    TableColumn::number("TOKENS").optional(3),
    TableColumn::name("UPDATED").optional(1),
    TableColumn::text("TITLE"),
];
const TOOL_COLUMNS: [TableColumn; 5] = [
    TableColumn::name("TOOL"),
    TableColumn::name("EFFECT").optional(1),
    TableColumn::name("APPROVAL").optional(2),
    TableColumn::number("TIMEOUT").optional(3),
    TableColumn::text("DESCRIPTION"),
];
const QUEUE_COLUMNS: [TableColumn; 3] =
    [TableColumn::name("QUEUE"), TableColumn::number("WAITING"), TableColumn::number("HELD")];

pub(super) async fn list_sessions(args: &SessionsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match &args.command {
        Some(SessionsCommand::Rm(args)) => super::erase::erase_sessions(args, terminal).await,
        Some(SessionsCommand::DropHistory(args)) => super::drop_history::drop_history(args, terminal).await,
        None => read_fleet(&args.target, terminal, async |client| print_sessions(args, &client, terminal).await).await,
    }
}

async fn print_sessions(args: &SessionsArgs, client: &EdgeClient, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let request = list_request(&args.filter, args.limit);
    let SessionPage { sessions, missing_cells, .. } = client.call(request, SessionsApi::list_sessions).await?;
    for cell in &missing_cells {
        terminal.note(Style::Warn, &format!("cell {cell} does not answer: its sessions are not in the list"));
    }
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&json_lines(sessions.iter().map(session_json)))));
    }
    if sessions.is_empty() {
        let none = if args.filter.selects_all() {
            "there is no session; begin one with `ailoop run`"
        } else {
            "no session is selected; `ailoop sessions` without options lists all"
        };
        terminal.note(Style::Plain, none);
        return Ok(Exit::Done);
    }
    let gates = fetch_gates(client, None).await?;
    let asking: BTreeSet<String> = gates.into_iter().map(|gate| gate.session_id).collect();
    let row = |session: &SessionSummary| {
        let id = format_session(&session.session_id, &args.output, terminal);
        let updated = format_time(&session.updated, terminal);
        session_row(session, id, updated, asking.contains(&session.session_id))
    };
    let table = Table::new(&SESSION_COLUMNS).with_rows(sessions.iter().map(row));
    Ok(finish(print_table(&table, &args.output, terminal)))
}

pub(super) async fn list_tools(args: &ToolsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    if args.output.is_json() {
        let tools = fetch_tools(&client).await?;
        return Ok(finish(terminal.print_data(&json_lines(tools.iter().map(describe::to_json)))));
    }
    let (tools, missing) = tokio::join!(fetch_tools(&client), fetch_tool_warnings(&client));
    let tools = tools?;
    for warning in missing {
        terminal.note(Style::Warn, &warning);
    }
    if tools.is_empty() {
        terminal.note(Style::Plain, "no tool is announced");
        return Ok(Exit::Done);
    }
    let table = Table::new(&TOOL_COLUMNS).with_rows(tools.iter().map(tool_row));
    Ok(finish(print_table(&table, &args.output, terminal)))
}

/// Fetches why tools are missing, such as an MCP server that wants a login. A key that may not read the status of the
/// fleet gets none.
async fn fetch_tool_warnings(client: &EdgeClient) -> BTreeSet<String> {
    let Ok(status) = fetch_status(client).await else { return BTreeSet::new() };
    let warnings = status.replicas.into_iter().flat_map(|replica| replica.warnings);
    warnings.filter_map(|warning| Some(warning.strip_prefix("tool-host: ")?.to_owned())).collect()
}

/// Fetches the catalogue of the tenant of the caller.
pub(super) async fn fetch_tools(client: &EdgeClient) -> Result<Vec<ToolSpec>, CommandFailure> {
    let tools = client.call(ListToolsRequest {}, SessionsApi::list_tools).await?.tools;
    tools.iter().map(read_answer).collect()
}

/// Fetches the gates that wait for a person: those of a session, or of all.
pub(super) async fn fetch_gates(
    client: &EdgeClient,
    session_id: Option<String>,
) -> Result<Vec<PendingGate>, CommandFailure> {
    let request = ListGatesRequest { session_id, limit: Some(GATES_MAX) };
    Ok(client.call(request, SessionsApi::list_gates).await?.gates)
}

pub(super) async fn list_queues(args: &QueuesArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let found = client.call(GetQueuesRequest {}, SessionsApi::get_queues).await?;
    if args.output.is_json() {
        let queue = |queue: &QueueDepth| json!({"queue": queue.queue, "waiting": queue.waiting, "held": queue.held});
        let queues: Vec<Value> = found.queues.iter().map(queue).collect();
        let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
        let all = json!({"queues": queues, "waiting_calls_max": all, "tenant_waiting_calls_max": tenant});
        return Ok(finish(terminal.print_data(&format!("{all}\n"))));
    }
    let row = |queue: &QueueDepth| vec![queue.queue.clone(), queue.waiting.to_string(), queue.held.to_string()];
    let table = Table::new(&QUEUE_COLUMNS).with_rows(found.queues.iter().map(row));
    let printed = print_table(&table, &args.output, terminal);
    let (all, tenant) = (found.waiting_calls_max, found.tenant_waiting_calls_max);
    let limits =
        format!("new turns are refused as `overloaded` while {all} model calls wait, or {tenant} of your tenant");
    terminal.note(Style::Faint, &limits);
    Ok(finish(printed))
}

fn session_row(session: &SessionSummary, id: String, updated: String, is_asking: bool) -> Vec<TableCell> {
    let phase = if is_asking { ASKS_YOU } else { &session.phase };
    let usage = session.spent.and_then(|spent| spent.usage).unwrap_or_default();
    vec![
        id.into(),
        TableCell::new(phase_style(phase), phase),
        session.agent.as_str().into(),
        session.model.as_str().into(),
        session.turn.to_string().into(),
        session.step.to_string().into(),
        format::count(usage.input.saturating_add(usage.output)).into(),
        updated.into(),
        first_line(&session.title).into(),
    ]
}

fn phase_style(phase: &str) -> Style {
    match phase {
        "running" => Style::Good,
        "paused" | ASKS_YOU => Style::Warn,
        "ended" => Style::Faint,
        _ => Style::Plain,
    }
}

fn spent_json(spent: Spent) -> Value {
    let usage = spent.usage.unwrap_or_default();
    json!({"input_tokens": usage.input, "output_tokens": usage.output, "cost_usd": spent.cost_usd})
}

fn session_json(session: &SessionSummary) -> Value {
    let all = spent_json(session.spent.unwrap_or_default());
    json!({
        "session_id": session.session_id, "tenant": session.tenant, "phase": session.phase, "agent": session.agent,
        "model": session.model, "title": session.title, "turn": session.turn, "step": session.step,
        "seq": session.seq, "started": session.started, "updated": session.updated,
        "input_tokens": all["input_tokens"], "output_tokens": all["output_tokens"], "cost_usd": all["cost_usd"],
        "stop_reason": session.stop_reason.as_deref().unwrap_or_default(),
        "spent_own": session.spent_own.map(spent_json),
    })
}

fn tool_row(tool: &ToolSpec) -> Vec<String> {
    vec![
        tool.name.to_string(),
        tool.effect.to_string(),
        tool.approval.as_str().to_owned(),
        format::duration(tool.timeout()),
        first_line(&tool.description).to_owned(),
    ]
}
