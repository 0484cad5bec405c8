//! A limit ends a turn with one last step without tools, whose text is the turn's last word for the user.

use std::time::Duration;

use contract::command::{AnswerDecision, MessageMode};
use contract::event::{Event, TurnCompleted};
use contract::limits::MODEL_CALL_MAX;
use contract::model::{FailureKind, Usage};
use contract::settings::{ContinuationSettings, LimitAction, Limits};

use crate::talk::{Cast, Talk};

type AtLimit = (&'static str, fn() -> Talk);
type Failure = (&'static str, fn(&mut Talk));

const GO_ON: &str = r#"{"response":"More.","continuation":{"status":"CONTINUE"}}"#;

fn settings(max_iterations: u32, limits: Limits) -> ContinuationSettings {
    ContinuationSettings { max_iterations, limits, ..ContinuationSettings::default() }
}

/// Whether the open model call forbids tools.
fn forbids_tools(talk: &Talk) -> bool {
    talk.item().parameters.get("tool_choice").is_some_and(|choice| choice == "none")
}

fn completed(talk: &Talk) -> &TurnCompleted {
    let found = talk.events.iter().rev().find_map(|event| match event {
        Event::TurnCompleted(completed) => Some(completed),
        _ => None,
    });
    found.unwrap()
}

/// A turn whose model repeats its call, up to the limit.
fn at_repetition(continuation: ContinuationSettings) -> Talk {
    let mut talk = Talk::begin(continuation);
    for n in 0..3 {
        talk.reply("", &["{}"]);
        talk.results(&format!("result {n}"));
    }
    talk
}

#[test]
fn turn_at_a_limit_ends_with_a_last_word() {
    let at_limit: [AtLimit; 4] = [
        ("repetition", || at_repetition(settings(20, Limits::default()))),
        ("max_iterations", || {
            let mut talk = Talk::begin(settings(1, Limits::default()));
            talk.reply("I look.", &["{}"]);
            talk.results("found");
            talk
        }),
        ("tool_call_limit", || {
            let mut talk = Talk::begin(settings(20, Limits { tool_calls: Some(1), ..Limits::default() }));
            talk.reply("", &["{}"]);
            talk.results("found");
            talk
        }),
        ("no_progress", || {
            let mut talk = Talk::begin(settings(20, Limits { repetition: 0, no_progress: 1, ..Limits::default() }));
            for _ in 0..2 {
                talk.reply("", &["{}"]);
                talk.results("the same");
            }
            talk
        }),
    ];
    for (limit, at_limit) in at_limit {
        let mut talk = at_limit();
        assert_eq!(talk.stop_reason(), None, "{limit}");
        assert!(forbids_tools(&talk), "{limit}");
        let asked = talk.item().messages.last().unwrap().get().to_owned();
        assert!(asked.contains(r#""role":"user""#) && asked.contains("Call no tool"), "{limit}: {asked}");
        let steps = talk.session.position().2;
        talk.reply("I found it.", &[]);
        let completed = completed(&talk);
        assert_eq!((completed.stop_reason.as_str(), completed.final_response.as_str()), (limit, "I found it."));
        assert_eq!(completed.iterations, steps - 1, "{limit}: the last word is no iteration");
        assert!(talk.call().is_none(), "{limit}");
        // The next turn is as any other.
        talk.send_message("Thanks.", MessageMode::Steer);
        assert!(!forbids_tools(&talk), "{limit}");
        talk.reply("Welcome.", &[]);
        assert_eq!(talk.stop_reason(), Some("completed"), "{limit}");
    }
}

#[test]
fn last_word_after_a_reply_without_calls_replaces_its_text() {
    let mut talk = Talk::begin(settings(1, Limits::default()));
    talk.reply(GO_ON, &[]);
    assert!(forbids_tools(&talk));
    talk.reply(r#"{"response":"This is as far as I came.","continuation":{"status":"CONTINUE"}}"#, &[]);
    let completed = completed(&talk);
    assert_eq!(completed.stop_reason.as_str(), "max_iterations");
    assert_eq!(completed.status.as_deref(), Some("MAX_ITERATIONS_REACHED"));
    assert_eq!((completed.final_response.as_str(), completed.iterations), ("This is as far as I came.", 1));
}

#[test]
fn last_word_with_tool_calls_runs_none_of_them() {
    let mut talk = at_repetition(settings(20, Limits::default()));
    talk.reply("I know enough.", &["{}", r#"{"act":"write"}"#]);
    assert_eq!(completed(&talk).final_response, "I know enough.");
    assert_eq!(talk.stop_reason(), Some("repetition"));
    assert!(talk.session.gates().is_empty() && talk.open().is_empty());
    talk.send_message("And?", MessageMode::Steer);
    let sent = talk.item().messages;
    let last = sent[sent.len() - 2].get();
    assert!(last.contains("I know enough.") && !last.contains("tool_calls"), "{last}");
}

#[test]
fn last_word_that_fails_or_is_empty_ends_the_turn_as_its_limit_does() {
    let fails: [Failure; 6] = [
        ("empty", |talk| talk.reply("", &[])),
        ("calls alone", |talk| talk.reply("", &["{}"])),
        ("a call as text", |talk| {
            talk.reply("<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>", &[]);
        }),
        ("overloaded", |talk| talk.fail(FailureKind::Overloaded)),
        ("too long", |talk| talk.fail(FailureKind::ContextLength)),
        ("hung", |talk| talk.wait(MODEL_CALL_MAX)),
    ];
    for (what, fail) in fails {
        let mut talk = Talk::begin(ContinuationSettings { timeout: 3_000, ..settings(1, Limits::default()) });
        talk.reply("I look.", &["{}"]);
        talk.results("found");
        assert!(forbids_tools(&talk), "{what}");
        fail(&mut talk);
        assert_eq!(completed(&talk).stop_reason.as_str(), "max_iterations", "{what}");
        let answer =
            "I look.\n\nThe turn ended without an answer: the turn's 1 steps are used up. The last result: found";
        assert_eq!((completed(&talk).final_response.as_str(), completed(&talk).iterations), (answer, 1), "{what}");
        assert!(talk.call().is_none(), "{what}");
        assert!(!talk.events.iter().any(|event| matches!(event, Event::Error(_))), "{what}");
    }
}

#[test]
fn last_word_that_a_used_up_clock_cuts_ends_with_the_first_limit_and_says_why() {
    let mut talk = Talk::begin(ContinuationSettings { timeout: 60, ..settings(1, Limits::default()) });
    talk.reply("I look.", &["{}"]);
    talk.results("found");
    assert!(forbids_tools(&talk));
    talk.wait(Duration::from_mins(2));
    assert_eq!(talk.stop_reason(), Some("max_iterations"));
    assert!(completed(&talk).final_response.contains("ended without an answer"), "{:?}", completed(&talk));
}

#[test]
fn stop_has_no_last_word() {
    let mut talk = Talk::begin(settings(5, Limits::default()));
    talk.stop();
    assert_eq!((talk.stop_reason(), talk.call()), (Some("stopped"), None));

    let mut talk = at_repetition(settings(20, Limits::default()));
    assert!(forbids_tools(&talk));
    talk.stop();
    assert_eq!((talk.stop_reason(), talk.call()), (Some("stopped"), None));
}

/// A turn of a minute.
fn minute() -> ContinuationSettings {
    ContinuationSettings { timeout: 60, ..settings(5, Limits::default()) }
}

#[test]
fn turn_at_its_limit_of_time_reads_what_had_come_and_ends_with_a_last_word() {
    let mut talk = Talk::begin(minute());
    let call = talk.model_call().call;
    talk.wait(Duration::from_secs(61));
    assert_eq!((talk.stop_reason(), talk.open()), (None, vec![]), "the reply is awaited as far as it came");
    talk.finish_cancelled(call, "I have found two of");
    assert!(forbids_tools(&talk));
    let sent: Vec<String> = talk.item().messages.iter().map(|message| message.get().to_owned()).collect();
    assert!(sent[sent.len() - 2].contains("I have found two of"), "{sent:?}");
    assert!(sent[sent.len() - 1].contains("60 seconds are used up"), "{sent:?}");
    talk.reply("Two of three.", &[]);
    let ended = completed(&talk);
    assert_eq!(
        (ended.stop_reason.as_str(), ended.final_response.as_str(), ended.iterations),
        ("timeout", "Two of three.", 1)
    );
}

#[test]
fn last_word_at_the_limit_of_time_has_a_minute_of_its_own_and_then_the_turn_says_why() {
    let mut talk = Talk::begin(minute());
    // No gateway says what had come.
    talk.wait(Duration::from_secs(66));
    assert!(forbids_tools(&talk));
    assert!(talk.item().meta.deadline <= contract::Timestamp::from_millis(1_000_000 + 120_100));
    talk.wait(Duration::from_mins(1));
    let ended = completed(&talk);
    let answer = "The turn ended without an answer: the turn's 60 seconds are used up.";
    assert_eq!((ended.stop_reason.as_str(), ended.final_response.as_str()), ("timeout", answer));
    assert!(talk.call().is_none());
}

#[test]
fn tools_that_run_at_the_limit_of_time_have_results_before_the_last_word() {
    let mut talk = Talk::begin(minute());
    talk.reply("I look.", &["{}"]);
    talk.wait(Duration::from_secs(61));
    assert!(forbids_tools(&talk));
    assert_eq!(talk.roles(), ["system", "user", "assistant", "tool", "user"]);
    talk.reply("Nothing came.", &[]);
    assert_eq!((talk.stop_reason(), completed(&talk).final_response.as_str()), (Some("timeout"), "Nothing came."));
}

#[test]
fn call_that_its_gateway_ends_at_the_limit_of_time_leads_to_the_last_word() {
    let mut talk = Talk::begin(minute());
    talk.now += 60_000;
    talk.text_so_far = "I have found".to_owned();
    talk.fail(FailureKind::TimedOut);
    assert!(forbids_tools(&talk));
    let sent: Vec<String> = talk.item().messages.iter().map(|message| message.get().to_owned()).collect();
    assert!(sent[sent.len() - 2].contains("I have found\\n[The reply was cut off here.]"), "{sent:?}");
    talk.reply("Two.", &[]);
    assert_eq!((talk.stop_reason(), completed(&talk).final_response.as_str()), (Some("timeout"), "Two."));
}

#[test]
fn turn_at_its_limit_of_time_ends_at_once_where_that_is_wanted() {
    let mut talk = Talk::begin(ContinuationSettings { on_limit: LimitAction::End, ..minute() });
    talk.wait(Duration::from_secs(61));
    assert_eq!((talk.stop_reason(), talk.call()), (Some("timeout"), None));
}

#[test]
fn last_word_is_asked_for_where_a_tenth_above_the_limit_pays_for_it() {
    // A request of this session and its reply are reckoned at some 1,100 tokens.
    for (tokens, cost_usd, used, affordable) in [
        (Some(100_000), None, 100_000, true),
        (Some(100_000), None, 109_900, false),
        (Some(1_000), None, 1_000, false),
        (None, Some(10.0), 100_000, true),
        (None, Some(10.0), 1_000, false),
    ] {
        let limits = Limits { tokens, cost_usd, ..Limits::default() };
        let mut talk = Talk::begin(settings(20, limits));
        let usage = Usage { input: used - 10, output: 10, ..Usage::default() };
        talk.reply_that_cost(GO_ON, &[], usage, cost_usd.unwrap_or_default());
        let limit = if tokens.is_some() { "token_limit" } else { "cost_limit" };
        assert_eq!(talk.source(), format!("limit:{limit}"));
        assert_eq!(talk.call().is_some(), affordable, "{tokens:?} {cost_usd:?} {used}");
        if affordable {
            talk.reply("That is all.", &[]);
            assert_eq!(completed(&talk).final_response, "That is all.");
        }
        assert_eq!(talk.stop_reason(), Some(limit));
    }
}

#[test]
fn limit_in_a_pause_asks_for_the_last_word_after_it() {
    let mut talk = Talk::begin(settings(1, Limits::default()));
    talk.pause();
    talk.reply(GO_ON, &[]);
    assert!(talk.call().is_none() && talk.stop_reason().is_none(), "nothing opens in a pause");
    talk.resume();
    assert!(forbids_tools(&talk));
    talk.reply("So far.", &[]);
    assert_eq!((talk.stop_reason(), completed(&talk).final_response.as_str()), (Some("max_iterations"), "So far."));
}

#[test]
fn message_during_the_last_word_begins_the_next_turn() {
    for mode in [MessageMode::Steer, MessageMode::Queue, MessageMode::Interrupt] {
        let mut talk = at_repetition(settings(20, Limits::default()));
        let (asked, call) = (talk.item().messages.len(), talk.model_call().call);
        talk.send_message("Look elsewhere.", mode);
        if mode == MessageMode::Interrupt {
            talk.finish_cancelled(call, "I know");
        } else {
            talk.reply("I know enough.", &[]);
        }
        assert_eq!(talk.stop_reason(), Some("repetition"), "{mode:?}");
        assert_eq!(talk.model_call().call.as_str(), "m2-1", "{mode:?}");
        assert!(!forbids_tools(&talk), "{mode:?}");
        assert_eq!(talk.item().messages.len(), asked + 2, "{mode:?}: the last word and the message");
    }
}

#[test]
fn answer_that_ends_a_turn_at_a_limit_gives_the_last_word() {
    let continuation = ContinuationSettings { on_limit: LimitAction::Ask, ..settings(1, Limits::default()) };
    let mut talk = Talk::begin(continuation.clone());
    talk.reply(GO_ON, &[]);
    assert!(talk.call().is_none());
    talk.answer(AnswerDecision::Deny);
    assert!(forbids_tools(&talk));
    talk.reply("So far.", &[]);
    assert_eq!((talk.stop_reason(), completed(&talk).final_response.as_str()), (Some("max_iterations"), "So far."));

    // Nobody is there to read it.
    let mut talk = Talk::begin(continuation);
    talk.reply(GO_ON, &[]);
    talk.wait(Duration::from_hours(48));
    assert_eq!((talk.stop_reason(), talk.call()), (Some("max_iterations"), None));
}

#[test]
fn session_that_ends_with_its_turn_ends_with_the_last_word() {
    let mut talk = Talk::once(Cast { continuation: settings(1, Limits::default()), ..Cast::default() });
    talk.reply(GO_ON, &[]);
    talk.reply("So far.", &[]);
    let ended = talk.events.iter().find_map(|event| match event {
        Event::SessionEnded(ended) => Some((ended.final_response.clone(), ended.stop_reason, ended.iterations)),
        _ => None,
    });
    let (response, stop_reason, iterations) = ended.unwrap();
    assert_eq!((response.as_str(), stop_reason.unwrap().as_str(), iterations), ("So far.", "max_iterations", 1));
}

#[test]
fn turn_at_a_limit_ends_at_once_where_that_is_wanted() {
    let talk = at_repetition(ContinuationSettings { on_limit: LimitAction::End, ..settings(20, Limits::default()) });
    assert_eq!((talk.stop_reason(), talk.call()), (Some("repetition"), None));
}
