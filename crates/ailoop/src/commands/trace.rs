//! `ailoop trace`: what each turn of a session did, from its log.

use std::time::Duration;

use fleet_connection::client::{SessionsApi, answer_json};
use proto::{TraceSessionRequest, TraceSpan, TurnTrace};
use serde_json::Value;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::printable::one_line;
use terminal::{Style, Terminal};

use super::reading::read_session;
use crate::args::TraceArgs;
use crate::output::finish;

/// Columns of the picture of when a span began and ended.
const BAR_COLUMNS: usize = 24;

/// Returns the details that people look for in this kind of span.
fn details(span: &TraceSpan) -> String {
    let attributes: Value = serde_json::from_str(&span.attributes_json).unwrap_or_default();
    let number = |name: &str| attributes[name].as_u64().filter(|number| *number > 0);
    let mut parts = Vec::new();
    let attempt = number("ailoop.attempt").filter(|attempt| *attempt > 1);
    parts.extend(attempt.map(|attempt| format!("attempt {attempt}")));
    for name in ["ailoop.purpose", "ailoop.stop_reason", "ailoop.outcome", "ailoop.gate.decision"] {
        parts.extend(attributes[name].as_str().map(str::to_owned));
    }
    if let Some(source) = attributes["ailoop.continuation.source"].as_str() {
        let goes_on = attributes["ailoop.continuation.continues"].as_bool();
        parts.push(format!("{} by {source}", if goes_on == Some(true) { "goes on" } else { "ends" }));
    }
    if let (Some(input), Some(output)) = (number("gen_ai.usage.input_tokens"), number("gen_ai.usage.output_tokens")) {
        parts.push(format!("{} in, {} out", format::count(input), format::count(output)));
    }
    let usd = |name: &str| attributes[name].as_f64();
    let (cost, own) = (usd("ailoop.cost.usd").filter(|cost| *cost > 0.0), usd("ailoop.cost.own.usd"));
    parts.extend(cost.map(|cost| format!("${cost:.4}")));
    parts.extend(own.filter(|own| cost > Some(*own)).map(|own| format!("${own:.4} of it not delegated")));
    parts.extend(span.error.as_ref().map(|code| format!("error {code}")));
    parts.join(", ")
}

/// Shows the turns of a session as trees.
pub(super) async fn show_trace(args: &TraceArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let reply = read_session(&args.target, &args.session, terminal, async |client, session_id| {
        client.call(TraceSessionRequest { session_id }, SessionsApi::trace_session).await
    })
    .await?;
    if args.json {
        return Ok(finish(terminal.print_data(&format!("{}\n", answer_json(&reply)?))));
    }
    let turns: Vec<&TurnTrace> =
        reply.turns.iter().filter(|turn| args.turn.is_none_or(|number| number == turn.turn)).collect();
    if turns.is_empty() {
        let count = format::plural(reply.turns.len() as u64, "turn");
        let what = args.turn.map_or_else(
            || "the session has no turn yet".to_owned(),
            |number| format!("the session has no turn {number}; it has {count}"),
        );
        terminal.note(Style::Plain, &what);
        return Ok(if args.turn.is_some() { Exit::Failed } else { Exit::Done });
    }
    let text: String = turns.iter().map(|turn| draw(turn)).collect();
    let printed = terminal.print_data(&text);
    for turn in turns {
        if !turn.has_ended {
            terminal.note(Style::Plain, &format!("turn {} runs", turn.turn));
        }
        match &args.trace_url {
            Some(url) if turn.is_sampled => {
                terminal.note(Style::Plain, &url.replace("{trace_id}", &turn.trace_id));
            }
            Some(_) => terminal.note(Style::Plain, &format!("turn {} was not sampled: no collector has it", turn.turn)),
            None => {}
        }
    }
    Ok(finish(printed))
}

/// The turn in a line, and each of its spans below it in the order of their beginnings.
fn draw(turn: &TurnTrace) -> String {
    let Some((root, _)) = turn.spans.split_first() else { return String::new() };
    let mut children: Vec<&TraceSpan> = turn.spans.iter().skip(1).filter(|span| span.parent.is_some()).collect();
    children.sort_by_key(|span| (span.start_ms, span.end_ms));
    let mut text = format!("turn {}  trace {}\n{}", turn.turn, turn.trace_id, line("", root, root));
    for (position, span) in children.iter().enumerate() {
        let branch = if position + 1 == children.len() { "└─ " } else { "├─ " };
        text.push_str(&line(branch, span, root));
    }
    text.push('\n');
    text
}

fn line(branch: &str, span: &TraceSpan, turn: &TraceSpan) -> String {
    let name = format!("{branch}{}", one_line(&span.name));
    let details = one_line(&details(span));
    let (bar, took) =
        (bar(span, turn), format::duration(Duration::from_millis(span.end_ms.saturating_sub(span.start_ms))));
    format!("{name:<40} {bar} {took:>9}  {details}").trim_end().to_owned() + "\n"
}

/// Draws the time of the span within its turn as a bar.
fn bar(span: &TraceSpan, turn: &TraceSpan) -> String {
    let whole = turn.end_ms.saturating_sub(turn.start_ms).max(1);
    let column = |ms: u64| {
        let after = ms.saturating_sub(turn.start_ms).min(whole);
        usize::try_from(after * BAR_COLUMNS as u64 / whole).unwrap_or(BAR_COLUMNS)
    };
    let from = column(span.start_ms).min(BAR_COLUMNS - 1);
    let to = column(span.end_ms).max(from + 1);
    format!("{}{}{}", "·".repeat(from), "━".repeat(to - from), "·".repeat(BAR_COLUMNS - to))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn turn_is_drawn_as_a_tree_in_the_order_of_time() {
        let turn: TurnTrace = proto::json::from_value(json!({
            "turn": 1, "trace_id": "0af7", "has_ended": true, "is_sampled": true, "spans": [
                {"name": "invoke_agent e", "start_ms": 1_000, "end_ms": 5_000,
                 "attributes": {"ailoop.stop_reason": "completed", "gen_ai.usage.input_tokens": 1_200,
                                "gen_ai.usage.output_tokens": 30, "ailoop.cost.usd": 0.0125}},
                {"parent": "a", "name": "execute_tool grep", "start_ms": 3_000, "end_ms": 4_000,
                 "attributes": {"ailoop.outcome": "unknown", "ailoop.attempt": 2}, "error": "unknown"},
                {"parent": "a", "name": "chat m", "start_ms": 1_000, "end_ms": 3_000, "attributes": {}},
                {"parent": "a", "name": "continuation.decide", "start_ms": 5_000, "end_ms": 5_000,
                 "attributes": {"ailoop.continuation.source": "explicit", "ailoop.continuation.continues": false}}
            ]
        }))
        .unwrap();
        let lines = [
            "turn 1  trace 0af7",
            "invoke_agent e                           ━━━━━━━━━━━━━━━━━━━━━━━━     4.0 s  completed, 1,200 in, 30 out, $0.0125",
            "├─ chat m                                ━━━━━━━━━━━━············     2.0 s",
            "├─ execute_tool grep                     ············━━━━━━······     1.0 s  attempt 2, unknown, error unknown",
            "└─ continuation.decide                   ·······················━      0 ms  ends by explicit",
            "",
        ];
        assert_eq!(draw(&turn).lines().collect::<Vec<_>>(), lines);
    }
}
