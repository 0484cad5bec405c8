//! Whole sessions as text: `stories/<name>.txt` holds every input with the events of its commit, what it asks of the
//! world and what a reload would repeat. A log is read by other versions, so a change of what is written should be
//! seen and meant; `UPDATE_STORIES=1` tells them anew.

use std::path::Path;
use std::time::Duration;

use contract::command::{AnswerDecision, MessageMode, Start};
use contract::model::{Content, FailureKind, Usage};
use contract::settings::{ContinuationSettings, LimitAction, Limits, ModelSettings, OnError, Prune};

use crate::talk::{Cast, Talk};

const GO_ON: &str = r#"Reading. {"continuation": {"status": "CONTINUE", "reason": "half of it is read", "progress": {"current_step": 1, "total_steps": 2, "completion_percentage": 50}}}"#;

/// Compares a story with the file that holds it.
fn check_story(name: &str, parts: &[&Talk]) {
    let story = |talk: &&Talk| {
        let summary = serde_json::to_string_pretty(&talk.session.summary()).unwrap();
        format!("{}\nin the index {summary}\n", talk.story())
    };
    let stories: Vec<String> = parts.iter().map(story).collect();
    let story = stories.join("\n----\n\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/suite/stories/{name}.txt"));
    if std::env::var_os("UPDATE_STORIES").is_some() {
        std::fs::write(&path, &story).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (now, then)) in story.lines().zip(known.lines()).enumerate() {
        assert_eq!(now, then, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(story.lines().count(), known.lines().count(), "{}", path.display());
}

fn usage() -> Usage {
    Usage { input: 100, output: 20, ..Usage::default() }
}

#[test]
fn story_of_a_session_alone() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply_that_cost(GO_ON, &[], usage(), 0.5);
    talk.reply_that_cost("", &[r#"{"path":"a"}"#, r#"{"path":"b"}"#], usage(), 0.25);
    talk.send_message("And c, please.", MessageMode::Steer);
    talk.send_message("Later d.", MessageMode::Queue);
    talk.pause();
    talk.results("found");
    talk.wait(Duration::from_mins(10));
    talk.resume();
    talk.fail(FailureKind::RateLimited);
    // Its place is the next step, not the next attempt.
    talk.send_message("Quickly.", MessageMode::Steer);
    talk.wait(Duration::from_secs(30));
    talk.reply("", &[]);
    talk.wait(Duration::from_secs(30));
    talk.reply("All is read.", &[]);
    talk.send_message("Stop that.", MessageMode::Interrupt);
    talk.wait(Duration::from_secs(30));
    talk.reply("Quick enough.", &[]);
    talk.reply("Done with d.", &[]);
    talk.send_message("continue", MessageMode::Steer);
    talk.reply("", &[r#"{"path":"d"}"#]);
    talk.results("found");
    talk.send_message("No, e.", MessageMode::Interrupt);
    talk.reply_to(contract::CallId::model(3, 2), "I was about to");
    talk.reply("", &[r#"{"path":"e"}"#]);
    talk.stop();
    talk.send_message("Anybody there?", MessageMode::Steer);
    check_story("alone", &[&talk]);
    let summary = talk.session.summary();
    assert_eq!((summary.turn, summary.tally.premature, summary.tally.tool_calls), (3, 1, 4));
}

#[test]
fn story_with_people() {
    let continuation = ContinuationSettings {
        max_iterations: 2,
        timeout: 600,
        limits: Limits { tool_calls: Some(3), ..Limits::default() },
        on_limit: LimitAction::Ask,
        on_error: OnError::Ask,
        ..ContinuationSettings::default()
    };
    let mut talk = Talk::begin(continuation);
    talk.reply("", &[r#"{"act":"write"}"#, r#"{"path":"a"}"#]);
    talk.results("found");
    talk.wait(Duration::from_mins(20));
    talk.answer(AnswerDecision::Approve);
    talk.results("written");
    talk.reply("", &[r#"{"act":"remove"}"#]);
    talk.answer(AnswerDecision::Deny);
    talk.wait(Duration::from_mins(1));
    // Both limits are reached, and each is asked about.
    talk.answer(AnswerDecision::Approve);
    talk.answer(AnswerDecision::Approve);
    talk.fail(FailureKind::Auth);
    talk.answer(AnswerDecision::Approve);
    talk.fail(FailureKind::Auth);
    talk.answer(AnswerDecision::Deny);
    talk.send_message("Once more.", MessageMode::Steer);
    talk.reply("", &[r#"{"act":"again"}"#]);
    talk.wait(Duration::from_hours(24));
    talk.reply("Nobody said yes.", &[]);
    talk.wait(Duration::from_hours(24 * 8));
    check_story("with-people", &[&talk]);
}

#[test]
fn story_with_a_child() {
    let shared = Limits { tokens: Some(10_000), cost_usd: Some(2.0), tool_calls: Some(9), ..Limits::default() };
    let mut parent =
        Talk::begin(ContinuationSettings { timeout: 600, limits: shared, ..ContinuationSettings::default() });
    parent.reply("", &[r#"{"agent":"p","task":"Plan it."}"#]);
    let call = parent.open()[0].clone();
    let word = parent.session.child_start(&call).unwrap();
    let mut child = Talk::not_started(word.to.session.as_str());
    child.now = parent.now;
    let start: Start = word.body.body;
    child.start("start", start, Ok(Cast { agent: "p", ..Cast::default() }));
    child.reply_that_cost("", &[r#"{"path":"a"}"#], usage(), 0.25);
    parent.pause();
    child.receive(parent.session.child_command(&call.call).unwrap());
    child.results("found");
    parent.wait(Duration::from_mins(3));
    child.wait(Duration::from_mins(3));
    parent.resume();
    child.receive(parent.session.child_command(&call.call).unwrap());
    child.reply_that_cost("The plan.", &[], usage(), 0.25);
    parent.receive_result(child.session.parent_report().unwrap());
    parent.reply("", &[r#"{"agent":"p","task":"Plan more."}"#]);
    parent.stop();
    check_story("with-a-child", &[&parent, &child]);
}

#[test]
fn story_with_clocks_and_money() {
    let continuation = ContinuationSettings {
        max_iterations: 9,
        timeout: 100,
        limits: Limits { tokens: Some(250), cost_usd: Some(1.0), repetition: 2, no_progress: 0, ..Limits::default() },
        on_limit: LimitAction::Ask,
        ..ContinuationSettings::default()
    };
    let mut talk = Talk::begin(continuation);
    talk.reply_that_cost("", &[r#"{"path":"a"}"#], usage(), 0.75);
    talk.wait(Duration::from_secs(40));
    talk.results("found");
    talk.reply_that_cost("", &[r#"{"path":"a"}"#], usage(), 0.5);
    talk.results("found");
    // Money and repetition.
    talk.answer(AnswerDecision::Approve);
    talk.answer(AnswerDecision::Approve);
    talk.reply_that_cost("", &[r#"{"path":"b"}"#], usage(), 0.5);
    talk.results("found");
    talk.answer(AnswerDecision::Approve);
    talk.reply_that_cost("", &[r#"{"path":"c"}"#], usage(), 0.1);
    // The timer is late: the result is there before it, and time is asked for like tokens.
    talk.now += 60_000;
    talk.results("found");
    talk.answer(AnswerDecision::Approve);
    // The next call hangs.
    talk.wait(Duration::from_mins(5));
    check_story("with-clocks-and-money", &[&talk]);
}

#[test]
fn story_by_patterns() {
    let mut talk = Talk::begin(ContinuationSettings {
        require_explicit_signal: false,
        continuation_patterns: vec!["next, I".to_owned()],
        termination_patterns: vec!["all done".to_owned()],
        ..ContinuationSettings::default()
    });
    talk.reply("Read it. Next, I will write.", &[]);
    talk.reply_until_cut("Writing");
    talk.reply("Written. All done.", &[]);
    talk.send_message("And the rest?", MessageMode::Steer);
    talk.reply(r#"{"response": "Hm.", "continuation": {"status": "MAYBE"}}"#, &[]);
    talk.send_message("Decide.", MessageMode::Steer);
    talk.reply(r#"{"response": "I did.", "continuation": {"status": "TERMINATE", "reason": "all is told"}}"#, &[]);
    check_story("by-patterns", &[&talk]);
}

#[test]
fn story_of_dropped_turns() {
    let limits = Limits { no_progress: 0, repetition: 0, ..Limits::default() };
    let continuation = ContinuationSettings { max_iterations: 20, limits, ..ContinuationSettings::default() };
    let model = ModelSettings {
        multi_tool: true,
        max_parallel_tools: 2,
        context_window: Some(3_000),
        max_output: Some(200),
        ..ModelSettings::default()
    };
    let mut talk = Talk::cast(Cast { continuation, model, ..Cast::default() });
    for step in 0..3 {
        talk.reply(&format!("First {step}: {}", "word ".repeat(100)), &[r#"{"path":"0"}"#]);
        talk.results("found");
    }
    talk.reply("That was the first turn.", &[]);
    talk.send_message("Look around.", MessageMode::Steer);
    for step in 0..7 {
        talk.reply(&format!("Step {step}. {}", "word ".repeat(150)), &[r#"{"path":"a"}"#, r#"{"path":"b"}"#]);
        // One large result, then one of just the length that is not worth cutting.
        talk.results(&"x".repeat(if step % 2 == 0 { 4_000 } else { 2_400 }));
    }
    talk.fail(FailureKind::ContextLength);
    talk.wait(Duration::from_secs(1));
    talk.reply("Done.", &[]);
    check_story("dropping-what-is-old", &[&talk]);
}

#[test]
fn story_in_a_small_window() {
    let limits = Limits { no_progress: 0, ..Limits::default() };
    let model = |id: &str| ModelSettings {
        id: id.to_owned(),
        multi_tool: true,
        max_parallel_tools: 1,
        context_window: Some(1_200),
        max_output: Some(100),
        ..ModelSettings::default()
    };
    let continuation = ContinuationSettings {
        max_iterations: 9,
        prune: Prune::Summarise,
        on_error: OnError::Fallback,
        limits,
        ..ContinuationSettings::default()
    };
    let mut talk =
        Talk::cast(Cast { continuation, model: model("first"), fallbacks: vec![model("second")], ..Cast::default() });
    for turn in 0..3 {
        talk.reply(&format!("Answer {turn}: {}", "word ".repeat(200)), &[]);
        talk.send_message(&format!("Question {turn}"), MessageMode::Steer);
    }
    talk.reply_that_cost("They talked.", &[], usage(), 0.25);
    talk.reply("", &[r#"{"path":"a"}"#, r#"{"path":"b"}"#]);
    talk.results(&"x".repeat(3_000));
    talk.results("found");
    talk.fail(FailureKind::ContextLength);
    talk.wait(Duration::from_secs(1));
    talk.fail(FailureKind::Quota);
    talk.wait(Duration::from_secs(1));
    talk.reply("Done.", &[]);
    check_story("in-a-small-window", &[&talk]);
}

#[test]
fn story_of_a_late_start() {
    let start = || Start { prompt: Some(Content::Text("Do it.".to_owned())), ..Start::default() };
    let mut talk = Talk::not_started("s");
    talk.stop();
    talk.start("start", start(), Ok(Cast::default()));
    talk.start("again", start(), Ok(Cast::default()));
    talk.reply("Done.", &[]);
    check_story("of-a-late-start", &[&talk]);
}
