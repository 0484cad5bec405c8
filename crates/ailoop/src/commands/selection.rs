//! The sessions that a filter selects, page by page, and the question before a command that is for many of them.

use std::io::{BufRead as _, IsTerminal as _};

use contract::ErrorCode;
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{ListSessionsRequest, SessionSummary};
use terminal::failure::CommandFailure;
use terminal::{Style, Terminal};

use crate::args::{SessionFilter, api_name};

/// Sessions that one request lists.
const PAGE_SESSIONS_MAX: u32 = 1_000;

/// A request for the sessions of a filter, at most so many.
pub(super) fn list_request(filter: &SessionFilter, limit: u32) -> ListSessionsRequest {
    ListSessionsRequest {
        phase: filter.phase.as_ref().and_then(api_name),
        limit: Some(limit),
        agent: filter.agent.as_deref().map(str::to_lowercase),
        model: filter.model.clone(),
        since: filter.since.clone(),
        stop_reason: if filter.error { Some("error".to_owned()) } else { filter.stop_reason.clone() },
        text: filter.text.clone(),
        ..ListSessionsRequest::default()
    }
}

/// Every session that a filter selects, newest first.
pub(super) async fn list_selected(
    client: &EdgeClient,
    filter: &SessionFilter,
) -> Result<Vec<SessionSummary>, CommandFailure> {
    let (mut sessions, mut request) = (Vec::new(), list_request(filter, PAGE_SESSIONS_MAX));
    loop {
        let reply = client.call(request.clone(), SessionsApi::list_sessions).await?;
        sessions.extend(reply.sessions);
        if reply.next_cursor.is_none() {
            return Ok(sessions);
        }
        request.cursor = reply.next_cursor;
    }
}

/// Asks a person whether to go on; without a terminal `--yes` must have been given.
pub(super) fn confirm(question: &str, is_confirmed: bool, terminal: &Terminal) -> Result<bool, CommandFailure> {
    if is_confirmed {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(CommandFailure::usage(ErrorCode::BadRequest, format!("{question} There is no terminal to ask at"))
            .help("pass --yes"));
    }
    terminal.note(Style::Warn, &format!("{question} Type yes to go on:"));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let is_yes = read.is_ok() && line.trim().eq_ignore_ascii_case("yes");
    if !is_yes {
        terminal.note(Style::Plain, "nothing was done");
    }
    Ok(is_yes)
}
