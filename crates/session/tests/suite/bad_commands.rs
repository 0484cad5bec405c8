//! Commands that no edge would send: the loop refuses them too, with code, field and remedy, and they change nothing
//! else.

use contract::command::{
    AnswerDecision, Configure, ContinuationOverride, Features, MessageMode, SendUserMessage, Start,
};
use contract::event::Event;
use contract::model::{Content, HistoryCall, HistoryMessage, Part, StreamingOverride};
use contract::settings::{Cap, ContinuationSettings, LimitsOverride};
use contract::tool::ApprovalPolicy;

use crate::talk::{Cast, Talk, rule};

/// The last commit refuses its input, says why, and says nothing else.
fn refused_alone(talk: &Talk, code: &str, parts: &[&str]) {
    let (_, commit) = talk.log.last().unwrap();
    let [Event::InputIgnored(ignored)] = &commit.events[..] else {
        panic!("more than a refusal: {:#?}", commit.events)
    };
    let message = &ignored.refusal.message;
    assert_eq!(ignored.refusal.code.as_str(), code, "{message}");
    assert!(parts.iter().all(|part| message.contains(part)), "{message} does not hold {parts:?}");
    assert!(talk.effects.is_empty(), "{:?}", talk.effects);
}

#[allow(clippy::unnecessary_wraps, reason = "as the field has it")]
fn over(change: impl FnOnce(&mut ContinuationOverride)) -> Option<ContinuationOverride> {
    let mut over = ContinuationOverride::default();
    change(&mut over);
    Some(over)
}

fn user(text: &str) -> HistoryMessage {
    HistoryMessage::User { content: Content::from(text) }
}

/// A reply with so many calls, each with a result of so many bytes.
fn calls(count: usize, name: &str, bytes: usize) -> HistoryMessage {
    let call = HistoryCall { name: name.to_owned(), arguments: String::new(), result: Some("x".repeat(bytes)) };
    let (content, reasoning) = (String::new(), String::new());
    HistoryMessage::Assistant { content, reasoning, tool_calls: vec![call; count], replay: None }
}

#[test]
fn start_that_bypasses_the_edge_is_refused_and_begins_nothing() {
    let rows: Vec<(Start, &str, &[&str])> = vec![
        (Start { messages: vec![user("x"); 1_001], ..Start::default() }, "too_large", &["`messages`", "1000"]),
        (Start { messages: vec![user("")], ..Start::default() }, "empty_message", &["messages[0]"]),
        (
            Start { messages: vec![calls(129, "x", 1)], ..Start::default() },
            "too_large",
            &["messages[0].tool_calls`", "128"],
        ),
        (Start { messages: vec![calls(1, " ", 1)], ..Start::default() }, "bad_request", &["tool_calls[0].name"]),
        (
            Start { messages: vec![calls(2, "x", (1 << 20) + 1)], ..Start::default() },
            "too_large",
            &["messages[0].tool_calls[0].result", "1048576"],
        ),
        (Start { model: Some(String::new()), ..Start::default() }, "bad_request", &["`model`"]),
        (Start { tools: Some(vec!["a b".to_owned()]), ..Start::default() }, "bad_request", &["tools[0]"]),
        (
            Start { features: Features { enable: vec!["x".to_owned(); 65], disable: Vec::new() }, ..Start::default() },
            "too_large",
            &["features.enable", "64"],
        ),
        (
            Start {
                streaming: Some(StreamingOverride { idle: Some(u64::MAX), ..StreamingOverride::default() }),
                ..Start::default()
            },
            "bad_request",
            &["streaming.idle", "3600 seconds"],
        ),
        (
            Start { continuation: over(|over| over.timeout = Some(1_000_000_000_000_000_000)), ..Start::default() },
            "bad_request",
            &["continuation.timeout", "604800 seconds"],
        ),
        (
            Start {
                continuation: over(|over| {
                    over.limits = Some(LimitsOverride { cost_usd: Cap::At(f64::NAN), ..LimitsOverride::default() });
                }),
                ..Start::default()
            },
            "bad_request",
            &["continuation.limits.cost_usd"],
        ),
        (
            Start {
                continuation: over(|over| over.continuation_patterns = Some(vec!["fine".to_owned(), "(".to_owned()])),
                ..Start::default()
            },
            "bad_request",
            &["continuation.continuation_patterns[1]", "character"],
        ),
    ];
    for (start, code, parts) in rows {
        let mut talk = Talk::not_started("s");
        talk.start("start", Start { interactive: true, ..start }, Ok(Cast::default()));
        refused_alone(&talk, code, parts);
        assert_eq!(talk.roles(), Vec::<String>::new());
    }
}

#[test]
fn command_that_bypasses_the_edge_is_refused_and_changes_nothing() {
    let mut talk = Talk::cast(Cast { approvals: vec![rule("act", ApprovalPolicy::Always)], ..Cast::default() });
    talk.reply("", &[r#"{"act":1}"#]);
    let roles = talk.roles();
    let configure = |talk: &mut Talk, continuation| {
        talk.configure(Configure { continuation, ..Configure::default() }, None);
    };
    configure(&mut talk, None);
    refused_alone(&talk, "bad_request", &["nothing to change"]);
    configure(&mut talk, over(|over| over.timeout = Some(0)));
    refused_alone(&talk, "bad_request", &["continuation.timeout", "got 0"]);
    configure(&mut talk, over(|over| over.termination_patterns = Some(vec!["a".to_owned(); 33])));
    refused_alone(&talk, "bad_request", &["continuation.termination_patterns", "33", "32"]);
    let limits = LimitsOverride { tokens: Cap::At(u64::MAX), ..LimitsOverride::default() };
    configure(&mut talk, over(|over| over.limits = Some(limits)));
    refused_alone(&talk, "bad_request", &["continuation.limits.tokens"]);
    for (first, expected) in [(0, None), (64, Some("too_large"))] {
        let enable = (first..first + 64).map(|n| format!("n{n}")).collect();
        let features = Features { enable, disable: Vec::new() };
        talk.configure(Configure { features, ..Configure::default() }, Some(Cast::default()));
        assert_eq!(talk.refused(), expected, "features add up");
    }
    let parts = vec![Part::Text { text: "x".to_owned() }; 65];
    talk.send(SendUserMessage::new(Content::Parts(parts), MessageMode::Queue));
    refused_alone(&talk, "too_large", &["`content`", "64"]);
    talk.answer_with(AnswerDecision::Deny, |answer| answer.note = Some("x".repeat(4_097)));
    refused_alone(&talk, "too_large", &["`note`", "4096"]);
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments_sha256 = "0".to_owned());
    refused_alone(&talk, "bad_request", &["`arguments_sha256`"]);
    assert_eq!((talk.session.gates().len(), talk.roles()), (1, roles));
}

#[test]
fn gate_writes_out_what_cannot_be_seen() {
    let hidden = "{\"act\":\"rm \u{202E}gpj.\u{200B}exe\"}";
    let start = Start { prompt: Some(Content::from("Do\u{202E} it.")), interactive: true, ..Start::default() };
    let mut talk = Talk::not_started("s");
    talk.start("start", start, Ok(Cast { approvals: vec![rule("act", ApprovalPolicy::Always)], ..Cast::default() }));
    talk.reply("", &[hidden]);
    let opened = talk.gate();
    let shown = opened.arguments.unwrap();
    assert_eq!(shown.get(), r#"{"act":"rm \u202egpj.\u200bexe"}"#);
    assert_eq!(opened.arguments_sha256, contract::tool::arguments_sha256(&shown), "what is shown is what is hashed");
    assert_eq!(talk.session.gates()[0].arguments, shown.get());
    assert_eq!(talk.session.summary().title, "Do\\u{202e} it.");
    talk.answer(AnswerDecision::Approve);
    assert_eq!(talk.refused(), None);
    let call = talk.open().pop().unwrap();
    let runs = talk.session.tool_item(&call).unwrap().arguments;
    let meant: serde_json::Value = serde_json::from_str(hidden).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(runs.get()).unwrap(), meant, "the tool reads what was meant");
}

#[test]
fn weight_follows_what_a_session_holds() {
    let mut talk = Talk::begin(ContinuationSettings::default());
    let small = talk.session.weight();
    assert!(small < 64 << 10, "{small}");
    talk.reply("Done.", &[]);
    for _ in 0..20 {
        talk.send_message(&"x".repeat(100 << 10), MessageMode::Steer);
        talk.reply(&"y".repeat(100 << 10), &[]);
        let (weight, stored) = (talk.session.weight(), talk.session.snapshot().get().len());
        assert!((stored..stored * 2 + (64 << 10)).contains(&weight), "{weight} bytes for {stored} stored");
    }
    talk.clear();
    assert!(talk.session.weight() < small + (128 << 10), "{}", talk.session.weight());
}
