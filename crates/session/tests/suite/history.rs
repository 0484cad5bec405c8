//! Histories that sessions begin with: calls and results in them are read by the model as its own.

use contract::Json;
use contract::command::Start;
use contract::model::{Content, HistoryCall, HistoryMessage, Message};
use contract::settings::ModelSettings;
use serde_json::{Value, json};

use crate::talk::{Cast, Talk};

#[test]
fn history_of_a_start_is_taken_with_calls_and_results_and_nothing_else() {
    let read = |json: &str| serde_json::from_str::<HistoryMessage>(json);
    for (message, refused) in [
        (r#"{"role":"user","content":"Hi."}"#, None),
        (r#"{"role":"assistant","content":"Hello."}"#, None),
        (r#"{"role":"assistant","tool_calls":[{"name":"look","arguments":"{}","result":"found"}]}"#, None),
        (r#"{"role":"assistant","tool_calls":[{"name":"","arguments":"{}"}]}"#, Some("bad_request")),
        (r#"{"role":"assistant","tool_calls":[]}"#, Some("empty_message")),
    ] {
        let mut talk = Talk::not_started("s");
        let start = Start { messages: vec![read(message).unwrap()], ..Start::default() };
        talk.start("start", start, Ok(Cast::default()));
        assert_eq!(talk.refused(), refused, "{message}");
    }
    for unknown in [
        r#"{"role":"system","content":"You obey."}"#,
        r#"{"role":"tool","tool_call_id":"x","content":"found"}"#,
        r#"{"role":"assistant","tool_calls":[{"id":"x","type":"function","function":{"name":"look"}}]}"#,
    ] {
        assert!(read(unknown).is_err(), "{unknown}");
    }
}

#[test]
fn calls_of_a_history_have_own_ids_and_one_result_each_also_in_the_sessions_that_follow() {
    let call = |result: Option<&str>| HistoryCall {
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
        result: result.map(str::to_owned),
    };
    let reply = |tool_calls: Vec<HistoryCall>| HistoryMessage::Assistant {
        content: "I look.".to_owned(),
        reasoning: String::new(),
        tool_calls,
        replay: None,
    };
    let asked = HistoryMessage::User { content: Content::from("How many?") };
    let messages = vec![asked, reply(vec![call(Some("SECRET-42")), call(None)]), reply(vec![call(Some("seven"))])];
    let start = Start { prompt: Some(Content::from("Say it.")), interactive: true, messages, ..Start::default() };
    let mut talk = Talk::not_started("s");
    talk.start("start", start.clone(), Ok(Cast::default()));
    let sent = |talk: &Talk| -> Vec<Value> {
        talk.item().messages.iter().skip(1).map(|message| serde_json::from_str(message.get()).unwrap()).collect()
    };
    let look = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let result = |id: &str, content: &str| json!({"role": "tool", "tool_call_id": id, "content": content});
    let expected = [
        json!({"role": "user", "content": "How many?"}),
        json!({"role": "assistant", "content": "I look.", "tool_calls": [look("h2-1"), look("h2-2")]}),
        result("h2-1", "SECRET-42"),
        result("h2-2", "no result"),
        json!({"role": "assistant", "content": "I look.", "tool_calls": [look("h3-1")]}),
        result("h3-1", "seven"),
        json!({"role": "user", "content": "Say it."}),
    ];
    assert_eq!(sent(&talk), expected);

    // A session that goes on from it, with a history of its own.
    let history = talk.session.export_transcript();
    let mut next = Talk::not_started("next");
    next.start_from(history, "start", start, Ok(Cast::default()));
    let ids: Vec<String> =
        sent(&next).iter().filter_map(|message| Some(message["tool_call_id"].as_str()?.to_owned())).collect();
    assert_eq!(ids, ["p-h2-1", "p-h2-2", "p-h3-1", "h2-1", "h2-2", "h3-1"]);
}

#[test]
fn history_with_calls_cannot_be_read_as_an_older_version_reads_it() {
    let call = HistoryCall { name: "look".to_owned(), arguments: "{}".to_owned(), result: None };
    let (content, reasoning) = ("I look.".to_owned(), String::new());
    let text = HistoryMessage::Assistant { content, reasoning, tool_calls: Vec::new(), replay: None };
    // Before fold 13, messages of a start had the form of those of a transcript. What cannot be read is handed on.
    let read = |message: &HistoryMessage| serde_json::from_str::<Message>(Json::of(message).get());
    assert!(read(&text).is_ok());
    let HistoryMessage::Assistant { content, reasoning, replay, .. } = text else { panic!("{text:?}") };
    assert!(read(&HistoryMessage::Assistant { content, reasoning, tool_calls: vec![call], replay }).is_err());
}

#[test]
fn large_results_of_a_history_are_cut_before_messages_of_it_are_left_out() {
    let result = Some("x".repeat(60_000));
    let tool_calls = vec![HistoryCall { name: "look".to_owned(), arguments: "{}".to_owned(), result }];
    let reply =
        HistoryMessage::Assistant { content: String::new(), reasoning: String::new(), tool_calls, replay: None };
    let asked = HistoryMessage::User { content: Content::from("MARKER") };
    let start = Start {
        prompt: Some(Content::from("Say it.")),
        interactive: true,
        messages: vec![asked, reply],
        ..Start::default()
    };
    let mut talk = Talk::not_started("s");
    let model = ModelSettings { context_window: Some(8_000), max_output: Some(100), ..ModelSettings::default() };
    talk.start("start", start, Ok(Cast { model, ..Cast::default() }));
    let item = talk.item();
    let texts: Vec<&str> = item.messages.iter().map(Json::get).collect();
    assert!(texts.iter().any(|text| text.contains("MARKER")), "{texts:#?}");
    assert!(texts.iter().map(|text| text.len()).sum::<usize>() < 20_000, "{texts:#?}");
}
