//! Admission: a turn over a limit is refused, and accepted turns continue.

use contract::ids::CallAttempt;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{CallId, SessionId, TenantId};
use proto::{GetQueuesRequest, SendMessageRequest, StartSessionRequest, StopSessionRequest};
use serde_json::json;

use crate::support::{Fixture, config, key, read_code, wait_until};

fn call(session: &str) -> subject::Subject {
    subject::model_item(&key(session), &CallAttempt { call: CallId::model(1, 1), attempt: 1 })
}

fn start() -> StartSessionRequest {
    StartSessionRequest {
        session_id: Some("one".to_owned()),
        command_id: Some("begin".to_owned()),
        prompt: Some("go".to_owned().into()),
        interactive: Some(true),
        ..StartSessionRequest::default()
    }
}

#[tokio::test]
async fn tenant_flooding_queue_is_refused_before_others() {
    for (floods, refused) in [("acme", false), ("default", true)] {
        let fixture = Fixture::with(edge::EdgeConfig { waiting_calls_max: 5, ..config() }).await;
        for session in ["a", "b", "c", "d"] {
            let key = SessionKey { tenant: TenantId::new(floods).unwrap(), ..key(session) };
            let call = CallAttempt { call: CallId::model(1, 1), attempt: 1 };
            let item = subject::model_item(&key, &call);
            fixture.bus.transport().append(&item, false, Vec::new(), "{}".into()).await.unwrap();
        }
        let mut client = fixture.grpc().await.0;
        let queues = client.get_queues(GetQueuesRequest {}).await.unwrap().into_inner();
        assert_eq!((queues.waiting_calls_max, queues.tenant_waiting_calls_max), (5, 4));
        match client.start_session(start()).await {
            Ok(_) => assert!(!refused),
            Err(status) => {
                assert!(refused && read_code(&status) == "overloaded", "{floods}: {status}");
                assert!(status.message().contains("4 model calls of tenant default"), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn turn_over_waiting_call_limit_is_refused() {
    let fixture = Fixture::with(edge::EdgeConfig { waiting_calls_max: 2, ..config() }).await;
    let mut client = fixture.grpc().await.0;
    // These are model calls that no gateway takes.
    for session in ["a", "b"] {
        fixture.bus.transport().append(&call(session), false, Vec::new(), "{}".into()).await.unwrap();
    }
    let refused = client.start_session(start()).await.unwrap_err();
    assert_eq!(read_code(&refused), "overloaded");
    assert_eq!(refused.metadata().get("ailoop-retry-after-ms").unwrap(), "2000");

    let queues = client.get_queues(GetQueuesRequest {}).await.unwrap().into_inner();
    let model = queues.queues.iter().find(|queue| queue.queue == "model").unwrap();
    assert_eq!((model.waiting, model.held, queues.waiting_calls_max), (2, 0, 2));
    let queues_json = fixture.ws().await.expect_ok("fleet.queues", json!({})).await;
    assert_eq!(queues_json["queues"][2], json!({"queue": "model", "waiting": 2, "held": 0}));

    fixture.bus.transport().purge(Stream::Model, &call("a")).await.unwrap();
    wait_until("there is room", async || fixture.grpc().await.0.start_session(start()).await.is_ok()).await;
    fixture.bus.transport().append(&call("a"), false, Vec::new(), "{}".into()).await.unwrap();
    let send = || SendMessageRequest {
        session_id: "one".to_owned(),
        content: Some("more".to_owned().into()),
        ..SendMessageRequest::default()
    };
    wait_until("there is none", async || {
        fixture.grpc().await.0.send_message(send()).await.is_err_and(|status| read_code(&status) == "overloaded")
    })
    .await;
    // A stop is never refused.
    client
        .stop_session(StopSessionRequest { session_id: "one".to_owned(), ..StopSessionRequest::default() })
        .await
        .unwrap();
}

#[tokio::test]
async fn session_over_tenant_limit_is_refused_and_ended_ones_do_not_count() {
    let fixture = Fixture::with(edge::EdgeConfig { tenant_sessions_max: 2, ..config() }).await;
    let mut ws = fixture.ws().await;
    for session in ["a", "b"] {
        ws.expect_ok("session.start", json!({"session_id": session, "prompt": "x", "interactive": true})).await;
    }
    let refused = ws.call("session.start", json!({"session_id": "c", "prompt": "x"})).await;
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("edge.tenant_sessions_max") && message.contains("session.stop"), "{message}");
    // Existing sessions continue.
    ws.expect_ok("session.send", json!({"session_id": "a", "text": "more"})).await;
    ws.expect_ok("session.stop", json!({"session_id": "a"})).await;
    wait_until("there is room", async || {
        let mut ws = fixture.ws().await;
        let answer = ws.call("session.start", json!({"session_id": "c", "prompt": "x", "interactive": true})).await;
        answer.get("error").is_none()
    })
    .await;
}

#[tokio::test]
async fn turn_over_tenant_waiting_turns_is_refused() {
    let fixture = Fixture::with(edge::EdgeConfig { tenant_waiting_turns_max: Some(3), ..config() }).await;
    let mut ws = fixture.ws().await;
    for session in ["a", "b"] {
        ws.expect_ok("session.start", json!({"session_id": session, "prompt": "x", "interactive": true})).await;
    }
    fixture.fake_loop.pause();
    // One model call and two commands wait.
    fixture.bus.transport().append(&call("z"), false, Vec::new(), "{}".into()).await.unwrap();
    for id in ["one", "two"] {
        let (verb, id) = (contract::command::Verb::SendUserMessage, contract::CommandId::new(id).unwrap());
        fixture.bus.send_control(&key("a"), verb, &id, "{\"meta\":{}}".into()).await.unwrap();
    }
    let (mut refused, mut tries) = (json!(null), 0);
    wait_until("the edge sees what waits", async || {
        // Each try starts another session, since one session has its own limit of waiting commands.
        tries += 1;
        let start = json!({"session_id": format!("c{tries}"), "prompt": "x", "interactive": true, "no_wait": true});
        refused = fixture.ws().await.call("session.start", start).await;
        refused["error"]["data"]["code"] == "overloaded"
    })
    .await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("edge.tenant_waiting_turns_max") && message.contains('3'), "{message}");
    assert!(refused["error"]["data"]["retry_after_ms"].as_u64().unwrap() > 0);
    ws.expect_ok("session.stop", json!({"session_id": "b", "no_wait": true})).await;
}

#[tokio::test]
async fn turn_over_the_open_tool_calls_of_its_tenant_is_refused() {
    let fixture = Fixture::with(edge::EdgeConfig { tenant_tool_calls_max: 3, ..config() }).await;
    let mut ws = fixture.ws().await;
    ws.expect_ok("session.start", json!({"session_id": "a", "prompt": "x", "interactive": true})).await;
    let tool = contract::ToolName::new("slow").unwrap();
    for number in 0..3 {
        let session = SessionKey { session: SessionId::new(&format!("s{number}")).unwrap(), ..key("a") };
        let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
        let at = subject::tool_item(&session, &tool, &call);
        fixture.bus.transport().append(&at, false, Vec::new(), "{}".into()).await.unwrap();
    }
    let mut message = String::new();
    wait_until("the edge sees what is open", async || {
        let more = json!({"session_id": "a", "text": "more"});
        let refused = fixture.ws().await.call("session.send", more).await;
        message = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
        refused["error"]["data"]["code"] == "overloaded"
    })
    .await;
    assert!(
        message.starts_with("3 tool calls of tenant default are open")
            && message.contains("edge.tenant_tool_calls_max"),
        "{message}"
    );
    ws.expect_ok("session.stop", json!({"session_id": "a", "no_wait": true})).await;
}

#[tokio::test]
async fn turn_over_tenant_stored_bytes_is_refused() {
    let fixture = Fixture::with(edge::EdgeConfig { tenant_stored_bytes_max: 100_000, ..config() }).await;
    let mut ws = fixture.ws().await;
    let prompt = "x".repeat(60_000);
    ws.expect_ok("session.start", json!({"session_id": "a", "prompt": prompt, "interactive": true})).await;
    ws.expect_ok("session.send", json!({"session_id": "a", "text": prompt})).await;
    let mut refused = json!(null);
    wait_until("the edge sees what is stored", async || {
        refused = fixture.ws().await.call("session.send", json!({"session_id": "a", "text": "x"})).await;
        refused["error"]["data"]["code"] == "overloaded"
    })
    .await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("edge.tenant_stored_bytes_max") && message.contains("100000"), "{message}");
    ws.expect_ok("session.stop", json!({"session_id": "a"})).await;
}
