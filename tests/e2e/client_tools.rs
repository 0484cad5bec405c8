//! Tools that a client brings: the client dies, comes back at another edge, finds its call and answers it.

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::Ws;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::{eventually, soon};
use anyhow::Context as _;
use serde_json::{Value, json};

/// The tools of the tests' client; a call of `click` waits as long as is given.
fn tools(timeout_ms: u64) -> Value {
    let parameters = json!({"type": "object", "properties": {"button": {"type": "string"}}});
    json!([
        {"name": "click", "description": "Clicks a button.", "parameters": parameters, "timeout_ms": timeout_ms},
        {"name": "read_page", "effect": "pure"}
    ])
}

fn replies(calls: &[(&str, Value)]) -> Vec<ScriptedReply> {
    vec![ScriptedReply::calls(calls), ScriptedReply::signal("Done.", "TERMINATE")]
}

fn start(timeout_ms: u64) -> Value {
    json!({"session_id": "s", "prompt": "go", "client_tools": tools(timeout_ms)})
}

fn answer(call: &str, id: &str, content: &str) -> Value {
    json!({"session_id": "s", "command_id": id, "call": call, "outcome": "ok", "content": content})
}

fn code(answer: &Value) -> &str {
    answer["error"]["data"]["code"].as_str().unwrap_or_default()
}

/// The data of the next notification of this topic.
async fn data_of(ws: &mut Ws, topic: &str) -> anyhow::Result<Value> {
    Ok(ws.until(topic).await?["params"]["data"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_lost_its_connection_answers_after_a_restart_of_the_fleet() -> anyhow::Result<()> {
    let arguments = json!({"button": "Buy"});
    let model = ModelServer::with_replies(replies(&[("click", arguments.clone()), ("read_page", json!({}))])).await?;
    let mut process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let before = process_fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    let edge = process_fleet.edge().await?;
    {
        let mut ws = edge.ws().await?;
        ws.ok("session.start", &start(3_600_000)).await?;
        ws.ok("session.watch", &json!({"session_id": "s"})).await?;
        let waiting = data_of(&mut ws, "tool_call.waiting").await?;
        assert_eq!((&waiting["tool"], &waiting["arguments"]), (&json!("click"), &arguments));
    }
    // The client is gone, and so is every process that knew of it.
    let _after = process_fleet.replace_all(before, edge).await?;
    let (one, other) = (process_fleet.edge().await?, process_fleet.edge().await?);
    let grpc = other.client().await?;
    let (mut one, mut other) = (one.ws().await?, other.ws().await?);

    let found = one.ok("session.get", &json!({"session_id": "s"})).await?;
    let calls = found["client_calls"].as_array().context("calls")?;
    let names: Vec<Option<&str>> = calls.iter().map(|call| call["tool"].as_str()).collect();
    assert_eq!(
        (names, calls[0]["arguments"].as_str()),
        (vec![Some("click"), Some("read_page")], Some(r#"{"button":"Buy"}"#))
    );
    assert!(calls[0]["deadline"].as_str() > calls[0]["since"].as_str(), "{calls:?}");
    let listed = one.ok("calls.list", &json!({"session_id": "s"})).await?;
    assert_eq!(listed["calls"].as_array().map(Vec::len), Some(2), "{listed}");
    let (click, read) = (calls[0]["call"].as_str().context("a call")?, calls[1]["call"].as_str().context("a call")?);

    // Two clients answer one call at the same time, at two edges: one answer counts.
    let (left, right) = (answer(click, "left", "clicked left"), answer(click, "right", "clicked right"));
    let (left, right) = tokio::join!(one.call("session.answer_call", &left), other.call("session.answer_call", &right));
    let (left, right) = (left?, right?);
    let refused: Vec<&str> = [&left, &right].map(code).into_iter().filter(|code| !code.is_empty()).collect();
    assert_eq!(refused, ["not_now"], "{left} {right}");
    let first = if code(&left).is_empty() { "left" } else { "right" };
    let repeated = one.ok("session.answer_call", &answer(click, first, &format!("clicked {first}"))).await?;
    assert_eq!(repeated["done"], true, "a repeated command is answered as before");
    other.ok("session.watch", &json!({"session_id": "s"})).await?;
    grpc.answer_call("s", read, "error", "there is no page").await?;
    assert_eq!(data_of(&mut other, "session_ended").await?["reason"], "completed");
    let requests = model.requests();
    assert_eq!(requests[1].last_results(), [format!("clicked {first}").as_str(), "error tool_error: there is no page"]);
    let offered = requests[0].tools();
    assert!(offered.contains(&"click") && offered.contains(&"read_page"), "{offered:?}");
    judge::requests(&requests)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_no_client_answers_times_out_and_wrong_answers_are_refused() -> anyhow::Result<()> {
    let calls = [("click", json!({"button": "Buy"})), ("ask_user", json!({"question": "Sure?"}))];
    let model = ModelServer::with_replies(replies(&calls)).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut ws = fleet.ws().await?;
    ws.ok("session.start", &start(2_000)).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    let call = data_of(&mut ws, "tool_call.waiting").await?["call"].as_str().context("a call")?.to_owned();
    for (call, expected) in [("c1-1-2", "bad_request"), ("c1-1-7", "unknown_call")] {
        let refused = ws.call("session.answer_call", &answer(call, &format!("to-{call}"), "x")).await?;
        assert_eq!(code(&refused), expected, "{refused}");
    }
    let result = data_of(&mut ws, "tool_call.result_processed").await?;
    assert_eq!((&result["outcome"], &result["performer"]), (&json!("timeout"), &json!("client")));
    let text = result["content"].as_str().context("a text")?;
    assert!(text.starts_with("the client did not answer in time; the call may or may not"), "{text}");
    // The model has not read it yet: a question is open. So the truth still counts.
    ws.ok("session.answer_call", &answer(&call, "late", "clicked")).await?;
    let late = data_of(&mut ws, "tool_call.result_processed").await?;
    assert_eq!((&late["content"], &late["replaces"]), (&json!("clicked"), &json!(true)));
    let again = ws.call("session.answer_call", &answer(&call, "later", "clicked twice")).await?;
    assert_eq!(code(&again), "not_now", "{again}");
    ws.ok("session.stop", &json!({"session_id": "s"})).await?;
    data_of(&mut ws, "session_ended").await?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_waits_for_its_client_says_so_and_a_stop_cancels_the_call() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(replies(&[("click", json!({"button": "Buy"}))])).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let (client, mut ws) = (fleet.client().await?, fleet.ws().await?);
    ws.ok("session.start", &start(3_600_000)).await?;
    ws.ok("session.watch", &json!({"session_id": "s"})).await?;
    data_of(&mut ws, "tool_call.waiting").await?;

    let work_dir = WorkDir::new()?.with("AILOOP_GRPC_URL", fleet.url());
    let described = work_dir.run(["describe", "s"]).await?;
    let shown = &described.stdout;
    assert!(shown.contains("waits for the client: call c1-1-1 of tool click"), "{shown}");
    assert!(!shown.contains("no worker") && !shown.contains("queue"), "it is no call of a worker: {shown}");
    let described = ws.ok("session.describe", &json!({"session_id": "s"})).await?;
    assert_eq!(described["waits"][0]["kind"], "client_call", "{described}");
    let what = described["findings"][0]["what"].as_str().context("a finding")?;
    assert!(what.starts_with("the session waits for the client: call c1-1-1 of tool click until 20"), "{what}");
    // The index is written beside the event.
    eventually("the list shows the call", async || {
        let listed = ws.ok("calls.list", &json!({})).await.unwrap_or_default();
        listed["calls"][0]["call"] == "c1-1-1" && listed["calls"][0]["session_id"] == "s"
    })
    .await?;
    let listed = client.client_calls("s").await?;
    let [pending] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((pending.session_id.as_str(), pending.call.as_str(), pending.tool.as_str()), ("s", "c1-1-1", "click"));
    let wrong = client.answer_call("s", "c1-1-1", "perhaps", "x").await;
    assert!(wrong.is_err_and(|error| error.to_string().starts_with("bad_request: `outcome`")));
    // Nothing of it is lost, so nothing of it is performed again.
    let repaired = ws.ok("session.repair", &json!({"session_id": "s"})).await?;
    let performed = repaired["performed"].as_array().context("lines")?;
    assert!(!performed.iter().any(|line| line.to_string().contains("call")), "{repaired}");
    let depth = fleet.bus.transport().queue_state(contract::streams::Queue::Tool).await?.depth;
    assert_eq!((depth.waiting, depth.held), (0, 0));

    client.control("s", ailoop_tests::client::Control::Stop).await?;
    let result = data_of(&mut ws, "tool_call.result_processed").await?;
    assert_eq!((&result["outcome"], &result["performer"]), (&json!("cancelled"), &json!("client")));
    let late = ws.call("session.answer_call", &answer("c1-1-1", "late", "clicked")).await?;
    assert_eq!(code(&late), "session_ended", "{late}");
    soon("the model is idle", model.wait_until_idle()).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_tools_that_cannot_be_used_are_refused_with_the_field() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(Vec::new()).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut ws = fleet.ws().await?;
    for (tools, expected, part) in [
        (json!([{"name": "a b"}]), "bad_request", "client_tools[0].name"),
        (json!([{"name": "ask_user"}]), "bad_request", "the loop itself performs ask_user"),
        (json!([{"name": "a"}, {"name": "a"}]), "bad_request", "client_tools[1].name"),
        (json!([{"name": "a", "colour": 1}]), "bad_request", "colour"),
        (json!([{"name": "a", "parameters": [1]}]), "bad_request", "client_tools[0].parameters"),
        (json!([{"name": "read_result"}]), "bad_request", "the agent has a tool \"read_result\" already"),
    ] {
        fleet.wait_for_tools(&["read_result"]).await?;
        let params = json!({"session_id": "t", "prompt": "go", "client_tools": tools});
        let refused = ws.call("session.start", &params).await?;
        assert_eq!(code(&refused), expected, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{message}");
    }
    fleet.end().await
}
