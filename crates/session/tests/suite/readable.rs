//! A session as people read it.

use contract::command::{AnswerDecision, MessageMode};
use contract::event::StopReason;
use contract::settings::ContinuationSettings;
use contract::tool::Outcome;
use session::readable::{ReadableMessage, ReadableTurn, turns};

use crate::talk::Talk;

fn read(talk: &Talk) -> Vec<ReadableTurn> {
    turns(talk.log.iter().map(|(_, commit)| commit))
}

/// One line for each message.
fn lines(turn: &ReadableTurn) -> Vec<String> {
    let line = |sent_message: &ReadableMessage| match sent_message {
        ReadableMessage::User { text, .. } => format!("user: {text}"),
        ReadableMessage::Assistant { step, text, tool_calls, .. } => {
            let calls: Vec<String> = tool_calls
                .iter()
                .map(|call| format!("{} {:?} {:?}", call.tool, call.outcome, call.result.as_deref().unwrap_or("")))
                .collect();
            format!("{step}: {text} [{}]", calls.join(", "))
        }
    };
    turn.messages.iter().map(line).collect()
}

#[test]
fn readable_turns_omit_envelopes_signals_and_nudges() {
    let mut talk = Talk::begin(ContinuationSettings { max_iterations: 9, ..ContinuationSettings::default() });
    talk.reply(r#"{"response": "I look.", "continuation": {"status": "CONTINUE", "reason": "half"}}"#, &[]);
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.send_message("And b, please.", MessageMode::Steer);
    talk.send_message("Later c.", MessageMode::Queue);
    talk.results("found");
    talk.reply(r#"{"response": "Both are there.", "continuation": {"status": "TERMINATE"}}"#, &[]);
    let read = read(&talk);
    assert_eq!(
        lines(&read[0]),
        [
            "user: Do it.",
            "1: I look. []",
            "2:  [look Some(Ok) \"found\"]",
            "user: And b, please.",
            "3: Both are there. []",
        ]
    );
    assert_eq!(read[0].stop_reason.map(StopReason::as_str), Some("completed"));
    assert_eq!((lines(&read[1]), read[1].stop_reason), (vec!["user: Later c.".to_owned()], None));
}

#[test]
fn readable_call_names_its_approver_and_outcome() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("I write.", &[r#"{"act":"write"}"#]);
    let waits = read(&talk);
    let ReadableMessage::Assistant { tool_calls, .. } = &waits[0].messages[1] else { panic!("{waits:#?}") };
    assert_eq!((tool_calls[0].decision, tool_calls[0].outcome), (None, None));
    talk.answer(AnswerDecision::Deny);
    let denied = read(&talk);
    let ReadableMessage::Assistant { tool_calls, .. } = &denied[0].messages[1] else { panic!("{denied:#?}") };
    assert_eq!((tool_calls[0].decision, tool_calls[0].outcome), (Some(AnswerDecision::Deny), Some(Outcome::Denied)));
}

#[test]
fn long_result_has_its_beginning_and_its_end() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.reply("", &[r#"{"path":"a"}"#]);
    talk.results(&format!("first {} last", "x".repeat(100_000)));
    let read = read(&talk);
    let ReadableMessage::Assistant { tool_calls, .. } = &read[0].messages[1] else { panic!("{read:#?}") };
    let result = tool_calls[0].result.as_deref().unwrap();
    assert!(result.len() < 9_000 && result.starts_with("first ") && result.ends_with(" last"), "{}", result.len());
}
