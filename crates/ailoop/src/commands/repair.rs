//! `ailoop repair`: repeats the outstanding effects of sessions, after the server was restored to an older state.

use contract::ErrorCode;
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{RepairReport, RepairSessionRequest};
use serde_json::json;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::fleet_location::connect;
use super::selection::list_selected;
use super::session_reference::resolve_session;
use crate::args::{RepairArgs, SessionFilter};

pub(super) async fn repair_sessions(args: &RepairArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let mut sessions = if args.sessions.is_empty() { list_open_sessions(&client).await? } else { Vec::new() };
    for session in &args.sessions {
        sessions.push(resolve_session(&client, session).await?);
    }
    if sessions.is_empty() {
        terminal.note(Style::Plain, "no session is open: there is nothing to repair");
        return Ok(Exit::Done);
    }
    let mut failed = 0_usize;
    for session in &sessions {
        let request = RepairSessionRequest { session_id: session.clone() };
        match client.call(request, SessionsApi::repair_session).await {
            Ok(RepairReport { performed, .. }) => {
                let line = if args.json {
                    json!({"session_id": session, "performed": performed}).to_string()
                } else {
                    format!("{session}  {}", performed.join(", "))
                };
                if terminal.print_data(&format!("{line}\n")).is_err() {
                    return Ok(Exit::Done);
                }
            }
            // After a restore the index may have a session that began after the log was saved.
            Err(failure) if *failure.code() == ErrorCode::UnknownSession && args.sessions.is_empty() => {
                terminal.note(Style::Warn, &format!("{session}: it is in the index only, so nothing is owed to it"));
            }
            Err(failure) => {
                failed += 1;
                terminal.note(Style::Bad, &format!("{session}: {failure}"));
            }
        }
    }
    if failed > 0 {
        let message = format!("{failed} of {} sessions were not repaired; run `ailoop repair` again", sessions.len());
        return Err(CommandFailure::new(ErrorCode::Unavailable, message));
    }
    Ok(Exit::Done)
}

/// Lists every session that has not ended, from the session index.
async fn list_open_sessions(client: &EdgeClient) -> Result<Vec<String>, CommandFailure> {
    let all = list_selected(client, &SessionFilter::default()).await?;
    Ok(all.into_iter().filter(|session| session.phase != "ended").map(|session| session.session_id).collect())
}
