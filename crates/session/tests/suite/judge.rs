//! A reply of which neither a signal nor its text decides: the agent's judge is asked.

use std::time::Duration;

use contract::command::MessageMode;
use contract::event::{ContinuationProgress, Event};
use contract::limits::JUDGE_MAX;
use contract::model::{FailureKind, SignalForm, Usage};
use contract::settings::{ContinuationSettings, Limits};

use crate::talk::Talk;

/// Neither done nor to be continued, as far as its words go.
const TASTE: &str = "It is a matter of taste.";

fn settings() -> ContinuationSettings {
    ContinuationSettings {
        require_explicit_signal: false,
        judge: Some("small".to_owned()),
        max_iterations: 9,
        ..ContinuationSettings::default()
    }
}

fn asked_with(settings: ContinuationSettings) -> Talk {
    let mut talk = Talk::begin(settings);
    talk.reply(TASTE, &[]);
    talk
}

fn asked() -> Talk {
    let talk = asked_with(settings());
    assert_eq!(talk.model_call().call.as_str(), "j1-1", "the judge is asked about step 1 of turn 1");
    talk
}

fn decision(talk: &Talk) -> &ContinuationProgress {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::ContinuationProgress(progress) => Some(progress),
        _ => None,
    });
    found.unwrap()
}

fn judged(talk: &Talk) -> usize {
    talk.events.iter().filter(|event| matches!(event, Event::JudgeOpened(_))).count()
}

#[test]
fn judge_reads_the_question_and_the_reply_and_has_neither_tools_nor_parameters() {
    let item = asked().item();
    assert_eq!(item.model, "small");
    assert!(item.tools.is_empty() && !item.streaming.enabled);
    assert_eq!(item.parameters.keys().collect::<Vec<_>>(), ["max_tokens"], "none of the session's");
    assert_eq!((item.signal, item.messages.len()), (SignalForm::Off, 2));
    let sent = item.messages[1].get();
    assert!(sent.contains("Do it.") && sent.contains(TASTE), "{sent}");
}

#[test]
fn verdict_to_go_on_opens_the_next_step_and_is_in_the_decision() {
    let mut talk = asked();
    let usage = Usage { input: 40, output: 2, ..Usage::default() };
    talk.reply_that_cost("CONTINUE: it has not begun", &[], usage, 0.25);
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
    let made = decision(&talk);
    assert_eq!((made.source.to_string().as_str(), made.reason.as_str()), ("judge:small", "it has not begun"));
    assert_eq!((made.continues, made.iteration, made.excerpt.as_str()), (true, 1, TASTE));
    assert!((talk.session.summary().spent.cost_usd - 0.25).abs() < 1e-9, "the judge is paid for");
    assert!(talk.item().messages.last().unwrap().get().contains("Go on."));
    let shown = talk.item().messages;
    assert!(!shown.iter().any(|message| message.get().contains("it has not begun")), "the model reads no verdict");
}

#[test]
fn verdict_to_end_ends_the_turn_with_the_reply() {
    let mut talk = asked();
    talk.reply("TERMINATE: it answers", &[]);
    assert_eq!((talk.source().as_str(), talk.stop_reason()), ("judge:small", Some("completed")));
    let answer = talk.events.iter().rev().find_map(|event| match event {
        Event::TurnCompleted(completed) => Some(completed.final_response.as_str()),
        _ => None,
    });
    assert_eq!(answer, Some(TASTE));
}

#[test]
fn judge_without_verdict_ends_the_turn_with_the_reason() {
    type NoVerdict = (&'static str, fn(&mut Talk));
    let cases: [NoVerdict; 4] = [
        ("neither CONTINUE nor TERMINATE", |talk| talk.reply("Who knows?", &[])),
        ("bad luck", |talk| talk.fail_that_cost(FailureKind::Overloaded, Usage::default(), 0.5)),
        ("did not answer in time", |talk| talk.wait(JUDGE_MAX + Duration::from_secs(1))),
        ("given up by its gateway", |talk| talk.finish_cancelled(contract::CallId::judge(1, 1), "")),
    ];
    for (why, happens) in cases {
        let mut talk = asked();
        happens(&mut talk);
        assert_eq!((talk.source().as_str(), talk.stop_reason()), ("default", Some("completed")), "{why}");
        let reason = &decision(&talk).reason;
        assert!(reason.contains("the judge small did not decide") && reason.contains(why), "{reason}");
    }
}

#[test]
fn late_verdict_is_charged_and_ignored() {
    let mut talk = asked();
    talk.wait(JUDGE_MAX + Duration::from_secs(1));
    let before = talk.session.summary().spent.cost_usd;
    talk.reply_to(contract::CallId::judge(1, 1), "CONTINUE");
    assert_eq!((talk.stop_reason(), talk.refused()), (Some("completed"), Some("not_now")));
    assert!((talk.session.summary().spent.cost_usd - before).abs() < 1e-9);
}

#[test]
fn signal_pattern_or_words_that_decide_judge_is_not_asked() {
    for (reply, source) in [
        (r#"Well. {"continuation":{"status":"TERMINATE"}}"#, "explicit"),
        ("The task is completed.", "pattern"),
        ("Now I'll look at the second file.", "intent"),
        ("Which of the two do you want?", "intent"),
    ] {
        let talk = asked_with_reply(reply);
        assert_eq!((talk.source().split(':').next(), judged(&talk)), (Some(source), 0), "{reply}");
    }
}

fn asked_with_reply(reply: &str) -> Talk {
    let mut talk = Talk::begin(settings());
    talk.reply(reply, &[]);
    talk
}

#[test]
fn no_judge_where_none_is_named_or_a_signal_is_required_or_a_limit_is_reached() {
    for settings in [
        ContinuationSettings { judge: None, ..settings() },
        ContinuationSettings { judge: Some(String::new()), ..settings() },
        ContinuationSettings { require_explicit_signal: true, ..settings() },
        ContinuationSettings { enabled: false, ..settings() },
        ContinuationSettings { max_iterations: 1, ..settings() },
        ContinuationSettings { limits: Limits { tokens: Some(1_000), ..Limits::default() }, ..settings() },
    ] {
        let talk = asked_with(settings.clone());
        assert_eq!((judged(&talk), talk.stop_reason()), (0, Some("completed")), "{settings:?}");
    }
}

#[test]
fn limit_that_the_judge_itself_uses_up_ends_the_turn() {
    let limits = Limits { tokens: Some(9_000), ..Limits::default() };
    let mut talk = asked_with(ContinuationSettings { limits, ..settings() });
    let usage = Usage { input: 10_000, ..Usage::default() };
    talk.reply_that_cost("CONTINUE", &[], usage, 0.0);
    assert_eq!(talk.source(), "limit:token_limit");
    assert_eq!(talk.stop_reason(), Some("token_limit"), "a tenth above the limit is used up: no last word either");
}

#[test]
fn message_during_judging_decides() {
    for mode in [MessageMode::Steer, MessageMode::Interrupt] {
        let mut talk = asked();
        talk.send_message("Green, then.", mode);
        assert_eq!((talk.source().as_str(), talk.model_call().call.as_str()), ("message", "m1-2"), "{mode:?}");
        assert!(talk.item().messages.last().unwrap().get().contains("Green"), "{mode:?}");
    }
    let mut talk = asked();
    talk.send_message("And then?", MessageMode::Queue);
    assert_eq!(talk.model_call().call.as_str(), "j1-1", "one for the next turn does not concern it");
    talk.reply("TERMINATE", &[]);
    assert_eq!(talk.model_call().call.as_str(), "m2-1");
}

#[test]
fn reply_that_comes_in_a_pause_is_judged_after_it() {
    let mut talk = Talk::begin(settings());
    talk.pause();
    talk.reply(TASTE, &[]);
    assert_eq!((judged(&talk), talk.stop_reason()), (0, None), "no call opens in a pause");
    talk.resume();
    assert_eq!(talk.model_call().call.as_str(), "j1-1");
    talk.reply("CONTINUE", &[]);
    assert_eq!(talk.model_call().call.as_str(), "m1-2");

    let mut talk = Talk::begin(settings());
    talk.pause();
    talk.reply(TASTE, &[]);
    talk.send_message("Green, then.", MessageMode::Steer);
    talk.resume();
    assert_eq!((judged(&talk), talk.model_call().call.as_str()), (0, "m1-2"), "the user decided");

    let mut talk = Talk::begin(settings());
    talk.pause();
    talk.reply(TASTE, &[]);
    talk.stop();
    assert_eq!(judged(&talk), 0, "a stop ends it");
}

#[test]
fn judge_in_a_pause_is_not_given_up() {
    let mut talk = asked();
    talk.pause();
    talk.wait(Duration::from_hours(1));
    assert_eq!(talk.model_call().call.as_str(), "j1-1");
    talk.resume();
    talk.reply("TERMINATE", &[]);
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn stop_during_judging_cancels_the_judge() {
    let mut talk = asked();
    talk.stop();
    let cancelled = talk
        .events
        .iter()
        .any(|event| matches!(event, Event::CallCancelled(cancelled) if cancelled.call.as_str() == "j1-1"));
    assert!(cancelled && talk.open().is_empty());
}

#[test]
fn judge_later_than_the_turn_timeout_turn_is_completed() {
    let mut talk = asked_with(ContinuationSettings { timeout: 10, ..settings() });
    talk.wait(Duration::from_secs(11));
    assert_eq!((talk.source().as_str(), talk.stop_reason()), ("default", Some("completed")), "the answer was there");
}
