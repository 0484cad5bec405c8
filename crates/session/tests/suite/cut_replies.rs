//! Cancelled replies: the text received before the cancellation stays in the log, and the model reads it.

use contract::command::{ControlReason, MessageMode, Verb};
use contract::commit::Phase;
use contract::event::{AiCutReceived, Event};
use contract::limits::{CUT_REPLIES_MAX, CUT_REPLY_BYTES_MAX};
use contract::model::{FailureKind, Usage};
use contract::settings::{ContinuationSettings, LimitAction};
use session::Body;
use session::readable::{ReadableMessage, turns};

use crate::talk::Talk;

fn cancel(talk: &mut Talk) {
    talk.command(Verb::CancelTurn, Body::CancelTurn(ControlReason::default()));
}

fn cut(talk: &Talk) -> Vec<&AiCutReceived> {
    let found = talk.events.iter().filter_map(|event| match event {
        Event::AiCutReceived(cut) => Some(cut),
        _ => None,
    });
    found.collect()
}

/// The texts that a reader of the log finds, and whether each was cut off.
fn replies(talk: &Talk) -> Vec<(u32, String, bool)> {
    let commits: Vec<_> = talk.log.iter().map(|(_, commit)| commit.clone()).collect();
    let mut found = Vec::new();
    for turn in turns(&commits) {
        for message in turn.messages {
            if let ReadableMessage::Assistant { text, cut, .. } = message {
                found.push((turn.turn, text, cut));
            }
        }
    }
    found
}

fn usage() -> Usage {
    Usage { input: 10, output: 5, ..Usage::default() }
}

#[test]
fn text_that_came_before_a_cancellation_is_read_by_the_model_in_the_next_turn() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    talk.reply_late(&call, "The port is", usage(), 0.5);
    let kept = cut(&talk);
    assert_eq!((kept.len(), kept[0].text.as_str(), kept[0].turn, kept[0].step), (1, "The port is", 1, 1));
    assert!((kept[0].spent.cost_usd - 0.5).abs() < 1e-9, "viewers learn the cost, too");
    talk.send_message("Go on.", MessageMode::Queue);
    let sent: Vec<String> = talk.item().messages.iter().map(|message| message.get().to_owned()).collect();
    assert_eq!(talk.roles(), ["system", "user", "assistant", "user"]);
    assert!(
        sent[2].contains("The port is\\n[The reply was cut off here.]") && !sent[2].contains("tool_calls"),
        "{sent:?}"
    );
    talk.reply("8080.", &[]);
    assert_eq!(replies(&talk), [(1, "The port is".to_owned(), true), (2, "8080.".to_owned(), false)]);
}

#[test]
fn text_that_comes_after_the_next_turn_began_stands_in_its_own_turn() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    talk.send_message("And that.", MessageMode::Queue);
    cancel(&mut talk);
    assert_eq!(talk.model_call().call.as_str(), "m2-1", "the next turn runs");
    talk.reply_late(&call, "The port is", usage(), 0.0);
    assert_eq!(talk.roles(), ["system", "user", "assistant", "user"]);
    talk.reply("", &["{}"]);
    talk.results("found");
    assert_eq!(talk.roles(), ["system", "user", "assistant", "user", "assistant", "tool"]);
    assert_eq!(replies(&talk)[0], (1, "The port is".to_owned(), true));
}

#[test]
fn text_that_comes_after_a_stop_is_kept_in_the_ended_session() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    talk.stop();
    assert_eq!(talk.session.phase(), Phase::Ended);
    talk.reply_late(&call, "The port is", usage(), 0.5);
    assert_eq!(replies(&talk), [(1, "The port is".to_owned(), true)]);
    let summary = talk.session.summary();
    assert_eq!((summary.phase, summary.spent.cost_usd, summary.spent_own), (Phase::Ended, 0.5, Some(summary.spent)));
    talk.reply_of_run("-b", "The port is 8080", usage(), 0.25);
    assert_eq!((cut(&talk).len(), talk.refused()), (1, Some("session_ended")), "one reply of a call is kept");
}

#[test]
fn text_of_a_call_that_failed_for_good_is_kept_and_of_one_that_is_made_again_is_not() {
    let mut talk = Talk::begin(ContinuationSettings { retries: 1, ..ContinuationSettings::default() });
    talk.text_so_far = "The first".to_owned();
    talk.fail(FailureKind::Truncated);
    assert_eq!(cut(&talk).len(), 0, "another attempt replaces it");
    talk.wait(std::time::Duration::from_secs(10));
    talk.text_so_far = "The second".to_owned();
    talk.fail(FailureKind::Truncated);
    assert_eq!((cut(&talk)[0].text.as_str(), talk.stop_reason()), ("The second", Some("error")));
}

#[test]
fn text_of_a_call_that_the_loop_gave_up_is_kept_when_it_comes() {
    let mut talk = Talk::begin(ContinuationSettings {
        on_limit: LimitAction::End,
        timeout: 60,
        ..ContinuationSettings::default()
    });
    let call = talk.model_call();
    talk.wait(std::time::Duration::from_secs(61));
    assert_eq!(talk.stop_reason(), Some("timeout"));
    talk.reply_late(&call, "The port is", usage(), 0.0);
    assert_eq!(cut(&talk)[0].text, "The port is");
}

#[test]
fn text_of_a_call_that_was_given_up_is_not_kept_while_another_attempt_may_replace_it() {
    let settings = ContinuationSettings { timeout: 86_400, retries: 1, ..ContinuationSettings::default() };
    let mut talk = Talk::begin(settings);
    let call = talk.model_call();
    let deadline = talk.events.iter().find_map(|event| match event {
        Event::ModelCallOpened(opened) => Some(opened.deadline.as_millis()),
        _ => None,
    });
    talk.wait(std::time::Duration::from_millis(deadline.unwrap() - talk.now));
    assert_eq!(talk.open(), [], "the next attempt waits");
    talk.reply_late(&call, "The first", usage(), 0.5);
    assert_eq!((cut(&talk).len(), talk.session.summary().spent.cost_usd), (0, 0.5));
    talk.wait(std::time::Duration::from_mins(1));
    talk.reply("The second", &[]);
    assert_eq!(replies(&talk), [(1, "The second".to_owned(), false)]);
}

#[test]
fn text_is_kept_up_to_a_limit_and_nothing_is_kept_of_calls() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    talk.reply_late(&call, &"ä".repeat(CUT_REPLY_BYTES_MAX), usage(), 0.0);
    assert_eq!(cut(&talk)[0].text.len(), CUT_REPLY_BYTES_MAX);

    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    talk.reply_late(&call, "<tool_call>\n{\"name\": \"look\", \"arg", usage(), 0.5);
    assert_eq!((cut(&talk)[0].text.as_str(), cut(&talk)[0].spent.cost_usd), ("", 0.5));
    talk.send_message("Go on.", MessageMode::Queue);
    assert_eq!(talk.roles(), ["system", "user", "user"]);

    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    talk.reply_late(&call, "{\"name\": \"look\", \"arguments\": {}}", usage(), 0.5);
    assert_eq!(cut(&talk)[0].text, "", "a call without a mark");
}

#[test]
fn text_stays_out_of_a_transcript_that_was_cleared() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call();
    cancel(&mut talk);
    talk.command(Verb::ClearHistory, Body::Clear(ControlReason::default()));
    talk.reply_late(&call, "The port is", usage(), 0.0);
    talk.send_message("Go on.", MessageMode::Queue);
    assert_eq!(talk.roles(), ["system", "user"]);
}

#[test]
fn replies_that_never_come_are_awaited_up_to_a_limit() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let first = talk.model_call();
    cancel(&mut talk);
    for _ in 0..CUT_REPLIES_MAX {
        talk.send_message("Again.", MessageMode::Queue);
        cancel(&mut talk);
    }
    talk.reply_late(&first, "The port is", usage(), 0.0);
    assert_eq!((cut(&talk).len(), talk.refused()), (0, Some("not_now")));
}
