//! Two tenants reach nothing of each other: every method of every protocol answers for an id of another tenant as it does
//! for one that nobody has.

use serde_json::{Map, Value, json};

use crate::access::{Guarded, key_of};
use crate::bad_input::{call_rpc, list_methods, list_rpcs};
use crate::support::mcp::Mcp;
use crate::support::{Fixture, read_code};

/// Two tenants, the first of which has the session `s`. Nobody has the session `z`.
async fn two_tenants() -> Guarded {
    let every = "scopes: [run, observe, approve, administer]";
    let guarded = Guarded::new(&[("a", &format!("{every}, tenant: a")), ("b", &format!("{every}, tenant: b"))]).await;
    guarded.fixture.fake_loop.reply_with("x").await;
    guarded.http(0).post("/v1/sessions", json!({"session_id": "s", "prompt": "x", "interactive": true})).await;
    guarded.ws(0).await.expect_ok("session.get", json!({"session_id": "s"})).await;
    guarded
}

async fn log_length(fixture: &Fixture) -> usize {
    fixture.bus.history(&key_of("a", "s"), 0).await.unwrap().len()
}

/// Compares answers about the sessions `s` and `z`, where their ids do not count.
#[derive(Default)]
struct Comparison {
    count: usize,
    leaks: Vec<String>,
}

impl Comparison {
    fn add(&mut self, name: &str, of_other: &str, of_nobody: &str) {
        self.count += 1;
        let (other, nobody) = (without_id(of_other, 's'), without_id(of_nobody, 'z'));
        if other != nobody {
            self.leaks.push(format!("{name}: {other} is not {nobody}"));
        }
    }

    fn assert_none(&self, at_least: usize) {
        assert_eq!(self.leaks, Vec::<String>::new());
        assert!(self.count >= at_least, "{} methods were compared", self.count);
    }
}

fn without_id(answer: &str, id: char) -> String {
    let items = [("resp_", "_"), ("msg_", "_"), ("fc_", "_")];
    let marks = [("session ", ""), ("letter ", "/"), ("\"session_id\":\"", "\""), ("/sessions/", "")];
    let hide = |text: String, (before, after): (&str, &str)| {
        text.replace(&format!("{before}{id}{after}"), &format!("{before}?{after}"))
    };
    marks.into_iter().chain(items).fold(answer.to_owned(), hide)
}

#[tokio::test]
async fn json_rpc_method_tells_nothing_of_another_tenant() {
    let guarded = two_tenants().await;
    let before = log_length(&guarded.fixture).await;
    let mut ws = guarded.ws(1).await;
    let mut comparison = Comparison::default();
    for method in list_methods() {
        let Value::Object(needed) = method.needed.clone() else { panic!("{}: not an object", method.name) };
        // A session of one's own may have any id, also one that another tenant has.
        if needed.get("session_id") != Some(&json!("s")) {
            continue;
        }
        let mut answers = Vec::new();
        for session in ["s", "z"] {
            let mut params: Map<String, Value> = needed.clone();
            params.insert("session_id".to_owned(), json!(session));
            if method.name.starts_with("session.w") || method.fields.iter().any(|(field, _)| *field == "command_id") {
                // Without a wait, and with an id that stays the same in both answers.
                params.extend(
                    method.fields.iter().find(|(field, _)| *field == "wait").map(|_| ("wait".into(), json!(false))),
                );
            }
            let answer = ws.call(method.name, Value::Object(params)).await;
            answers.push(json!({"result": answer["result"], "error": answer["error"]}).to_string());
        }
        comparison.add(method.name, &answers[0], &answers[1]);
    }
    comparison.assert_none(20);
    for path in ["/v1/sessions", "/v1/gates", "/v1/stats", "/v1/dead-letters"] {
        let (status, answer) = guarded.http(1).get(path).await;
        assert!(status == 200 && !answer.to_string().contains("\"s\""), "{path}: {answer}");
    }
    assert_eq!(log_length(&guarded.fixture).await, before, "another tenant wrote into the log");
    // The same id of another tenant is another session.
    guarded.http(1).post("/v1/sessions", json!({"session_id": "s", "interactive": true})).await;
    assert_eq!(log_length(&guarded.fixture).await, before);
}

#[tokio::test]
async fn http_route_tells_nothing_of_another_tenant() {
    let guarded = two_tenants().await;
    let (before, http) = (log_length(&guarded.fixture).await, guarded.http(1));
    let (_, document) = http.get("/v1/openapi.json").await;
    let methods = list_methods();
    let mut comparison = Comparison::default();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (verb, operation) in operations.as_object().unwrap().iter().filter(|_| path.contains("{session_id}")) {
            let name = operation["operationId"].as_str().unwrap().replacen('_', ".", 1);
            let needed = methods.iter().find(|method| method.name == name).map(|method| method.needed.clone());
            let Some(Value::Object(needed)) = needed else { panic!("{path}: no method {name}") };
            let mut answers = Vec::new();
            for session in ["s", "z"] {
                let (mut address, mut fields) = (path.replace("{session_id}", session), Map::new());
                for (field, value) in needed.iter().filter(|(field, _)| *field != "session_id") {
                    let variable = format!("{{{field}}}");
                    if address.contains(&variable) {
                        address = address.replace(&variable, value.as_str().unwrap());
                    } else {
                        fields.insert(field.clone(), value.clone());
                    }
                }
                let body = (verb == "post").then_some(Value::Object(fields));
                let (status, answer) = http.send(&verb.to_uppercase(), &address, body.as_ref()).await;
                answers.push(format!("{status} {answer}"));
            }
            comparison.add(&format!("{verb} {path}"), &answers[0], &answers[1]);
        }
    }
    comparison.assert_none(20);
    assert_eq!(log_length(&guarded.fixture).await, before, "another tenant wrote into the log");
}

#[tokio::test]
async fn openai_route_tells_nothing_of_another_tenant() {
    let guarded = two_tenants().await;
    let (before, http) = (log_length(&guarded.fixture).await, guarded.http(1));
    let responses = "/openai/v1/responses";
    let of = format!("{responses}/resp_@_0");
    let result = json!({"type": "function_call_output", "call_id": "call_@_c1", "output": "x"});
    let approval = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_@_g", "approve": true});
    let message = json!({"role": "tool", "tool_call_id": "call_@_c1", "content": "x"});
    let refer = |item: &str| json!({"model": "e", "input": [{"type": "item_reference", "id": item}, {"role": "user", "content": "x"}]});
    let requests = [
        ("GET", of.clone(), Value::Null, 404),
        ("GET", format!("{of}?stream=true"), Value::Null, 404),
        ("GET", format!("{of}/input_items"), Value::Null, 404),
        ("POST", format!("{of}/cancel"), json!({}), 404),
        ("POST", responses.to_owned(), json!({"model": "e", "input": "x", "previous_response_id": "resp_@_0"}), 404),
        ("POST", responses.to_owned(), json!({"model": "e", "input": [result]}), 404),
        ("POST", responses.to_owned(), json!({"model": "e", "input": [approval]}), 404),
        ("POST", responses.to_owned(), refer("msg_@_0_0"), 400),
        ("POST", responses.to_owned(), refer("fc_@_c1-1-1"), 400),
        ("POST", "/openai/v1/chat/completions".to_owned(), json!({"model": "e", "messages": [message]}), 404),
    ];
    let mut comparison = Comparison::default();
    for (verb, path, body, expected) in requests {
        let mut answers = Vec::new();
        for session in ["s", "z"] {
            let (path, body) = (path.replace('@', session), body.to_string().replace('@', session));
            let body: Value = serde_json::from_str(&body).unwrap();
            let (status, answer) = http.send(verb, &path, Some(&body).filter(|body| !body.is_null())).await;
            assert_eq!(status, expected, "{verb} {path}: {answer}");
            answers.push(format!("{status} {answer}"));
        }
        comparison.add(&format!("{verb} {path}"), &answers[0], &answers[1]);
    }
    comparison.assert_none(10);
    assert_eq!(log_length(&guarded.fixture).await, before, "another tenant wrote into the log");
}

#[tokio::test]
async fn mcp_tool_tells_nothing_of_another_tenant() {
    let guarded = two_tenants().await;
    let before = log_length(&guarded.fixture).await;
    let client = Mcp::new(guarded.http(1));
    let gate = json!({"session_id": "@", "gate": "g", "arguments_sha256": "0", "decision": "approve"});
    let calls = [
        ("e", json!({"prompt": "x", "session_id": "@"})),
        ("session_status", json!({"session_id": "@"})),
        ("send_message", json!({"session_id": "@", "text": "x"})),
        ("answer_gate", gate),
        ("stop_session", json!({"session_id": "@"})),
    ];
    let mut comparison = Comparison::default();
    for (tool, arguments) in calls {
        let mut answers = Vec::new();
        for session in ["s", "z"] {
            let arguments = serde_json::from_str(&arguments.to_string().replace('@', session)).unwrap();
            let answer = client.call(tool, arguments).await;
            assert_eq!(answer["result"]["structuredContent"]["code"], "unknown_session", "{tool}: {answer}");
            answers.push(answer["result"]["structuredContent"].to_string());
        }
        comparison.add(tool, &answers[0], &answers[1]);
    }
    comparison.assert_none(5);
    let listed = client.call("list_sessions", json!({})).await;
    assert_eq!(listed["result"]["structuredContent"]["sessions"], json!([]), "{listed}");
    assert_eq!(log_length(&guarded.fixture).await, before, "another tenant wrote into the log");
}

#[tokio::test]
async fn grpc_method_tells_nothing_of_another_tenant() {
    let guarded = two_tenants().await;
    let before = log_length(&guarded.fixture).await;
    let mut comparison = Comparison::default();
    for (method, case) in list_rpcs() {
        // A session of one's own may have any id, also one that another tenant has.
        if case.needed.get("session_id") != Some(&json!("s")) {
            continue;
        }
        let mut answers = Vec::new();
        for session in ["s", "z"] {
            let mut params = case.needed.clone();
            params["session_id"] = json!(session);
            let answer = call_rpc(&guarded.fixture, method, params, Some(guarded.key(1))).await;
            let Err(status) = answer else { panic!("{} of another tenant's session is answered", method.rpc()) };
            let code = read_code(&status);
            assert!(code.starts_with("unknown_"), "{}: {status}", method.rpc());
            answers.push(format!("{code} {}", status.message()));
        }
        comparison.add(method.rpc(), &answers[0], &answers[1]);
    }
    comparison.assert_none(20);
    assert_eq!(log_length(&guarded.fixture).await, before, "another tenant wrote into the log");
}
