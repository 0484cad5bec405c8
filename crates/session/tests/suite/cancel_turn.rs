//! `cancel_turn`: the running turn ends, and the session goes on.

use contract::command::{ControlReason, MessageMode, Verb};
use contract::commit::Phase;
use contract::event::{Event, TurnCompleted};
use contract::model::Usage;
use contract::settings::{ContinuationSettings, Limits};
use contract::tool::Outcome;
use session::{Body, SessionEffect};

use crate::talk::{Cast, Talk};

fn cancel(talk: &mut Talk) {
    let reason = ControlReason { reason: Some("wrong file".to_owned()) };
    talk.command(Verb::CancelTurn, Body::CancelTurn(reason));
}

fn completed(talk: &Talk) -> Vec<&TurnCompleted> {
    let turns = talk.events.iter().filter_map(|event| {
        let Event::TurnCompleted(completed) = event else { return None };
        Some(completed)
    });
    turns.collect()
}

#[test]
fn turn_cancelled_in_a_model_call_leaves_the_session_open_for_messages() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    assert_eq!((talk.session.phase(), talk.open()), (Phase::Idle, Vec::new()));
    assert!(talk.events.iter().any(|event| matches!(event, Event::CallCancelled(gone) if gone.call == call.call)));
    let turns = completed(&talk);
    assert_eq!(
        (turns.len(), turns[0].stop_reason.as_str(), turns[0].note.as_deref()),
        (1, "stopped", Some("wrong file"))
    );
    talk.send_message("Again.", MessageMode::Queue);
    assert_eq!(talk.model_call().call.as_str(), "m2-1");
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn turn_cancelled_while_tools_run_gives_each_call_its_one_result() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &[r#"{"path":"a"}"#]);
    let call = talk.open()[0].clone();
    cancel(&mut talk);
    assert_eq!(talk.result().0, Outcome::Cancelled);
    talk.result_of("late", call, Outcome::Ok, "found");
    assert_eq!(talk.session.phase(), Phase::Idle);
    talk.send_message("Again.", MessageMode::Queue);
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn message_that_waits_begins_the_next_turn() {
    let mut talk = Talk::once(Cast::default());
    talk.send_message("And that.", MessageMode::Queue);
    cancel(&mut talk);
    assert_eq!(talk.model_call().call.as_str(), "m2-1");
    talk.reply("Done.", &[]);
    assert_eq!(talk.session.phase(), Phase::Ended);
}

#[test]
fn session_that_takes_no_more_messages_ends_with_its_cancelled_turn() {
    let mut talk = Talk::once(Cast::default());
    cancel(&mut talk);
    assert_eq!((talk.session.phase(), talk.stop_reason()), (Phase::Ended, Some("stopped")));
}

#[test]
fn turn_cancelled_in_a_pause_ends_and_the_pause_stays() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.pause();
    cancel(&mut talk);
    assert_eq!((talk.session.phase(), completed(&talk).len()), (Phase::Paused, 1));
    talk.send_message("Again.", MessageMode::Queue);
    talk.resume();
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn cancellation_without_a_turn_is_refused() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("Done.", &[]);
    cancel(&mut talk);
    assert_eq!(talk.refused(), Some("not_now"));
}

#[test]
fn reply_of_a_cancelled_turn_is_charged_to_that_turn_and_to_no_limit_of_the_next_one() {
    let limits = Limits { tokens: Some(1_000), ..Limits::default() };
    let mut talk = Talk::begin(ContinuationSettings { limits, ..ContinuationSettings::default() });
    let call = talk.model_call();
    cancel(&mut talk);
    talk.send_message("Again.", MessageMode::Queue);
    talk.reply_late(&call, "Half a", Usage { input: 2_000, ..Usage::default() }, 0.5);
    assert!(talk.effects.contains(&SessionEffect::Index), "lists show what the session used");
    talk.reply_that_cost("Done.", &[], Usage { input: 10, ..Usage::default() }, 0.25);
    let turns: Vec<_> = completed(&talk)
        .iter()
        .map(|turn| (turn.turn, turn.stop_reason.as_str(), turn.spent.usage.input, turn.spent.cost_usd))
        .collect();
    assert_eq!(turns, [(1, "stopped", 0, 0.0), (2, "completed", 10, 0.25)]);
    let summary = talk.session.summary();
    assert_eq!((summary.spent.usage.input, summary.spent_own), (2_010, Some(summary.spent)));
}
