//! Results that name the commit which opened their call: after a roll-back of the log, call ids are given out again.

use contract::command::{ControlReason, Verb};
use contract::event::{Event, InputIgnored};
use contract::model::{FailureKind, Usage};
use contract::settings::ContinuationSettings;
use contract::tool::Outcome;
use session::Body;

use crate::talk::Talk;

/// The commit that opened a call of the same id in the history that was lost.
const LOST: &str = "lost";
const COST: f64 = 0.5;

fn usage() -> Usage {
    Usage { input: 10, output: 5, ..Usage::default() }
}

/// The refusal of the last input, with the cost that it counted.
fn late(talk: &Talk) -> Option<(&str, Option<f64>)> {
    talk.log.last()?.1.events.iter().find_map(|event| match event {
        Event::InputIgnored(InputIgnored { refusal, usage, .. }) => {
            Some((refusal.message.as_str(), usage.map(|spent| spent.cost_usd)))
        }
        _ => None,
    })
}

#[track_caller]
fn assert_late(talk: &Talk, cost: Option<f64>) {
    assert_eq!(late(talk), Some(("another call had this id, in a history that the log has lost", cost)));
}

/// A session with a model call open, and one that waits for its second attempt.
fn model_calls() -> [Talk; 2] {
    let mut to_be_tried_again = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    to_be_tried_again.fail(FailureKind::Overloaded);
    assert_eq!(to_be_tried_again.open(), []);
    [Talk::begin(ContinuationSettings::default()), to_be_tried_again]
}

fn named(mut talk: Talk, opened_by: &str) -> Talk {
    opened_by.clone_into(&mut talk.opened_by);
    talk
}

#[test]
fn reply_of_another_history_is_late_and_its_cost_counts() {
    for talk in model_calls() {
        let mut talk = named(talk, LOST);
        talk.reply_of_run("-lost", "Done.", usage(), COST);
        assert_late(&talk, Some(COST));
        assert_eq!((talk.stop_reason(), talk.roles().len()), (None, 2), "its text is not taken");
        assert_eq!((talk.session.summary().spent.cost_usd, talk.session.summary().spent.usage), (COST, usage()));
        talk = named(talk, "0");
        talk.reply_of(1, "Done.");
        assert_eq!((talk.stop_reason(), talk.roles().len()), (Some("completed"), 3));
    }
}

#[test]
fn reply_that_names_no_commit_is_believed() {
    for mut talk in model_calls() {
        talk.reply_of(1, "Done.");
        assert_eq!(talk.stop_reason(), Some("completed"));
    }
}

#[test]
fn failure_of_another_history_is_late_and_the_attempt_still_runs() {
    let mut talk = named(Talk::begin(ContinuationSettings::default()), LOST);
    let call = talk.model_call();
    talk.fail_that_cost(FailureKind::Auth, usage(), COST);
    assert_late(&talk, Some(COST));
    assert_eq!(talk.model_call(), call);
}

#[test]
fn every_attempt_of_a_model_call_names_the_commit_that_opened_the_first_one() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    let first = talk.item().opened_by;
    talk.fail(FailureKind::Overloaded);
    talk.wait(std::time::Duration::from_mins(1));
    let second = talk.item();
    assert_eq!((first.as_str(), second.meta.attempt, second.opened_by.as_str()), ("0", 2, "0"));
    talk.reply("", &["{}"]);
    talk.results("found");
    assert_eq!(talk.item().opened_by, (talk.session.next_slot() - 1).to_string(), "the next step is another call");
}

#[test]
fn verdict_of_another_history_is_late_and_its_cost_counts() {
    let judge = Some("small".to_owned());
    let settings = ContinuationSettings { require_explicit_signal: false, judge, ..ContinuationSettings::default() };
    let mut talk = Talk::begin(settings);
    talk.reply("It is a matter of taste.", &[]);
    let item = talk.item();
    assert_eq!((item.meta.call.as_str(), item.opened_by.as_str()), ("j1-1", "1"));
    // The call of the step was opened by another commit.
    for lost in [LOST, "0"] {
        talk = named(talk, lost);
        let call = talk.model_call();
        talk.finish_run(&call, lost, "TERMINATE: it answers", &[], usage(), COST);
        assert_late(&talk, Some(COST));
        assert_eq!(talk.model_call().call.as_str(), "j1-1", "the judge is still asked");
    }
    talk = named(talk, "1");
    talk.reply("TERMINATE: it answers", &[]);
    assert_eq!(talk.source(), "judge:small");
}

#[test]
fn tool_result_of_another_history_is_late_and_one_of_the_same_is_taken() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &[r#"{"a":1}"#, r#"{"a":2}"#]);
    let [first, second] = talk.open().try_into().unwrap();
    let opened_by = talk.session.tool_item(&first).unwrap().opened_by;
    talk = named(talk, LOST);
    talk.result_of("lost", first.clone(), Outcome::Ok, "of other arguments");
    assert_late(&talk, None);
    assert_eq!(talk.open(), [first.clone(), second.clone()]);
    talk = named(talk, &opened_by);
    talk.result_of("same", first, Outcome::Ok, "found");
    assert_eq!((talk.open(), talk.result().1.as_str()), (vec![second.clone()], "found"));
    talk = named(talk, "");
    talk.result_of("older", second, Outcome::Ok, "found, too");
    assert_eq!(talk.result().1, "found, too");
}

#[test]
fn late_truth_about_a_call_of_another_history_is_not_taken() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    talk.reply("", &[r#"{"a":1}"#, r#"{"a":2}"#]);
    let [first, second] = talk.open().try_into().unwrap();
    talk.result_of("gave-up", first.clone(), Outcome::Timeout, "nobody answered");
    talk = named(talk, LOST);
    talk.result_of("lost", first, Outcome::Ok, "of other arguments");
    assert_late(&talk, None);
    assert_eq!((talk.open(), talk.result().0), (vec![second], Outcome::Timeout));
}

#[test]
fn extension_of_another_history_is_refused() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    talk.reply("", &["{}"]);
    let call = talk.open().remove(0);
    let item = talk.session.tool_item(&call).unwrap();
    let later = item.meta.deadline.after(std::time::Duration::from_mins(1));
    for (opened_by, is_taken) in [(LOST, false), (item.opened_by.as_str(), true)] {
        talk = named(talk, opened_by);
        talk.extend(&call, later);
        assert_eq!(talk.session.tool_item(&call).unwrap().meta.deadline == later, is_taken, "{opened_by}");
    }
}

#[test]
fn text_of_a_called_off_reply_of_another_history_is_not_kept() {
    for (opened_by, kept) in [(LOST, 0), ("0", 1), ("", 1)] {
        let mut talk = Talk::begin(ContinuationSettings::default());
        let call = talk.model_call();
        talk.command(Verb::CancelTurn, Body::CancelTurn(ControlReason::default()));
        talk = named(talk, opened_by);
        talk.reply_late(&call, "The port is", usage(), COST);
        let texts = talk.events.iter().filter(|event| matches!(event, Event::AiCutReceived(_))).count();
        assert_eq!((texts, talk.session.summary().spent.cost_usd), (kept, COST), "{opened_by}");
    }
}

/// After a roll-back, what was stored since comes again: the result that opens a call, and that call's old reply.
#[test]
fn reply_of_a_call_that_the_same_commit_opens_is_of_another_history() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &["{}"]);
    let call = talk.open().remove(0);
    talk.opened_by = talk.session.tool_item(&call).unwrap().opened_by;
    talk.together(|talk| {
        talk.result_of("same", call, Outcome::Ok, "found");
        talk.reply_to(contract::CallId::model(1, 2), "Done.");
    });
    assert_late(&talk, Some(0.0));
    assert_eq!((talk.model_call().call.as_str(), talk.stop_reason()), ("m1-2", None));
}
