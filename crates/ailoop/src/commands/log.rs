//! `ailoop replay` and `ailoop decisions`: what a session's log says.

use std::time::Duration;

use contract::event::Event;
use proto::{ReplayRequest, SessionRequest};
use serde::Deserialize;
use serde_json::Value;

use super::lists::table;
use crate::args::{DecisionsArgs, ReplayArgs};
use crate::client::{self, Client, bounded};
use crate::failure::{Exit, Failure};
use crate::heard::{Heard, What};
use crate::stream::{Stream, StreamEvent};
use crate::terminal::{Style, Terminal};

/// Longest wait for the next event of a session whose events are known to be there.
const NEXT_MAX: Duration = Duration::from_secs(30);

/// What the edge tells of a log, as far as it is printed.
#[derive(Deserialize)]
struct Replayed {
    slot: u64,
    last_slot: u64,
    phase: String,
    seq: u64,
    commits: Vec<Line>,
    differs: Vec<Difference>,
    state: Value,
}

#[derive(Deserialize)]
struct Line {
    slot: u64,
    time: String,
    phase: String,
    events: Vec<String>,
}

#[derive(Deserialize)]
struct Difference {
    slot: u64,
    what: String,
}

/// Folds a log again; a difference is a failure.
pub(super) async fn replay(args: &ReplayArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let session_id = client::session_id(&args.session)?;
    let client = super::connect(&args.target).await?;
    let request = bounded(ReplayRequest { session_id, at: args.at });
    let reply = client.sessions().replay(request).await.map_err(|status| client.failure(&status))?.into_inner();
    let unreadable =
        |error: serde_json::Error| Failure::new(contract::ErrorCode::Internal, format!("the answer: {error}"));
    let told: Replayed = serde_json::from_str(&reply.json).map_err(unreadable)?;
    let printed = if args.json {
        terminal.data(&format!("{}\n", reply.json))
    } else if args.at.is_some() {
        terminal.data(&format!("{}\n", serde_json::to_string_pretty(&told.state).unwrap_or_default()))
    } else {
        let rows: Vec<Vec<String>> = told.commits.iter().map(row).collect();
        terminal.data(&table(&["SLOT", "TIME", "PHASE", "EVENTS"], &rows))
    };
    for Difference { slot, what } in &told.differs {
        terminal.note(Style::Bad, &format!("slot {slot}: {what} is not what its writer saw"));
    }
    if reply.differs {
        terminal.note(Style::Bad, "the log does not fold to what was written: keep it, and report it");
        return Ok(Exit::Failed);
    }
    let Replayed { slot, last_slot, phase, seq, .. } = told;
    terminal.note(Style::Good, &format!("slot {slot} of {last_slot}: {phase}, seq {seq}; folds to what was written"));
    Ok(super::finish(printed))
}

fn row(line: &Line) -> Vec<String> {
    vec![line.slot.to_string(), line.time.clone(), line.phase.clone(), line.events.join(" ")]
}

/// Every decision of a session about going on.
pub(super) async fn decisions(args: &DecisionsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let events = so_far(&client, &args.session).await?;
    let mut rows = Vec::new();
    for (heard, event) in &events {
        let Event::ContinuationProgress(progress) = event else { continue };
        if args.json {
            if terminal.data(&format!("{}\n", event.data().get())).is_err() {
                return Ok(Exit::Done);
            }
            continue;
        }
        let place = format!("{}.{}/{}", progress.turn, progress.iteration, progress.max_iterations);
        let decided = if progress.continues { "go on" } else { "end" };
        let calls: Vec<String> = progress.call_ids.iter().map(ToString::to_string).collect();
        rows.push(vec![
            heard.time.map(|time| time.to_string()).unwrap_or_default(),
            place,
            decided.to_owned(),
            progress.source.to_string(),
            match progress.confidence {
                Some(confidence) => format!("{} {:.0} %", progress.status, confidence * 100.0),
                None => progress.status.clone(),
            },
            calls.join(" "),
            progress.reason.clone(),
            progress.excerpt.split_whitespace().collect::<Vec<_>>().join(" "),
        ]);
    }
    if args.json {
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        terminal.note(Style::Plain, "no reply was decided about yet");
        return Ok(Exit::Done);
    }
    let head = ["TIME", "TURN.STEP", "DECISION", "SOURCE", "STATUS", "CALLS", "REASON", "REPLY"];
    Ok(super::finish(terminal.data(&table(&head, &rows))))
}

/// Every event that a session has now.
pub(super) async fn so_far(client: &Client, session: &str) -> Result<Vec<(Heard, Event)>, Failure> {
    let session_id = client::session_id(session)?;
    let request = bounded(SessionRequest { session_id: session_id.clone() });
    let info = client.sessions().get(request).await.map_err(|status| client.failure(&status))?.into_inner();
    let mut stream = Stream::new(client.clone(), session_id, 1, false);
    let mut events = Vec::new();
    let mut seq = 0;
    while seq < info.seq {
        let next = tokio::time::timeout(NEXT_MAX, stream.next()).await.map_err(|_| {
            Failure::new(contract::ErrorCode::Unavailable, "the session's events stopped coming; try again")
        })?;
        let notification = match next? {
            Some(StreamEvent::Notification(notification)) => notification,
            Some(StreamEvent::Lost { .. } | StreamEvent::Restored) => continue,
            None => break,
        };
        let heard = Heard::read(&notification);
        seq = heard.seq.unwrap_or(seq);
        if let What::Event(event) = &heard.what {
            let event = (**event).clone();
            events.push((heard, event));
        }
    }
    Ok(events)
}
