//! The Agents API of OpenAI: sessions, their events as they happen, and what they wait for.

use contract::tool::sha256_hex;
use edge::EdgeConfig;
use serde_json::{Value, json};

use crate::support::http::{Http, SseReader, read};
use crate::support::{Fixture, config};

const PATH: &str = "/openai/v1/agents/sessions";

async fn fixture(reply: &str) -> (Fixture, Http) {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    let http = Http::new(fixture.edge.addresses().ws, None);
    (fixture, http)
}

fn request(text: &str) -> Value {
    json!({"agent_id": "e", "environment": {"type": "none"}, "input": text})
}

fn message(text: &str) -> Value {
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": text}]}]);
    json!({"type": "agent.session.input.message", "input": input})
}

async fn create(http: &Http) -> String {
    let (status, session) = http.post(PATH, request("Hi")).await;
    assert_eq!((status, &session["object"]), (200, &json!("agent.session")), "{session}");
    format!("{PATH}/{}", session["id"].as_str().unwrap())
}

async fn send(http: &Http, session: &str, event: Value, key: &str) -> (u16, Value) {
    let request = http.request("POST", &format!("{session}/events")).header("content-type", "application/json");
    let body = json!({"events": [event]}).to_string();
    read(request.header("idempotency-key", key).body(body).send().await.unwrap()).await
}

async fn follow(http: &Http, path: &str, body: Option<Value>) -> SseReader {
    let mut request = http.request(if body.is_some() { "POST" } else { "GET" }, path);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    SseReader::new(request.send().await.unwrap())
}

/// Reads events until one of a type.
async fn read_until(stream: &mut SseReader, last: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event: Value = serde_json::from_str(&stream.next().await.expect("the stream goes on").data).unwrap();
        let is_last = event["type"] == last;
        events.push(event);
        if is_last {
            return events;
        }
    }
}

#[tokio::test]
async fn agents_are_listed_and_found_by_alias() {
    let (_fixture, http) = fixture("x").await;
    let (status, listed) = http.get("/openai/v1/agents").await;
    assert_eq!((status, &listed["data"][0]["id"], &listed["has_more"]), (200, &json!("e"), &json!(false)), "{listed}");
    assert_eq!(http.get("/openai/v1/agents/eamonn").await.1["id"], "e");
    assert_eq!(http.get("/openai/v1/agents/nobody").await.0, 404);
}

#[tokio::test]
async fn created_session_has_its_turn_and_items() {
    let (_fixture, http) = fixture("Good day.").await;
    let session = create(&http).await;
    let (_, found) = http.get(&session).await;
    assert_eq!((&found["status"], &found["required_actions"]), (&json!("idle"), &json!([])), "{found}");
    let (_, items) = http.get(&format!("{session}/items?order=asc")).await;
    let texts: Vec<&Value> = items["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(texts, [&json!("Hi"), &json!("Good day.")], "{items}");
    let (_, turns) = http.get(&format!("{session}/turns")).await;
    assert_eq!(turns["data"][0]["status"], "completed", "{turns}");
    let turn = format!("{session}/turns/{}", turns["data"][0]["id"].as_str().unwrap());
    assert_eq!(http.get(&turn).await.1, turns["data"][0]);
    assert_eq!(http.get(&format!("{turn}/items?order=asc")).await.1["data"], items["data"]);
    assert_eq!(http.get(&format!("{session}/turns/turn_s_9")).await.0, 404);
    let mut body = request("Hi");
    body["agent"] = json!({"instructions": "Be brief."});
    let session = http.post(PATH, body).await.1;
    let (_, items) = http.get(&format!("{PATH}/{}/items?order=asc", session["id"].as_str().unwrap())).await;
    assert_eq!(items["data"][0]["content"][0]["text"], "Hi", "as the user wrote it: {items}");
}

#[tokio::test]
async fn stream_of_a_new_session_ends_with_its_first_turn() {
    let (_fixture, http) = fixture("Good day.").await;
    let mut body = request("Hi");
    body["stream"] = json!(true);
    body["metadata"] = json!({"a": "b"});
    let mut stream = follow(&http, PATH, Some(body)).await;
    let events = read_until(&mut stream, "agent.session.idle").await;
    assert_eq!((&events[0]["type"], stream.next().await), (&json!("agent.session.created"), None));
    assert_eq!(events[0]["session"]["metadata"], json!({"a": "b"}));
    assert!(events.iter().any(|event| event["delta"] == "Good day."), "{events:?}");
}

#[tokio::test]
async fn followed_session_has_the_events_of_each_turn_and_a_repeated_message_has_none() {
    let (_fixture, http) = fixture("Good day.").await;
    let session = create(&http).await;
    let mut stream = follow(&http, &format!("{session}/events"), None).await;
    assert_eq!(read_until(&mut stream, "agent.session.idle").await.len(), 1);
    let mut turns = Vec::new();
    for key in ["one", "one", "two"] {
        assert_eq!(send(&http, &session, message("Again"), key).await.0, 202);
        if key == "one" && turns.len() == 1 {
            continue;
        }
        let events = read_until(&mut stream, "agent.session.idle").await;
        let created = events.iter().find(|event| event["type"] == "agent.session.turn.created").unwrap();
        turns.push(created["turn_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(turns.iter().map(|turn| turn.rsplit_once('_').unwrap().1).collect::<Vec<_>>(), ["2", "3"]);
    assert_eq!(http.get(&format!("{session}/turns")).await.1["data"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn approval_by_an_event_lets_the_turn_go_on() {
    let (fixture, http) = fixture("Done.").await;
    fixture.fake_loop.ask_approval_first();
    let session = create(&http).await;
    let (_, found) = http.get(&session).await;
    assert_eq!(found["status"], "requires_action", "{found}");
    let action = &found["required_actions"][0];
    assert_eq!(action["type"], "mcp_approval_request");
    let mut stream = follow(&http, &format!("{session}/events"), None).await;
    let now = read_until(&mut stream, "agent.session.requires_action").await;
    assert_eq!(now[0]["session"]["required_actions"], found["required_actions"], "the log tells the same");
    let answer = json!({
        "type": "agent.session.input.mcp_approval_request_result", "request_id": action["request_id"],
        "response": {"type": "mcp_tool_call", "decision": "approve"},
    });
    for _ in 0..2 {
        let (status, answered) = send(&http, &session, answer.clone(), "a").await;
        assert_eq!(status, 202, "{answered}");
    }
    let events = read_until(&mut stream, "agent.session.idle").await;
    assert!(events.iter().any(|event| event["type"] == "agent.session.in_progress"), "{events:?}");
    assert!(events.iter().any(|event| event["type"] == "agent.session.turn.completed"), "{events:?}");
}

#[tokio::test]
async fn turn_that_waits_is_cancelled_and_the_session_is_deleted() {
    let (fixture, http) = fixture("Done.").await;
    fixture.fake_loop.call_client_first();
    let session = create(&http).await;
    assert_eq!(http.get(&session).await.1["status"], "requires_action");
    let mut stream = follow(&http, &format!("{session}/events"), None).await;
    read_until(&mut stream, "agent.session.requires_action").await;
    let (status, _) = send(&http, &session, json!({"type": "agent.session.input.cancel"}), "c").await;
    assert_eq!(status, 202);
    let events = read_until(&mut stream, "agent.session.idle").await;
    assert!(events.iter().any(|event| event["type"] == "agent.session.turn.cancelled"), "{events:?}");
    let (status, deleted) = http.send("DELETE", &session, None).await;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    read_until(&mut stream, "agent.session.failed").await;
    assert_eq!(stream.next().await, None, "nothing follows the end of the session");
    assert_eq!(http.send("DELETE", &session, None).await.0, 200, "a repeated request changes nothing");
    assert_eq!(send(&http, &session, message("Hi"), "m").await.0, 409);
}

#[tokio::test]
async fn sessions_are_listed_by_pages_in_both_orders() {
    let (_fixture, http) = fixture("x").await;
    for _ in 0..5 {
        create(&http).await;
    }
    let mut orders = Vec::new();
    for order in ["desc", "asc"] {
        let (mut ids, mut after) = (Vec::new(), String::new());
        loop {
            let (status, page) = http.get(&format!("{PATH}?limit=2&agent_id=e&order={order}{after}")).await;
            assert_eq!(status, 200, "{page}");
            let data = page["data"].as_array().unwrap();
            ids.extend(data.iter().map(|session| session["id"].as_str().unwrap().to_owned()));
            if page["has_more"] == false {
                break;
            }
            after = format!("&after={}", ids.last().unwrap());
        }
        orders.push(ids);
    }
    assert_eq!(orders[0].len(), 5);
    orders[1].reverse();
    assert_eq!(orders[0], orders[1]);
    assert_eq!(http.get(&format!("{PATH}?metadata[a]=b")).await.0, 400);
    assert_eq!(http.get(&format!("{PATH}?after=nobody")).await.0, 404);
}

#[tokio::test]
async fn request_that_no_agent_can_take_is_refused_with_a_code() {
    let (_fixture, http) = fixture("x").await;
    let none = json!({"type": "none"});
    let rows = [
        (json!({"agent_id": "e", "input": "x"}), 400),
        (json!({"agent_id": "e", "input": "x", "environment": {"type": "openai_hosted"}}), 400),
        (json!({"agent_id": "e", "environment": none}), 400),
        (json!({"agent_id": "e", "environment": none, "input": []}), 400),
        (json!({"environment": none, "input": "x"}), 400),
        (json!({"agent_id": "e", "agent": {"model": "m"}, "environment": none, "input": "x"}), 400),
        (
            json!({"agent_id": "e", "agent": {"tools": [{"type": "web_search"}]}, "environment": none, "input": "x"}),
            400,
        ),
        (json!({"agent_id": "e", "environment": none, "input": "x", "metadata": {"a": "b".repeat(20_000)}}), 400),
        (json!({"agent_id": "nobody", "environment": none, "input": "x"}), 404),
    ];
    for (body, wanted) in rows {
        let (status, answer) = http.post(PATH, body.clone()).await;
        assert_eq!(status, wanted, "{body}: {answer}");
        assert!(answer["error"]["code"].is_string() && answer["error"]["message"].is_string(), "{answer}");
    }
    let session = create(&http).await;
    let two = json!({"events": [message("a"), message("b")]});
    for (body, wanted) in [(json!({"events": []}), 400), (json!({"events": [{"type": "x"}]}), 400), (two, 400)] {
        assert_eq!(http.post(&format!("{session}/events"), body.clone()).await.0, wanted, "{body}");
    }
    let result = json!({"type": "agent.session.input.tool_result", "turn_id": "t", "call_id": "c9", "success": true});
    assert_eq!(send(&http, &session, result, "r").await.0, 404);
}

#[tokio::test]
async fn sessions_of_other_tenants_and_agents_are_unknown_and_an_observer_sends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.yaml");
    let rows = [
        "scopes: [run, observe, approve], tenant: one",
        "scopes: [run, observe, approve], tenant: two",
        "scopes: [observe], tenant: one",
        "scopes: [run, observe, approve], tenant: one, agents: [a]",
    ];
    let keys: Vec<String> = rows.iter().map(|_| configuration::api_key::generate_key()).collect();
    let entries = rows.iter().zip(&keys).enumerate();
    let entries = entries
        .map(|(index, (row, key))| format!("  - {{id: k{index}, sha256: {}, {row}}}\n", sha256_hex(key.as_bytes())));
    std::fs::write(&file, format!("keys:\n{}", entries.collect::<String>())).unwrap();
    let fixture = Fixture::with(EdgeConfig { keys_file: Some(file), ..config() }).await;
    fixture.fake_loop.reply_with("Good day.").await;
    let http = |index: usize| Http::new(fixture.edge.addresses().ws, Some(&keys[index]));
    let (one, two, observer, other_agent) = (http(0), http(1), http(2), http(3));
    let session = create(&one).await;

    let parts = ["", "/events", "/items", "/turns", "/turns/turn_x_1", "/turns/turn_x_1/items"];
    let inputs = [
        message("Hi"),
        json!({"type": "agent.session.input.cancel"}),
        json!({"type": "agent.session.input.tool_result", "turn_id": "t", "call_id": "c", "success": true}),
        json!({
            "type": "agent.session.input.mcp_approval_request_result", "request_id": "g",
            "response": {"type": "mcp_tool_call", "decision": "approve"},
        }),
    ];
    for stranger in [&two, &other_agent] {
        for part in parts {
            let (status, answer) = stranger.get(&format!("{session}{part}")).await;
            assert_eq!((status, &answer["error"]["code"]), (404, &json!("unknown_session")), "{part}: {answer}");
        }
        for input in &inputs {
            let (status, answer) = send(stranger, &session, input.clone(), "k").await;
            assert_eq!((status, &answer["error"]["code"]), (404, &json!("unknown_session")), "{input}: {answer}");
        }
        assert_eq!(stranger.send("DELETE", &session, None).await.0, 404);
        assert_eq!(stranger.get(PATH).await.1["data"], json!([]));
        let (_, id) = session.rsplit_once('/').unwrap();
        assert_eq!(stranger.get(&format!("{PATH}?after={id}")).await.0, 404);
    }
    assert_eq!(observer.get(&session).await.1["status"], "idle");
    for input in &inputs {
        assert_eq!(send(&observer, &session, input.clone(), "k").await.0, 403, "{input}");
    }
    assert_eq!(observer.post(PATH, request("Hi")).await.0, 403);
    assert_eq!(observer.send("DELETE", &session, None).await.0, 403);
    let nobody = Http::new(fixture.edge.addresses().ws, None);
    assert_eq!(nobody.get(PATH).await.0, 401);
    assert_eq!(one.get(&format!("{PATH}/a.b..c/events")).await.0, 404);
}
