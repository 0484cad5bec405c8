//! Replies with the decision that is wanted of each: `replies.jsonl` must agree in every row; `held_out.jsonl`,
//! labelled before the matcher was written and never tuned on, shows how good it is with replies that nobody looked at.

use contract::event::StopReason;
use contract::model::{FinishReason, SignalForm, ToolCall};
use contract::settings::ContinuationSettings;
use reply::Patterns;
use serde::Deserialize;
use session::continuation::{Facts, Rule, decide_in};

/// Percent of the held-out replies that must be decided as they are labelled.
const HELD_OUT_PERCENT_MIN: usize = 97;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    #[expect(dead_code, reason = "for readers")]
    kind: String,
    agent: String,
    text: String,
    #[serde(default)]
    calls: Vec<Call>,
    #[serde(default)]
    finish: Option<FinishReason>,
    #[serde(default)]
    signal: SignalForm,
    #[serde(default)]
    unseen: bool,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default = "first")]
    step: u32,
    #[serde(default = "ten")]
    max_iterations: u32,
    continues: bool,
    source: String,
    #[serde(default)]
    visible: Option<String>,
    #[serde(default)]
    runs: Option<usize>,
    note: String,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: String,
}

fn yes() -> bool {
    true
}

fn first() -> u32 {
    1
}

fn ten() -> u32 {
    10
}

fn rows(text: &str) -> Vec<Row> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Describes the differences from the label; none if all agrees.
fn differs(row: &Row) -> Option<String> {
    differs_in(Rule::ORDER, row)
}

/// The same with another order of precedence.
fn differs_in(order: &[Rule], row: &Row) -> Option<String> {
    let base = match row.agent.as_str() {
        "explicit" => ContinuationSettings::default(),
        "patterns" => reply::template("plain_words").unwrap(),
        other => panic!("{other}"),
    };
    let settings = ContinuationSettings { max_iterations: row.max_iterations, enabled: row.enabled, ..base };
    let calls: Vec<ToolCall> = row.calls.iter().map(|call| ToolCall::new("", &call.name, &call.arguments)).collect();
    let reading = reply::read(&row.text, &calls, row.signal);
    let runs = calls.iter().filter(|call| !call.is_signal()).count() + reading.calls.len();
    let verdict = decide_in(
        order,
        &settings,
        &Patterns::compile(&settings).unwrap(),
        Facts {
            text: reading.spoken(),
            signal: reading.signal.as_ref(),
            has_calls: runs > 0,
            finish: row.finish.unwrap_or(FinishReason::Stop),
            unseen: row.unseen,
            doubted: false,
            limit: (row.step >= row.max_iterations).then_some(StopReason::MaxIterations),
        },
    );
    let name = verdict.source.to_string();
    let source = name.split(':').next().unwrap_or_default().to_owned();
    let decided = (verdict.continues, source.as_str());
    let mut wrong = Vec::new();
    if decided != (row.continues, row.source.as_str()) {
        wrong.push(format!("{decided:?} by {} instead of {:?}", verdict.source, (row.continues, &row.source)));
    }
    if row.visible.as_ref().is_some_and(|visible| *visible != reading.visible) {
        wrong.push(format!("shows {:?} instead of {:?}", reading.visible, row.visible));
    }
    if row.runs.is_some_and(|wanted| wanted != runs) {
        wrong.push(format!("runs {runs} calls instead of {:?}", row.runs));
    }
    (!wrong.is_empty()).then(|| format!("{} ({}): {}\n    {:?}", row.id, row.note, wrong.join("; "), row.text))
}

#[test]
fn every_reply_of_the_corpus_is_decided_as_labelled() {
    let rows = rows(include_str!("../corpus/replies.jsonl"));
    let wrong: Vec<String> = rows.iter().filter_map(differs).collect();
    assert!(rows.len() >= 300 && wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn held_out_replies_are_decided_as_labelled_with_few_exceptions() {
    let rows = rows(include_str!("../corpus/held_out.jsonl"));
    // Which rows are wrong is not name: who knows tunes on them.
    let right = rows.iter().filter(|row| differs(row).is_none()).count();
    eprintln!("held out: {right} of {} replies decided as labelled", rows.len());
    assert!(right * 100 >= HELD_OUT_PERCENT_MIN * rows.len(), "{right} of {}", rows.len());
}

#[test]
fn rule_left_out_or_moved_fails_the_corpus() {
    let rows = rows(include_str!("../corpus/replies.jsonl"));
    let fails = |order: &[Rule]| rows.iter().any(|row| differs_in(order, row).is_some());
    for place in 0..Rule::ORDER.len() {
        let mut without = Rule::ORDER.to_vec();
        let rule = without.remove(place);
        assert!(fails(&without), "no row notices that {rule:?} is missing");
        if place + 1 < Rule::ORDER.len() {
            let mut swapped = Rule::ORDER.to_vec();
            swapped.swap(place, place + 1);
            assert!(fails(&swapped), "no row notices {:?} before {rule:?}", swapped[place]);
        }
    }
}
