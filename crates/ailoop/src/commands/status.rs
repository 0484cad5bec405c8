//! `ailoop status` and `ailoop top`: the processes of the fleet, its queues and its sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_connection::client::{EdgeClient, answer_json};
use proto::{FleetStatus, QueueStatus, Replica, StorageStatus};
use terminal::columns::wrap_words;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::one_line;
use terminal::table::{Table, TableCell, TableColumn, TableWidth};
use terminal::{Style, StyledLine, StyledSpan, Terminal, line_width};

use super::fleet_location::connect;
use crate::args::{OutputArgs, StatusArgs, TopArgs};
use crate::fleet_status::{build_of, fetch_status, uptime};
use crate::output::{finish, table_width};
use crate::signals::Interrupts;

pub(super) async fn show_status(args: &StatusArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let status = fetch_status(&client).await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&status)?))));
    }
    let printed = terminal.print_lines(&draw(&status, table_width(&args.output, terminal)));
    terminal.note(Style::Faint, "`ailoop tools` lists the tools and `ailoop doctor` what is wrong");
    Ok(finish(printed))
}

/// Shows the status again and again, until Ctrl-C. An edge that is away is waited for.
pub(super) async fn watch_status(args: &TopArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let mut interrupts = Interrupts::listen()?;
    let mut is_first = true;
    loop {
        let found =
            interrupts.run_until_interrupted(look(&client, table_width(&OutputArgs::default(), terminal))).await;
        let lines = match found {
            None => return Ok(Exit::Interrupted),
            Some(Ok(lines)) => lines,
            Some(Err(failure)) if failure.exit() == Exit::Unreachable => outage_lines(&failure),
            Some(Err(failure)) => return Err(failure),
        };
        if terminal.print_screen(&lines, is_first).is_err() {
            return Ok(Exit::Done);
        }
        is_first = false;
        let pause = tokio::time::sleep(Duration::from_secs(args.every));
        if interrupts.run_until_interrupted(pause).await.is_none() {
            return Ok(Exit::Interrupted);
        }
    }
}

async fn look(client: &EdgeClient, width: TableWidth) -> Result<Vec<StyledLine>, CommandFailure> {
    client.reconnect_if_moved().await?;
    let status = fetch_status(client).await?;
    let mut lines = vec![vec![StyledSpan::new(Style::Faint, format!("{}  Ctrl-C ends it", status.now))]];
    lines.extend(draw(&status, width));
    Ok(lines)
}

fn outage_lines(failure: &CommandFailure) -> Vec<StyledLine> {
    failure.to_string().lines().map(|line| vec![StyledSpan::new(Style::Bad, one_line(line))]).collect()
}

/// Draws the status. Lines that need attention come first: a terminal may be too low for the rest.
fn draw(status: &FleetStatus, width: TableWidth) -> Vec<StyledLine> {
    let mut replicas = Table::new(&[
        TableColumn::name("SERVICE"),
        TableColumn::name("REPLICA").optional(4),
        TableColumn::name("VERSION").optional(1),
        TableColumn::number("UP").optional(3),
        TableColumn::text("WORK").optional(2),
        TableColumn::name("STATE"),
    ]);
    status.replicas.iter().for_each(|replica| replicas.push(replica_row(replica)));
    let mut queues = Table::new(&[
        TableColumn::name("QUEUE"),
        TableColumn::number("WAITING"),
        TableColumn::number("HELD"),
        TableColumn::number("PULLS"),
        TableColumn::number("OLDEST"),
    ]);
    status.queues.iter().for_each(|queue| queues.push(queue_row(queue)));
    let mut stored =
        Table::new(&[TableColumn::name("STORED"), TableColumn::number("MESSAGES"), TableColumn::number("BYTES")]);
    status.storage.iter().filter(|stored| stored.messages > 0).for_each(|row| stored.push(stored_row(row)));
    let mut lines = session_lines(status, width);
    lines.extend(warning_lines(status, width));
    for table in [replicas, queues, stored] {
        lines.push(Vec::new());
        lines.extend(table.lines(width));
    }
    lines
}

/// Counts of sessions and dead letters.
fn session_lines(status: &FleetStatus, width: TableWidth) -> Vec<StyledLine> {
    let count = |count: u64, what: &str, style: Style| {
        StyledSpan::new(if count == 0 { Style::Faint } else { style }, format!("{} {what}", format::count(count)))
    };
    let mut parts = match status.sessions {
        Some(sessions) => vec![
            count(sessions.running, "running", Style::Good),
            count(sessions.with_gates, "waiting for a person", Style::Warn),
            count(sessions.paused, "paused", Style::Warn),
            count(sessions.idle, "idle", Style::Plain),
            count(sessions.ended, "ended", Style::Faint),
        ],
        None => vec![StyledSpan::new(Style::Faint, "not counted: the index is not in memory")],
    };
    if status.dead_letters > 0 {
        let letters = format::plural(status.dead_letters, "dead letter");
        parts.push(StyledSpan::new(Style::Bad, format!("{letters}: see `ailoop dead list`")));
    }
    join_parts("sessions  ", parts, width)
}

/// Joins parts to lines; a part is never split.
fn join_parts(title: &str, parts: Vec<StyledSpan>, width: TableWidth) -> Vec<StyledLine> {
    let columns = match width {
        TableWidth::Terminal(columns) => columns,
        TableWidth::File | TableWidth::Unlimited => usize::MAX,
    };
    let mut line = vec![StyledSpan::new(Style::Faint, title)];
    let (mut lines, mut is_first) = (Vec::new(), true);
    for part in parts {
        let comma = StyledSpan::new(Style::Plain, ", ");
        if !is_first && line_width(&line) + comma.text.len() + part.text.chars().count() + 1 > columns {
            line.push(StyledSpan::new(Style::Plain, ","));
            let indent = StyledSpan::new(Style::Plain, " ".repeat(title.len()));
            lines.push(std::mem::replace(&mut line, vec![indent]));
        } else if !is_first {
            line.push(comma);
        }
        line.push(part);
        is_first = false;
    }
    lines.push(line);
    lines
}

/// The warnings of all processes, whole.
fn warning_lines(status: &FleetStatus, width: TableWidth) -> Vec<StyledLine> {
    const TITLE: &str = "warning   ";
    let columns = match width {
        TableWidth::Terminal(columns) => columns.saturating_sub(TITLE.len()),
        TableWidth::File | TableWidth::Unlimited => usize::MAX,
    };
    let missing = status.missing_cells.iter().map(|cell| one_line(&format!("cell {cell} does not answer")));
    let warnings = status.replicas.iter().flat_map(|replica| {
        let service = &replica.service;
        replica.warnings.iter().map(move |warning| one_line(&format!("{service}: {warning}")))
    });
    let mut lines = Vec::new();
    for warning in missing.chain(warnings) {
        for (index, part) in wrap_words(&warning, columns).into_iter().enumerate() {
            let title = if index == 0 { TITLE.to_owned() } else { " ".repeat(TITLE.len()) };
            lines.push(vec![StyledSpan::new(Style::Warn, title), StyledSpan::new(Style::Plain, part)]);
        }
    }
    lines
}

fn replica_row(replica: &Replica) -> Vec<TableCell> {
    let work: BTreeMap<_, _> = replica.work.iter().collect();
    let work: Vec<String> = work.iter().map(|(queue, load)| format!("{queue} {}/{}", load.running, load.max)).collect();
    let (style, state) = match (replica.waiting_for.is_empty(), replica.warnings.is_empty()) {
        (false, _) => (Style::Bad, format!("waits for {}", replica.waiting_for.join(", "))),
        (true, false) => (Style::Warn, "warning".to_owned()),
        (true, true) => (Style::Good, "ready".to_owned()),
    };
    vec![
        replica.service.as_str().into(),
        replica
            .cell
            .as_ref()
            .map_or_else(|| replica.replica.clone(), |cell| format!("{cell}: {}", replica.replica))
            .into(),
        build_of(replica).into(),
        format::age(uptime(replica)).into(),
        work.join(", ").into(),
        TableCell::new(style, &state),
    ]
}

fn queue_row(queue: &QueueStatus) -> Vec<TableCell> {
    let oldest = queue.oldest_ms.map_or_else(|| "-".to_owned(), |ms| format::duration(Duration::from_millis(ms)));
    let count = format::count;
    // Nobody takes what waits.
    let style = if queue.waiting > 0 && queue.pullers == 0 { Style::Warn } else { Style::Plain };
    vec![
        queue.queue.as_str().into(),
        TableCell::new(style, &count(queue.waiting)),
        count(queue.held).into(),
        count(queue.pullers).into(),
        oldest.into(),
    ]
}

fn stored_row(stored: &StorageStatus) -> Vec<TableCell> {
    vec![stored.name.as_str().into(), format::count(stored.messages).into(), format::bytes(stored.bytes).into()]
}
