//! `ailoop approvals`: what waits for a person, and the person's answer.

use std::path::Path;

use contract::{ErrorCode, Json};
use proto::{AnswerRequest, Gate, ListGatesRequest};
use serde_json::{Value, json};
use tool_schema::Schema;

use super::control::tell;
use super::lists::{lines, short, table};
use crate::args::{ApprovalsArgs, ApprovalsCommand, ApproveArgs, GateArgs};
use crate::client::{self, Client, bounded, command_id};
use crate::failure::{Exit, Failure};
use crate::printable::{escape_invisible_json, reveal_invisible};
use crate::prompt;
use crate::terminal::{Style, Terminal};

/// As many as an edge lists.
const LISTED_MAX: u32 = 1_000;

pub(super) async fn approvals(args: &ApprovalsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    match &args.command {
        None => list(args, terminal).await,
        Some(ApprovalsCommand::Show(gate)) => show(gate, terminal).await,
        Some(ApprovalsCommand::Approve(approve)) => {
            let arguments_json = changed(approve)?;
            let answer = AnswerRequest { decision: "approve".to_owned(), arguments_json, ..AnswerRequest::default() };
            send(&approve.gate, AnswerRequest { note: approve.note.clone(), ..answer }, "approved", terminal).await
        }
        Some(ApprovalsCommand::Deny(deny)) => {
            let (decision, note) = ("deny".to_owned(), deny.note.clone());
            send(&deny.gate, AnswerRequest { decision, note, ..AnswerRequest::default() }, "denied", terminal).await
        }
        Some(ApprovalsCommand::Answer(reply)) => {
            let content = Some(prompt::read(&reply.text, std::io::stdin())?);
            let decision = "answer".to_owned();
            send(&reply.gate, AnswerRequest { decision, content, ..AnswerRequest::default() }, "answered", terminal)
                .await
        }
    }
}

async fn list(args: &ApprovalsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let session_id = args.session.as_deref().map(client::session_id).transpose()?.unwrap_or_default();
    let client = super::connect(&args.target).await?;
    let gates = gates(&client, session_id).await?;
    if args.json {
        return Ok(super::finish(terminal.data(&lines(gates.iter().map(as_json)))));
    }
    if gates.is_empty() {
        terminal.note(Style::Plain, "nothing waits for a person");
        return Ok(Exit::Done);
    }
    let row = |gate: &Gate| {
        vec![
            gate.session_id.clone(),
            gate.gate.clone(),
            kind(gate),
            gate.tool.clone(),
            gate.expires.clone(),
            in_a_line(&gate.arguments),
        ]
    };
    let rows: Vec<Vec<String>> = gates.iter().map(row).collect();
    let printed = terminal.data(&table(&["SESSION", "GATE", "KIND", "TOOL", "EXPIRES", "ARGUMENTS"], &rows));
    if gates.len() >= usize::try_from(LISTED_MAX).unwrap_or(usize::MAX) {
        let text = format!("only the {LISTED_MAX} that expire first are listed; --session shows those of one session");
        terminal.note(Style::Warn, &text);
    }
    terminal.note(Style::Faint, "ailoop approvals show|approve|deny|answer SESSION GATE");
    Ok(super::finish(printed))
}

async fn show(args: &GateArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let gate = find(&client, args).await?;
    let told = serde_json::to_string_pretty(&as_json(&gate)).unwrap_or_default();
    Ok(super::finish(terminal.data(&format!("{}\n", escape_invisible_json(&told)))))
}

async fn send(args: &GateArgs, answer: AnswerRequest, done: &str, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let gate = find(&client, args).await?;
    let changed = Some(&answer.arguments_json).filter(|arguments| !arguments.is_empty());
    if let Some(changed) = changed {
        fits(&client, &gate.tool, changed).await?;
    }
    let arguments = in_a_line(changed.unwrap_or(&gate.arguments));
    terminal.note(Style::Faint, &format!("{} {} {arguments}", kind(&gate), gate.tool));
    let request = bounded(AnswerRequest {
        session_id: gate.session_id.clone(),
        command_id: command_id(),
        gate: gate.gate.clone(),
        arguments_sha256: gate.arguments_sha256.clone(),
        ..answer
    });
    let reply = client.sessions().answer(request).await.map_err(|status| client.failure(&status))?;
    tell(terminal, &gate.session_id, done, reply.get_ref());
    Ok(Exit::Done)
}

/// Whether the tool takes these arguments: once the gate is answered, only the model would be told that it does not.
async fn fits(client: &Client, tool: &str, arguments: &str) -> Result<(), Failure> {
    let known = super::lists::known_tools_of(client).await?;
    // One that is not there now may have another schema when it is back.
    let Some(tool) = known.iter().find(|known| known.name == tool) else { return Ok(()) };
    let parsed = |text: &str| Json::parse(text).map_err(|error| error.to_string());
    let checked = parsed(&tool.parameters_json)
        .and_then(|schema| Schema::compile(&schema))
        .and_then(|schema| schema.check(&parsed(arguments)?));
    checked.map_err(|why| {
        let help = format!("nothing was answered; `ailoop tools describe {}` shows the schema", tool.name);
        Failure::usage(ErrorCode::InvalidArguments, format!("--arguments: {why}")).help(help)
    })
}

/// What is meant, as the session's log has it.
async fn find(client: &Client, args: &GateArgs) -> Result<Gate, Failure> {
    let session_id = client::session_id(&args.session)?;
    let mut open = gates(client, session_id.clone()).await?;
    let closed = || {
        let message =
            format!("nothing is open as {} in session {session_id}: it was answered, or its time is over", args.gate);
        Failure::new(ErrorCode::GateClosed, message).help(format!("see `ailoop approvals --session {session_id}`"))
    };
    let found = open.iter().position(|gate| gate.gate == args.gate);
    let gate = open.swap_remove(found.ok_or_else(closed)?);
    match &args.hash {
        Some(hash) if hash.is_empty() || !gate.arguments_sha256.starts_with(hash.as_str()) => {
            let message = format!("the arguments of {} have the hash {}, not {hash}", gate.gate, gate.arguments_sha256);
            Err(Failure::new(ErrorCode::BadRequest, message).help("look at them again with `ailoop approvals show`"))
        }
        Some(_) | None => Ok(gate),
    }
}

async fn gates(client: &Client, session_id: String) -> Result<Vec<Gate>, Failure> {
    let reply = client.sessions().list_gates(bounded(ListGatesRequest { session_id, limit: LISTED_MAX })).await;
    Ok(reply.map_err(|status| client.failure(&status))?.into_inner().gates)
}

/// The arguments that a person puts in the place of the model's.
fn changed(args: &ApproveArgs) -> Result<String, Failure> {
    let Some(given) = &args.arguments else { return Ok(String::new()) };
    let wrong = |why: String| Failure::usage(ErrorCode::BadRequest, format!("--arguments: {why}"));
    let text = match given.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(Path::new(file)).map_err(|error| wrong(format!("{file}: {error}")))?,
        None => given.clone(),
    };
    let _object: serde_json::Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(text.trim().to_owned())
}

/// Arguments may stand on several lines.
fn in_a_line(arguments: &str) -> String {
    reveal_invisible(&short(&arguments.split_whitespace().collect::<Vec<_>>().join(" ")))
}

fn kind(gate: &Gate) -> String {
    if gate.detail.is_empty() { gate.kind.clone() } else { format!("{} ({})", gate.kind, gate.detail) }
}

fn as_json(gate: &Gate) -> Value {
    let arguments = if gate.shortened {
        Value::from(gate.arguments.as_str())
    } else {
        serde_json::from_str(&gate.arguments).unwrap_or_default()
    };
    json!({
        "session_id": gate.session_id, "gate": gate.gate, "kind": gate.kind, "detail": gate.detail, "tool": gate.tool,
        "arguments": arguments, "shortened": gate.shortened, "arguments_sha256": gate.arguments_sha256,
        "expires": gate.expires, "agent": gate.agent, "title": gate.title,
    })
}
