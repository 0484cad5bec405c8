//! Messages of gRPC: they say what the JSON of JSON-RPC says, and what cannot be read is refused by its name.

use contract::event::{GateKind, StopReason};
use contract::streams::Objects;
use contract::tool::{ApprovalPolicy, EffectClass, FullResultRef};
use contract::{CallId, ErrorCode, TenantId};
use futures::FutureExt;
use proto::json::{MethodMessages, from_value, to_value};
use serde_json::{Value, from_value as parse, json};
use session_api::Method;
use tonic::Code;

use crate::bad_input::{call_rpc, list_rpcs, raw_call};
use crate::dead_letters::{control, write_dead_letter};
use crate::support::{Fixture, Ws, key, read_code, wait_until};
use crate::tool_requests::{put_tool, serve};

/// Methods that change something.
const WRITES: [Method; 6] = [
    Method::RepairSession,
    Method::SendMail,
    Method::ReplyMail,
    Method::ResetBudget,
    Method::RetryDeadLetter,
    Method::DropDeadLetter,
];

/// Starts the session `s`, which has called a tool in its first turn and waits for an approval in its second one. The
/// session `c` waits for its client, and `l` at a limit.
async fn run_turns(fixture: &Fixture, ws: &mut Ws) {
    fixture.fake_loop.reply_with("Done.").await;
    let start = |session: &str| json!({"session_id": session, "prompt": "Hi", "interactive": true});
    fixture.fake_loop.call_client_first();
    ws.expect_ok("session.start", start("c")).await;
    fixture.fake_loop.ask_first(GateKind::Limit(StopReason::CostLimit)).await;
    ws.expect_ok("session.start", start("l")).await;
    fixture.fake_loop.ask_approval_first();
    ws.expect_ok("session.start", start("s")).await;
    let gate = ws.expect_ok("gates.list", json!({"session_id": "s"})).await["gates"][0].clone();
    let (id, hash) = (&gate["gate"], &gate["arguments_sha256"]);
    let answer = json!({"session_id": "s", "gate": id, "arguments_sha256": hash, "decision": "approve"});
    ws.expect_ok("session.answer", answer).await;
    ws.expect_ok("session.send", json!({"session_id": "s", "text": "Again."})).await;
    wait_until("all is in the index, and nothing in work", async || {
        let queues = ws.expect_ok("fleet.queues", json!({})).await;
        let listed = ws.expect_ok("session.list", json!({"is_waiting": true, "has_total": true})).await;
        listed["total"] == 3 && queues["queues"][0] == json!({"queue": "drive", "waiting": 0, "held": 0})
    })
    .await;
}

/// Stores a tool, a whole result and a dead letter of the session `s`, and answers for a gateway, the processes of the
/// fleet and the keeper of the mail.
async fn serve_others(fixture: &Fixture) -> [bus::RpcServer; 4] {
    put_tool(fixture, "read_file", EffectClass::Pure, ApprovalPolicy::Never).await;
    write_dead_letter(fixture, &control(&key("s"), "x"), r#"{"content":"lost"}"#, ErrorCode::Poison).await;
    let (tenant, call) = (TenantId::default(), CallId::new("c").unwrap());
    let started = fixture.bus.summary(&key("s")).await.unwrap().map(|summary| summary.started);
    let result = FullResultRef::id(&tenant, &key("s").session, started, &call);
    fixture.bus.transport().put_object(Objects::Results, &result, "all of it".into()).await.unwrap();

    let time = "2026-01-01T00:00:00.000Z";
    let mail = json!({"id": "m1", "from": "e", "subject": "Plan", "text": "May I?", "sent": time});
    let mails = json!({"mails": {"more": 2, "mails": [mail]}});
    let budget = json!({
        "budget": "day.e", "agent": "e", "per": "day", "usd_max": 5.0, "usd_spent": 0.25, "tokens_spent": 1u64 << 60,
        "usd_reserved": 0.0, "tokens_reserved": 7, "running": 1, "ends": time,
    });
    let budgets = json!({"budgets": [budget]});
    let replica = json!({
        "service": "model-gateway", "replica": "g:1", "version": "1", "commit": "unknown", "fold": 1, "started": time,
        "now": time, "warnings": ["hot"], "work": {"model": {"running": 1, "max": 8}},
        "models": [{"provider": "p", "model": "m", "failures": 2, "last_failure": "overloaded"}],
        "configuration": {"fingerprint": "f", "since": time},
    });
    let bus = fixture.server.bus();
    let mail = move |_| std::future::ready(parse(mails.clone()).unwrap()).boxed();
    let budgets = move |_| std::future::ready(parse(budgets.clone()).unwrap()).boxed();
    [
        bus.serve_mail(&tenant, mail).await.unwrap(),
        bus.serve_budgets(budgets).await.unwrap(),
        bus.serve_status(move || parse(replica.clone()).unwrap()).await.unwrap(),
        serve(fixture).await.0,
    ]
}

/// Leaves out what differs between two calls. A field without a value is absent, and so is an empty list.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_there = |name: &str, value: &Value| {
                !value.is_null() && value != &json!([]) && !["now", "clock_ahead_ms"].contains(&name)
            };
            let kept = fields.into_iter().filter(|(name, value)| is_there(name, value));
            kept.map(|(name, value)| (name, plain(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

#[tokio::test]
async fn result_over_grpc_is_that_over_json_rpc() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    run_turns(&fixture, &mut ws).await;
    let _others = serve_others(&fixture).await;
    let is_read = |method: &Method| !method.is_command() && !method.is_stream() && !WRITES.contains(method);
    let reads = list_rpcs().into_iter().filter(|(method, _)| is_read(method));
    let mut rows: Vec<(Method, Value)> = reads.map(|(method, case)| (method, case.needed)).collect();
    assert!(rows.len() >= 24, "{} methods read", rows.len());
    rows.extend([
        (Method::ListSessions, json!({"limit": 1, "has_total": true})),
        (Method::GetTranscript, json!({"session_id": "s", "limit": 1})),
        (Method::ReplaySession, json!({"session_id": "s", "at": 3, "no_commits": true})),
        (Method::DescribeSession, json!({"session_id": "l"})),
        (Method::DescribeSession, json!({"session_id": "c"})),
        (Method::GetStats, json!({"since": "2023-11-14T00:00:00Z", "interval": 2_000_000_000})),
        (Method::ListGates, json!({"session_id": "l"})),
    ]);
    for (method, params) in rows {
        let over_ws = ws.expect_ok(method.name(), params.clone()).await;
        let over_grpc = call_rpc(&fixture, method, params.clone(), None).await.unwrap();
        assert_eq!(plain(over_grpc), plain(over_ws), "{} {params}", method.rpc());
    }
}

#[tokio::test]
async fn json_that_cannot_be_read_is_refused_by_the_name_of_its_field() {
    let fixture = Fixture::new().await;
    let mut compared = 0;
    for (method, _) in list_rpcs() {
        let request = MethodMessages::find(method.rpc()).unwrap().request;
        for field in request.fields().filter(|field| field.name().ends_with("_json")) {
            for damaged in ["", "{", "{}{}"] {
                let mut body = Vec::new();
                prost::encoding::string::encode(field.number(), &damaged.to_owned(), &mut body);
                let refused = raw_call(&fixture, method.rpc(), body, None).await.unwrap_err();
                assert_eq!((refused.code(), &*read_code(&refused)), (Code::InvalidArgument, "bad_request"));
                let names = refused.message().contains(&format!("`{}` is not JSON", field.name()));
                assert!(names, "{} {damaged}: {refused}", method.rpc());
                compared += 1;
            }
        }
    }
    assert!(compared >= 24, "{compared} requests were sent");
}

#[tokio::test]
async fn field_that_a_message_has_not_is_refused_by_its_name() {
    let unknown = from_value::<proto::StartSessionRequest>(json!({"features": {"colour": 1}})).unwrap_err();
    assert!(unknown.to_string().contains("colour"), "{unknown}");
    let fixture = Fixture::new().await;
    for field in ["ai_config", "continuation", "streaming"] {
        let params = json!({"interactive": true, field: {"colour": 1}});
        let refused = call_rpc(&fixture, Method::StartSession, params, None).await.unwrap_err();
        assert_eq!((refused.code(), &*read_code(&refused)), (Code::InvalidArgument, "bad_request"), "{refused}");
        assert!(refused.message().contains("colour") && refused.message().contains(field), "{refused}");
    }
}

#[test]
fn key_of_a_map_is_no_name_of_a_field() {
    let approvals = json!([{"tool": "send", "ask": "always", "when": {"/body_json": "x", "as_text": "y"}}]);
    let agent: proto::AgentDescription = from_value(json!({"approvals": approvals})).unwrap();
    assert_eq!(to_value(&agent).unwrap()["approvals"], approvals);
}
