//! `ailoop approvals`: lists open gates and answers them.

use std::path::Path;

use contract::{ErrorCode, Json};
use fleet_connection::client::{EdgeClient, SessionsApi, chosen, command_id};
use proto::{AnswerGateRequest, GateKind, PendingGate};
use serde_json::{Value, json};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::{escape_invisible_json, reveal_invisible};
use terminal::table::{Table, TableColumn};
use terminal::text_argument;
use terminal::{Style, Terminal};
use tool_schema::Schema;

use super::control::note_result;
use super::fleet_location::connect;
use super::lists::{GATES_MAX, fetch_gates, fetch_tools};
use super::session_reference::{resolve_filter, resolve_session};
use crate::args::{ApprovalsArgs, ApprovalsCommand, ApproveArgs, GateArgs};
use crate::output::{finish, format_session, format_time, json_lines, print_table, shorten};

/// Kind of a gate without one.
const UNKNOWN_KIND: GateKind = GateKind { as_text: None, limit: None, error: None };
const COLUMNS: [TableColumn; 6] = [
    TableColumn::name("SESSION"),
    TableColumn::name("GATE"),
    TableColumn::name("KIND").optional(1),
    TableColumn::name("TOOL"),
    TableColumn::name("EXPIRES").optional(2),
    TableColumn::text("ARGUMENTS"),
];

pub(super) async fn run(args: &ApprovalsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let empty = AnswerGateRequest::default();
    let (gate, decision, done, answer) = match &args.command {
        None => return list_gates(args, terminal).await,
        Some(ApprovalsCommand::Show(gate)) => return show_gate(gate, terminal).await,
        Some(ApprovalsCommand::Approve(approve)) => {
            let (note, arguments_json) = (chosen(&approve.note).map(str::to_owned), read_arguments(approve)?);
            (&approve.gate, "approve", "approved", AnswerGateRequest { note, arguments_json, ..empty })
        }
        Some(ApprovalsCommand::Deny(deny)) => {
            (&deny.gate, "deny", "denied", AnswerGateRequest { note: chosen(&deny.note).map(str::to_owned), ..empty })
        }
        Some(ApprovalsCommand::Answer(reply)) => {
            let content = Some(text_argument::read_text(&reply.text, std::io::stdin())?);
            (&reply.gate, "answer", "answered", AnswerGateRequest { content, ..empty })
        }
    };
    send_answer(gate, AnswerGateRequest { decision: decision.to_owned(), ..answer }, done, terminal).await
}

async fn list_gates(args: &ApprovalsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let session_id = resolve_filter(&client, args.session.as_deref()).await?;
    let gates = fetch_gates(&client, session_id).await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&json_lines(gates.iter().map(gate_json)))));
    }
    if gates.is_empty() {
        terminal.note(Style::Plain, "nothing waits for a person");
        return Ok(Exit::Done);
    }
    let row = |gate: &PendingGate| {
        vec![
            format_session(&gate.session_id, &args.output, terminal),
            gate.gate.clone(),
            format_kind(gate),
            gate.tool.clone().unwrap_or_default(),
            format_time(&gate.expires, terminal),
            format_arguments(&gate.arguments),
        ]
    };
    let table = Table::new(&COLUMNS).with_rows(gates.iter().map(row));
    let printed = print_table(&table, &args.output, terminal);
    if gates.len() >= usize::try_from(GATES_MAX).unwrap_or(usize::MAX) {
        let text = format!("only the {GATES_MAX} that expire first are listed; --session shows those of one session");
        terminal.note(Style::Warn, &text);
    }
    terminal.note(Style::Faint, "ailoop approvals show|approve|deny|answer SESSION GATE");
    Ok(finish(printed))
}

async fn show_gate(args: &GateArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let gate = find_gate(&client, args).await?;
    let text = serde_json::to_string_pretty(&gate_json(&gate)).unwrap_or_default();
    Ok(finish(terminal.print_data(&format!("{}\n", escape_invisible_json(&text)))))
}

async fn send_answer(
    args: &GateArgs,
    answer: AnswerGateRequest,
    done: &str,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let gate = find_gate(&client, args).await?;
    let (changed, tool) = (answer.arguments_json.as_ref(), gate.tool.as_deref().unwrap_or_default());
    if let Some(changed) = changed {
        check_arguments(&client, tool, changed).await?;
    }
    let arguments = format_arguments(changed.unwrap_or(&gate.arguments));
    terminal.note(Style::Faint, &format!("{} {tool} {arguments}", format_kind(&gate)));
    let request = AnswerGateRequest {
        session_id: gate.session_id.clone(),
        command_id: Some(command_id()),
        gate: gate.gate,
        arguments_sha256: gate.arguments_sha256,
        ..answer
    };
    let reply = client.call(request, SessionsApi::answer_gate).await?;
    note_result(terminal, &gate.session_id, done, &reply);
    Ok(Exit::Done)
}

/// Checks changed arguments against the tool's schema before the gate is answered. Later only the model would learn
/// that they are invalid.
async fn check_arguments(client: &EdgeClient, tool: &str, arguments: &str) -> Result<(), CommandFailure> {
    let known = fetch_tools(client).await?;
    // A tool that is absent now may come back with another schema, so there is nothing to check.
    let Some(tool) = known.iter().find(|known| known.name.as_str() == tool) else { return Ok(()) };
    let arguments = Json::parse(arguments).map_err(|error| error.to_string());
    let checked = Schema::compile(&tool.parameters).and_then(|schema| schema.check(&arguments?));
    checked.map_err(|why| {
        let help = format!("nothing was answered; `ailoop tools describe {}` shows the schema", tool.name);
        CommandFailure::usage(ErrorCode::InvalidArguments, format!("--arguments: {why}")).help(help)
    })
}

/// Finds the open gate that the command line names; refuses it if its arguments have another hash.
async fn find_gate(client: &EdgeClient, args: &GateArgs) -> Result<PendingGate, CommandFailure> {
    let session_id = resolve_session(client, &args.session).await?;
    let mut open = fetch_gates(client, Some(session_id.clone())).await?;
    let closed = || {
        let message =
            format!("nothing is open as {} in session {session_id}: it was answered, or its time is over", args.gate);
        CommandFailure::new(ErrorCode::GateClosed, message)
            .help(format!("see `ailoop approvals --session {session_id}`"))
    };
    let found = open.iter().position(|gate| gate.gate == args.gate);
    let gate = open.swap_remove(found.ok_or_else(closed)?);
    match &args.hash {
        Some(hash) if hash.is_empty() || !gate.arguments_sha256.starts_with(hash.as_str()) => {
            let message = format!("the arguments of {} have the hash {}, not {hash}", gate.gate, gate.arguments_sha256);
            Err(CommandFailure::new(ErrorCode::BadRequest, message)
                .help("look at them again with `ailoop approvals show`"))
        }
        Some(_) | None => Ok(gate),
    }
}

/// Reads the arguments that replace those of the model, if the person changes any.
fn read_arguments(args: &ApproveArgs) -> Result<Option<String>, CommandFailure> {
    let Some(given) = &args.arguments else { return Ok(None) };
    let wrong = |why: String| CommandFailure::usage(ErrorCode::BadRequest, format!("--arguments: {why}"));
    let text = match given.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(Path::new(file)).map_err(|error| wrong(format!("{file}: {error}")))?,
        None => given.clone(),
    };
    let _object: serde_json::Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(text.trim().to_owned()))
}

/// Formats arguments, which may have several lines, on one line.
fn format_arguments(arguments: &str) -> String {
    reveal_invisible(&shorten(&format::join_words(arguments)))
}

fn format_kind(gate: &PendingGate) -> String {
    match kind_of(gate) {
        (kind, "") => kind.to_owned(),
        (kind, detail) => format!("{kind} ({detail})"),
    }
}

/// Returns the kind of a gate, and the limit or the error that it is about.
fn kind_of(gate: &PendingGate) -> (&str, &str) {
    let GateKind { as_text, limit, error } = gate.kind.as_ref().unwrap_or(&UNKNOWN_KIND);
    match (as_text, limit, error) {
        (Some(kind), ..) => (kind, ""),
        (None, Some(limit), _) => ("limit", limit),
        (None, None, Some(error)) => ("error", error),
        (None, None, None) => ("", ""),
    }
}

fn gate_json(gate: &PendingGate) -> Value {
    let is_shortened = gate.shortened.unwrap_or_default();
    let (kind, detail) = kind_of(gate);
    let arguments = if is_shortened {
        Value::from(gate.arguments.as_str())
    } else {
        serde_json::from_str(&gate.arguments).unwrap_or_default()
    };
    json!({
        "session_id": gate.session_id, "gate": gate.gate, "kind": kind, "detail": detail,
        "tool": gate.tool.as_deref().unwrap_or_default(),
        "arguments": arguments, "shortened": is_shortened, "arguments_sha256": gate.arguments_sha256,
        "expires": gate.expires, "agent": gate.agent, "title": gate.title,
    })
}
