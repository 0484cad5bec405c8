//! MCP with a whole fleet: questions by forms of both revisions, and a call that outlives its edge.

use std::net::SocketAddr;

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::mcp;
use ailoop_tests::model::{Gate, ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use anyhow::Context as _;
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";

fn question() -> Vec<ScriptedReply> {
    let asked = ("ask_user", json!({"question": "Which colour?", "choices": ["red", "blue"]}));
    vec![ScriptedReply::calls(&[asked]), ScriptedReply::signal("It is painted.", "TERMINATE")]
}

/// Calls a tool as a client that fills in forms, and returns its result.
async fn call(http: &Http, tool: &str, mut params: Value) -> anyhow::Result<Value> {
    params["name"] = json!(tool);
    let answer = mcp::request(http, "tools/call", params, json!({"elicitation": {}})).await?;
    answer.get("result").cloned().with_context(|| format!("no result: {answer}"))
}

fn client(addresses: (SocketAddr, SocketAddr)) -> anyhow::Result<Http> {
    Http::new(addresses.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_is_a_form_and_its_answer_reaches_the_model() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(question()).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let asked = call(&http, "e", json!({"arguments": {"prompt": "Paint it"}})).await?;
    let forms = asked["inputRequests"].as_object().with_context(|| format!("no form: {asked}"))?;
    let (gate, form) = forms.iter().next().context("a form")?;
    assert_eq!(form["params"]["message"], "The agent e asks: Which colour?\nFor example: red | blue");
    let answers = json!({gate: {"action": "accept", "content": {"answer": "red"}}});
    let repeated = json!({
        "arguments": {"prompt": "Paint it"}, "requestState": asked["requestState"], "inputResponses": answers,
    });
    for _ in 0..2 {
        let done = call(&http, "e", repeated.clone()).await?;
        assert_eq!(done["structuredContent"]["answer"], "It is painted.", "{done}");
    }
    assert_eq!(model.requests()[1].last_results(), ["red"]);
    assert_eq!(model.requests().len(), 2, "a repeated answer is no second answer");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_call_leaves_no_open_session_and_the_next_one_goes_on_with_its_history() -> anyhow::Result<()> {
    let model = ModelServer::start(|request: &RecordedRequest| {
        let asked = request.messages().iter().filter(|message| message["role"] == "user").count();
        ScriptedReply::signal(&format!("Message {asked}."), "TERMINATE")
    });
    let model = model.await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let ask = async |session: Option<&Value>| {
        let arguments = json!({"prompt": "Go on", "session_id": session});
        let arguments = if session.is_some() { arguments } else { json!({"prompt": "Begin"}) };
        let result = call(&http, "e", json!({"arguments": arguments})).await?;
        anyhow::ensure!(result["isError"] == false, "{result}");
        Ok(result["structuredContent"].clone())
    };
    let first = ask(None).await?;
    let (_, session) = http.get(&format!("/v1/sessions/{}", first["session_id"].as_str().context("an id")?)).await?;
    assert_eq!(session["phase"], "ended", "{session}");
    let second = ask(Some(&first["session_id"])).await?;
    assert_eq!((&first["answer"], &second["answer"]), (&json!("Message 1."), &json!("Message 2.")));
    for session in [&first["session_id"], &second["session_id"]] {
        assert_eq!(ask(Some(session)).await?["session_id"], second["session_id"], "which stays open");
    }
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_that_dies_in_a_call_loses_neither_the_turn_nor_the_form() -> anyhow::Result<()> {
    let gate = Gate::new();
    let mut replies = question();
    replies.insert(0, ScriptedReply::calls(&[("ask_user", json!({"question": "Really?"}))]).before(&gate));
    let model = ModelServer::with_replies(replies).await?;
    let fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _workers = fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    let (mut first, second) = (fleet.edge().await?, fleet.edge().await?);
    let (at_first, at_second) = (client(first.addresses()?)?, client(second.addresses()?)?);
    let request = json!({"arguments": {"prompt": "Paint it"}, "_meta": {"ailoop/idempotency-key": "once"}});

    let lost = call(&at_first, "e", request.clone());
    let killed = async {
        model.wait_for_requests(1).await;
        first.replica.kill()
    };
    let (lost, killed) = tokio::join!(lost, killed);
    killed?;
    assert!(lost.is_err(), "{lost:?}");
    gate.open();

    let asked = call(&at_second, "e", request).await?;
    let gate = asked["inputRequests"].as_object().and_then(|forms| forms.keys().next());
    let gate = gate.with_context(|| format!("no form: {asked}"))?;
    let answers = json!({gate: {"action": "decline"}});
    let state =
        json!({"arguments": {"prompt": "Paint it"}, "requestState": asked["requestState"], "inputResponses": answers});
    // The second question of the same call.
    let asked = call(&at_second, "e", state).await?;
    let session: Value = serde_json::from_str(asked["requestState"].as_str().context("a state")?)?;
    let session = session["session_id"].as_str().context("a session")?;
    answer_as_legacy_client(&at_second, &asked, session).await?;
    let status =
        call(&at_second, "session_status", json!({"arguments": {"session_id": session, "wait_seconds": 20}})).await?;
    assert_eq!(status["structuredContent"]["answer"], "It is painted.", "{status}");
    let (_, sessions) = at_second.get("/v1/sessions").await?;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    let requests = model.requests();
    assert_eq!((requests.len(), requests[2].last_results()), (3, vec!["blue"]), "the turn ran once");
    Ok(())
}

/// Answers the form of a call as clients before 2026-07-28 do: their answer is a message of its own.
async fn answer_as_legacy_client(http: &Http, asked: &Value, session: &str) -> anyhow::Result<()> {
    let gate = asked["inputRequests"].as_object().and_then(|forms| forms.keys().next()).context("a form")?;
    let info = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": info});
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let response = http.post_with("/mcp", &[mcp::ACCEPT], &initialize).await?;
    let transport = response.headers()["mcp-session-id"].to_str()?.to_owned();
    let result = json!({"action": "accept", "content": {"answer": "blue"}});
    let answer = json!({"jsonrpc": "2.0", "id": format!("ailoop-gate.{session}.{gate}"), "result": result});
    let headers = [mcp::ACCEPT, ("mcp-session-id", &*transport), ("mcp-protocol-version", LEGACY)];
    assert_eq!(http.post_with("/mcp", &headers, &answer).await?.status(), 202);
    Ok(())
}
