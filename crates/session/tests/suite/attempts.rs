//! Attempts of a model call: what comes late of an older one.

use std::time::Duration;

use contract::event::Event;
use contract::limits::COMMAND_AGE_MAX;
use contract::model::Usage;
use contract::settings::ContinuationSettings;

use crate::talk::Talk;

/// A session whose first attempt hung and whose second one runs.
fn second_attempt() -> Talk {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    while talk.call().is_none_or(|call| call.attempt == 1) {
        talk.wait(Duration::from_mins(1));
    }
    talk
}

fn opened(talk: &Talk) -> Vec<u32> {
    let attempt = |event: &Event| match event {
        Event::ModelCallOpened(opened) => Some(opened.attempt),
        _ => None,
    };
    talk.events.iter().filter_map(attempt).collect()
}

#[test]
fn empty_reply_of_an_older_attempt_is_ignored() {
    let mut talk = second_attempt();
    talk.reply_of(1, "");
    assert_eq!(opened(&talk), [1, 2], "the second attempt still runs");
    talk.reply_of(2, "Done.");
    assert_eq!((opened(&talk), talk.stop_reason()), (vec![1, 2], Some("completed")));
}

#[test]
fn complete_reply_of_an_older_attempt_is_accepted() {
    let mut talk = second_attempt();
    talk.reply_of(1, "Done.");
    assert_eq!((opened(&talk), talk.stop_reason()), (vec![1, 2], Some("completed")));
    talk.reply_of(2, "Done twice.");
    let replies = talk.events.iter().filter(|event| matches!(event, Event::AiFullReceived(_))).count();
    assert_eq!(replies, 1);
}

#[test]
fn second_run_of_an_attempt_adds_its_cost_and_nothing_else() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let usage = Usage { input: 10, output: 5, cached: 0, reasoning: 0 };
    talk.reply_of_run("-a", "Done.", usage, 0.5);
    talk.reply_of_run("-b", "Done twice.", usage, 0.25);
    let replies = talk.events.iter().filter(|event| matches!(event, Event::AiFullReceived(_))).count();
    let late: Vec<f64> = talk
        .events
        .iter()
        .filter_map(|event| match event {
            Event::InputIgnored(ignored) => ignored.usage.map(|spent| spent.cost_usd),
            _ => None,
        })
        .collect();
    assert_eq!((replies, late), (1, vec![0.25]));
}

#[test]
fn empty_replies_are_retried_up_to_a_limit() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    let mut replies = 0;
    while talk.stop_reason().is_none() {
        talk.reply("", &[]);
        talk.wait(Duration::from_secs(20));
        replies += 1;
    }
    assert_eq!((replies, talk.stop_reason()), (3, Some("error")));
}

#[test]
fn tool_call_left_in_text_is_retried_then_reported() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = "{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
    for text in [call, &format!("<tool_call>\n{call}"), call] {
        assert_eq!(talk.stop_reason(), None);
        talk.reply(text, &[]);
    }
    assert_eq!(talk.stop_reason(), Some("error"));
    let message = talk.events.iter().find_map(|event| match event {
        Event::Error(error) => Some(error.message.clone()),
        _ => None,
    });
    assert!(
        message.as_ref().is_some_and(|message| message.contains("leaves its tool calls in the text")),
        "{message:?}"
    );
}

#[test]
fn reply_of_reasoning_alone_is_an_empty_reply() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    talk.reply_of_reasoning();
    assert_eq!((opened(&talk), talk.stop_reason()), (vec![1, 2], None), "it is asked for again");
    assert_eq!(talk.roles(), ["system", "user"], "no message of reasoning alone");
    talk.reply("Done.", &[]);
    assert_eq!((talk.stop_reason(), talk.roles().len()), (Some("completed"), 3));

    let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..ContinuationSettings::default() });
    for _ in 0..3 {
        talk.reply_of_reasoning();
    }
    assert_eq!((opened(&talk), talk.stop_reason()), (vec![1, 2, 3], Some("error")));
    let error = talk.events.iter().find_map(|event| match event {
        Event::Error(error) => Some(error.code.as_str()),
        _ => None,
    });
    assert_eq!((error, talk.roles().len()), (Some("model_empty_reply"), 2));
}

#[test]
fn interrupted_reply_of_reasoning_alone_leaves_no_message() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let call = talk.model_call().call;
    talk.send_message("Stop.", contract::command::MessageMode::Interrupt);
    talk.finish_cancelled_reasoning(call);
    assert_eq!(talk.roles(), ["system", "user", "user"]);
}

#[test]
fn command_too_old_is_refused() {
    for (age, refused) in [(COMMAND_AGE_MAX, None), (COMMAND_AGE_MAX + Duration::from_millis(1), Some("stale_command"))]
    {
        let mut talk = Talk::begin(ContinuationSettings::default());
        let sent = talk.now;
        talk.now += u64::try_from(age.as_millis()).unwrap();
        talk.sent = Some(contract::Timestamp::from_millis(sent));
        talk.stop();
        let refusal = talk.events.iter().find_map(|event| match event {
            Event::InputIgnored(ignored) => Some(ignored.refusal.clone()),
            _ => None,
        });
        assert_eq!(refusal.as_ref().map(|refusal| refusal.code.as_str()), refused, "{age:?}");
        assert!(refusal.is_none_or(|refusal| refusal.message.contains("12 hours")));
    }
}
