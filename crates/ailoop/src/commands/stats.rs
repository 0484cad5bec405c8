//! `ailoop stats` and `ailoop patterns suggest`: how turns went, and what might be heard better.

use std::collections::BTreeMap;

use contract::event::{Event, StopReason};
use contract::settings::ContinuationSettings;
use proto::{ListRequest, StatsRequest};
use reply::Patterns;
use serde::Deserialize;
use serde_json::json;

use super::lists::table;
use super::log::so_far;
use crate::args::{PatternsSuggestArgs, StatsArgs};
use crate::client::bounded;
use crate::failure::{Exit, Failure};
use crate::figures;
use crate::terminal::{Style, Terminal};

/// Sessions whose replies are read for suggestions, the newest first.
const SESSIONS_MAX: u32 = 200;

/// One agent with one model, as far as it is printed.
#[derive(Deserialize)]
struct Row {
    agent: String,
    model: String,
    sessions: u32,
    turns: u32,
    stop_reasons: BTreeMap<String, u32>,
    limit_hits: u32,
    premature: u32,
    iterations: u32,
    decisions: BTreeMap<String, u32>,
    tool_calls: u32,
    spent: contract::event::Spent,
    completed_rate: Option<f64>,
    premature_rate: Option<f64>,
}

pub(super) async fn stats(args: &StatsArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let request = bounded(StatsRequest { since: args.since.clone().unwrap_or_default() });
    let reply = client.sessions().stats(request).await.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        return Ok(super::finish(terminal.data(&format!("{}\n", reply.json))));
    }
    let rows: Vec<Row> = serde_json::from_str(&reply.json)
        .map_err(|error| Failure::new(contract::ErrorCode::Internal, format!("the answer: {error}")))?;
    if rows.is_empty() {
        terminal.note(Style::Plain, "no session yet");
        return Ok(Exit::Done);
    }
    let head = [
        "AGENT",
        "MODEL",
        "SESSIONS",
        "TURNS",
        "COMPLETED",
        "NUDGED",
        "LIMITS",
        "STEPS/TURN",
        "TOOLS",
        "TOKENS",
        "USD",
        "ENDS",
        "DECISIONS",
    ];
    let cells = rows.iter().map(row).collect::<Vec<_>>();
    let printed = terminal.data(&table(&head, &cells));
    terminal.note(
        Style::Faint,
        "COMPLETED: turns that ended as completed, of all; NUDGED: those after which the user had to ask to go on",
    );
    Ok(super::finish(printed))
}

fn row(row: &Row) -> Vec<String> {
    let steps = if row.turns == 0 { 0.0 } else { f64::from(row.iterations) / f64::from(row.turns) };
    vec![
        row.agent.clone(),
        row.model.clone(),
        row.sessions.to_string(),
        row.turns.to_string(),
        percent(row.completed_rate),
        format!("{} ({})", percent(row.premature_rate), row.premature),
        row.limit_hits.to_string(),
        format!("{steps:.1}"),
        figures::count(row.tool_calls.into()),
        figures::count(row.spent.usage.total()),
        format!("{:.4}", row.spent.cost_usd),
        counts(&row.stop_reasons),
        counts(&row.decisions),
    ]
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0))
}

fn counts(counts: &BTreeMap<String, u32>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    each.join(", ")
}

/// What the replies of an agent's sessions say.
#[derive(Default)]
struct Replies {
    /// After these the user had to ask to go on.
    nudged: Vec<String>,
    /// These were an end.
    ended: Vec<String>,
}

impl Replies {
    fn read(&mut self, events: impl Iterator<Item = Event>) {
        let mut last: Option<String> = None;
        for event in events {
            if let Event::TurnCompleted(turn) = &event {
                let completed = turn.stop_reason == StopReason::Completed && !turn.final_response.is_empty();
                last = completed.then(|| turn.final_response.clone());
            } else if let Event::UserProcessed(message) = &event
                && let Some(reply) = last.take()
            {
                let kind = if reply::is_nudge(&message.content.text()) { &mut self.nudged } else { &mut self.ended };
                kind.push(reply);
            }
        }
        self.ended.extend(last);
    }
}

/// Proposes patterns; applies none.
pub(super) async fn suggest(
    args: &PatternsSuggestArgs,
    known: &ContinuationSettings,
    agent: &str,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let request = bounded(ListRequest { limit: SESSIONS_MAX, ..ListRequest::default() });
    let list = client.sessions().list(request).await.map_err(|status| client.failure(&status))?.into_inner();
    let mut replies = Replies::default();
    let sessions: Vec<_> = list.sessions.into_iter().filter(|session| session.agent == agent).collect();
    for session in &sessions {
        let events = so_far(&client, &session.session_id).await?;
        replies.read(events.into_iter().map(|(_, event)| event));
    }
    let patterns =
        Patterns::compile(known).map_err(|error| Failure::new(contract::ErrorCode::BadConfig, error.to_string()))?;
    let found = reply::suggest(&replies.nudged, &replies.ended, &patterns);
    let read = format!(
        "{} of agent {agent} read: {} after which the user had to ask to go on",
        figures::plural(sessions.len() as u64, "session"),
        figures::plural(replies.nudged.len() as u64, "turn")
    );
    if args.json {
        let list: Vec<_> =
            found.iter().map(|s| json!({"pattern": s.pattern, "replies": s.replies, "example": s.example})).collect();
        let told = json!({"agent": agent, "nudged": replies.nudged.len(), "suggestions": list});
        return Ok(super::finish(terminal.data(&format!("{told}\n"))));
    }
    terminal.note(Style::Plain, &read);
    if found.is_empty() {
        terminal.note(Style::Good, "nothing to suggest");
        return Ok(Exit::Done);
    }
    let mut text =
        "# nothing is applied: add what is right to the agent's list in agents.yaml\ncontinuation_patterns:\n"
            .to_owned();
    for suggestion in &found {
        let example: String = suggestion.example.chars().take(100).collect();
        let quoted = suggestion.pattern.replace('\'', "''");
        text.extend([format!("  - '{quoted}' # {}: {example}\n", replies_of(suggestion.replies))]);
    }
    if known.require_explicit_signal {
        terminal.note(
            Style::Warn,
            "this agent goes on by explicit signal only: patterns count with require_explicit_signal: false",
        );
    }
    Ok(super::finish(terminal.data(&text)))
}

fn replies_of(count: usize) -> String {
    if count == 1 { "1 reply".to_owned() } else { format!("{count} replies") }
}
