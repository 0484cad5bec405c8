//! AG-UI with input that no agent can take, and with threads that are out of reach.

use contract::tool::sha256_hex;
use edge::EdgeConfig;
use serde_json::{Value, json};

use crate::ag_ui::{PATH, count_sessions, fixture, input, resume, run};
use crate::support::http::{Http, read};
use crate::support::{Fixture, config};

#[tokio::test]
async fn input_that_no_agent_can_take_is_refused_before_the_stream() {
    let (_fixture, http) = fixture("x").await;
    let message = |message: Value| {
        let mut body = input("t", "r", "x");
        body["messages"] = json!([message]);
        body
    };
    let with = |field: &str, value: Value| {
        let mut body = input("t", "r", "x");
        body[field] = value;
        body
    };
    let tools: Vec<Value> = (0..200).map(|index| json!({"name": format!("f{index}"), "description": ""})).collect();
    let many: Vec<Value> = (0..1_200).map(|_| json!({"role": "user", "content": "x"})).collect();
    let values: Vec<Value> = (0..40_000).map(Value::from).collect();
    let results: Vec<Value> =
        (0..200).map(|_| json!({"role": "tool", "toolCallId": "call_s_c1", "content": ""})).collect();
    let entries: Vec<Value> = (0..200).map(|_| json!({"interruptId": "x", "status": "cancelled"})).collect();
    for (body, status, code) in [
        (json!([]), 400, "bad_request"),
        (json!({"threadId": "t", "runId": "r"}), 400, "bad_request"),
        (with("threadId", json!("")), 400, "bad_request"),
        (with("threadId", json!("x".repeat(2_000))), 400, "bad_request"),
        (with("runId", Value::Null), 400, "bad_request"),
        (with("messages", json!([])), 400, "empty_message"),
        (with("messages", json!(["x"])), 400, "bad_request"),
        (message(json!({"role": "robot", "content": "x"})), 400, "bad_request"),
        (message(json!({"role": "assistant", "content": "x"})), 400, "empty_message"),
        (message(json!({"role": "user", "content": 7})), 400, "bad_request"),
        (
            message(json!({"role": "user", "content": [{"type": "audio", "source": {"type": "url", "value": "x"}}]})),
            400,
            "bad_request",
        ),
        (with("tools", json!(tools)), 413, "too_large"),
        (with("tools", json!([{"name": "a b", "description": ""}])), 400, "bad_request"),
        (with("messages", json!(many)), 413, "too_large"),
        (with("messages", json!(results)), 413, "too_large"),
        (with("resume", json!(entries)), 413, "too_large"),
        (with("state", json!(values)), 413, "too_large"),
        (message(json!({"role": "user", "content": "x".repeat(5 << 20)})), 413, "too_large"),
    ] {
        let (found, answer) = http.post(PATH, body.clone()).await;
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(
            (found, &answer["code"], &answer["type"]),
            (status, &json!(code), &json!("RUN_ERROR")),
            "{shown}: {answer}"
        );
    }
    let request = http.request("POST", PATH).header("content-type", "application/json").body("{\"threadId\": ");
    assert_eq!(read(request.send().await.unwrap()).await.0, 400);
    assert_eq!(http.post("/ag-ui/nobody", input("t", "r", "x")).await.1["code"], "unknown_agent");
    assert_eq!(http.post("/ag-ui/a.b", input("t", "r", "x")).await.0, 400);
    assert_eq!(http.get("/ag-ui/x/y").await.1["code"], "unknown_method");
    assert_eq!(count_sessions(&http).await, 0);
}

#[tokio::test]
async fn thread_of_another_tenant_is_another_session() {
    let directory = tempfile::tempdir().unwrap();
    let entries = [
        "tenant: acme, scopes: [run, observe, approve]",
        "tenant: other, scopes: [run, observe]",
        "tenant: acme, scopes: [observe]",
        "tenant: acme, scopes: [run, observe, approve], agents: [a]",
    ];
    let keys = entries.map(|_| configuration::api_key::generate_key());
    let rows =
        keys.iter().zip(entries).enumerate().map(|(index, (key, rest))| {
            format!("  - {{id: k{index}, sha256: {}, {rest}}}\n", sha256_hex(key.as_bytes()))
        });
    let file = directory.path().join("keys.yaml");
    std::fs::write(&file, format!("keys:\n{}", rows.collect::<String>())).unwrap();
    let fixture = Fixture::with(EdgeConfig { keys_file: Some(file), ..config() }).await;
    fixture.fake_loop.reply_with("Good day.").await;
    fixture.fake_loop.ask_approval_first();
    let [ann, bob, eve, cid] = keys.map(|key| Http::new(fixture.edge.addresses().ws, Some(&key)));

    let of_ann = run(&ann, &input("t", "r", "Hi")).await;
    let id = of_ann.last().unwrap()["outcome"]["interrupts"][0]["id"].clone();
    let session = of_ann[1]["value"]["sessionId"].as_str().unwrap().to_owned();
    let refused = run(&bob, &resume("r2", &id, &json!({"approved": true}))).await;
    assert_eq!(refused[1]["code"], "unknown_session");
    let of_bob = run(&bob, &input("t", "r", "Hi")).await;
    assert_ne!(of_bob[1], of_ann[1], "names of tenants share nothing");
    let refused = run(&bob, &resume("r2", &id, &json!({"approved": true}))).await;
    assert_eq!(refused[1]["code"], "gate_closed", "the gate of another tenant");
    run(&bob, &input(&session, "r", "Hi")).await;
    assert_eq!(
        ann.get(&format!("/v1/sessions/{session}")).await.1["turn"],
        1,
        "the id of a session of another tenant is a name"
    );
    let own = of_bob.last().unwrap()["outcome"]["interrupts"][0]["id"].clone();
    let (status, error) = bob.post(PATH, resume("r2", &own, &json!({"approved": true}))).await;
    assert_eq!((status, &error["code"]), (403, &json!("forbidden")), "bob may not answer gates: {error}");

    for (path, body) in [
        (PATH, input("t2", "r", "Hi")),
        ("/ag-ui/agent/e/run", input("t2", "r", "Hi")),
        ("/ag-ui/agent/e/stop/t", json!({})),
    ] {
        let (status, error) = eve.post(path, body).await;
        assert_eq!((status, &error["code"], &error["type"]), (403, &json!("forbidden"), &json!("RUN_ERROR")), "{path}");
    }
    assert_eq!(eve.get("/ag-ui/info").await.0, 200);
    let refused = run(&cid, &resume("r2", &id, &json!({"approved": true}))).await;
    assert_eq!(refused[1]["code"], "unknown_session", "the agent of the thread is out of reach");
    let (status, error) = cid.post(PATH, input("t", "r", "Hi")).await;
    assert_eq!((status, &error["code"]), (404, &json!("unknown_session")), "{error}");
    assert_eq!(cid.post("/ag-ui/agent/e/stop/t", json!({})).await.1, json!({"stopped": false}));
    let nobody = Http::new(fixture.edge.addresses().ws, None);
    assert_eq!(nobody.post(PATH, input("t", "r", "Hi")).await.1["code"], "unauthorized");
    assert_eq!(nobody.get("/ag-ui/info").await.0, 401);
}
