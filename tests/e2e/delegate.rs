//! One agent delegates to another: the fleet runs the call as a child session.

use ailoop_tests::client::Control;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::soon;
use ailoop_tool::Effect;
use contract::SessionId;
use serde_json::json;

const AGENTS: &str = r#"
default_agent: e
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
  p:
    name: Patricia the Planner
    prompt_file: patricia_planner.md
    tools: {allow: ["*"]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
"#;

/// Whether a request is of the planner: the composed prompt names the agent.
fn is_planner(request: &RecordedRequest) -> bool {
    request.messages()[0]["content"].as_str().unwrap_or_default().contains("Patricia")
}

fn ask(agent: &str, task: &str) -> ScriptedReply {
    ScriptedReply::text("I ask. ").and_calls(&[("delegate", json!({"agent": agent, "task": task}))])
}

/// The child of the first call of the first step.
fn child() -> SessionId {
    let key = key("s").unwrap();
    SessionId::child(&key.tenant, &key.session, &contract::CallId::tool(1, 1, 1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_delegating_a_task_reads_the_answer() -> anyhow::Result<()> {
    let model = ModelServer::start(|request| match (is_planner(request), request.last_results().as_slice()) {
        (false, []) => ask("patricia", "Plan the trip to the moon."),
        (false, results) => ScriptedReply::text(&format!("They say: {}", results[0])),
        (true, []) => ScriptedReply::calls(&[("look", json!({"at": "the moon"}))]).usage(30, 10),
        (true, _) => ScriptedReply::text("Take a rocket.").usage(50, 10),
    })
    .await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], AGENTS).await?;
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let tool_server = tool_server.tool("look", Effect::Pure, |_| ToolAnswer::Json(json!("it is far"))).open().await?;
    fleet.wait_for_tools(&["look"]).await?;
    let client = fleet.client().await?;
    client.start("s", "To the moon!").await?;
    let events = client.watch("s").await?.to_end().await?;
    judge::seqs(&events)?;
    let end = events.last().unwrap();
    assert!(end.data["final_response"].as_str().unwrap().contains("Take a rocket."), "{}", end.data);
    assert!(end.data["spent"]["usage"]["input"].as_u64() >= Some(80), "the parent pays: {}", end.data["spent"]);
    assert_eq!(tool_server.calls().len(), 1);
    assert_eq!(tool_server.calls()[0].session, child().as_str());

    // The child is a session like any other one.
    let events_of_child = client.watch(child().as_str()).await?.to_end().await?;
    judge::seqs(&events_of_child)?;
    assert_eq!(events_of_child[0].data["parent"]["session_id"], "s");
    judge::requests(&model.requests())?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::log(&fleet.bus, &key(child().as_str())?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_and_stop_reach_child_sessions() -> anyhow::Result<()> {
    let model = ModelServer::start(|request| match (is_planner(request), request.last_results().is_empty()) {
        (false, _) => ask("p", "Plan."),
        (true, true) => ScriptedReply::calls(&[("wait", json!({}))]),
        (true, false) => ScriptedReply::text("Thinking ").and_hang(),
    })
    .await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], AGENTS).await?;
    let gate = ailoop_tests::model::Gate::new();
    let answer = {
        let gate = gate.clone();
        move |_: &_| ToolAnswer::After(gate.clone(), json!("there"))
    };
    let tool_server = ToolServerBuilder::at(&fleet.nats.url()).await?.tool("wait", Effect::Pure, answer).open().await?;
    fleet.wait_for_tools(&["wait"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    soon("the child works", tool_server.wait_for_calls(1)).await?;
    let mut watching = client.watch(child().as_str()).await?;
    client.control("s", Control::Pause).await?;
    watching.until("status.paused", |_| true).await?;
    gate.open();
    watching.until("tool_call.result_processed", |_| true).await?;
    assert_eq!(model.requests().iter().filter(|request| is_planner(request)).count(), 1, "no step in the pause");
    client.control("s", Control::Resume).await?;
    watching.until_streamed("Thinking ").await?;
    client.control("s", Control::Stop).await?;
    let events = watching.to_end().await?;
    assert_eq!(events.last().unwrap().data["reason"], "stopped");
    soon("the model's connections are closed", model.wait_until_idle()).await?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::log(&fleet.bus, &key(child().as_str())?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegation_that_fails_is_reported_to_the_model() -> anyhow::Result<()> {
    let replies =
        vec![ask("nobody", "x"), ask("eamonn", "x"), ask("e", "x"), ScriptedReply::text("Then I do it myself.")];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], AGENTS).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.to_end().await?;
    let requests = model.requests();
    assert_eq!(requests.len(), 4, "no child asked anything");
    let read: Vec<&str> = requests[3].messages().iter().filter_map(|m| m["content"].as_str()).collect();
    assert!(read.iter().any(|text| text.contains("unknown_agent") && text.contains("Patricia")), "{read:#?}");
    assert_eq!(read.iter().filter(|text| text.contains("delegation_refused")).count(), 2, "{read:#?}");
    // A client cannot pretend to be a parent.
    let parent = json!({"parent": {"session_id": "s", "call": "c1-1-1", "slot": 1, "agents": []}});
    let refused = client.begin("forged", "x", &parent).await;
    assert!(format!("{:#}", refused.unwrap_err()).contains("parent"));
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_changed_in_a_session_apply_to_the_next_turn() -> anyhow::Result<()> {
    let first = ModelServer::start(|_| ScriptedReply::text("From the first.")).await?;
    let second = ModelServer::start(|_| ScriptedReply::text("From the second.")).await?;
    let models = [("one", first.base_url()), ("two", second.base_url())];
    let models: Vec<(&str, &str)> = models.iter().map(|(id, url)| (*id, url.as_str())).collect();
    let fleet = TestFleet::with_agents(&models, AGENTS).await?;
    let mut ws = fleet.ws().await?;
    ws.ok("session.start", &json!({"session_id": "s", "prompt": "go", "interactive": true})).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    ws.until("turn.completed").await?;
    let configure = json!({"session_id": "s", "model": "two", "continuation": {"max_iterations": 3}});
    assert_eq!(ws.ok("session.configure", &configure).await?["done"], true);
    let configured = ws.until("status.configured").await?;
    assert_eq!(configured["params"]["data"]["model"]["id"], "two");
    ws.ok("session.send", &json!({"session_id": "s", "text": "again"})).await?;
    let turn = ws.until("turn.completed").await?;
    assert_eq!(turn["params"]["data"]["final_response"], "From the second.");
    let wrong = ws.call("session.configure", &json!({"session_id": "s", "model": "three"})).await?;
    assert_eq!(wrong["error"]["data"]["code"], "unknown_model", "{wrong}");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
    fleet.end().await
}
