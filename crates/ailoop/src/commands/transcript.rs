//! `ailoop transcript`: prints a session as Markdown.

use std::fmt::Write;

use contract::command::AnswerDecision;
use contract::tool::Outcome;
use fleet_connection::client::{EdgeClient, SessionsApi, read_answer};
use proto::GetTranscriptRequest;
use session::readable::{ReadableCall, ReadableMessage, ReadableTurn};
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::reading::read_session;
use crate::args::TranscriptArgs;

/// Characters of a call's arguments that are printed.
const ARGUMENTS_CHARS_MAX: usize = 200;

pub(super) async fn print_transcript(args: &TranscriptArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    read_session(&args.target, &args.session, terminal, async |client, session_id| {
        print_turns(args, &client, &session_id, terminal).await
    })
    .await
}

async fn print_turns(
    args: &TranscriptArgs,
    client: &EdgeClient,
    session_id: &str,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    let (mut after, mut is_empty, mut is_incomplete) = (0, true, false);
    loop {
        let request = GetTranscriptRequest { session_id: session_id.to_owned(), after: Some(after), limit: None };
        let reply = client.call(request, SessionsApi::get_transcript).await?;
        let turns: Vec<ReadableTurn> = reply.turns.iter().map(read_answer).collect::<Result<_, _>>()?;
        is_empty &= turns.is_empty();
        is_incomplete |= reply.is_incomplete.unwrap_or_default();
        for turn in &turns {
            let printed = if args.json {
                terminal.print_json(&format!("{}\n", serde_json::to_string(turn).unwrap_or_default()))
            } else {
                terminal.print_data(&format_turn(turn, args.results))
            };
            if printed.is_err() {
                return Ok(Exit::Done);
            }
        }
        match reply.next_after {
            Some(next) => after = next,
            None => break,
        }
    }
    if is_incomplete {
        terminal.note(Style::Plain, "parts are missing: the archive has deleted them");
    }
    if is_empty {
        terminal.note(Style::Plain, &format!("session {session_id} has no message yet"));
    }
    Ok(Exit::Done)
}

fn format_turn(turn: &ReadableTurn, with_results: bool) -> String {
    let mut out = String::new();
    for message in &turn.messages {
        match message {
            ReadableMessage::User { time, text, .. } => {
                let _ = writeln!(out, "## You, {time}\n\n{}\n", text.trim());
            }
            ReadableMessage::Assistant { time, step, text, cut, tool_calls } => {
                let mark = if *cut { ", cut off" } else { "" };
                let _ = writeln!(out, "## Step {step}, {time}{mark}\n");
                if !text.trim().is_empty() {
                    let _ = writeln!(out, "{}\n", text.trim());
                }
                for call in tool_calls {
                    write_call(&mut out, call, with_results);
                }
                if !tool_calls.is_empty() {
                    out.push('\n');
                }
            }
        }
    }
    if let Some(reason) = turn.stop_reason {
        let _ = writeln!(out, "Turn {} ended: {}.\n", turn.turn, reason.as_str());
    }
    out
}

fn write_call(out: &mut String, call: &ReadableCall, with_results: bool) {
    let arguments: String = call.arguments.chars().take(ARGUMENTS_CHARS_MAX).collect();
    let more = if arguments.len() < call.arguments.len() { "…" } else { "" };
    let outcome = call.outcome.map_or("not done yet", Outcome::as_str);
    let _ = write!(out, "- `{}` {arguments}{more}: {outcome}", call.tool);
    if let Some(by) = &call.by {
        let _ = write!(out, " ({} by {by})", call.decision.map_or("", AnswerDecision::as_str));
    }
    out.push('\n');
    if let Some(result) = call.result.as_ref().filter(|_| with_results) {
        // An indented block, since a result may contain code fences.
        for line in result.lines() {
            let _ = writeln!(out, "      {line}");
        }
    }
}
