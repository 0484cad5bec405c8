//! `ailoop transcript`: a session as people read it, as Markdown.

use std::fmt::Write;

use contract::ErrorCode;
use proto::TranscriptRequest;
use serde::Serialize;
use session::readable::{ReadableCall, ReadableMessage, ReadableTurn};

use crate::args::TranscriptArgs;
use crate::client::{self, bounded};
use crate::failure::{Exit, Failure};
use crate::terminal::{Style, Terminal};

/// Characters of a call's arguments.
const ARGUMENTS_MAX: usize = 200;

pub(super) async fn transcript(args: &TranscriptArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let session_id = client::session_id(&args.session)?;
    let client = super::connect(&args.target).await?;
    let (mut after, mut is_empty, mut is_incomplete) = (0, true, false);
    loop {
        let request = bounded(TranscriptRequest { session_id: session_id.clone(), after, limit: 0 });
        let reply = client.sessions().transcript(request).await.map_err(|status| client.failure(&status))?.into_inner();
        let unreadable = |error: serde_json::Error| Failure::new(ErrorCode::Internal, format!("the answer: {error}"));
        let turns: Vec<ReadableTurn> = serde_json::from_str(&reply.turns_json).map_err(unreadable)?;
        is_empty &= turns.is_empty();
        is_incomplete |= reply.is_incomplete;
        for turn in &turns {
            let printed = if args.json {
                terminal.json(&format!("{}\n", serde_json::to_string(turn).unwrap_or_default()))
            } else {
                terminal.data(&as_text(turn, args.results))
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
        terminal.note(Style::Plain, "parts are missing: the archive kept them for as long as it keeps anything");
    }
    if is_empty {
        terminal.note(Style::Plain, &format!("nothing was said in session {session_id} yet"));
    }
    Ok(Exit::Done)
}

fn as_text(turn: &ReadableTurn, with_results: bool) -> String {
    let mut out = String::new();
    for said in &turn.messages {
        match said {
            ReadableMessage::User { time, text, .. } => {
                let _ = writeln!(out, "## You, {time}\n\n{}\n", text.trim());
            }
            ReadableMessage::Assistant { time, step, text, tool_calls } => {
                let _ = writeln!(out, "## Step {step}, {time}\n");
                if !text.trim().is_empty() {
                    let _ = writeln!(out, "{}\n", text.trim());
                }
                for call in tool_calls {
                    call_text(&mut out, call, with_results);
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

fn call_text(out: &mut String, call: &ReadableCall, with_results: bool) {
    let arguments: String = call.arguments.chars().take(ARGUMENTS_MAX).collect();
    let more = if arguments.len() < call.arguments.len() { "…" } else { "" };
    let outcome = call.outcome.map_or_else(|| "not done yet".to_owned(), |outcome| word(&outcome));
    let _ = write!(out, "- `{}` {arguments}{more}: {outcome}", call.tool);
    if let Some(by) = &call.by {
        let _ = write!(out, " ({} by {by})", call.decision.map_or_else(String::new, |decision| word(&decision)));
    }
    out.push('\n');
    if let Some(result) = call.result.as_ref().filter(|_| with_results) {
        // A result may hold fences of its own.
        for line in result.lines() {
            let _ = writeln!(out, "      {line}");
        }
    }
}

/// The word of the contract for a value of a closed set.
fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
