//! Tools without a session: who may try one, which calls need an approval, and what an executor is asked.

use std::sync::{Arc, Mutex};

use contract::tool::{ApprovalPolicy, EffectClass, Outcome, ToolSpec};
use contract::tool_request::{ToolReplicaStats, ToolRequest, ToolResponse, TrialResult};
use contract::{Json, TenantId, ToolName};
use futures::FutureExt;
use proto::json::to_value;
use serde_json::{Value, json};

use crate::access::Guarded;
use crate::support::Fixture;

pub(crate) async fn put_tool(fixture: &Fixture, name: &str, effect: EffectClass, approval: ApprovalPolicy) {
    let spec = ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: String::new(),
        parameters: Json::parse(r#"{"type":"object"}"#).unwrap(),
        effect,
        approval,
        timeout_ms: None,
        max_output: None,
        instructions: None,
        version: "1".to_owned(),
    };
    fixture.bus.put_tool(&TenantId::default(), &spec).await.unwrap();
}

/// An executor that keeps what it is asked.
pub(crate) async fn serve(fixture: &Fixture) -> (bus::RpcServer, Arc<Mutex<Vec<ToolRequest>>>) {
    let asked: Arc<Mutex<Vec<ToolRequest>>> = Arc::default();
    let seen = asked.clone();
    let answer = move |request: ToolRequest| {
        let response = match &request {
            ToolRequest::Try(_) => ToolResponse::Tried(TrialResult {
                outcome: Outcome::Ok,
                content: "done".to_owned(),
                code: None,
                duration_ms: 7,
            }),
            ToolRequest::Replicas { .. } => ToolResponse::Replicas(vec![ToolReplicaStats {
                tool: ToolName::new("look").unwrap(),
                instance: "r1".to_owned(),
                version: "1".to_owned(),
                started: None,
                calls: 3,
                errors: 1,
                average_ms: Some(2.5),
                last_error: None,
            }]),
        };
        seen.lock().unwrap().push(request);
        std::future::ready(response).boxed()
    };
    (fixture.server.bus().serve_tool_requests(answer).await.unwrap(), asked)
}

#[tokio::test]
async fn pure_tool_is_tried_at_once_and_one_that_takes_effect_only_with_the_hash_that_was_shown() {
    let fixture = Fixture::new().await;
    put_tool(&fixture, "look", EffectClass::Pure, ApprovalPolicy::Never).await;
    put_tool(&fixture, "send", EffectClass::AtMostOnce, ApprovalPolicy::Never).await;
    put_tool(&fixture, "peek", EffectClass::Pure, ApprovalPolicy::Always).await;
    let (_serving, asked) = serve(&fixture).await;
    let mut ws = fixture.ws().await;
    let tried = ws.expect_ok("tools.try", json!({"tool": "look"})).await;
    let result = json!({"outcome": "ok", "content": "done", "duration_ms": 7});
    assert_eq!((&tried["needs_approval"], &tried["result"], &tried["arguments"]), (&json!(false), &result, &json!({})));
    assert_eq!(asked.lock().unwrap().len(), 1);
    for tool in ["send", "peek"] {
        let arguments = json!({"to": "Ann", "n": 1});
        let shown = ws.expect_ok("tools.try", json!({"tool": tool, "arguments": arguments})).await;
        assert_eq!((&shown["needs_approval"], &shown["result"]), (&json!(true), &Value::Null), "{shown}");
        assert_eq!(asked.lock().unwrap().len(), 1, "nothing has run");
        let hash = &shown["arguments_sha256"];
        let other = json!({"tool": tool, "arguments": {"to": "Bob"}, "arguments_sha256": hash});
        assert_eq!(ws.expect_code("tools.try", other).await, "bad_request");
        assert_eq!(asked.lock().unwrap().len(), 1, "nothing has run");
        let approved = json!({"tool": tool, "arguments": arguments, "arguments_sha256": hash});
        assert_eq!(ws.expect_ok("tools.try", approved).await["result"], result);
        let Some(ToolRequest::Try(trial)) = asked.lock().unwrap().pop() else { panic!("no trial") };
        assert_eq!((trial.tool.as_str(), trial.is_approved), (tool, true));
        assert_eq!(serde_json::from_str::<Value>(trial.arguments.get()).unwrap(), arguments);
    }
    assert_eq!(ws.expect_code("tools.try", json!({"tool": "nothing"})).await, "unknown_tool");
    assert_eq!(ws.expect_code("tools.try", json!({"tool": "ask_user"})).await, "not_now");
    let large = json!({"tool": "look", "arguments": {"x": "x".repeat(70_000)}});
    assert_eq!(ws.expect_code("tools.try", large).await, "too_large");
    let replicas = ws.expect_ok("tools.replicas", json!({})).await;
    let replica = json!({"tool": "look", "instance": "r1", "version": "1", "calls": 3, "errors": 1, "average_ms": 2.5});
    assert_eq!(replicas, json!({"replicas": [replica]}));

    let mut grpc = fixture.grpc().await.0;
    let request = proto::TryToolRequest { tool: "look".to_owned(), ..Default::default() };
    let tried = grpc.try_tool(request).await.unwrap().into_inner();
    assert_eq!(to_value(&tried.result.unwrap()).unwrap(), result);
    let listed = grpc.list_tool_replicas(proto::ListToolReplicasRequest {}).await.unwrap().into_inner();
    assert_eq!(to_value(&listed).unwrap(), replicas);
}

#[tokio::test]
async fn trial_needs_administer_and_an_approval_the_scope_of_approvals() {
    let guarded = Guarded::new(&[
        ("runner", "scopes: [run, observe, approve]"),
        ("operator", "scopes: [administer]"),
        ("approver", "scopes: [administer, approve]"),
    ])
    .await;
    put_tool(&guarded.fixture, "look", EffectClass::Pure, ApprovalPolicy::Never).await;
    put_tool(&guarded.fixture, "send", EffectClass::Idempotent, ApprovalPolicy::Never).await;
    let (_serving, asked) = serve(&guarded.fixture).await;
    assert_eq!(guarded.ws(0).await.expect_code("tools.try", json!({"tool": "look"})).await, "forbidden");
    let mut operator = guarded.ws(1).await;
    operator.expect_ok("tools.try", json!({"tool": "look"})).await;
    assert_eq!(operator.expect_code("tools.try", json!({"tool": "send"})).await, "forbidden");
    let mut approver = guarded.ws(2).await;
    let shown = approver.expect_ok("tools.try", json!({"tool": "send"})).await;
    approver.expect_ok("tools.try", json!({"tool": "send", "arguments_sha256": shown["arguments_sha256"]})).await;
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn caller_learns_whose_credential_it_is_and_which_methods_it_may_use() {
    let guarded = Guarded::new(&[
        ("runner", "scopes: [run, observe], subject: ci@example.org, agents: [writer]"),
        ("operator", "scopes: [observe, operate]"),
    ])
    .await;
    let found = guarded.ws(0).await.expect_ok("caller.get", json!({})).await;
    assert_eq!((&found["subject"], &found["tenant"]), (&json!("ci@example.org"), &json!("default")));
    assert_eq!((&found["scopes"], &found["agents"]), (&json!(["run", "observe"]), &json!(["writer"])));
    let methods: Vec<&str> = found["methods"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for (method, is_usable) in
        [("session.start", true), ("session.list", true), ("session.answer", false), ("mail.list", false)]
    {
        assert_eq!(methods.contains(&method), is_usable, "{method}");
    }
    let found = guarded.ws(1).await.expect_ok("caller.get", json!({})).await;
    assert_eq!(found["agents"], Value::Null);
    assert!(found["methods"].as_array().unwrap().contains(&json!("fleet.status")), "{found}");
    let mut grpc = guarded.fixture.grpc().await.0;
    let mut request = tonic::Request::new(proto::GetCallerRequest {});
    let bearer = format!("Bearer {}", guarded.key(0)).parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let found = grpc.get_caller(request).await.unwrap().into_inner();
    let agents = found.agents.map(|agents| agents.as_list);
    assert_eq!((agents, found.scopes.len()), (Some(vec!["writer".to_owned()]), 2));
}
