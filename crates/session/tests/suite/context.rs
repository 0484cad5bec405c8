//! The transcript within its model's window.

use contract::command::MessageMode;
use contract::event::{ContextPruned, Event};
use contract::model::{FailureKind, Usage};
use contract::settings::{ContinuationSettings, Limits, ModelSettings, Prune};

use crate::talk::{Cast, Talk};

/// A model with this window, of which a hundred tokens are for the reply.
fn cast(window: u64, prune: Prune) -> Cast {
    let limits = Limits { no_progress: 0, ..Limits::default() };
    let continuation = ContinuationSettings { max_iterations: 50, prune, limits, ..ContinuationSettings::default() };
    let model = ModelSettings {
        multi_tool: true,
        max_parallel_tools: 4,
        context_window: Some(window),
        max_output: Some(100),
        ..ModelSettings::default()
    };
    Cast { continuation, model, ..Cast::default() }
}

fn pruned(talk: &Talk) -> Vec<ContextPruned> {
    let pruned = |event: &Event| match event {
        Event::ContextPruned(pruned) => Some(pruned.clone()),
        _ => None,
    };
    talk.events.iter().filter_map(pruned).collect()
}

fn shown(talk: &Talk) -> Vec<String> {
    talk.item().messages.iter().map(|message| message.get().to_owned()).collect()
}

/// Says something and gets an answer, turn by turn.
fn chat(talk: &mut Talk, turns: std::ops::Range<usize>) {
    for turn in turns {
        talk.reply(&format!("Answer {turn}: {}", "word ".repeat(60)), &[]);
        talk.send_message(&format!("Question {turn}"), MessageMode::Steer);
    }
}

#[test]
fn large_old_result_is_shortened_first() {
    let mut talk = Talk::cast(cast(6_000, Prune::Drop));
    talk.reply("", &[r#"{"a":1}"#]);
    talk.results(&format!("HEAD{}TAIL", "x".repeat(12_000)));
    assert_eq!(pruned(&talk), [], "it fits");
    talk.reply("", &[r#"{"a":2}"#]);
    talk.results(&format!("head{}tail", "y".repeat(9_000)));
    let plan = &pruned(&talk)[0];
    assert_eq!((plan.cut.as_slice(), plan.before_turn, plan.before_step), (&["c1-1-1".to_owned()][..], 0, 0));
    assert!(plan.tokens_after < plan.tokens_before);
    let shown = shown(&talk);
    assert!(shown[3].contains("HEAD") && shown[3].contains("TAIL") && shown[3].contains("bytes left out"));
    assert!(shown[3].len() < 2_300, "{}", shown[3].len());
    assert!(shown[5].len() > 9_000, "the last one is still whole");
    let event = talk.events.iter().rposition(|event| matches!(event, Event::ContextPruned(_)));
    assert!(event < talk.events.iter().rposition(|event| matches!(event, Event::ModelCallOpened(_))), "pruned first");
}

#[test]
fn oldest_turns_are_dropped_before_the_running_one() {
    let mut talk = Talk::cast(cast(1_100, Prune::Drop));
    chat(&mut talk, 1..12);
    let plans = pruned(&talk);
    assert!(!plans.is_empty());
    let last = plans.last().unwrap();
    assert!(last.before_turn > 1 && last.before_turn <= last.turn, "{last:?}");
    let shown = shown(&talk);
    assert!(shown[0].contains("system") && !shown.iter().any(|m| m.contains("Answer 1:")), "{shown:#?}");
    assert!(shown.last().unwrap().contains("Question 11"));
    // A replay from a snapshot shows the same.
    let again: session::Session = serde_json::from_str(talk.session.snapshot().get()).unwrap();
    assert_eq!(again.messages(), talk.session.messages());
}

#[test]
fn long_turn_drops_oldest_steps_and_keeps_the_question() {
    let mut talk = Talk::cast(cast(2_000, Prune::Drop));
    for step in 1..=12 {
        talk.reply(&format!("step {step}: {}", "word ".repeat(80)), &[&format!("{{\"a\":{step}}}")]);
        talk.results("short");
    }
    assert!(pruned(&talk).iter().any(|plan| plan.before_step > 1), "{:?}", pruned(&talk));
    let shown = shown(&talk);
    assert!(shown[1].contains("Do it.") && shown.last().unwrap().contains("short"));
    let calls = shown.iter().filter(|message| message.contains("tool_calls")).count();
    let results = shown.iter().filter(|message| message.contains("tool_call_id")).count();
    assert!(calls == results && calls < 12, "{calls} calls, {results} results");
}

#[test]
fn dropped_turns_are_replaced_by_a_summary() {
    let mut talk = Talk::cast(cast(1_100, Prune::Summarise));
    let mut turn = 1;
    while !talk.model_call().call.as_str().starts_with('s') {
        chat(&mut talk, turn..turn + 1);
        turn += 1;
        assert!(turn < 20, "nothing was summed up");
    }
    let item = talk.item();
    assert!(item.tools.is_empty() && !item.streaming.enabled);
    let asked: Vec<&str> = item.messages.iter().map(contract::Json::get).collect();
    assert!(asked.iter().any(|m| m.contains("Answer 1:")) && asked.last().unwrap().contains("Sum up"));
    assert!(!asked.iter().any(|m| m.contains(&format!("Question {}", turn - 1))), "not what is asked now");
    talk.reply_that_cost("They talked about words.", &[], Usage { input: 9, ..Usage::default() }, 0.5);
    assert_eq!(pruned(&talk).last().unwrap().summary.as_deref(), Some("They talked about words."));
    let shown = shown(&talk);
    assert!(shown[1].contains("They talked about words.") && shown.last().unwrap().contains("Question"));
    talk.reply("Done.", &[]);
    assert!((talk.session.summary().spent.cost_usd - 0.5).abs() < 1e-9, "the summary is paid for");
    assert_eq!(talk.stop_reason(), Some("completed"));
}

#[test]
fn summary_failed_turns_are_dropped() {
    for fails in [true, false] {
        let mut talk = Talk::cast(cast(1_100, Prune::Summarise));
        let mut turn = 1;
        while !talk.model_call().call.as_str().starts_with('s') {
            chat(&mut talk, turn..turn + 1);
            turn += 1;
        }
        if fails {
            talk.fail(FailureKind::Overloaded);
        } else {
            talk.wait(std::time::Duration::from_secs(61));
        }
        assert_eq!(pruned(&talk).last().unwrap().summary, None);
        assert!(talk.call().is_some(), "the step goes on");
        assert!(!shown(&talk).iter().any(|m| m.contains("Answer 1:")));
    }
}

#[test]
fn stop_during_a_summary_ends_the_session() {
    let mut talk = Talk::cast(cast(1_100, Prune::Summarise));
    let mut turn = 1;
    while !talk.model_call().call.as_str().starts_with('s') {
        chat(&mut talk, turn..turn + 1);
        turn += 1;
    }
    let summary = talk.model_call();
    talk.send_message("hurry", MessageMode::Interrupt);
    assert_eq!(talk.model_call(), summary, "the step that reads it has not begun");
    talk.pause();
    talk.reply("They talked.", &[]);
    assert!(talk.open().is_empty(), "no step opens in a pause");
    talk.resume();
    assert!(shown(&talk).last().unwrap().contains("hurry"));
    talk.stop();
    assert!(talk.open().is_empty());
}

#[test]
fn request_too_long_for_the_provider_is_halved_once() {
    let limits = Limits { no_progress: 0, ..Limits::default() };
    let mut talk = Talk::begin(ContinuationSettings { limits, ..ContinuationSettings::default() });
    chat(&mut talk, 1..6);
    let before = shown(&talk).concat().len();
    talk.fail(FailureKind::ContextLength);
    let plan = pruned(&talk)[0].clone();
    assert!(plan.tokens_after <= plan.tokens_before / 2 + 50, "{plan:?}");
    assert_eq!(talk.model_call().attempt, 2);
    assert!(shown(&talk).concat().len() < before);
    talk.fail(FailureKind::ContextLength);
    assert_eq!(talk.stop_reason(), Some("error"), "once, and no more");
    // Of a transcript with nothing to leave out nothing is left out.
    let mut talk = Talk::begin(ContinuationSettings::default());
    talk.fail(FailureKind::ContextLength);
    assert_eq!(talk.stop_reason(), Some("error"));
}

#[test]
fn provider_token_count_corrects_the_estimate() {
    let mut talk = Talk::cast(cast(3_000, Prune::Drop));
    chat(&mut talk, 1..8);
    assert_eq!(pruned(&talk), [], "by our guess there is room");
    // The provider needs a token for each byte: far more than we thought.
    let bytes = shown(&talk).concat().len() as u64 + 3_000;
    talk.reply_that_cost("Answer", &[], Usage { input: bytes, ..Usage::default() }, 0.0);
    talk.send_message("Question", MessageMode::Steer);
    assert!(!pruned(&talk).is_empty(), "{bytes} bytes");
}

#[test]
fn results_are_shortened_before_turns_are_summarised() {
    let mut talk = Talk::cast(cast(4_000, Prune::Summarise));
    talk.reply("", &[r#"{"a":1}"#]);
    talk.results(&"x".repeat(6_000));
    talk.reply(&"word ".repeat(2_600), &[]);
    talk.send_message("And then?", MessageMode::Steer);
    assert!(talk.model_call().call.as_str().starts_with('s'), "{:?}", talk.open());
    let plan = &pruned(&talk)[0];
    assert_eq!((plan.cut.len(), plan.before_turn, plan.before_step), (1, 0, 0), "no turn goes before it is summed up");
    let shown = shown(&talk);
    assert!(shown.iter().any(|message| message.contains("bytes left out")), "the summary reads what is left of it");
}
