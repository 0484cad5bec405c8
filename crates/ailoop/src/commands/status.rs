//! `ailoop status` and `ailoop top`: the processes of the fleet, its queues and its sessions.

use std::time::Duration;

use super::fleet_location::connect;
use super::output::{finish, format_table};
use crate::args::{StatusArgs, TopArgs};
use crate::client::EdgeClient;
use crate::failure::{CommandFailure, Exit};
use crate::fleet_status::{FleetStatus, Queue, Replica, Stored};
use crate::format;
use crate::printable::one_line;
use crate::terminal::{Style, Terminal};

/// Clears the screen and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub(super) async fn show_status(args: &StatusArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let (status, json) = FleetStatus::fetch(&client).await?;
    if args.json {
        return Ok(finish(terminal.print_data(&format!("{json}\n"))));
    }
    let printed = terminal.print_data(&draw(&status));
    terminal.note(Style::Faint, "`ailoop tools` lists the tools and `ailoop doctor` what is wrong");
    Ok(finish(printed))
}

/// Shows the status again and again, until Ctrl-C. An edge that is away is waited for.
pub(super) async fn watch_status(args: &TopArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    loop {
        let text = match look(&client).await {
            Ok(text) => text,
            Err(failure) if failure.exit() == Exit::Unreachable => format!("{failure}\n"),
            Err(failure) => return Err(failure),
        };
        if terminal.print_screen(CLEAR, &text).is_err() {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_secs(args.every)).await;
    }
}

async fn look(client: &EdgeClient) -> Result<String, CommandFailure> {
    client.reconnect_if_moved().await?;
    let (status, _) = FleetStatus::fetch(client).await?;
    Ok(format!("{}\n{}", status.now, draw(&status)))
}

fn draw(status: &FleetStatus) -> String {
    let replicas: Vec<_> = status.replicas.iter().map(replica_row).collect();
    let queues: Vec<_> = status.queues.iter().map(queue_row).collect();
    let stored: Vec<_> = status.storage.iter().filter(|stored| stored.messages > 0).map(stored_row).collect();
    let letters = format::plural(status.dead_letters, "dead letter");
    let sessions = match status.sessions {
        Some(sessions) => format!(
            "sessions: {} running, {} idle, {} paused, {} ended; {} with a gate; {letters}\n",
            format::count(sessions.running),
            format::count(sessions.idle),
            format::count(sessions.paused),
            format::count(sessions.ended),
            format::count(sessions.with_gates),
        ),
        None => format!("sessions: not counted, since the index is not in memory; {letters}\n"),
    };
    [
        format_table(&["SERVICE", "REPLICA", "VERSION", "UP", "WORK", "STATE"], &replicas),
        format_table(&["QUEUE", "WAITING", "HELD", "PULLERS", "OLDEST"], &queues),
        format_table(&["STORED", "MESSAGES", "BYTES"], &stored),
        sessions,
    ]
    .join("\n")
}

fn replica_row(replica: &Replica) -> Vec<String> {
    let status = &replica.status;
    let work = status.work.iter().map(|(queue, load)| format!("{queue} {}/{}", load.running, load.max));
    let mut state = if status.waiting_for.is_empty() {
        "ready".to_owned()
    } else {
        format!("waits for {}", status.waiting_for.join(", "))
    };
    for warning in &status.warnings {
        state.push_str("; warning: ");
        state.push_str(warning);
    }
    vec![
        status.service.clone(),
        status.replica.clone(),
        replica.build(),
        format::age(replica.uptime()),
        work.collect::<Vec<_>>().join(", "),
        one_line(&state),
    ]
}

fn queue_row(queue: &Queue) -> Vec<String> {
    let oldest = queue.oldest_ms.map_or_else(|| "-".to_owned(), |ms| format::duration(Duration::from_millis(ms)));
    let count = format::count;
    vec![queue.name.clone(), count(queue.waiting), count(queue.held), count(queue.pullers), oldest]
}

fn stored_row(stored: &Stored) -> Vec<String> {
    vec![stored.name.clone(), format::count(stored.messages), format::bytes(stored.bytes)]
}
