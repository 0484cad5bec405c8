//! JSON that others wrote is embedded in the log, in work items and in files. What is written can be read again,
//! however deep it is nested.

use contract::Json;
use contract::command::{AnswerDecision, Start};
use contract::commit::Commit;
use contract::model::{Content, HistoryMessage, ReasoningParts};
use contract::settings::ContinuationSettings;
use contract::tool::{ApprovalPolicy, Outcome, ToolSpec};
use serde_json::Value;

use crate::talk::{Cast, Talk, rule};

/// Levels of JSON that anybody else may send.
const ALLOWED: usize = 32;

/// An object in which so many objects and lists are nested, itself included.
fn nested(levels: usize) -> String {
    let inner = levels - 1;
    format!(r#"{{"act":{}1{}}}"#, "[".repeat(inner), "]".repeat(inner))
}

fn value(levels: usize) -> Value {
    serde_json::from_str(&nested(levels)).unwrap()
}

fn start(parameters: usize, replayed: usize) -> Start {
    let Value::Object(parameters) = value(parameters) else { panic!("no object") };
    let replay = ReasoningParts {
        family: "f".to_owned(),
        model: "m".to_owned(),
        parts: vec![value(replayed)],
        positions: Vec::new(),
    };
    let sent_message = HistoryMessage::Assistant {
        content: "Hello.".to_owned(),
        reasoning: String::new(),
        tool_calls: Vec::new(),
        replay: Some(replay),
    };
    Start {
        prompt: Some(Content::from("Do it.")),
        interactive: true,
        messages: vec![sent_message],
        parameters,
        ..Start::default()
    }
}

fn begin(start: Start) -> Talk {
    let mut talk = Talk::not_started("s");
    let parameters = Json::parse(&nested(124)).unwrap();
    let deep = ToolSpec { name: contract::ToolName::new("deep").unwrap(), parameters, ..session::delegate_spec() };
    talk.more_tools.push(deep);
    let approvals = vec![rule("act", ApprovalPolicy::Always)];
    talk.start(
        "start",
        start,
        Ok(Cast { continuation: ContinuationSettings::default(), approvals, ..Cast::default() }),
    );
    talk
}

/// All that is stored or sent of a session can be read again.
fn read_back(talk: &Talk) {
    for (slot, commit) in &talk.log {
        let text = serde_json::to_vec(commit).unwrap();
        let read: Commit = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("slot {slot}: {error}"));
        assert_eq!(read.events, commit.events);
        // Exported and shown within other JSON.
        let shown = serde_json::json!({"jsonrpc": "2.0", "result": {"log": [serde_json::to_value(commit).unwrap()]}});
        serde_json::from_str::<Value>(&shown.to_string()).unwrap_or_else(|error| panic!("slot {slot}, shown: {error}"));
    }
    let snapshot = talk.session.snapshot();
    serde_json::from_str::<session::Session>(snapshot.get()).unwrap();
    if let Some(call) = talk.call() {
        let item = serde_json::to_vec(&talk.item_of(&call).unwrap()).unwrap();
        serde_json::from_slice::<contract::model::ModelItem>(&item).unwrap();
    }
}

#[test]
fn json_nested_as_deep_as_allowed_everywhere_is_read_back() {
    let mut talk = begin(start(ALLOWED, ALLOWED));
    assert_eq!(talk.refused(), None);
    read_back(&talk);
    talk.replay = Some(ReasoningParts {
        family: "f".to_owned(),
        model: "m".to_owned(),
        parts: vec![value(ALLOWED)],
        positions: Vec::new(),
    });
    talk.reply("", &[&nested(ALLOWED)]);
    read_back(&talk);
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(Json::parse(&nested(ALLOWED)).unwrap()));
    assert_eq!(talk.refused(), None);
    talk.results(&nested(124));
    read_back(&talk);
    let replayed = talk.item().messages.iter().any(|message| message.get().contains("\"replay\""));
    assert!(replayed, "what the provider wants to be told again goes along");
}

#[test]
fn start_with_deeper_json_is_refused() {
    for (parameters, replayed, field) in
        [(ALLOWED + 1, 1, "`parameters`"), (120, 1, "`parameters`"), (1, ALLOWED + 1, "messages[0].replay")]
    {
        let talk = begin(start(parameters, replayed));
        assert_eq!(talk.refused(), Some("bad_request"), "{field}");
        let sent_message = serde_json::to_string(&talk.events).unwrap();
        assert!(sent_message.contains(field) && sent_message.contains("32"), "{sent_message}");
        read_back(&talk);
    }
}

#[test]
fn call_with_deeper_arguments_gets_an_error_and_the_session_goes_on() {
    for levels in [ALLOWED + 1, 120, 126] {
        let mut talk = begin(start(1, 1));
        talk.reply("", &[&nested(levels), "{}"]);
        let errors = talk.events.iter().filter(
            |event| matches!(event, contract::event::Event::ToolCallResult(result) if result.outcome == Outcome::Error),
        );
        assert_eq!(errors.count(), 1, "{levels}");
        let (_, content) = talk.result();
        assert!(content.contains("nested") && content.contains("32"), "{content}");
        talk.results("fine");
        assert!(talk.call().is_some(), "the next step runs");
        read_back(&talk);
    }
}

#[test]
fn answer_with_deeper_arguments_is_refused_and_the_gate_stays_open() {
    let mut talk = begin(start(1, 1));
    talk.reply("", &[r#"{"act":1}"#]);
    talk.answer_with(AnswerDecision::Approve, |answer| answer.arguments = Some(Json::parse(&nested(100)).unwrap()));
    assert_eq!((talk.refused(), talk.session.gates().len()), (Some("bad_request"), 1));
    read_back(&talk);
    talk.answer(AnswerDecision::Approve);
    assert_eq!(talk.refused(), None);
}

#[test]
fn replay_parts_nested_too_deep_are_dropped() {
    let mut talk = begin(start(1, 1));
    talk.replay = Some(ReasoningParts {
        family: "f".to_owned(),
        model: "m".to_owned(),
        parts: vec![value(120)],
        positions: Vec::new(),
    });
    talk.reply("", &["{}"]);
    talk.results("fine");
    read_back(&talk);
}

#[test]
fn tool_with_a_deeper_schema_is_not_offered() {
    let talk = begin(start(1, 1));
    read_back(&talk);
    let offered = serde_json::to_string(&talk.item().tools).unwrap();
    assert!(offered.contains("\"look\"") && !offered.contains("\"deep\""), "{offered}");
}
