//! `ailoop repair`: performs again what sessions are owed, after the server was put back to an older state.

use contract::ErrorCode;
use proto::{ListRequest, SessionRequest};
use serde_json::json;

use crate::args::RepairArgs;
use crate::client::{Client, bounded};
use crate::failure::{Exit, Failure};
use crate::terminal::{Style, Terminal};

/// Sessions that one list shows at most.
const LIST_MAX: u32 = 1_000;

pub(super) async fn repair(args: &RepairArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let sessions = if args.sessions.is_empty() { open_sessions(&client).await? } else { args.sessions.clone() };
    if sessions.is_empty() {
        terminal.note(Style::Plain, "no session is open: nothing is owed");
        return Ok(Exit::Done);
    }
    let mut failed = 0_usize;
    for session in &sessions {
        let request = bounded(SessionRequest { session_id: session.clone() });
        match client.sessions().repair(request).await {
            Ok(reply) => {
                let performed = reply.into_inner().performed;
                let line = if args.json {
                    json!({"session_id": session, "performed": performed}).to_string()
                } else {
                    format!("{session}  {}", performed.join(", "))
                };
                if terminal.data(&format!("{line}\n")).is_err() {
                    return Ok(Exit::Done);
                }
            }
            Err(status) => {
                let failure = client.failure(&status);
                failed += 1;
                terminal.note(Style::Bad, &format!("{session}: {failure}"));
            }
        }
    }
    if failed > 0 {
        let message = format!("{failed} of {} sessions were not repaired; run `ailoop repair` again", sessions.len());
        return Err(Failure::new(ErrorCode::Unavailable, message));
    }
    Ok(Exit::Done)
}

/// Every session that has not ended, as the index has it.
async fn open_sessions(client: &Client) -> Result<Vec<String>, Failure> {
    let mut sessions = Vec::new();
    for phase in ["running", "paused", "idle"] {
        let mut cursor = String::new();
        loop {
            let request = bounded(ListRequest { phase: phase.to_owned(), limit: LIST_MAX, cursor });
            let reply = client.sessions().list(request).await.map_err(|status| client.failure(&status))?.into_inner();
            sessions.extend(reply.sessions.into_iter().map(|session| session.session_id));
            if reply.next_cursor.is_empty() {
                break;
            }
            cursor = reply.next_cursor;
        }
    }
    Ok(sessions)
}
