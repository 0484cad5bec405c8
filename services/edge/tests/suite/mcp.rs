//! MCP: agents are tools for clients of both revisions, with progress, forms, scopes and errors.

use contract::event::{GateKind, StopReason};
use contract::limits::FRAME_BYTES_MAX;
use serde_json::{Value, json};

use crate::access::Guarded;
use crate::support::http::{Http, SseReader, read};
use crate::support::mcp::{CURRENT, LEGACY, Mcp, http_of, last_message, messages};
use crate::support::{Fixture, config, events, key};

async fn fixture(reply: &str) -> Fixture {
    let fixture = Fixture::new().await;
    fixture.fake_loop.reply_with(reply).await;
    fixture
}

async fn count_sessions(client: &Mcp) -> usize {
    client.http.get("/v1/sessions").await.1["sessions"].as_array().unwrap().len()
}

#[tokio::test]
async fn tools_are_the_agents_and_those_for_sessions_in_both_revisions() {
    let fixture = fixture("x").await;
    for client in [Mcp::new(http_of(&fixture)), Mcp::legacy(&fixture, false).await] {
        let listed = last_message(client.request("tools/list", json!({})).await).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let wanted = ["e", "start_session", "session_status", "send_message", "stop_session", "list_sessions"];
        assert_eq!(names, wanted, "{listed}");
        assert!(tools.iter().all(|tool| tool["inputSchema"]["additionalProperties"] == json!(false)));
        assert_eq!(tools[0]["title"], "Eamonn the Executioner");
    }
    let found = last_message(Mcp::new(http_of(&fixture)).request("server/discover", json!({})).await).await;
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(CURRENT)) && versions.contains(&json!(LEGACY)), "{found}");
}

#[tokio::test]
async fn call_of_an_agent_is_a_turn_and_its_session_goes_on() {
    let fixture = fixture("Good day.").await;
    for client in [Mcp::new(http_of(&fixture)), Mcp::legacy(&fixture, false).await] {
        let before = count_sessions(&client).await;
        let first = client.call("e", json!({"prompt": "Hi"})).await;
        let result = &first["result"];
        assert_eq!(
            (&result["isError"], &result["content"][0]["text"]),
            (&json!(false), &json!("Good day.")),
            "{first}"
        );
        let content = &result["structuredContent"];
        assert_eq!((&content["stop_reason"], &content["turn"]), (&json!("completed"), &json!(1)), "{first}");
        assert_eq!(content["usage"]["input_tokens"], 7);
        let next = client.call("e", json!({"prompt": "Hi", "session_id": content["session_id"]})).await;
        let next = &next["result"]["structuredContent"];
        assert_eq!((&next["session_id"], &next["turn"]), (&content["session_id"], &json!(2)), "{next}");
        assert_eq!(count_sessions(&client).await, before + 1);
        let listed = client.call("list_sessions", json!({"limit": 1})).await;
        let listed = listed["result"]["structuredContent"]["sessions"].as_array().unwrap().clone();
        assert!(listed.len() == 1 && listed[0]["title"] == "Hi" && listed[0].get("tally").is_none(), "{listed:?}");
    }
}

#[tokio::test]
async fn progress_comes_only_to_a_client_with_a_token_and_names_the_session_first() {
    let fixture = fixture("Good day.").await;
    for client in [Mcp::new(http_of(&fixture)), Mcp::legacy(&fixture, false).await] {
        let params = json!({"name": "e", "arguments": {"prompt": "Hi"}, "_meta": {"progressToken": "p"}});
        let seen = messages(client.request("tools/call", params).await).await;
        let session = seen.last().unwrap()["result"]["structuredContent"]["session_id"].as_str().unwrap();
        let notes: Vec<&Value> = seen.iter().filter(|message| message["method"] == "notifications/progress").collect();
        assert_eq!(notes[0]["params"]["message"], format!("session {session}"), "{seen:?}");
        assert_eq!(notes[1]["params"]["message"], "Good day.");
        let counts: Vec<f64> = notes.iter().map(|note| note["params"]["progress"].as_f64().unwrap()).collect();
        assert!(counts.is_sorted_by(|a, b| a < b) && notes.iter().all(|note| note["params"]["progressToken"] == "p"));
        let plain = client.request("tools/call", json!({"name": "e", "arguments": {"prompt": "Hi"}})).await;
        if client.session.is_none() {
            assert_eq!(plain.headers()["content-type"], "application/json");
        }
        assert!(last_message(plain).await["result"]["structuredContent"]["session_id"].is_string());
    }
}

#[tokio::test]
async fn call_repeated_with_its_key_begins_no_second_turn() {
    let fixture = fixture("Good day.").await;
    let client = Mcp::new(http_of(&fixture));
    let call = async |tool: &str, arguments: Value, key: &str| {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"ailoop/idempotency-key": key}});
        last_message(client.request("tools/call", params).await).await["result"]["structuredContent"].clone()
    };
    let first = call("e", json!({"prompt": "Hi"}), "one").await;
    assert_eq!(call("e", json!({"prompt": "Hi"}), "one").await, first);
    assert_eq!(count_sessions(&client).await, 1);
    let other = call("e", json!({"prompt": "Hi"}), "two").await;
    assert_ne!(other["session_id"], first["session_id"]);
    for _ in 0..2 {
        let sent = call("send_message", json!({"session_id": first["session_id"], "text": "More"}), "three").await;
        assert_eq!(sent["done"], true, "{sent}");
        let started = call("start_session", json!({"prompt": "Hi"}), "four").await;
        assert_eq!(started["state"], "running", "{started}");
    }
    assert_eq!(count_sessions(&client).await, 3);
    let found = call("session_status", json!({"session_id": first["session_id"], "wait_seconds": 20}), "five").await;
    assert_eq!((&found["turn"], &found["answer"]), (&json!(2), &json!("Good day.")), "{found}");
    let refused = call("e", json!({"prompt": "Hi"}), "").await;
    assert_eq!(refused["code"], "bad_request", "{refused}");
}

#[tokio::test]
async fn tool_that_answers_gates_is_only_for_a_credential_that_names_the_scope() {
    let guarded =
        Guarded::new(&[("runner", "scopes: [run, observe]"), ("person", "scopes: [run, observe, approve]")]).await;
    let open = fixture("x").await;
    let rows = [(http_of(&open), false), (guarded.http(0), false), (guarded.http(1), true)];
    for (http, is_offered) in rows {
        let client = Mcp::new(http);
        let listed = last_message(client.request("tools/list", json!({})).await).await;
        let mut tools = listed["result"]["tools"].as_array().unwrap().iter();
        assert_eq!(tools.any(|tool| tool["name"] == "answer_gate"), is_offered, "{listed}");
        let answer =
            json!({"session_id": "s", "gate": "g1", "decision": "approve", "arguments_sha256": "0".repeat(64)});
        let answer = client.request("tools/call", json!({"name": "answer_gate", "arguments": answer})).await;
        assert_eq!(answer.status(), if is_offered { 200 } else { 403 });
        let answer = read(answer).await.1;
        let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
        assert_eq!(code == "forbidden", !is_offered, "{answer}");
    }
}

#[tokio::test]
async fn gate_without_forms_ends_the_call_and_is_answered_by_a_tool() {
    let guarded = Guarded::new(&[("person", "scopes: [run, observe, approve]")]).await;
    guarded.fixture.fake_loop.reply_with("It is done.").await;
    guarded.fixture.fake_loop.ask_first(GateKind::Limit(StopReason::CostLimit)).await;
    for client in [Mcp::new(guarded.http(0)), Mcp::legacy_of(guarded.http(0), false).await] {
        let waiting = client.call("e", json!({"prompt": "Buy it"})).await;
        let content = &waiting["result"]["structuredContent"];
        assert_eq!((&content["state"], &content["gates"][0]["gate"]), (&json!("waiting"), &json!("g1")), "{waiting}");
        assert!(waiting["result"]["content"][0]["text"].as_str().unwrap().contains("answer_gate"));
        let status =
            client.call("session_status", json!({"session_id": content["session_id"], "wait_seconds": 9})).await;
        assert_eq!(status["result"]["structuredContent"]["state"], "waiting", "{status}");
        let answer = json!({
            "session_id": content["session_id"], "gate": "g1", "decision": "approve",
            "arguments_sha256": content["gates"][0]["arguments_sha256"],
        });
        let mut other = answer.clone();
        other["arguments_sha256"] = json!("0".repeat(64));
        let mut unclear = answer.clone();
        unclear["decision"] = json!("maybe");
        for wrong in [other, unclear] {
            let refused = client.call("answer_gate", wrong).await;
            assert_eq!(refused["result"]["structuredContent"]["code"], "bad_request", "{refused}");
        }
        let done = client.call("answer_gate", answer.clone()).await;
        assert_eq!(done["result"]["content"][0]["text"], "It is done.", "{done}");
        let again = client.call("answer_gate", answer).await;
        assert_eq!(again["result"]["content"][0]["text"], "It is done.", "a repeated answer changes nothing: {again}");
        let late = json!({
            "session_id": content["session_id"], "gate": "g1", "decision": "deny",
            "arguments_sha256": content["gates"][0]["arguments_sha256"],
        });
        let refused = client.call("answer_gate", late).await;
        assert_eq!(refused["result"]["structuredContent"]["code"], "gate_closed", "{refused}");
    }
}

#[tokio::test]
async fn form_of_the_current_revision_is_a_result_and_the_repeated_call_has_the_answer() {
    let fixture = fixture("It is done.").await;
    fixture.fake_loop.ask_first(GateKind::Limit(StopReason::CostLimit)).await;
    let client = Mcp { has_forms: true, ..Mcp::new(http_of(&fixture)) };
    let arguments = json!({"prompt": "Buy it"});
    let asked = client.call("e", arguments.clone()).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let form = &result["inputRequests"]["g1"];
    assert_eq!((&form["method"], &form["params"]["mode"]), (&json!("elicitation/create"), &json!("form")), "{asked}");
    let with = |action: &str, state: &Value| {
        let content = json!({"action": action, "content": {"decision": "approve"}});
        json!({"name": "e", "arguments": arguments, "requestState": state, "inputResponses": {"g1": content}})
    };
    let closed = last_message(client.request("tools/call", with("cancel", &result["requestState"])).await).await;
    assert_eq!(closed["result"]["structuredContent"]["state"], "waiting", "{closed}");
    for _ in 0..2 {
        let done = last_message(client.request("tools/call", with("accept", &result["requestState"])).await).await;
        assert_eq!(done["result"]["content"][0]["text"], "It is done.", "{done}");
    }
    assert_eq!(count_sessions(&client).await, 1);

    let state: Value = serde_json::from_str(result["requestState"].as_str().unwrap()).unwrap();
    for (field, value, code) in [("session_id", json!("other"), "unknown_session"), ("seq", json!(900), "resync")] {
        let mut forged = state.clone();
        forged[field] = value;
        let answer = last_message(client.request("tools/call", with("accept", &json!(forged.to_string()))).await).await;
        assert_eq!(answer["result"]["structuredContent"]["code"], code, "{field}: {answer}");
    }
}

#[tokio::test]
async fn form_of_an_older_revision_is_a_request_that_any_replica_takes_the_answer_of() {
    let fixture = fixture("It is done.").await;
    fixture.fake_loop.ask_first(GateKind::Limit(StopReason::CostLimit)).await;
    let client = Mcp::legacy(&fixture, true).await;
    let other = edge::Edge::start(config(), fixture.server.bus()).await.unwrap();
    let mut elsewhere = Mcp::new(http_of(&fixture));
    elsewhere.http = Http::new(other.addresses().ws, None);
    elsewhere.session.clone_from(&client.session);
    for (answerer, action, wanted) in [
        (&elsewhere, json!({"action": "accept", "content": {"decision": "approve"}}), "ended"),
        (&client, json!({"action": "decline"}), "ended"),
        (&client, json!({"action": "cancel"}), "waiting"),
    ] {
        let params = json!({"name": "e", "arguments": {"prompt": "Buy it"}});
        let mut stream = SseReader::new(client.request("tools/call", params).await);
        let asked: Value = serde_json::from_str(&stream.next().await.unwrap().data).unwrap();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let response = answerer.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": action}), &[]).await;
        assert_eq!(response.status(), 202);
        let done: Value = serde_json::from_str(&stream.next().await.unwrap().data).unwrap();
        assert_eq!(done["result"]["structuredContent"]["state"], wanted, "{done}");
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn failure_of_a_turn_is_an_error_of_the_tool_with_its_code() {
    let fixture = fixture("").await;
    let client = Mcp::new(http_of(&fixture));
    let failed = client.call("e", json!({"prompt": "Hi"})).await;
    let content = &failed["result"]["structuredContent"];
    assert_eq!(
        (&failed["result"]["isError"], &content["code"]),
        (&json!(true), &json!("model_overloaded")),
        "{failed}"
    );
    assert!(content["session_id"].is_string());
    for (tool, arguments, code) in [
        ("e", json!({}), "bad_request"),
        ("e", json!({"prompt": 7}), "bad_request"),
        ("e", json!({"prompt": ""}), "empty_message"),
        ("e", json!({"prompt": "x", "colour": 1}), "bad_request"),
        ("e", json!({"prompt": "x", "session_id": "no such"}), "bad_request"),
        ("e", json!({"prompt": "x", "session_id": "unheard"}), "unknown_session"),
        ("start_session", json!({"prompt": "x", "agent": "nobody"}), "unknown_agent"),
        ("session_status", json!({"session_id": "unheard"}), "unknown_session"),
        ("session_status", json!({"session_id": "unheard", "wait_seconds": 900}), "bad_request"),
        ("stop_session", json!({"session_id": "unheard"}), "unknown_session"),
        ("list_sessions", json!({"phase": "asleep"}), "bad_request"),
    ] {
        let answer = client.call(tool, arguments.clone()).await;
        let result = &answer["result"];
        assert_eq!(
            (&result["isError"], &result["structuredContent"]["code"]),
            (&json!(true), &json!(code)),
            "{tool} {arguments}: {answer}"
        );
    }
}

#[tokio::test]
async fn message_that_breaks_the_protocol_is_refused() {
    let fixture = fixture("x").await;
    let client = Mcp::new(http_of(&fixture));
    for (tool, arguments) in [
        ("nobody", json!({"prompt": "x"})),
        ("nobody", json!({})),
        ("NO AGENT", json!({"prompt": "x"})),
        ("", json!({"prompt": "x"})),
    ] {
        let unknown = client.call(tool, arguments).await;
        assert_eq!(
            (&unknown["error"]["code"], &unknown["error"]["data"]["code"]),
            (&json!(-32602), &json!("unknown_tool"))
        );
    }
    let (status, answer) = read(client.request("tools/dance", json!({})).await).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)), "{answer}");
    let (status, answer) = read(client.request("tools/call", json!({"name": 7})).await).await;
    assert!((400..500).contains(&status), "{status} {answer}");

    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    let headers = [("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/list")];
    let (status, answer) = read(client.post(&body, &headers).await).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32022)), "{answer}");
    let mismatch = [("mcp-protocol-version", "2099-01-01"), ("mcp-method", "tools/call")];
    assert_eq!(client.post(&body, &mismatch).await.status(), 400);

    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "e", "arguments": {"prompt": "x".repeat(5 << 20)}}});
    assert!(long.to_string().len() > FRAME_BYTES_MAX);
    let (status, answer) = read(client.post(&long, &[]).await).await;
    assert_eq!((status, &answer["error"]["data"]["code"]), (413, &json!("too_large")), "{answer}");
    let deep = "[".repeat(100_000);
    let request = client.http.request("POST", "/mcp").header("content-type", "application/json").body(deep);
    assert_eq!(request.send().await.unwrap().status(), 400);

    for verb in ["GET", "DELETE", "PUT"] {
        assert_eq!(client.http.send(verb, "/mcp", None).await.0, 405, "{verb}");
    }
    let stranger = Mcp { session: Some("of-another-server".to_owned()), ..Mcp::new(http_of(&fixture)) };
    assert_eq!(stranger.request("tools/list", json!({})).await.status(), 404, "the client shakes hands again");
    assert_eq!(count_sessions(&client).await, 0);
}

#[tokio::test]
async fn foreign_page_credential_or_scope_is_refused_by_status() {
    let guarded = Guarded::new(&[
        ("writer", "scopes: [run, observe]"),
        ("reader", "scopes: [observe]"),
        ("guest", "scopes: [run, observe], tenant: other"),
        ("coder", "scopes: [run, observe, approve], agents: [a]"),
    ])
    .await;
    let fixture = &guarded.fixture;
    fixture.fake_loop.reply_with("Good day.").await;
    let client = |index: usize| Mcp::new(guarded.http(index));
    let (writer, reader, guest, coder) = (client(0), client(1), client(2), client(3));

    let (status, answer) = read(Mcp::new(http_of(fixture)).request("tools/list", json!({})).await).await;
    assert_eq!((status, &answer["error"]["data"]["code"]), (401, &json!("unauthorized")), "{answer}");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for header in [("origin", "https://evil.example.org"), ("host", "evil.example.org")] {
        let (status, answer) = read(writer.post(&body, &[header]).await).await;
        assert_eq!((status, &answer["error"]["data"]["code"]), (403, &json!("unauthorized")), "{header:?}: {answer}");
    }

    let refused = reader.request("tools/call", json!({"name": "e", "arguments": {"prompt": "x"}})).await;
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert_eq!(
        (refused.status().as_u16(), &*challenge),
        (403, "Bearer error=\"insufficient_scope\", scope=\"observe run\"")
    );
    let names = async |client: &Mcp| {
        let listed = last_message(client.request("tools/list", json!({})).await).await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&reader).await, ["session_status", "list_sessions"]);
    assert!(!names(&writer).await.contains(&"answer_gate".to_owned()));
    assert!(!names(&coder).await.contains(&"e".to_owned()), "an agent out of reach");

    let own = writer.call("e", json!({"prompt": "Hi"})).await["result"]["structuredContent"]["session_id"].clone();
    assert!(own.is_string());
    for (other, tool) in [(&guest, "e"), (&guest, "session_status"), (&coder, "session_status"), (&coder, "a")] {
        let arguments = if tool == "session_status" {
            json!({"session_id": own})
        } else {
            json!({"session_id": own, "prompt": "x"})
        };
        let answer = other.call(tool, arguments).await;
        assert_eq!(answer["result"]["structuredContent"]["code"], "unknown_session", "{tool}: {answer}");
    }
    let unknown = coder.call("e", json!({"prompt": "x"})).await;
    assert_eq!(unknown["error"]["data"]["code"], "unknown_tool", "{unknown}");
    fixture.fake_loop.commit(&key("of-a"), vec![events::session_started("a")]).await;
    let answer = writer.call("e", json!({"prompt": "x", "session_id": "of-a"})).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "bad_request", "of another agent: {answer}");
}

#[tokio::test]
async fn state_that_was_changed_on_its_way_is_an_error_of_the_protocol() {
    let fixture = fixture("It is done.").await;
    fixture.fake_loop.ask_first(GateKind::Limit(StopReason::CostLimit)).await;
    let client = Mcp { has_forms: true, ..Mcp::new(http_of(&fixture)) };
    let asked = client.call("e", json!({"prompt": "Buy it"})).await;
    let state = asked["result"]["requestState"].as_str().unwrap();
    let mut of_another: Value = serde_json::from_str(state).unwrap();
    of_another["by"] = json!("0".repeat(32));
    for state in [format!("{state}-TAMPERED"), "{}".to_owned(), of_another.to_string()] {
        let accepted = json!({"action": "accept", "content": {"decision": "approve"}});
        let params = json!({
            "name": "e", "arguments": {"prompt": "Buy it"}, "requestState": state, "inputResponses": {"g1": accepted},
        });
        let answer = last_message(client.request("tools/call", params).await).await;
        assert_eq!((&answer["error"]["code"], answer.get("result")), (&json!(-32602), None), "{state}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("requestState"), "{message}");
    }
}

#[tokio::test]
async fn endpoint_with_a_slash_at_its_end_is_the_same() {
    let fixture = fixture("Good day.").await;
    let client = Mcp { path: "/mcp/", ..Mcp::new(http_of(&fixture)) };
    let done = client.call("e", json!({"prompt": "Hi"})).await;
    assert_eq!(done["result"]["content"][0]["text"], "Good day.", "{done}");
}
