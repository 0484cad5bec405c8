//! AG-UI: a run is a turn, a repeated run is the same turn, interrupts and calls of the client go on in the next run.

use serde_json::{Value, json};

use crate::event_order;
use crate::support::Fixture;
use crate::support::http::{Http, SseReader};

pub(crate) const PATH: &str = "/ag-ui/e";

pub(crate) async fn fixture(reply: &str) -> (Fixture, Http) {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    (fixture, http)
}

pub(crate) fn input(thread: &str, run: &str, text: &str) -> Value {
    json!({
        "threadId": thread, "runId": run, "protocolVersion": "1.0", "state": {"page": 1},
        "messages": [{"id": "m1", "role": "user", "content": text}], "tools": [], "context": [], "forwardedProps": {},
    })
}

/// Runs to the end of the stream; every order of events is checked.
async fn run_at(http: &Http, path: &str, body: &Value) -> Vec<Value> {
    let request = http.request("POST", path).header("content-type", "application/json").body(body.to_string());
    let mut stream = SseReader::new(request.send().await.unwrap());
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(serde_json::from_str(&event.data).unwrap());
    }
    event_order::check(&events).unwrap();
    events
}

pub(crate) async fn run(http: &Http, body: &Value) -> Vec<Value> {
    run_at(http, PATH, body).await
}

pub(crate) fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn deltas(events: &[Value]) -> String {
    let texts = events.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    texts.filter_map(|event| event["delta"].as_str()).collect()
}

pub(crate) async fn count_sessions(http: &Http) -> usize {
    http.get("/v1/sessions").await.1["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn run_is_a_turn_of_the_session_of_its_thread() {
    let (_fixture, http) = fixture("Good day.").await;
    let events = run(&http, &input("t", "r1", "Hi")).await;
    let wanted = [
        "RUN_STARTED",
        "CUSTOM",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ];
    assert_eq!(types(&events), wanted);
    assert_eq!(events[0], json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r1", "protocolVersion": "1.0"}));
    assert_eq!(deltas(&events), "Good day.");
    let session = events[1]["value"]["sessionId"].as_str().unwrap();
    let end = &events[7];
    assert_eq!(end["result"], json!({"sessionId": session, "turn": 1, "stopReason": "completed"}));
    assert_eq!((&end["usage"][0]["inputTokens"], &end["usage"][0]["totalTokens"]), (&json!(7), &json!(10)));

    let second = run(&http, &input("t", "r2", "Hi")).await;
    assert_eq!((second[1].clone(), &second[7]["result"]["turn"]), (events[1].clone(), &json!(2)));
    assert_eq!(count_sessions(&http).await, 1, "an equal message of another run is another message");
    let mut old = input("t2", "r1", "Hi");
    old.as_object_mut().unwrap().remove("protocolVersion");
    let events = run(&http, &old).await;
    assert_eq!(events[0], json!({"type": "RUN_STARTED", "threadId": "t2", "runId": "r1"}));
}

#[tokio::test]
async fn repeated_run_is_the_same_turn() {
    let (_fixture, http) = fixture("Good day.").await;
    let first = run(&http, &input("t", "r1", "Hi")).await;
    let again = run(&http, &input("t", "r1", "Hi")).await;
    assert_eq!(first, again);
    // Also after the thread went on, and after its session has ended.
    run(&http, &input("t", "r2", "And?")).await;
    assert_eq!(run(&http, &input("t", "r1", "Hi")).await, first);
    let session = first[1]["value"]["sessionId"].as_str().unwrap();
    http.post(&format!("/v1/sessions/{session}/stop"), json!({})).await;
    assert_eq!(run(&http, &input("t", "r1", "Hi")).await, first);
    assert_eq!(count_sessions(&http).await, 1);
    let other = run(&http, &input("t", "r3", "Again")).await;
    assert_eq!(count_sessions(&http).await, 2, "a session that ended is followed by another");
    assert_ne!(other[1], first[1]);
}

#[tokio::test]
async fn turn_that_failed_is_a_run_error_with_the_stable_code() {
    let (_fixture, http) = fixture("").await;
    let events = run(&http, &input("t", "r", "Hi")).await;
    let wanted = json!({"type": "RUN_ERROR", "message": "the model is overloaded", "code": "model_overloaded"});
    assert_eq!(events.last().unwrap(), &wanted);
}

#[tokio::test]
async fn call_of_a_tool_of_the_client_ends_the_run_and_its_result_goes_on() {
    let (fixture, http) = fixture("It rains in Bonn.").await;
    fixture.fake_loop.call_client_first();
    for (version, outcome) in [(Some("1.0"), true), (None, false)] {
        let thread = format!("t{outcome}");
        let mut body = input(&thread, "r1", "Weather?");
        body["protocolVersion"] = json!(version);
        body["tools"] = json!([{"name": "weather", "description": "", "parameters": {"type": "object"}}]);
        let events = run(&http, &body).await;
        let start = events.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
        assert_eq!(start["toolCallName"], "weather");
        let call = start["toolCallId"].clone();
        let end = events.last().unwrap();
        let wanted = if outcome { json!({"type": "success", "pendingToolCallIds": [call]}) } else { Value::Null };
        assert_eq!((&end["type"], &end["outcome"]), (&json!("RUN_FINISHED"), &wanted), "{events:?}");

        let refused = run(&http, &input(&thread, "r2", "And now?")).await;
        assert_eq!((types(&refused), &refused[1]["code"]), (vec!["RUN_STARTED", "RUN_ERROR"], &json!("not_now")));
        assert_eq!(run(&http, &body).await, events, "the first run may be repeated");

        body["runId"] = json!("r3");
        body["messages"] = json!([
            {"id": "m1", "role": "user", "content": "Weather?"},
            {"id": start["parentMessageId"], "role": "assistant", "content": "Let me look.", "toolCalls": [
                {"id": call, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ]},
            {"id": "m2", "role": "tool", "toolCallId": call, "content": "rain"},
        ]);
        let events = run(&http, &body).await;
        assert_eq!(
            (deltas(&events).as_str(), &events.last().unwrap()["type"]),
            ("It rains in Bonn.", &json!("RUN_FINISHED"))
        );
        assert_eq!(run(&http, &body).await, events, "a repeated result changes nothing");
        body["messages"][2]["toolCallId"] = json!("call_of_another_server");
        let refused = run(&http, &body).await;
        assert_eq!((types(&refused), &refused[1]["code"]), (vec!["RUN_STARTED", "RUN_ERROR"], &json!("unknown_call")));
        body["messages"][2]["toolCallId"] = json!("tooluse_1");
        let (status, error) = http.post(PATH, body).await;
        assert_eq!((status, &error["code"]), (400, &json!("bad_request")), "{error}");
    }
}

pub(crate) fn resume(run: &str, id: &Value, payload: &Value) -> Value {
    let mut body = input("t", run, "Send it");
    body["resume"] = json!([{"interruptId": id, "status": "resolved", "payload": payload}]);
    body
}

#[tokio::test]
async fn approval_is_an_interrupt_that_the_next_run_answers() {
    let (fixture, http) = fixture("Done.").await;
    fixture.fake_loop.ask_approval_first();
    let events = run(&http, &input("t", "r1", "Send it")).await;
    let end = events.last().unwrap();
    let interrupt = &end["outcome"]["interrupts"][0];
    assert_eq!((&interrupt["reason"], &interrupt["metadata"]["tool"]), (&json!("tool_call"), &json!("send")), "{end}");
    assert_eq!(interrupt["metadata"]["arguments"], json!({"to": "ann"}));
    assert_eq!(interrupt["responseSchema"]["required"], json!(["approved"]));
    assert!(interrupt["responseSchema"]["properties"]["editedArgs"].is_object());
    let start = events.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
    assert_eq!(interrupt["toolCallId"], start["toolCallId"]);
    let [state, messages] = &events[events.len() - 3..events.len() - 1] else { panic!("{events:?}") };
    assert_eq!(state["snapshot"], json!({"page": 1}));
    let roles: Vec<&str> =
        messages["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(messages["messages"][1]["toolCalls"][0]["id"], start["toolCallId"]);

    let refused = run(&http, &input("t", "r2", "Well?")).await;
    assert_eq!((types(&refused), &refused[1]["code"]), (vec!["RUN_STARTED", "RUN_ERROR"], &json!("not_now")));
    assert_eq!(run(&http, &input("t", "r1", "Send it")).await, events, "the first run may be repeated");

    let id = &interrupt["id"];
    let answer = resume("r3", id, &json!({"approved": true, "editedArgs": {"to": "bob"}, "note": "not ann"}));
    let resumed = run(&http, &answer).await;
    let wanted = [
        "RUN_STARTED",
        "CUSTOM",
        "TOOL_CALL_RESULT",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ];
    assert_eq!(types(&resumed), wanted, "{resumed:?}");
    assert_eq!((&resumed[2]["toolCallId"], &resumed[2]["content"]), (&start["toolCallId"], &json!("sent")));
    assert_eq!(run(&http, &answer).await, resumed, "the same answer twice is harmless");
    let late = run(&http, &resume("r4", id, &json!({"approved": false}))).await;
    assert_eq!((types(&late), &late[1]["code"]), (vec!["RUN_STARTED", "RUN_ERROR"], &json!("gate_closed")));
}

#[tokio::test]
async fn answer_that_fits_no_interrupt_of_the_thread_is_refused() {
    let (fixture, http) = fixture("Done.").await;
    fixture.fake_loop.ask_approval_first();
    let events = run(&http, &input("t", "r1", "Send it")).await;
    let id = events.last().unwrap()["outcome"]["interrupts"][0]["id"].clone();
    for (id, payload, wanted) in [
        (json!("x"), json!({"approved": true}), "no interrupt"),
        (id.clone(), json!({}), "approved"),
        (id.clone(), json!({"approved": true, "editedArgs": [1]}), "editedArgs"),
        (id.clone(), json!(7), "invalid type"),
    ] {
        let (status, error) = http.post(PATH, resume("r2", &id, &payload)).await;
        let message = error["message"].as_str().unwrap();
        assert_eq!((status, &error["code"], message.contains(wanted)), (400, &json!("bad_request"), true), "{error}");
    }
    let mut other = resume("r2", &id, &json!({"approved": true}));
    other["threadId"] = json!("another thread");
    let refused = run(&http, &other).await;
    assert_eq!((types(&refused), &refused[1]["code"]), (vec!["RUN_STARTED", "RUN_ERROR"], &json!("unknown_session")));
    let mut cancelled = resume("r3", &id, &Value::Null);
    cancelled["resume"][0]["status"] = json!("cancelled");
    let denied = run(&http, &cancelled).await;
    assert_eq!(denied[2]["content"], "denied: a person said no");
}

#[tokio::test]
async fn front_end_of_copilotkit_finds_agents_and_comes_back_to_its_thread() {
    let (fixture, http) = fixture("Good day.").await;
    let (status, info) = http.get("/ag-ui/info").await;
    assert_eq!((status, &info["agents"]["e"]["name"]), (200, &json!("Eamonn the Executioner")), "{info}");
    let connect = "/ag-ui/agent/e/connect";
    let none = run_at(&http, connect, &input("t", "c", "x")).await;
    assert_eq!(types(&none), ["RUN_STARTED", "RUN_FINISHED"]);
    let mut body = input("t", "r", "Hi");
    body["context"] = json!([{"description": "The page", "value": "Prices"}]);
    run_at(&http, "/ag-ui/agent/e/run", &body).await;
    let shown = run_at(&http, connect, &input("t", "c", "x")).await;
    assert_eq!(types(&shown), ["RUN_STARTED", "CUSTOM", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    let messages = shown[3]["messages"].as_array().unwrap();
    let texts: Vec<_> = messages.iter().map(|message| (&message["role"], &message["content"])).collect();
    assert_eq!(texts, [(&json!("user"), &json!("Hi")), (&json!("assistant"), &json!("Good day."))]);
    fixture.fake_loop.ask_approval_first();
    run(&http, &input("t", "r2", "Send it")).await;
    let asked = run_at(&http, connect, &input("t", "c", "x")).await;
    assert_eq!(asked.last().unwrap()["outcome"]["type"], "interrupt");
    let (_, stopped) = http.post("/ag-ui/agent/e/stop/nothing", json!({})).await;
    assert_eq!(stopped, json!({"stopped": false}));
}
