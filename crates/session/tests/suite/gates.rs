//! Gates: approvals by rule, questions, changed arguments, silence; and calls that take longer.

use std::time::Duration;

use contract::command::{Answer, AnswerDecision};
use contract::event::{Event, GateKind};
use contract::settings::{ApprovalRule, OnExpiry};
use contract::tool::{ApprovalPolicy, Outcome, arguments_sha256};
use contract::{Json, Timestamp};

use crate::talk::{Cast, Talk, rule};

const ACT: &str = r#"{"act":"write"}"#;
const LOOK: &str = r#"{"path":"a"}"#;

fn with(approvals: Vec<ApprovalRule>) -> Talk {
    Talk::cast(Cast { approvals, ..Cast::default() })
}

fn closed(talk: &Talk) -> usize {
    talk.events.iter().filter(|event| matches!(event, Event::GateClosed(_))).count()
}

#[test]
fn approval_rule_overrides_the_tools_approval() {
    let mut talk = with(vec![rule("look", ApprovalPolicy::Always), rule("act", ApprovalPolicy::Never)]);
    talk.reply("", &[LOOK, ACT]);
    let gate = talk.gate();
    assert_eq!((gate.gate.as_str(), gate.kind), ("c1-1-1", GateKind::Approval));
    assert_eq!((gate.tool.unwrap().as_str(), gate.arguments.unwrap().get()), ("look", LOOK));
    assert_eq!(talk.session.open_calls(), ["c1-1-2.1"]);
    talk.answer(AnswerDecision::Approve);
    assert_eq!(talk.session.open_calls(), ["c1-1-1.1", "c1-1-2.1"]);
    assert!(talk.session.gates().is_empty());
}

#[test]
fn ambiguous_arguments_are_refused() {
    // The rule, the person and the tool might each read another `act`.
    for (arguments, why) in [
        (r#"{"act":"write","act":"read"}"#, "\"act\" stands twice"),
        (r#"{"act":"write","$serde_json::private::RawValue":"{\"act\":\"read\"}"}"#, "is no name of arguments"),
        (r#"{"act":{"$serde_json::private::RawValue":"\"read\""}}"#, "is no name of arguments"),
    ] {
        let mut talk = with(vec![rule("act", ApprovalPolicy::Never)]);
        talk.reply("", &[arguments]);
        let (outcome, content) = talk.result();
        assert_eq!(outcome, Outcome::Error);
        assert!(content.contains(why), "{content}");
        assert!(talk.session.gates().is_empty());
    }
}

#[test]
fn call_approved_with_changed_arguments_runs_and_model_is_informed() {
    let mut talk = with(Vec::new());
    talk.reply("", &[ACT]);
    let changed = Json::parse(r#"{"act":"read"}"#).unwrap();
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(changed.clone()));
    let item = talk.session.tool_item(&talk.open()[0]).unwrap();
    assert_eq!(item.arguments, changed);
    let change = talk.events.iter().find_map(|event| match event {
        Event::GateClosed(closed) => Some((closed.arguments.clone(), closed.arguments_sha256.clone())),
        _ => None,
    });
    assert_eq!(change, Some((Some(changed.clone()), Some(arguments_sha256(&changed)))));
    talk.results("read it");
    let content = "(A person changed the arguments to {\"act\":\"read\"}.)\nread it";
    assert_eq!(talk.result(), (Outcome::Ok, content.to_owned()));
}

#[test]
fn late_result_of_changed_call_reports_the_change() {
    let mut talk = with(Vec::new());
    talk.reply("", &[r#"{"question":"Why?"}"#, ACT]);
    let changed = Json::parse(r#"{"act":"read"}"#).unwrap();
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(changed.clone()));
    let call = talk.open()[0].clone();
    talk.result_of("unknown", call.clone(), Outcome::Unknown, "nobody knows");
    assert_eq!(talk.result().0, Outcome::Unknown);
    talk.result_of("late", call, Outcome::Ok, "read it");
    let content = "(A person changed the arguments to {\"act\":\"read\"}.)\nread it";
    assert_eq!(talk.result(), (Outcome::Ok, content.to_owned()));
}

#[test]
fn long_changed_arguments_model_reads_their_start() {
    let mut talk = with(Vec::new());
    talk.reply("", &[ACT]);
    let changed = Json::parse(&format!(r#"{{"act":"{}"}}"#, "x".repeat(100_000))).unwrap();
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(changed));
    talk.results("done");
    let (_, content) = talk.result();
    assert!(content.len() < 2 * contract::limits::GATE_SHOWN_BYTES && content.ends_with("done"), "{content}");
}

#[test]
fn gate_answered_twice_or_with_another_hash_is_refused() {
    let mut talk = with(Vec::new());
    talk.reply("", &[ACT]);
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments_sha256 = "0".repeat(64));
    assert_eq!(talk.refused(), Some("bad_request"));
    assert!(talk.open().is_empty());
    talk.answer(AnswerDecision::Approve);
    talk.answer(AnswerDecision::Deny);
    assert_eq!(talk.refused(), Some("gate_closed"));
    assert_eq!((closed(&talk), talk.session.open_calls().len()), (1, 1));
}

#[test]
fn answer_with_fields_of_another_gate_is_refused() {
    use AnswerDecision::{Answer as ExpectedText, Approve, Deny};
    type More = fn(&mut Answer);
    let nothing: More = |_| {};
    let content: More = |answer| answer.content = Some("yes".to_owned());
    let object: More = |answer| answer.arguments = Some(Json::parse("{}").unwrap());
    let list: More = |answer| answer.arguments = Some(Json::parse("[]").unwrap());
    let twice: More = |answer| answer.arguments = Some(Json::parse(r#"{"act":"a","act":"b"}"#).unwrap());
    let long: More = |answer| answer.content = Some("x".repeat(contract::limits::TOOL_OUTPUT_BYTES_MAX + 1));
    for (call, decision, more, good) in [
        (ACT, Approve, nothing, true),
        (ACT, Approve, object, true),
        (ACT, Approve, list, false),
        (ACT, Approve, twice, false),
        (ACT, Approve, content, false),
        (ACT, Deny, nothing, true),
        (ACT, Deny, object, false),
        (ACT, ExpectedText, content, false),
        (ACT, ExpectedText, nothing, false),
        (r#"{"question":"Why?"}"#, ExpectedText, content, true),
        (r#"{"question":"Why?"}"#, ExpectedText, nothing, false),
        (r#"{"question":"Why?"}"#, ExpectedText, long, false),
        (r#"{"question":"Why?"}"#, Approve, nothing, false),
        (r#"{"question":"Why?"}"#, Deny, nothing, true),
    ] {
        let mut talk = with(Vec::new());
        talk.reply("", &[call]);
        talk.answer_with(decision, more);
        assert_eq!(talk.refused().is_none(), good, "{call} {decision:?}");
        assert_eq!(talk.session.gates().is_empty(), good, "{call} {decision:?}");
    }
}

#[test]
fn question_answered_by_a_person_model_reads_the_answer() {
    let mut talk = with(vec![rule("*", ApprovalPolicy::Never)]);
    let asked = r#"{"question":"Which one?","choices":["a","b"]}"#;
    talk.reply("", &[asked]);
    assert_eq!(talk.gate().kind, GateKind::Question);
    assert!(
        talk.open().is_empty() && talk.session.outstanding().iter().all(|e| !format!("{e:?}").contains("CallTool"))
    );
    let [shown] = &talk.session.summary().gates[..] else { panic!("one is open") };
    assert_eq!((shown.kind, shown.arguments.as_str(), shown.shortened), (GateKind::Question, asked, false));
    // Who is asked takes his time: the turn's clock stands.
    talk.wait(Duration::from_hours(2));
    talk.answer_with(AnswerDecision::Answer, |answer| answer.content = Some("b".to_owned()));
    assert_eq!(talk.result(), (Outcome::Ok, "b".to_owned()));
    assert_eq!(talk.roles().last().map(String::as_str), Some("tool"));
    assert!(talk.call().is_some(), "the model reads it");
}

#[test]
fn question_without_a_person_is_an_error_for_the_model() {
    let long = format!(r#"{{"question":"{}"}}"#, "x".repeat(contract::limits::QUESTION_BYTES_MAX + 1));
    let many = format!(r#"{{"question":"?","choices":[{}]}}"#, vec!["\"a\""; 33].join(","));
    for bad in [r#"{"question":" "}"#, r#"{"question":"?","choice":1}"#, &long, &many] {
        let mut talk = with(Vec::new());
        talk.reply("", &[bad]);
        assert_eq!(talk.result().0, Outcome::Error, "{bad}");
        assert!(talk.session.gates().is_empty());
    }
}

#[test]
fn gate_expired_has_its_configured_result() {
    let hour = Duration::from_hours(1);
    let rule = |on_expiry| ApprovalRule { expires: Some(3_600), on_expiry, ..rule("act", ApprovalPolicy::Always) };
    let mut talk = with(vec![rule(OnExpiry::Deny)]);
    talk.reply("", &[ACT]);
    talk.wait(hour.checked_sub(Duration::from_secs(1)).unwrap());
    assert_eq!(talk.session.gates().len(), 1);
    talk.wait(Duration::from_secs(1));
    assert_eq!(talk.result(), (Outcome::Denied, "nobody answered in time".to_owned()));

    let mut talk = with(vec![rule(OnExpiry::Approve)]);
    talk.reply("", &[ACT]);
    talk.wait(hour);
    assert_eq!(talk.session.open_calls(), ["c1-1-1.1"]);

    for (asked, outcome, content) in [
        (r#"{"question":"Why?","default":"because"}"#, Outcome::Ok, "because"),
        (r#"{"question":"Why?"}"#, Outcome::Timeout, "nobody answered in time"),
    ] {
        let mut talk = with(vec![ApprovalRule { tool: "ask_user".to_owned(), ..rule(OnExpiry::Approve) }]);
        talk.reply("", &[asked]);
        talk.wait(hour);
        assert_eq!(talk.result(), (outcome, content.to_owned()));
        assert!(talk.open().iter().all(|call| call.call.as_str().starts_with('m')), "it is no call for executors");
    }
}

#[test]
fn stop_closes_every_gate() {
    let mut talk = with(Vec::new());
    talk.reply("", &[ACT, r#"{"question":"Why?"}"#]);
    assert_eq!(talk.session.summary().gates.len(), 2);
    talk.stop();
    assert!(talk.session.summary().gates.is_empty());
    assert_eq!(closed(&talk), 2);
    talk.answer(AnswerDecision::Approve);
    assert_eq!(talk.refused(), Some("session_ended"));
}

#[test]
fn call_extended_ends_no_later_than_its_turn() {
    let mut talk = with(Vec::new());
    talk.reply("", &[LOOK]);
    let call = talk.open()[0].clone();
    let at = |talk: &Talk, seconds: u64| Timestamp::from_millis(talk.now + seconds * 1_000);
    talk.wait(Duration::from_secs(50));
    talk.extend(&call, at(&talk, 60));
    assert_eq!(talk.refused(), None);
    // Its first deadline and the grace after it are over.
    talk.wait(Duration::from_secs(50));
    assert_eq!(talk.open(), std::slice::from_ref(&call));
    talk.extend(&call, at(&talk, 5));
    assert_eq!(talk.refused(), Some("not_now"), "no earlier deadline");
    talk.extend(&call, at(&talk, 100_000));
    talk.wait(Duration::from_secs(199));
    assert_eq!(talk.open(), std::slice::from_ref(&call));
    talk.wait(Duration::from_secs(2));
    talk.last_word();
    assert_eq!((talk.stop_reason(), talk.result().0), (Some("timeout"), Outcome::Timeout));
    talk.extend(&call, at(&talk, 60));
    assert_eq!(talk.refused(), Some("not_now"));
}
