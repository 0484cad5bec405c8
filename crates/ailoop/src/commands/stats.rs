//! `ailoop stats`: counts how turns ended, by agent and model.

use std::collections::{BTreeMap, HashMap};

use fleet_connection::client::{EdgeClient, SessionsApi, answer_json};
use proto::{AgentStats, GetStatsRequest};
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::reading::read_fleet;
use crate::args::StatsArgs;
use crate::output::{finish, print_table};

const COLUMNS: [TableColumn; 13] = [
    TableColumn::name("AGENT"),
    TableColumn::name("MODEL"),
    TableColumn::number("SESSIONS").optional(6),
    TableColumn::number("TURNS"),
    TableColumn::number("COMPLETED"),
    TableColumn::number("PREMATURE").optional(1),
    TableColumn::number("LIMITS").optional(5),
    TableColumn::number("STEPS/TURN").optional(4),
    TableColumn::number("TOOLS").optional(7),
    TableColumn::number("TOKENS").optional(3),
    TableColumn::number("USD").optional(2),
    TableColumn::text("ENDS").optional(8),
    TableColumn::text("DECISIONS").optional(9),
];

pub(super) async fn show_stats(args: &StatsArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let request = GetStatsRequest { since: args.since.clone(), interval: None };
    let read = async |client: EdgeClient| client.call(request, SessionsApi::get_stats).await;
    let reply = read_fleet(&args.target, terminal, read).await?;
    if args.output.is_json() {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&reply)?["stats"]))));
    }
    let rows = reply.stats;
    if rows.is_empty() {
        terminal.note(Style::Plain, "no session yet");
        return Ok(Exit::Done);
    }
    let table = Table::new(&COLUMNS).with_rows(rows.iter().map(stats_row));
    let printed = print_table(&table, &args.output, terminal);
    terminal.note(
        Style::Faint,
        "COMPLETED: turns that ended as completed, of all; PREMATURE: those after which the user had to ask to go on",
    );
    terminal.note(Style::Faint, "TOKENS, USD: work that was delegated counts where it was done, and once");
    let uncounted: u32 = rows.iter().map(|row| row.uncounted).sum();
    if uncounted > 0 {
        let sessions = format::plural(uncounted.into(), "session");
        let message =
            format!("TOKENS and USD are without {sessions} of an older version, which did not count that apart");
        terminal.note(Style::Warn, &message);
    }
    Ok(finish(printed))
}

fn stats_row(row: &AgentStats) -> Vec<String> {
    let steps = if row.turns == 0 { 0.0 } else { f64::from(row.iterations) / f64::from(row.turns) };
    let spent = row.spent_own.unwrap_or_default();
    let usage = spent.usage.unwrap_or_default();
    vec![
        row.agent.clone(),
        row.model.clone(),
        row.sessions.to_string(),
        row.turns.to_string(),
        format_percent(row.completed_rate),
        format!("{} ({})", format_percent(row.premature_rate), row.premature),
        row.limit_hits.to_string(),
        format!("{steps:.1}"),
        format::count(row.tool_calls.into()),
        format::count(usage.input.saturating_add(usage.output)),
        format!("{:.4}", spent.cost_usd),
        format_counts(&row.stop_reasons),
        format_counts(&row.decisions),
    ]
}

fn format_percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0))
}

fn format_counts(counts: &HashMap<String, u32>) -> String {
    let sorted: BTreeMap<_, _> = counts.iter().collect();
    let each: Vec<String> = sorted.iter().map(|(name, count)| format!("{name} {count}")).collect();
    each.join(", ")
}
