//! Limits and guards: what ends a turn that the model would go on with, and what a person may grant.

use std::time::Duration;

use contract::command::{AnswerDecision, MessageMode};
use contract::event::Event;
use contract::model::Usage;
use contract::settings::{ContinuationSettings, LimitAction, Limits};

use crate::talk::{Cast, Talk};

const GO_ON: &str = r#"{"response":"More.","continuation":{"status":"CONTINUE"}}"#;

fn settings(limits: Limits) -> ContinuationSettings {
    ContinuationSettings { max_iterations: 20, limits, ..ContinuationSettings::default() }
}

fn asking(settings: ContinuationSettings) -> ContinuationSettings {
    ContinuationSettings { on_limit: LimitAction::Ask, ..settings }
}

#[test]
fn turn_at_token_or_cost_limit_ends() {
    let usage = Usage { input: 60, output: 40, ..Usage::default() };
    let mut talk = Talk::begin(settings(Limits { tokens: Some(200), ..Limits::default() }));
    talk.reply_that_cost(GO_ON, &[], usage, 0.0);
    assert_eq!((talk.stop_reason(), talk.source().as_str()), (None, "explicit"));
    talk.reply_that_cost(GO_ON, &[], usage, 0.0);
    assert_eq!((talk.stop_reason(), talk.source().as_str()), (Some("token_limit"), "limit:token_limit"));

    let mut talk = Talk::begin(settings(Limits { cost_usd: Some(0.5), ..Limits::default() }));
    talk.reply_that_cost("I look.", &["{}"], usage, 0.5);
    assert_eq!(talk.source(), "limit:cost_limit", "no step follows");
    talk.results("found");
    assert_eq!(talk.stop_reason(), Some("cost_limit"));
    // The next turn has a purse of its own, and sees the results that came.
    talk.send_message("go on", MessageMode::Steer);
    assert_eq!(talk.roles(), ["system", "user", "assistant", "tool", "user"]);
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn turn_at_tool_call_limit_runs_its_last_calls() {
    let mut talk = Talk::begin(settings(Limits { tool_calls: Some(3), ..Limits::default() }));
    talk.reply("", &[r#"{"a":1}"#, r#"{"a":2}"#]);
    talk.results("one");
    assert_eq!(talk.stop_reason(), None);
    talk.reply("", &[r#"{"a":3}"#, r#"{"a":4}"#]);
    assert_eq!((talk.stop_reason(), talk.source().as_str()), (None, "limit:tool_call_limit"));
    talk.results("two");
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("tool_call_limit"));
    assert!(talk.call().is_none());
}

#[test]
fn repeated_call_ends_the_turn_at_its_limit() {
    let mut talk = Talk::begin(settings(Limits::default()));
    for (turn, arguments) in ["{\"a\":1}", "{\"a\":2}", "{\"a\":1}"].into_iter().enumerate() {
        talk.reply("", &[arguments]);
        talk.results(&format!("result {turn}"));
        assert_eq!(talk.stop_reason(), None);
    }
    talk.reply("", &["{\"a\":1}"]);
    assert_eq!(talk.source(), "limit:repetition");
    talk.results("result");
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("repetition"));

    let mut talk = Talk::begin(settings(Limits { repetition: 0, no_progress: 0, ..Limits::default() }));
    for _ in 0..19 {
        talk.reply("", &["{}"]);
        talk.results("the same");
        assert_eq!(talk.stop_reason(), None);
    }
}

#[test]
fn steps_without_progress_end_the_turn() {
    let limits = Limits { repetition: 0, no_progress: 2, ..Limits::default() };
    let mut talk = Talk::begin(settings(limits));
    for n in 0..3 {
        assert_eq!(talk.stop_reason(), None);
        // The first one is news; other words are none.
        talk.reply(&format!("Attempt {n}."), &["{}"]);
        talk.results("not found");
    }
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("no_progress"));

    // Another call, and another result of the same one, are news.
    let mut talk = Talk::begin(settings(limits));
    for n in 0..6 {
        talk.reply("Writing.", &[&format!("{{\"a\":{n}}}")]);
        talk.results("ok");
        talk.reply("Waiting.", &["{}"]);
        talk.results(&format!("{n} of 6"));
        assert_eq!(talk.stop_reason(), None);
    }
}

#[test]
fn limit_gate_approved_grants_the_same_budget_again() {
    let mut talk = Talk::begin(asking(ContinuationSettings { max_iterations: 2, ..settings(Limits::default()) }));
    talk.reply(GO_ON, &[]);
    talk.reply("Two.", &["{}"]);
    talk.results("found");
    assert!(talk.call().is_none() && talk.stop_reason().is_none(), "it waits for the answer");
    talk.answer(AnswerDecision::Approve);
    assert!(talk.call().is_some());
    assert_eq!(talk.roles().last().map(String::as_str), Some("user"), "somebody says why it goes on");
    talk.reply(GO_ON.replace("More", "Third").as_str(), &[]);
    talk.reply(GO_ON.replace("More", "Fourth").as_str(), &[]);
    assert!(talk.call().is_none() && talk.stop_reason().is_none(), "asked again after as many steps");
    talk.answer(AnswerDecision::Deny);
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("max_iterations"));
    talk.send_message("one more", MessageMode::Steer);
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn clock_at_a_limit_gate_stands_until_the_gate_expires() {
    let base = ContinuationSettings { max_iterations: 1, timeout: 60, ..settings(Limits::default()) };
    let mut talk = Talk::begin(asking(base.clone()));
    talk.reply(GO_ON, &[]);
    talk.wait(Duration::from_hours(1));
    assert_eq!(talk.stop_reason(), None);
    talk.answer(AnswerDecision::Approve);
    assert!(talk.call().is_some(), "the hour does not count");
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));

    let mut talk = Talk::begin(asking(base));
    talk.reply(GO_ON, &[]);
    talk.wait(Duration::from_hours(24 * 6));
    assert_eq!(talk.stop_reason(), Some("max_iterations"), "the question expires");
}

#[test]
fn limit_gate_stopped_or_paused_follows_the_command() {
    let base = asking(ContinuationSettings { max_iterations: 1, ..settings(Limits::default()) });
    let mut talk = Talk::begin(base.clone());
    talk.reply(GO_ON, &[]);
    talk.stop();
    assert_eq!(talk.stop_reason(), Some("stopped"));

    let mut talk = Talk::begin(base);
    talk.reply(GO_ON, &[]);
    talk.pause();
    talk.answer(AnswerDecision::Approve);
    assert!(talk.call().is_none(), "nothing opens in a pause");
    talk.resume();
    assert!(talk.call().is_some());
}

#[test]
fn new_call_is_progress_whatever_its_result() {
    let mut talk = Talk::begin(settings(Limits { no_progress: 1, ..Limits::default() }));
    talk.reply("", &[r#"{"a":1}"#]);
    talk.results("ok");
    talk.reply("", &[r#"{"a":2}"#, r#"{"a":2}"#]);
    talk.results("ok");
    assert_eq!(talk.stop_reason(), None, "a new call, and the same again");
    talk.reply("", &[r#"{"a":2}"#]);
    talk.results("ok");
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("repetition"));
}

#[test]
fn session_at_step_limit_ends_with_a_last_message() {
    for (max_iterations, word) in [(1, Some("MAX_ITERATIONS_REACHED")), (2, None)] {
        let continuation = ContinuationSettings { max_iterations, ..settings(Limits::default()) };
        let mut talk = Talk::once(Cast { continuation, ..Cast::default() });
        talk.reply(GO_ON, &[]);
        talk.reply("Done.", &[]);
        let ended = talk.events.iter().find_map(|event| match event {
            Event::SessionEnded(ended) => Some(ended.status.clone()),
            _ => None,
        });
        assert_eq!(ended.unwrap().as_deref(), word);
    }
}

#[test]
fn repeated_call_with_another_result_is_progress() {
    let mut talk = Talk::begin(settings(Limits { repetition: 0, no_progress: 2, ..Limits::default() }));
    for n in 0..8 {
        talk.reply("", &["{}"]);
        talk.results(&format!("{n} of 8"));
    }
    assert_eq!(talk.stop_reason(), None);
    for _ in 0..2 {
        talk.reply("", &["{}"]);
        talk.results("7 of 8");
    }
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("no_progress"));
}
