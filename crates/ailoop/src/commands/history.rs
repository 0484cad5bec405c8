//! `ailoop replay` and `ailoop decisions`: read the log of a session.

use std::time::Duration;

use ailoop_client::WatchItem;
use contract::Timestamp;
use contract::event::Event;
use fleet_connection::client::{EdgeClient, SessionsApi, answer_json};
use fleet_connection::stream::SessionStream;
use proto::{GetSessionRequest, ReplayDifference, ReplayReport, ReplaySessionRequest, ReplayedCommit};
use session_view::notification::{NotificationContent, ParsedNotification};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::reading::read_session;
use crate::args::{DecisionsArgs, ReplayArgs};
use crate::output::{finish, print_table};

/// Longest wait for the next event, of a session that is known to have more events.
const NEXT_EVENT_MAX: Duration = Duration::from_secs(30);

/// Folds a log again; a difference is a failure.
pub(super) async fn replay_log(args: &ReplayArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let reply = read_session(&args.target, &args.session, terminal, async |client, session_id| {
        client
            .call(ReplaySessionRequest { session_id, at: args.at, no_commits: None }, SessionsApi::replay_session)
            .await
    })
    .await?;
    let printed = if args.output.is_json() {
        terminal.print_data(&format!("{}\n", answer_json(&reply)?))
    } else if args.at.is_some() {
        terminal.print_data(&format!("{:#}\n", answer_json(&reply)?["state"]))
    } else {
        let rows: Vec<Vec<String>> =
            reply.commits.iter().flat_map(|commits| &commits.as_list).map(commit_row).collect();
        let columns = [
            TableColumn::number("SLOT"),
            TableColumn::name("TIME").optional(1),
            TableColumn::name("PHASE").optional(2),
            TableColumn::text("EVENTS"),
        ];
        print_table(&Table::new(&columns).with_rows(rows), &args.output, terminal)
    };
    for ReplayDifference { slot, what } in &reply.differs {
        terminal.note(Style::Bad, &format!("slot {slot}: {what} differs from what its writer stored"));
    }
    if !reply.differs.is_empty() {
        terminal.note(Style::Bad, "the log does not fold to the stored state: keep the log, and report this");
        return Ok(Exit::Failed);
    }
    let ReplayReport { slot, last_slot, phase, seq, .. } = reply;
    terminal.note(Style::Good, &format!("slot {slot} of {last_slot}: {phase}, seq {seq}; folds to the stored state"));
    Ok(finish(printed))
}

fn commit_row(line: &ReplayedCommit) -> Vec<String> {
    vec![line.slot.to_string(), line.time.clone(), line.phase.clone(), line.events.join(" ")]
}

/// Lists every decision of a session on whether to continue.
pub(super) async fn list_decisions(args: &DecisionsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let events = read_session(&args.target, &args.session, terminal, async |client, session_id| {
        fetch_events(&client, &session_id).await
    })
    .await?;
    let mut rows = Vec::new();
    for (time, event) in &events {
        let Event::ContinuationProgress(progress) = event else { continue };
        if args.output.is_json() {
            if terminal.print_data(&format!("{}\n", event.data().get())).is_err() {
                return Ok(Exit::Done);
            }
            continue;
        }
        let position = format!("{}.{}/{}", progress.turn, progress.iteration, progress.max_iterations);
        let decision = if progress.continues { "go on" } else { "end" };
        let calls: Vec<String> = progress.call_ids.iter().map(ToString::to_string).collect();
        rows.push(vec![
            time.map(|time| time.to_string()).unwrap_or_default(),
            position,
            decision.to_owned(),
            progress.source.to_string(),
            match progress.confidence {
                Some(confidence) => format!("{} {:.0} %", progress.status, confidence * 100.0),
                None => progress.status.clone(),
            },
            calls.join(" "),
            progress.reason.clone(),
            format::join_words(&progress.excerpt),
        ]);
    }
    if args.output.is_json() {
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        terminal.note(Style::Plain, "there is no decision yet");
        return Ok(Exit::Done);
    }
    let columns = [
        TableColumn::name("TIME").optional(3),
        TableColumn::name("TURN.STEP"),
        TableColumn::name("DECISION"),
        TableColumn::name("SOURCE"),
        TableColumn::name("STATUS").optional(2),
        TableColumn::text("CALLS").optional(5),
        TableColumn::text("REASON").optional(1),
        TableColumn::text("REPLY").optional(4),
    ];
    Ok(finish(print_table(&Table::new(&columns).with_rows(rows), &args.output, terminal)))
}

/// Fetches every event that a session has now, with the time at which the session decided it.
pub(super) async fn fetch_events(
    client: &EdgeClient,
    session_id: &str,
) -> Result<Vec<(Option<Timestamp>, Event)>, CommandFailure> {
    let request = GetSessionRequest { session_id: session_id.to_owned() };
    let info = client.call(request, SessionsApi::get_session).await?;
    let mut stream = SessionStream::new(client.clone(), session_id, 1, false);
    let mut events = Vec::new();
    let mut seq = 0;
    while seq < info.seq {
        let next = tokio::time::timeout(NEXT_EVENT_MAX, stream.next()).await.map_err(|_| {
            CommandFailure::new(contract::ErrorCode::Unavailable, "the session's events stopped coming; try again")
        })?;
        let notification = match next? {
            Some(WatchItem::Notification(notification)) => notification,
            Some(WatchItem::Lost { .. } | WatchItem::Restored) => continue,
            None => break,
        };
        let parsed = ParsedNotification::parse(&notification);
        seq = parsed.seq.unwrap_or(seq);
        if let NotificationContent::Event(event) = parsed.content {
            events.push((parsed.time, *event));
        }
    }
    Ok(events)
}
