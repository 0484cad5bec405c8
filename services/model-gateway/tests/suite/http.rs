//! The chat-completions protocol against correct and faulty servers.

#[allow(dead_code, unreachable_pub, reason = "the server of the end-to-end tests; not all of it is used here")]
#[path = "../../../../tests/src/model/mod.rs"]
mod model;

use std::time::Duration;

use configuration::models;
use configuration::{Paths, TextFile};
use contract::model::{FailureKind, FinishReason, ItemMeta, ModelItem, Streaming, ToolCall, Usage};
use contract::settings::ModelSettings;
use contract::{CallId, Json};
use model::{Gate, ModelServer, ScriptedReply as Answer};
use model_gateway::failure::CallFailure;
use model_gateway::probe::probe;
use model_gateway::provider::{ProviderRequest, Providers};
use model_gateway::reply::{Delta, ModelReply};
use model_gateway::{Clock, SystemClock};
use serde_json::{Map, json};
use tokio::sync::mpsc;

fn item(streamed: bool) -> ModelItem {
    let meta = ItemMeta {
        v: 1,
        slot: 1,
        turn: 1,
        step: 1,
        call: CallId::model(1, 1),
        attempt: 1,
        deadline: SystemClock.now().after(Duration::from_mins(1)),
        agent: "a".to_owned(),
    };
    ModelItem {
        signal: contract::model::SignalForm::Text,
        opened_by: String::new(),
        response_format: None,
        meta,
        model: "m/up-1".to_owned(),
        messages: vec![Json::of(&json!({"role": "user", "content": "hi"}))],
        after: None,
        tools: vec![],
        parallel_tool_calls: true,
        parameters: Map::new(),
        streaming: Streaming { enabled: streamed, connect: 1, first_byte: 1, idle: 1, ..Streaming::default() },
    }
}

fn providers(url: &str, more: &str) -> Providers {
    let text = format!("providers: {{m: {{kind: openai_chat, base_url: \"{url}\"{more}}}}}");
    let file = TextFile { origin: "models.yaml".to_owned(), text };
    Providers::new(models::parse(&file).unwrap(), &Paths::default()).unwrap()
}

async fn call(providers: &Providers, item: &ModelItem) -> Result<ModelReply, CallFailure> {
    let provider = providers.find_routes(&item.model).unwrap().routes.remove(0).client;
    let (send, mut deltas) = mpsc::channel::<Vec<Delta>>(64);
    let traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let settings = ModelSettings { reasoning: true, ..ModelSettings::default() };
    let request =
        ProviderRequest { item, parts: &[], upstream: "up-1", provider: "m", settings: &settings, traceparent };
    let call = async {
        let send = send;
        provider.call(&request, &send, &SystemClock).await
    };
    let collect = async {
        let mut reply = ModelReply::default();
        while let Some(more) = deltas.recv().await {
            for delta in more {
                reply.add(&delta)?;
            }
        }
        Ok(reply)
    };
    let (ended, reply) = tokio::join!(call, collect);
    ended.and(reply)
}

async fn get_reply(answer: Answer, streamed: bool) -> Result<ModelReply, CallFailure> {
    let server = ModelServer::with_replies(vec![answer]).await.unwrap();
    call(&providers(&server.base_url(), ""), &item(streamed)).await
}

async fn failure_kind(answer: Answer) -> FailureKind {
    get_reply(answer, true).await.map(|reply| panic!("a reply: {reply:?}")).unwrap_err().kind
}

#[tokio::test]
async fn reply_streamed_and_whole_is_read() {
    for streamed in [true, false] {
        let answer = Answer::text("Hello you")
            .and_reasoning("Hm")
            .and_calls(&[("f", json!({"a": "ä"})), ("g", json!({}))])
            .usage(7, 3);
        let reply = get_reply(answer, streamed).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Hello you", "Hm"));
        assert_eq!(reply.calls(), [ToolCall::new("call_0", "f", "{\"a\":\"ä\"}"), ToolCall::new("call_1", "g", "{}")]);
        assert_eq!(reply.finish, Some((FinishReason::ToolCalls, "tool_calls".to_owned())));
        assert_eq!(reply.usage, Some(Usage { input: 7, output: 3, cached: 0, reasoning: 0 }));
        assert_eq!(reply.model, "up-1");
    }
}

#[tokio::test]
async fn request_has_headers_trace_and_model() {
    let server = ModelServer::with_replies(vec![Answer::text("ok")]).await.unwrap();
    let headers = ", headers: {x-title: ailoop}";
    call(&providers(&server.base_url(), headers), &item(true)).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].header("x-title"), Some("ailoop"));
    assert_eq!(requests[0].header("traceparent"), Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    assert_eq!(requests[0].header("authorization"), None);
    assert_eq!((requests[0].body["model"].as_str(), requests[0].last_user()), (Some("up-1"), "hi"));
}

#[tokio::test]
async fn key_of_a_provider_is_sent_and_masked_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "sk-secret\n").unwrap();
    let echo = Answer::status(401, r#"{"error":{"message":"wrong key: sk-secret"}}"#);
    let server = ModelServer::with_replies(vec![echo]).await.unwrap();
    let entry = format!(", api_key_file: {:?}", path.display().to_string());
    let failure = call(&providers(&server.base_url(), &entry), &item(true)).await.unwrap_err();
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-secret"));
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.ends_with("wrong key: [key]"), "{}", failure.message);

    let missing = providers(&server.base_url(), ", api_key_env: AILOOP_TEST_NO_SUCH_KEY");
    let failure = call(&missing, &item(true)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.contains("AILOOP_TEST_NO_SUCH_KEY"), "{}", failure.message);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn key_split_in_a_reply_is_masked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let key = "sk-secret-0123456789";
    std::fs::write(&path, key).unwrap();
    let entry = format!(", api_key_file: {:?}", path.display().to_string());
    for cut in 1..key.len() {
        let (head, tail) = key.split_at(cut);
        let answer = Answer::text(&format!("It is {head}"))
            .and_text(&format!("{tail}, s"))
            .and_reasoning(&format!("I know {head}"))
            .and_reasoning(tail)
            .and_calls(&[("f", json!({"key": key}))]);
        let server = ModelServer::with_replies(vec![answer]).await.unwrap();
        let reply = call(&providers(&server.base_url(), &entry), &item(true)).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("It is [key], s", "I know [key]"), "cut at {cut}");
        assert_eq!(reply.calls()[0].function.arguments, "{\"key\":\"[key]\"}");
    }
}

#[tokio::test]
async fn failure_with_status_502_names_status_address_and_provider_message() {
    for (body, words) in [
        (r#"{"error":{"message":"the upstream is gone"}}"#, ": the upstream is gone"),
        ("no healthy upstream\n", ": no healthy upstream"),
        ("<html><head><title>502 Bad Gateway</title></head></html>", ""),
    ] {
        let server = ModelServer::with_replies(vec![Answer::status(502, body)]).await.unwrap();
        let url = server.base_url().replace("http://", "http://user:pass@");
        let failure = call(&providers(&url, ", query: {secret: hush}"), &item(true)).await.unwrap_err();
        let address = server.base_url().trim_start_matches("http://").split('/').next().unwrap().to_owned();
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert_eq!(failure.message, format!("{address} answers with status 502{words}"));
    }
}

#[tokio::test]
async fn provider_answering_with_an_error_fails_with_its_kind() {
    let failure = get_reply(Answer::status(429, "{}").header("retry-after", "7"), true).await.unwrap_err();
    assert_eq!((failure.kind, failure.retry_after), (FailureKind::RateLimited, Some(Duration::from_secs(7))));
    assert_eq!(failure_kind(Answer::status(503, "<html>busy</html>")).await, FailureKind::Overloaded);
    assert_eq!(failure_kind(Answer::status(500, "")).await, FailureKind::Unreachable);
    assert_eq!(failure_kind(Answer::status(200, "<html>login</html>")).await, FailureKind::ProtocolError);
    let context = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    assert_eq!(failure_kind(Answer::status(400, context)).await, FailureKind::ContextLength);
    let failure = get_reply(Answer::status(307, "").header("location", "http://127.0.0.1:9/"), true).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::BadRequest);
    assert!(failure.message.contains("redirects to http://127.0.0.1:9/"), "{}", failure.message);
}

#[tokio::test]
async fn provider_not_reachable_fails_and_names_the_address() {
    let url = model::refusing_url().await.unwrap();
    let failure = call(&providers(&url, ""), &item(true)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Unreachable);
    assert!(!failure.message.contains("http"), "{}", failure.message);
    let address = url.trim_start_matches("http://").split('/').next().unwrap();
    assert!(failure.message.starts_with("no connection to "), "{}", failure.message);
    assert!(failure.message.contains(address) && failure.message.contains("refused"), "{}", failure.message);
    let nowhere = call(&providers("http://no-such-host.invalid/v1", ""), &item(true)).await.unwrap_err();
    assert_eq!(nowhere.kind, FailureKind::Unreachable);
}

#[tokio::test]
async fn stream_broken_or_silent_fails_with_its_kind() {
    let (end, broken) = tokio::join!(
        failure_kind(Answer::text("half a").and_stop()),
        failure_kind(Answer::text("half a").and_break()),
    );
    assert_eq!((end, broken), (FailureKind::Truncated, FailureKind::Truncated));
    let call = Answer::calls(&[("f", json!({"a": 1}))]).and_break();
    assert_eq!(failure_kind(call).await, FailureKind::Truncated);
    let (first, before, idle) = tokio::join!(
        failure_kind(Answer::hang()),
        failure_kind(Answer::raw("").and_hang()),
        failure_kind(Answer::text("half a").and_hang()),
    );
    assert_eq!((first, before, idle), (FailureKind::TimedOut, FailureKind::TimedOut, FailureKind::TimedOut));
    let garbage = failure_kind(Answer::text("half a").and_raw("data: {oops\n\n")).await;
    assert_eq!(garbage, FailureKind::ProtocolError);
}

#[tokio::test]
async fn connection_broken_after_a_complete_reply_is_ignored() {
    let done = "data: {\"choices\":[{\"delta\":{\"content\":\"all\"},\"finish_reason\":\"stop\"}]}\n\n";
    for answer in [Answer::raw(done), Answer::raw(done).and_break(), Answer::raw(done).and_hang()] {
        assert_eq!(get_reply(answer, true).await.unwrap().text, "all");
    }
}

#[tokio::test]
async fn call_dropped_closes_the_connection_to_the_provider() {
    let gate = Gate::new();
    let answer = Answer::text("half a").and_gate(&gate);
    let server = ModelServer::with_replies(vec![answer]).await.unwrap();
    let providers = providers(&server.base_url(), "");
    let mut item = item(true);
    item.streaming.idle = 60;
    tokio::select! {
        ended = call(&providers, &item) => panic!("it ended: {ended:?}"),
        () = gate.reached() => {}
    }
    tokio::time::timeout(Duration::from_secs(10), server.wait_until_idle()).await.unwrap();
}

#[tokio::test]
async fn reply_not_streamed_has_no_first_byte_timeout() {
    let server = ModelServer::with_replies(vec![Answer::text("late").and_delay(Duration::from_millis(1_500))]);
    let server = server.await.unwrap();
    assert_eq!(call(&providers(&server.base_url(), ""), &item(false)).await.unwrap().text, "late");
}

#[tokio::test]
async fn recording_is_replayed_without_the_provider_and_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let (key, recordings) = (dir.path().join("key"), dir.path().join("tapes"));
    std::fs::write(&key, "sk-secret").unwrap();
    let answers = vec![
        Answer::text("the key is sk-secret, \u{4f60}\u{597d}").and_calls(&[("f", json!({"a": 1}))]),
        Answer::status(429, r#"{"error":{"message":"not sk-secret again"}}"#).header("retry-after", "7"),
    ];
    let server = ModelServer::with_replies(answers).await.unwrap();
    let entry = format!(", api_key_file: {key:?}, headers: {{x-more: other-secret}}, record: {recordings:?}");
    let recorded = providers(&server.base_url(), &entry);
    let live = call(&recorded, &item(true)).await.unwrap();
    let refused = call(&recorded, &item(true)).await.unwrap_err();
    for recording in std::fs::read_dir(&recordings).unwrap() {
        let text = std::fs::read_to_string(recording.unwrap().path()).unwrap();
        assert!(!text.contains("sk-secret") && !text.contains("other-secret"), "{text}");
    }
    drop(server);
    std::fs::remove_file(&key).unwrap();
    let replayed = providers("http://127.0.0.1:9", &format!(", api_key_file: {key:?}, replay: {recordings:?}"));
    let reply = call(&replayed, &item(true)).await.unwrap();
    assert_eq!(reply.text, live.text.replace("[key]", "[secret]"));
    assert_eq!((reply.calls(), reply.usage, reply.finish), (live.calls(), live.usage, live.finish));
    let again = call(&replayed, &item(true)).await.unwrap_err();
    assert_eq!((again.kind, again.retry_after), (refused.kind, refused.retry_after));
    assert!(call(&replayed, &item(true)).await.unwrap_err().message.contains("all of them were replayed"));
}

#[tokio::test]
async fn probe_of_a_model_reports_its_capabilities() {
    let server = ModelServer::start(|request| {
        let sum = |a: u32, b: u32| ("add", json!({"a": a, "b": b}));
        match request.last_user() {
            prompt if prompt.contains("twice") => Answer::calls(&[sum(1, 2), sum(3, 4)]),
            prompt if prompt.contains("Call the tool") => Answer::calls(&[sum(2, 40)]),
            _ if request.body["response_format"].is_object() => Answer::text("{\"sum\":42}"),
            _ => Answer::text("one two three").and_reasoning("Hm"),
        }
    });
    let server = server.await.unwrap();
    let mut lines = Vec::new();
    let report = probe(&providers(&server.base_url(), ""), "m/up-1", |line| lines.push(line.to_owned())).await.unwrap();
    assert!(
        report.streaming && report.tools && report.parallel && report.structured && report.reasoning && report.usage
    );
    let entry = "  m/up-1:\n    provider: m\n    model: up-1\n    multi_tool: true\n    max_parallel_tools: 8\n    \
                 structured_output: true\n    reasoning: true\n";
    assert_eq!(report.to_yaml("m/up-1"), entry, "{lines:?}");

    let server = ModelServer::start(|request| {
        if request.tools().is_empty() && request.body["response_format"].is_null() {
            Answer::text("no")
        } else {
            Answer::status(400, r#"{"error":{"message":"unknown field"}}"#)
        }
    });
    let server = server.await.unwrap();
    let mut lines = Vec::new();
    let report = probe(&providers(&server.base_url(), ""), "m/up-1", |line| lines.push(line.to_owned())).await.unwrap();
    assert_eq!(report.to_yaml("plain"), "  plain:\n    provider: m\n    model: up-1\n");
    assert!(lines.iter().any(|line| line.starts_with("tools: refused: ")), "{lines:?}");

    let locked = ModelServer::start(|_| Answer::status(401, "{}")).await.unwrap();
    let failure = probe(&providers(&locked.base_url(), ""), "m/up-1", |_| {}).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
}
