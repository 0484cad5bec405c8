//! Effect of a pause on open calls: the session cannot know whether they began.

use std::time::Duration;

use contract::Timestamp;
use contract::event::Event;
use contract::limits::{MODEL_CALL_MAX, PAUSE_SEEN_MAX, TOOL_CALL_GRACE, TOOL_TIMEOUT_DEFAULT};
use contract::settings::ContinuationSettings;
use contract::tool::Outcome;

use crate::talk::Talk;

fn settings() -> ContinuationSettings {
    ContinuationSettings { timeout: 3_600, ..ContinuationSettings::default() }
}

fn results(talk: &Talk) -> usize {
    talk.events.iter().filter(|event| matches!(event, Event::ToolCallResult(_))).count()
}

#[test]
fn tool_call_in_a_pause_is_not_given_up_and_has_its_whole_time_after_it() {
    // Pure, and one that takes effect and that a person approved.
    for arguments in [r#"{"path":"a"}"#, r#"{"act":"write"}"#] {
        let mut talk = Talk::begin(settings());
        talk.reply("", &[arguments]);
        if arguments.contains("act") {
            talk.answer(contract::command::AnswerDecision::Approve);
        }
        talk.wait(Duration::from_secs(1));
        talk.pause();
        talk.wait(Duration::from_hours(24));
        assert_eq!((results(&talk), talk.open().len()), (0, 1), "{arguments}: nobody knows whether it began");
        talk.resume();
        // A worker sees that the pause is over this late at most, and then it may take its time.
        talk.wait(PAUSE_SEEN_MAX + TOOL_TIMEOUT_DEFAULT);
        assert_eq!((results(&talk), talk.open().len()), (0, 1), "{arguments}");
        talk.wait(TOOL_CALL_GRACE + Duration::from_secs(1));
        assert_eq!((results(&talk), talk.open().len()), (1, 1), "{arguments}: an executor that died is noticed");
        let outcome = if arguments.contains("act") { Outcome::Unknown } else { Outcome::Timeout };
        assert_eq!(talk.result().0, outcome);
    }
}

#[test]
fn tool_call_that_ran_when_the_pause_came_answers_in_it() {
    let mut talk = Talk::begin(settings());
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.pause();
    talk.wait(Duration::from_hours(1));
    talk.results("found");
    assert_eq!(talk.result(), (Outcome::Ok, "found".to_owned()));
    talk.resume();
    assert_eq!(talk.model_call().call.as_str(), "m1-2");
}

#[test]
fn tool_call_after_a_pause_may_take_no_longer_than_its_turn() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 70, ..settings() });
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.wait(Duration::from_mins(1));
    talk.pause();
    talk.wait(Duration::from_hours(1));
    talk.resume();
    talk.wait(Duration::from_secs(11));
    talk.last_word();
    assert_eq!(talk.stop_reason(), Some("timeout"));
}

#[test]
fn model_call_in_a_pause_is_not_given_up() {
    let mut talk = Talk::begin(settings());
    talk.pause();
    talk.wait(Duration::from_hours(24));
    talk.resume();
    assert_eq!(talk.model_call().to_string(), "m1-1.1");
    assert!(talk.item().meta.deadline >= Timestamp::from_millis(talk.now), "it has time");
    talk.wait(MODEL_CALL_MAX + Duration::from_secs(30));
    assert_eq!(talk.model_call().to_string(), "m1-1.2", "a gateway that died is noticed");
}

#[test]
fn pause_too_long_ends_the_session() {
    let mut talk = Talk::begin(settings());
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.pause();
    talk.wait(contract::limits::IDLE_MAX + Duration::from_mins(1));
    assert_eq!((talk.stop_reason(), talk.result().0), (Some("stopped"), Outcome::Cancelled));
}
