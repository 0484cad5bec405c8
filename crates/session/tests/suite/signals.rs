//! Signals of a model besides CONTINUE and TERMINATE: its confidence and its progress.

use contract::event::{ContinuationProgress, Event, StopReason};
use contract::settings::{ContinuationSettings, ModelSettings};
use contract::tool::Outcome;
use serde_json::json;

use crate::talk::{Cast, Talk};

fn sure_enough() -> ContinuationSettings {
    ContinuationSettings { confidence_min: Some(0.7), max_iterations: 9, ..ContinuationSettings::default() }
}

fn signal(status: &str, confidence: f64) -> String {
    json!({"response": "Well.", "continuation": {"status": status, "confidence": confidence}}).to_string()
}

fn decision(talk: &Talk) -> &ContinuationProgress {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::ContinuationProgress(progress) => Some(progress),
        _ => None,
    });
    found.unwrap()
}

/// The last message that the open model call begins with.
fn asked(talk: &Talk) -> String {
    talk.item().messages.last().unwrap().get().to_owned()
}

#[test]
fn terminate_less_sure_than_wanted_takes_one_more_step_and_no_second_one() {
    let mut talk = Talk::begin(sure_enough());
    talk.reply(&signal("TERMINATE", 0.4), &[]);
    assert_eq!((talk.source().as_str(), decision(&talk).confidence), ("confidence", Some(0.4)));
    assert!(asked(&talk).contains("40 % sure; 70 % is wanted"), "{}", asked(&talk));
    talk.reply(&signal("TERMINATE", 0.4), &[]);
    assert_eq!((talk.source().as_str(), talk.stop_reason()), ("explicit", Some(StopReason::Completed.as_str())));
}

#[test]
fn terminate_unsure_again_after_work_ends_the_turn() {
    let mut talk = Talk::begin(sure_enough());
    talk.reply(&signal("TERMINATE", 0.4), &[]);
    talk.reply("", &["{}"]);
    talk.results("found");
    talk.reply(&signal("TERMINATE", 0.5), &[]);
    assert_eq!((talk.source().as_str(), talk.stop_reason()), ("explicit", Some(StopReason::Completed.as_str())));
}

#[test]
fn terminate_sure_enough_or_without_confidence_ends_the_turn() {
    for reply in [signal("TERMINATE", 0.7), json!({"continuation": {"status": "TERMINATE"}}).to_string()] {
        let mut talk = Talk::begin(sure_enough());
        talk.reply(&format!("Well. {reply}"), &[]);
        assert_eq!(talk.stop_reason(), Some(StopReason::Completed.as_str()), "{reply}");
    }
}

#[test]
fn terminate_unsure_at_the_last_step_ends_the_turn() {
    let mut talk = Talk::begin(ContinuationSettings { max_iterations: 1, ..sure_enough() });
    talk.reply(&signal("TERMINATE", 0.1), &[]);
    assert_eq!((talk.source().as_str(), talk.stop_reason()), ("explicit", Some(StopReason::Completed.as_str())));
}

#[test]
fn continue_below_confidence_model_is_nudged_to_find_out_or_ask() {
    let mut talk = Talk::begin(sure_enough());
    talk.reply(&signal("CONTINUE", 0.2), &[]);
    assert_eq!(talk.source(), "explicit");
    assert!(asked(&talk).contains("or ask the user"), "{}", asked(&talk));
    let mut talk = Talk::begin(sure_enough());
    talk.reply(&signal("CONTINUE", 0.9), &[]);
    assert!(!asked(&talk).contains("sure"), "{}", asked(&talk));
}

#[test]
fn progress_reported_once_is_kept_across_tool_steps() {
    let mut talk = Talk::begin(ContinuationSettings { max_iterations: 9, ..ContinuationSettings::default() });
    let envelope = json!({"response": "Half.", "continuation": {"status": "CONTINUE",
        "progress": {"current_step": 2, "total_steps": 4, "steps_completed": ["a"]}}});
    talk.reply(&envelope.to_string(), &[]);
    let first = decision(&talk).progress.clone();
    assert_eq!((first.total_steps, first.completion_percentage), (Some(4), Some(25.0)));
    talk.reply("", &["{}"]);
    assert_eq!((talk.source().as_str(), &decision(&talk).progress), ("tool_calls", &first));
    talk.results("found");
    let later =
        json!({"response": "", "continuation": {"status": "CONTINUE", "progress": {"completion_percentage": 75}}});
    talk.reply(&format!("More. {later}"), &[]);
    assert_eq!(decision(&talk).progress.completion_percentage, Some(75.0));
    assert!(serde_json::to_string(&decision(&talk).progress).unwrap().contains(r#""completion_percentage":75,"#));
}

#[test]
fn calls_in_the_envelope_run_or_have_an_error_that_the_model_reads_in_every_form() {
    let envelope = json!({"response": "I look.", "continuation": {"status": "CONTINUE"},
        "tool_calls": [{"function": {"name": "look", "arguments": "{\"path\":\"a\"}"}}]})
    .to_string();
    // The forms envelope, call and text.
    for (structured_output, multi_tool) in [(true, true), (false, true), (false, false)] {
        let model =
            || ModelSettings { structured_output, multi_tool, max_parallel_tools: 4, ..ModelSettings::default() };
        let mut talk = Talk::cast(Cast { model: model(), ..Cast::default() });
        talk.reply(&envelope, &[]);
        let open: Vec<String> = talk.open().iter().map(ToString::to_string).collect();
        assert_eq!(open, ["c1-1-1.1"], "{structured_output} {multi_tool}");
        talk.results("found");
        assert!(talk.call().is_some(), "its next step begins");

        let mut talk = Talk::cast(Cast { model: model(), ..Cast::default() });
        talk.reply(&envelope, &[r#"{"path":"b"}"#]);
        let open: Vec<String> = talk.open().iter().map(ToString::to_string).collect();
        assert_eq!(open, ["c1-1-1.1"], "the native call runs: {structured_output} {multi_tool}");
        let (outcome, content) = talk.result();
        assert_eq!(outcome, Outcome::Error);
        assert!(content.contains("not run"), "{content}");
        talk.results("found");
        let read: Vec<String> = talk.item().messages.iter().map(|message| message.get().to_owned()).collect();
        assert!(read.iter().any(|message| message.contains("c1-1-2") && message.contains("not run")), "{read:?}");
    }
}
