//! Commands of a user at any time, and late inputs.

use std::time::Duration;

use contract::command::{Configure, ControlReason, MessageMode, Start, Verb};
use contract::commit::Phase;
use contract::event::{Event, InputKind, InputRef, StopReason};
use contract::limits::{MESSAGE_BYTES_MAX, TOOL_TIMEOUT_MAX};
use contract::model::{Content, FailureKind};
use contract::settings::{ContinuationSettings, Limits, ModelSettings, Prune};
use contract::tool::Outcome;
use contract::{CallId, CommandId};

use session::Body;

use crate::talk::{Cast, Talk};

/// A session whose old turns are summed up when they outgrow a window of so many tokens.
fn summarising(window: u64) -> Talk {
    let model = ModelSettings { context_window: Some(window), max_output: Some(100), ..ModelSettings::default() };
    let limits = Limits { no_progress: 0, ..Limits::default() };
    let continuation = ContinuationSettings { prune: Prune::Summarise, limits, ..ContinuationSettings::default() };
    Talk::cast(Cast { continuation, model, ..Cast::default() })
}

#[test]
fn message_too_large_is_refused() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    for (bytes, refused) in
        [(MESSAGE_BYTES_MAX, None), (MESSAGE_BYTES_MAX + 1, Some("too_large")), (0, Some("empty_message"))]
    {
        talk.send_message(&"x".repeat(bytes), MessageMode::Queue);
        assert_eq!(talk.refused(), refused, "{bytes} bytes");
    }
}

#[test]
fn child_task_too_large_is_refused() {
    for (bytes, refused) in [(MESSAGE_BYTES_MAX, false), (MESSAGE_BYTES_MAX + 1, true)] {
        let mut talk = Talk::begin(ContinuationSettings::default());
        talk.reply("", &[&format!(r#"{{"agent":"p","task":"{}"}}"#, "x".repeat(bytes))]);
        let result = talk.events.iter().find_map(|event| match event {
            Event::ToolCallResult(result) => result.code.clone(),
            _ => None,
        });
        assert_eq!(result.as_ref().map(contract::ErrorCode::as_str), refused.then_some("too_large"));
    }
}

#[test]
fn clear_between_turns_removes_messages_else_is_refused() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.clear();
    assert_eq!((talk.refused(), talk.roles().len()), (Some("not_now"), 2));
    talk.reply("Done.", &[]);
    talk.clear();
    assert_eq!((talk.refused(), talk.roles()), (None, vec!["system".to_owned()]));
    talk.send_message("Again.", MessageMode::Steer);
    assert_eq!(talk.item().messages.len(), 2, "it begins anew");
}

#[test]
fn interrupt_cancels_the_call_and_answers_the_user() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.send_message("Stop, c instead.", MessageMode::Interrupt);
    assert_eq!(talk.open(), [], "nobody starts the call any more");
    talk.reply_of(1, "I was about to");
    assert_eq!(talk.roles(), ["system", "user", "assistant", "user"], "what was said stays");
    assert_eq!(talk.model_call().call.as_str(), "m1-2");

    // The gateway does not answer: the loop goes on without the partial text.
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.send_message("Stop.", MessageMode::Interrupt);
    talk.wait(Duration::from_secs(30));
    assert_eq!(
        (talk.roles(), talk.model_call().call.as_str()),
        (vec!["system".into(), "user".into(), "user".into()], "m1-2")
    );

    // Nothing runs while a failed call waits for its next attempt: the step ends there.
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.fail(FailureKind::RateLimited);
    talk.send_message("Never mind.", MessageMode::Interrupt);
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
}

#[test]
fn reply_to_a_closed_call_changes_nothing() {
    let late = |talk: &mut Talk, step: u32| {
        let (before, turn) = (talk.open(), talk.session.position().1);
        talk.reply_to(CallId::model(turn, step), "Done.");
        assert_eq!((talk.refused(), talk.open()), (Some("not_now"), before));
    };
    let mut talk = Talk::begin(ContinuationSettings::default());
    late(&mut talk, 9);
    talk.fail(FailureKind::RateLimited);
    late(&mut talk, 8);
    // What was paid for is taken all the same, although the call is about to be made again.
    talk.reply_to(CallId::model(1, 1), "Done.");
    assert_eq!(talk.stop_reason(), Some("completed"));
    late(&mut talk, 7);

    let mut talk = summarising(1_200);
    while !talk.model_call().call.as_str().starts_with('s') {
        talk.reply(&"word ".repeat(200), &[]);
        talk.send_message("More.", MessageMode::Steer);
    }
    late(&mut talk, 6);
}

#[test]
fn tool_calls_beyond_the_parallel_limit_wait() {
    let model = ModelSettings { multi_tool: true, max_parallel_tools: 2, ..ModelSettings::default() };
    let mut talk = Talk::cast(Cast { model, ..Cast::default() });
    talk.reply("", &[r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#]);
    assert_eq!(talk.open().len(), 2);
    // Whatever else happens meanwhile.
    talk.send_message("And that.", MessageMode::Steer);
    assert_eq!(talk.open().len(), 2);
    talk.results("found");
    assert_eq!(talk.session.open_calls(), ["c1-1-3.1"]);
}

#[test]
fn summary_too_long_is_not_requested_again_in_its_step() {
    let mut talk = summarising(1_200);
    while !talk.model_call().call.as_str().starts_with('s') {
        talk.reply(&"word ".repeat(200), &[]);
        talk.send_message("More.", MessageMode::Steer);
    }
    talk.reply(&"sum ".repeat(2_000), &[]);
    assert!(talk.call().is_some(), "{:?}", talk.open());
}

#[test]
fn child_call_in_a_pause_fires_no_timers() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 30_000, ..ContinuationSettings::default() });
    talk.reply("", &[r#"{"agent":"p","task":"Plan it."}"#]);
    // By then the timer is set for the child's deadline.
    talk.wait(Duration::from_mins(15));
    talk.pause();
    let inputs = talk.log.len();
    talk.wait(Duration::from_hours(24 * 3));
    assert!(talk.log.len() <= inputs + 1, "{} timers fired", talk.log.len() - inputs);
    assert_eq!(talk.open().len(), 1, "it is not given up: it stands still as well");
    // Its time goes on with the session's, and ends before the turn's.
    talk.resume();
    talk.wait(TOOL_TIMEOUT_MAX + Duration::from_mins(1));
    assert!(talk.call().is_some() && talk.stop_reason().is_none(), "the model reads that the child is late");
}

#[test]
fn retry_due_in_a_pause_waits_for_resume() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.fail(FailureKind::RateLimited);
    let inputs = talk.log.len();
    talk.pause();
    talk.wait(Duration::from_hours(1));
    assert!(talk.log.len() <= inputs + 2, "at most one timer more: {}", talk.log.len() - inputs);
    talk.resume();
    assert!(talk.call().is_some(), "its time had come long ago");
}

#[test]
fn session_tools_are_a_subset_of_its_agents() {
    let offered = |talk: &Talk| {
        let name = |tool: &contract::Json| {
            serde_json::from_str::<serde_json::Value>(tool.get()).unwrap()["name"].as_str().unwrap().to_owned()
        };
        talk.item().tools.iter().map(name).collect::<Vec<_>>()
    };
    let mut talk = Talk::not_started("s");
    let start = Start {
        interactive: true,
        prompt: Some(Content::Text("Do it.".to_owned())),
        tools: Some(vec!["look".to_owned()]),
        ..Start::default()
    };
    talk.start("start", start, Ok(Cast::default()));
    assert_eq!(offered(&talk), ["look", "continuation"]);
    // Another model changes nothing about that.
    let other = Configure { model: Some("other".to_owned()), ..Configure::default() };
    talk.configure(other, Some(Cast::default()));
    talk.reply(r#"{"continuation": {"status": "CONTINUE"}}"#, &[]);
    assert_eq!(offered(&talk), ["look", "continuation"]);
    talk.reply("Done.", &[]);
    talk.send_message("More.", MessageMode::Steer);
    assert_eq!(offered(&talk), ["look", "continuation"]);
}

#[test]
fn session_tool_that_the_agent_does_not_have_is_refused() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (allow, wanted, refused) in [
        (&["look", "act"][..], &["look"][..], None),
        (&["look"], &["look", "act"], Some("tools[1]: agent e has no tool \"act\"")),
        (&["look"], &["nope"], Some("tools[0]: agent e has no tool \"nope\"")),
        (&["*"], &["look"], None),
        (&["*"], &["nope"], Some("tools[0]: agent e has no tool \"nope\"")),
        // Its agent names it, and its server is away.
        (&["nope"], &["nope"], None),
    ] {
        let mut talk = Talk::not_started("s");
        let start = Start { interactive: true, tools: Some(names(wanted)), ..Start::default() };
        talk.start("start", start, Ok(Cast { tools: names(allow), ..Cast::default() }));
        assert_eq!(talk.refused(), refused.map(|_| "unknown_tool"), "{allow:?} {wanted:?}");
        let Some(expected) = refused else { continue };
        let why = format!("{:?}", talk.events.last()).replace('\\', "");
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn late_success_of_a_timed_out_call_replaces_its_result() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    // The second call waits for a person, so that the step goes on.
    talk.reply("", &[r#"{"path":"a"}"#, r#"{"act":"write"}"#]);
    let call = talk.open()[0].clone();
    talk.wait(Duration::from_mins(2));
    assert_eq!(talk.open(), [], "nobody answered in time");
    talk.result_of("late-error", call.clone(), Outcome::Error, "broken");
    assert_eq!(talk.refused(), Some("not_now"));
    talk.result_of("late-ok", call, Outcome::Ok, "found");
    assert_eq!(talk.refused(), None);
    let last = talk.events.iter().rev().find_map(|event| match event {
        Event::ToolCallResult(result) => Some((result.replaces, result.content.clone())),
        _ => None,
    });
    assert_eq!(last, Some((true, "found".to_owned())));
}

#[test]
fn waiting_message_begins_a_turn_before_the_session_ends() {
    let mut talk = Talk::once(Cast::default());
    talk.send_message("And that.", MessageMode::Queue);
    talk.reply("Done.", &[]);
    assert_eq!(talk.model_call().call.as_str(), "m2-1");
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.phase(), Phase::Ended);
}

#[test]
fn stale_timer_ends_nothing() {
    // The first call's watchdog is set, and fires while the second one runs.
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.results("found");
    talk.wait(Duration::from_secs(30));
    talk.reply("", &[r#"{"path":"b"}"#]);
    talk.wait(Duration::from_secs(50));
    assert_eq!(talk.session.open_calls(), ["c1-2-1.1"]);

    // The same while a summary is made.
    let mut talk = summarising(2_000);
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.results("found");
    talk.reply(&"word ".repeat(1_200), &[]);
    talk.wait(Duration::from_secs(30));
    talk.send_message("More.", MessageMode::Steer);
    let summary = talk.model_call();
    assert!(summary.call.as_str().starts_with('s'), "{summary}");
    talk.wait(Duration::from_secs(50));
    assert_eq!(talk.model_call(), summary);
}

#[test]
fn timer_of_a_lost_history_does_not_use_up_its_number() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let timer = |number: u64| {
        let id = CommandId::new(&number.to_string()).unwrap();
        InputRef { kind: InputKind::Timer, id }
    };
    let next = talk.session.timers() + 1;
    // A history that an older store has lost had set this timer.
    talk.fire_timer(next);
    assert_eq!(talk.refused(), Some("not_now"));
    assert!(talk.session.has_handled(&timer(next), None, None), "it is not decided on again");

    talk.reply("", &[r#"{"path":"a"}"#]);
    assert_eq!(talk.session.timers(), next, "the deadline of the tool call is earlier");
    assert!(!talk.session.has_handled(&timer(next), None, None), "this one has not fired");
    talk.fire_timer(next);
    assert_eq!(talk.session.timers(), next + 1);
    assert!(talk.session.has_handled(&timer(next), None, None));
}

#[test]
fn idle_session_stopped_reports_sender_and_reason() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.summary().stop_reason, Some(StopReason::Completed));
    let because = || ControlReason { reason: Some("wrong file".to_owned()) };
    talk.command(Verb::ClearHistory, Body::Clear(because()));
    talk.command(Verb::Stop, Body::Stop(because()));
    let reasons: Vec<Option<&str>> = talk
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ContextCleared(cleared) => Some(cleared.reason.as_deref()),
            Event::SessionEnded(ended) => Some(ended.note.as_deref()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [Some("wrong file"), Some("wrong file")]);
    assert_eq!(talk.session.summary().stop_reason, Some(StopReason::Stopped));
}
