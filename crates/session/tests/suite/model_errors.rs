//! `on_error`: what happens when a model call has failed for good.

use contract::command::AnswerDecision;
use contract::event::{Event, GateKind};
use contract::model::{FailureKind, Streaming, StreamingOverride};
use contract::settings::{ContinuationSettings, ModelRequests, ModelSettings, OnError};
use serde_json::{Map, json};

use crate::talk::{Cast, Talk};

fn model(id: &str) -> ModelSettings {
    ModelSettings { id: id.to_owned(), ..ModelSettings::default() }
}

fn cast(on_error: OnError) -> Cast {
    let continuation = ContinuationSettings { on_error, ..ContinuationSettings::default() };
    Cast { continuation, model: model("first"), fallbacks: vec![model("second"), model("third")], ..Cast::default() }
}

fn errors(talk: &Talk) -> usize {
    talk.events.iter().filter(|event| matches!(event, Event::Error(_))).count()
}

#[test]
fn model_failed_turn_ends_and_interactive_session_stays_usable() {
    let mut talk = Talk::cast(cast(OnError::End));
    talk.fail(FailureKind::Auth);
    assert_eq!((talk.stop_reason(), errors(&talk)), (Some("error"), 1));
    talk.send_message("again", contract::command::MessageMode::Steer);
    assert_eq!(talk.item().messages.len(), 3, "system, and both messages of the user");
    talk.reply("Done.", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn fallbacks_take_over_in_their_order_and_only_for_the_turn() {
    let mut talk = Talk::cast(cast(OnError::Fallback));
    let mut asked = Vec::new();
    for attempt in 1..=3 {
        asked.push((talk.item().model, talk.model_call().attempt));
        assert_eq!(talk.model_call().attempt, attempt);
        talk.fail(FailureKind::Quota);
    }
    assert_eq!(asked, [("first".into(), 1), ("second".into(), 2), ("third".into(), 3)]);
    assert_eq!((talk.stop_reason(), errors(&talk)), (Some("error"), 3), "nobody is left");
    talk.send_message("again", contract::command::MessageMode::Steer);
    assert_eq!(talk.item().model, "first");
}

#[test]
fn call_that_used_up_the_time_of_its_turn_ends_it_at_its_limit() {
    let begun = |on_error| {
        let continuation = ContinuationSettings { timeout: 5, ..cast(on_error).continuation };
        Talk::cast(Cast { continuation, ..cast(on_error) })
    };
    for on_error in [OnError::End, OnError::Ask, OnError::Fallback] {
        let mut talk = begun(on_error);
        // The gateway reports the end of the call before the timer of the turn fires.
        talk.now += 5_000;
        talk.fail(FailureKind::TimedOut);
        talk.last_word();
        assert_eq!((talk.stop_reason(), errors(&talk)), (Some("timeout"), 0));
    }
    let mut early = begun(OnError::End);
    early.now += 1_000;
    early.fail(FailureKind::TimedOut);
    assert_eq!(early.stop_reason(), None, "it is tried again");
}

#[test]
fn fallback_is_called_with_its_own_parameters() {
    let own = ModelRequests {
        parameters: Map::from_iter([("effort".to_owned(), json!("low"))]),
        streaming: StreamingOverride { first_byte: Some(120), ..StreamingOverride::default() },
        ..ModelRequests::default()
    };
    let second = ModelSettings { requests: Some(Box::new(own)), ..model("second") };
    let mut talk = Talk::cast(Cast { fallbacks: vec![second], ..cast(OnError::Fallback) });
    assert!(talk.item().parameters.is_empty());
    talk.fail(FailureKind::Quota);
    assert_eq!((talk.item().model.as_str(), talk.item().parameters.get("effort")), ("second", Some(&json!("low"))));
    assert_eq!(talk.item().streaming, Streaming { first_byte: 120, ..Streaming::default() });
}

#[test]
fn fallback_has_its_own_retries() {
    let mut talk = Talk::cast(cast(OnError::Fallback));
    for model in ["first", "second"] {
        for _ in 0..4 {
            assert_eq!(talk.item().model, model);
            talk.fail(FailureKind::Overloaded);
            talk.wait(std::time::Duration::from_secs(20));
        }
    }
    assert_eq!(talk.item().model, "third");
}

#[test]
fn retries_reset_after_each_success() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    for part in ["one ", "two ", "three"] {
        for _ in 0..3 {
            talk.fail(FailureKind::Overloaded);
            talk.wait(std::time::Duration::from_secs(20));
        }
        if part == "three" { talk.reply(part, &[]) } else { talk.reply_until_cut(part) }
    }
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn model_failed_person_approves_another_try() {
    let mut talk = Talk::cast(cast(OnError::Ask));
    talk.fail(FailureKind::Auth);
    assert!(talk.call().is_none());
    let asked = talk.events.iter().any(|event| {
        matches!(event, Event::GateOpened(gate) if gate.kind == GateKind::Error(FailureKind::Auth) && gate.gate.as_str() == "error-1-1")
    });
    assert!(asked);
    talk.answer(AnswerDecision::Approve);
    assert_eq!((talk.model_call().to_string(), talk.item().model.as_str()), ("m1-1.2".to_owned(), "first"));
    talk.fail(FailureKind::Auth);
    talk.answer(AnswerDecision::Deny);
    assert_eq!(talk.stop_reason(), Some("error"));
}

#[test]
fn model_failed_gate_expired_turn_ends() {
    let mut talk = Talk::cast(cast(OnError::Ask));
    talk.fail(FailureKind::Refused);
    talk.wait(std::time::Duration::from_hours(25));
    assert_eq!(talk.stop_reason(), Some("error"));
}

#[test]
fn failed_call_is_charged_and_backoff_doubles() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    let usage = contract::model::Usage { input: 70, output: 5, ..contract::model::Usage::default() };
    let mut pauses = Vec::new();
    for _ in 0..3 {
        talk.fail_that_cost(FailureKind::Overloaded, usage, 0.25);
        let retry_at = talk.events.iter().rev().find_map(|event| match event {
            Event::ModelCallFailed(failed) => failed.retry_at,
            _ => None,
        });
        pauses.push(retry_at.unwrap().as_millis() - talk.now);
        talk.wait(std::time::Duration::from_secs(10));
    }
    let spent = talk.session.summary().spent;
    assert_eq!((spent.usage.total(), spent.cost_usd), (225, 0.75));
    // Each is a second doubled, or down to the half of that, so that not all come at once.
    for (pause, longest) in pauses.into_iter().zip([1_000, 2_000, 4_000]) {
        assert!((longest / 2..=longest).contains(&pause), "{pause} ms of {longest}");
    }
}
