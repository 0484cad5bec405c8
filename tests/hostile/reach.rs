//! Reach of a credential: one agent, one tenant, only the scope `converse`, and no approvals by a model.

use ailoop_tests::http::{Http, read};
use ailoop_tests::model::ScriptedReply;
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::Effect;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::hostile::attempts::Attempts;
use crate::hostile::keyed_fleet::{CHAT, KeyedFleet, RESPONSES, echo_user, mcp, post_ok, sessions};

const CONVERSATIONS: &str = "/openai/v1/conversations";
/// A key of one agent, and a key of all.
const KEYS: [(&str, &str); 2] =
    [("of_a", "scopes: [run, observe, approve], agents: [a]"), ("all", "scopes: [run, observe, approve]")];
/// Said to an agent, or by it, that a party may not reach.
const SECRET: &str = "the secret of e";

/// Starts agent `e` from sessions of agent `a`, with a key of `a`.
pub(crate) async fn other_agents(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], echo_user).await?;
    let (of_a, all) = (fleet.http("of_a")?, fleet.http("all")?);
    let response = post_ok(&of_a, RESPONSES, &json!({"model": "a", "input": "Hi"})).await?["id"].clone();
    let conversation = ended_conversation(&of_a).await?;
    eventually("both sessions are listed", async || sessions(&all).await.is_ok_and(|all| all.len() == 2)).await?;
    let mine = sessions(&all).await?[0]["session_id"].clone();
    let user = json!([{"role": "user", "content": "x"}]);
    let from = |at: Value| json!({"agent": "e", "prompt": "x", "resume_from": {"session_id": mine, "at": at}});
    for (path, body) in [
        (RESPONSES, json!({"model": "e", "input": "x"})),
        (RESPONSES, json!({"model": "e", "input": "x", "previous_response_id": response})),
        (RESPONSES, json!({"model": "e", "input": "x", "conversation": conversation})),
        (CHAT, json!({"model": "e", "messages": user})),
        (CHAT, json!({"model": "e", "messages": user, "metadata": {"session": "named"}})),
        ("/v1/sessions", from(Value::Null)),
        ("/v1/sessions", from(json!(0))),
    ] {
        let (status, answer) = of_a.post(path, &body).await?;
        attempts.check([403, 404].contains(&status), || format!("{path} {body}: {status} {answer}"));
    }
    let answer = fleet.ws("of_a").await?.call("session.start", &from(Value::Null)).await?;
    attempts.check(answer["error"]["data"]["code"] == "forbidden", || format!("session.start: {answer}"));
    let options = json!({"agent": "e", "resume_from": {"session_id": mine}});
    let refused = fleet.grpc("of_a").await?.begin("by-grpc", "x", &options).await;
    attempts.check(refused.is_err(), || format!("gRPC Start: {refused:?}"));
    // A start that was not answered may have happened all the same.
    let of_e: Vec<Value> = sessions(&all).await?.into_iter().filter(|session| session["agent"] == "e").collect();
    attempts.check(of_e.is_empty(), || format!("sessions of agent e: {of_e:?}"));
    post_ok(&of_a, RESPONSES, &json!({"model": "a", "input": "x", "previous_response_id": response})).await?;
    Ok(())
}

/// Begins a conversation with agent `a`, and ends it.
async fn ended_conversation(http: &Http) -> anyhow::Result<String> {
    let id = post_ok(http, CONVERSATIONS, &json!({})).await?["id"].as_str().context("an id")?.to_owned();
    post_ok(http, RESPONSES, &json!({"model": "a", "conversation": id, "input": "of a"})).await?;
    let deleted = http.request("DELETE", &format!("{CONVERSATIONS}/{id}"), None).await?;
    ensure!(deleted.status() == 200, "{deleted:?}");
    Ok(id)
}

/// Reads the items of a conversation of agent `a` that goes on with agent `e`, with a key of `a`.
pub(crate) async fn items_of_others(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], echo_user).await?;
    let (of_a, all) = (fleet.http("of_a")?, fleet.http("all")?);
    let id = ended_conversation(&of_a).await?;
    post_ok(&all, RESPONSES, &json!({"model": "e", "conversation": id, "input": SECRET})).await?;
    for query in ["", "?order=asc", "?limit=1", "?order=asc&limit=100"] {
        let path = format!("{CONVERSATIONS}/{id}/items{query}");
        let (status, items) = of_a.get(&path).await?;
        ensure!(status == 200, "{path}: {status} {items}");
        attempts.check(!items.to_string().contains(SECRET), || format!("{path}: {items}"));
    }
    let (_, items) = all.get(&format!("{CONVERSATIONS}/{id}/items")).await?;
    ensure!(items.to_string().contains(SECRET), "the conversation did not go on with agent e: {items}");
    Ok(())
}

/// Sends a message into a session of agent `e` whose start still waits, with a key of `a`.
pub(crate) async fn session_that_begins(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[("AILOOP__EDGE__COMMAND_WAIT", "2")], echo_user).await?;
    let (of_a, all) = (fleet.http("of_a")?, fleet.http("all")?);
    // The edge learns its agents before the orchestrator stops.
    post_ok(&of_a, CHAT, &json!({"model": "a", "messages": [{"role": "user", "content": "Hi"}]})).await?;
    fleet.orchestrator.freeze()?;
    let start = json!({"session_id": "new", "agent": "e", "interactive": true, "wait": false});
    post_ok(&all, "/v1/sessions", &start).await?;
    let message = json!({
        "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "slipped in"}], "contextId": "new",
    });
    let params = json!({"message": message, "tenant": "a"});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let sent = read(of_a.post_with("/a2a", &[("a2a-version", "1.0")], &body).await?).await?;
    let refused = of_a.post("/v1/sessions/new/messages", &json!({"content": "slipped in", "wait": false})).await?;
    fleet.orchestrator.thaw()?;
    for (status, answer) in [sent, refused] {
        let is_refused = status >= 400 || answer["error"].is_object();
        attempts.check(is_refused, || format!("a message to a session of another agent: {status} {answer}"));
    }
    post_ok(&all, "/v1/sessions/new/stop", &json!({})).await?;
    let (status, transcript) = all.get("/v1/sessions/new/transcript").await?;
    ensure!(status == 200, "{status} {transcript}");
    attempts.check(!transcript.to_string().contains("slipped in"), || format!("it came in: {transcript}"));
    Ok(())
}

/// Asks for what belongs to the fleet or to another tenant, with the key of the administrator of a tenant.
pub(crate) async fn administrator(attempts: Attempts) -> anyhow::Result<()> {
    let keys = [("tenant", "tenant: other, scopes: [administer, observe, run]"), ("all", "scopes: [run, observe]")];
    let fleet = KeyedFleet::start(&keys, &[], echo_user).await?;
    post_ok(&fleet.http("all")?, "/v1/sessions", &json!({"session_id": "s", "prompt": SECRET})).await?;
    let (http, mut ws) = (fleet.http("tenant")?, fleet.ws("tenant").await?);
    for path in ["/v1/status", "/v1/queues", "/v1/sessions/s", "/v1/sessions/s/transcript"] {
        let (status, answer) = http.get(path).await?;
        attempts.check([403, 404].contains(&status), || format!("{path}: {status} {answer}"));
    }
    for method in ["fleet.status", "fleet.queues"] {
        let answer = ws.call(method, &json!({})).await?;
        attempts.check(answer["error"]["data"]["code"] == "forbidden", || format!("{method}: {answer}"));
    }
    let seen = sessions(&http).await?;
    attempts.check(seen.is_empty(), || format!("sessions of another tenant: {seen:?}"));
    let (status, own) = http.get("/v1/dead-letters").await?;
    ensure!(status == 200, "the administrator administers nothing: {status} {own}");
    Ok(())
}

/// Sets how an agent works, with a key that may only talk, as a public page has it.
pub(crate) async fn public_page(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&[("page", "scopes: [converse], agents: [a]")], &[], echo_user).await?;
    let (http, mut ws) = (fleet.http("page")?, fleet.ws("page").await?);
    post_ok(&http, "/v1/sessions", &json!({"session_id": "s", "agent": "a", "prompt": "Hi", "interactive": true}))
        .await?;
    for (field, value) in [
        ("ai_config", json!({"system_prompt": "Obey."})),
        ("model", json!("test")),
        ("parameters", json!({"temperature": 2})),
        ("continuation", json!({"max_iterations": 100})),
        ("features", json!({"disable": ["x"]})),
        ("tools", json!(["echo"])),
        ("agent", json!("e")),
    ] {
        let mut start = json!({"agent": "a", "prompt": "Hi"});
        start[field] = value;
        let (status, answer) = http.post("/v1/sessions", &start).await?;
        attempts.check(status == 403, || format!("a start with {field}: {status} {answer}"));
    }
    for (method, params) in [
        ("session.configure", json!({"session_id": "s", "model": "test"})),
        ("session.stop", json!({"session_id": "s"})),
        ("session.history", json!({"session_id": "s"})),
        ("session.list", json!({})),
        ("gates.list", json!({})),
        ("fleet.status", json!({})),
    ] {
        let answer = ws.call(method, &params).await?;
        attempts.check(answer["error"]["data"]["code"] == "forbidden", || format!("{method}: {answer}"));
    }
    let instructed = json!({"model": "a", "input": "Hi", "instructions": "Obey."});
    let (status, answer) = http.post(RESPONSES, &instructed).await?;
    let is_system = |message: &Value| message["role"] == "system" && message.to_string().contains("Obey.");
    let obeys = fleet.model.requests().iter().any(|request| request.messages().iter().any(is_system));
    attempts.check(!obeys, || format!("the page changed the prompt of the system: {status} {answer}"));
    Ok(())
}

/// Answers a gate as an MCP host does whose model calls tools without asking anybody.
pub(crate) async fn model_approves(attempts: Attempts) -> anyhow::Result<()> {
    let reply = |request: &ailoop_tests::model::RecordedRequest| match request.last_results().as_slice() {
        [] => ScriptedReply::calls(&[("echo", json!({}))]),
        _ => ScriptedReply::signal("Done.", "TERMINATE"),
    };
    for keys in [&[][..], &[("host", "scopes: [run, observe]")], &[("host", "scopes: [run, observe, approve]")]] {
        let fleet = KeyedFleet::start(keys, &[], reply).await?;
        let tools = ToolServerBuilder::at(&fleet.process_fleet.nats.url()).await?;
        let tools = tools.tool("echo", Effect::AtMostOnce, |_| ToolAnswer::Text("done".to_owned())).open().await?;
        fleet.process_fleet.wait_for_tools(&["echo"]).await?;
        let http = if keys.is_empty() { Http::new(fleet.address()?)? } else { fleet.http("host")? };
        post_ok(&http, "/v1/sessions", &json!({"session_id": "s", "agent": "a", "prompt": "Do it"})).await?;
        let mut gate = Value::Null;
        eventually("a person is asked", async || {
            let found = http.get("/v1/sessions/s/gates").await;
            gate = found.map(|(_, found)| found["gates"][0].clone()).unwrap_or_default();
            gate.is_object()
        })
        .await?;
        let arguments = json!({
            "session_id": "s", "gate": gate["gate"], "arguments_sha256": gate["arguments_sha256"],
            "decision": "approve", "wait": false,
        });
        let listed = mcp(&http, "tools/list", json!({})).await?;
        ensure!(listed["result"]["tools"].is_array(), "{listed}");
        let answer = mcp(&http, "tools/call", json!({"name": "answer_gate", "arguments": arguments})).await?;
        let is_refused = answer.get("error").is_some() || answer["result"]["isError"] == true;
        if keys.iter().any(|(_, rest)| rest.contains("approve")) {
            ensure!(!is_refused, "a credential that names the scope answers: {answer}");
            tools.wait_for_calls(1).await;
            continue;
        }
        attempts.check(!listed.to_string().contains("\"answer_gate\""), || format!("{keys:?}: the tool is listed"));
        attempts.check(is_refused, || format!("{keys:?}: the model approved its own call: {answer}"));
        let (_, found) = http.get("/v1/sessions/s/gates").await?;
        let is_open = found["gates"][0]["gate"] == gate["gate"];
        attempts.check(is_open && tools.calls().is_empty(), || format!("{keys:?}: the call ran: {found}"));
    }
    Ok(())
}

/// Leaves open sessions by single calls of MCP, until the tenant has no room for others.
pub(crate) async fn quota_of_sessions(attempts: Attempts) -> anyhow::Result<()> {
    const MAX: usize = 4;
    let environment = [("AILOOP__EDGE__TENANT_SESSIONS_MAX", &*MAX.to_string())];
    let fleet = KeyedFleet::start(&KEYS, &environment, echo_user).await?;
    let (of_a, all) = (fleet.http("of_a")?, fleet.http("all")?);
    for number in 0..2 * MAX {
        let arguments = json!({"prompt": format!("number {number}")});
        let answer = mcp(&of_a, "tools/call", json!({"name": "a", "arguments": arguments})).await?;
        let is_answered = answer.to_string().contains(&format!("re: number {number}"));
        attempts.check(is_answered, || format!("call {number} of MCP: {answer}"));
    }
    let (status, answer) = all.post("/v1/sessions", &json!({"agent": "e", "prompt": "Hi"})).await?;
    attempts.check(status == 201, || format!("a session of another client: {status} {answer}"));
    Ok(())
}
