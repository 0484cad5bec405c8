//! The sessions that a filter selects, page by page, and the question before a command that is for many of them.

use std::io::{BufRead as _, IsTerminal as _};

use contract::ErrorCode;
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{ListRequest, SessionInfo};
use terminal::failure::CommandFailure;
use terminal::{Style, Terminal};

use crate::args::{PhaseArg, SessionFilter};

/// Sessions that one request lists.
const PAGE_SESSIONS_MAX: u32 = 1_000;

/// A request for the sessions of a filter, at most so many.
pub(super) fn list_request(filter: &SessionFilter, limit: u32) -> ListRequest {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    ListRequest {
        phase: filter.phase.map_or("", PhaseArg::as_str).to_owned(),
        limit,
        cursor: String::new(),
        agent: text(&filter.agent).to_lowercase(),
        model: text(&filter.model),
        since: text(&filter.since),
        stop_reason: if filter.error { "error".to_owned() } else { text(&filter.stop_reason) },
        text: text(&filter.text),
        ..ListRequest::default()
    }
}

/// Every session that a filter selects, newest first.
pub(super) async fn list_selected(
    client: &EdgeClient,
    filter: &SessionFilter,
) -> Result<Vec<SessionInfo>, CommandFailure> {
    let (mut sessions, mut request) = (Vec::new(), list_request(filter, PAGE_SESSIONS_MAX));
    loop {
        let reply = client.call(request.clone(), SessionsApi::list).await?;
        sessions.extend(reply.sessions);
        if reply.next_cursor.is_empty() {
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
