//! Processes are killed (`kill -9`) or frozen in the middle of sessions: others take over, and no `at_most_once` call
//! runs twice.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ailoop_tests::client::ReceivedEvent;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::{RecordedCall, ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tests::wait::{PATIENCE, soon};
use ailoop_tool::{Effect, Tool};
use serde_json::{Value, json};

fn of<'a>(events: &'a [ReceivedEvent], topic: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.topic == topic).map(|event| &event.data).collect()
}

/// The outcomes of a session's tool calls, by tool.
fn outcomes(events: &[ReceivedEvent]) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of(events, "tool_call.result_processed").iter().map(|data| (text(&data["tool"]), text(&data["outcome"]))).collect()
}

/// Tools of every effect class, named after it, that answer when the gate opens.
async fn held_tools(nats: &str, gate: &Gate, timeout: Duration) -> anyhow::Result<ToolServer> {
    let mut plan = ToolServerBuilder::at(nats).await?;
    for effect in [Effect::Pure, Effect::Idempotent, Effect::AtMostOnce] {
        let gate = gate.clone();
        let tool = Tool::new(effect.as_str()).effect(effect).timeout(timeout);
        plan = plan.with(tool, move |call: &RecordedCall| ToolAnswer::After(gate.clone(), call.arguments.clone()));
    }
    plan.open().await
}

const EFFECTS: [&str; 3] = ["pure", "idempotent", "at_most_once"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_killed_during_a_reply_another_one_repeats_the_call() -> anyhow::Result<()> {
    let replies = vec![ScriptedReply::text("this one ").and_hang(), ScriptedReply::signal("that one", "TERMINATE")];
    let model = ModelServer::with_replies(replies).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("orchestrator").await?);
    let mut gateway = process_fleet.spawn("gateway").await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("one ").await?;
    let _second = process_fleet.spawn("gateway").await?;
    gateway.kill()?;
    let events = watching.to_end().await?;

    judge::seqs(&events)?;
    let replies = of(&events, "message.ai_full_received");
    assert_eq!((replies.len(), &replies[0]["text"]), (1, &"that one".into()));
    let mut attempts: Vec<&Value> = of(&events, "message.ai_chunk_received").iter().map(|c| &c["attempt"]).collect();
    attempts.dedup();
    assert_eq!(attempts, ["1.1", "1.2"], "the second attempt starts a new text");
    assert_eq!(model.requests().len(), 2);
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executor_killed_during_calls_another_one_takes_over() -> anyhow::Result<()> {
    let calls: Vec<(&str, Value)> = EFFECTS.iter().map(|name| (*name, json!({"of": name}))).collect();
    let model =
        ModelServer::with_replies(vec![ScriptedReply::calls(&calls), ScriptedReply::signal("Done.", "TERMINATE")])
            .await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let gate = Gate::new();
    let tool_server = held_tools(&process_fleet.nats.url(), &gate, PATIENCE).await?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("gateway").await?);
    let mut executor = process_fleet.spawn("executor").await?;
    process_fleet.wait_for_tools(&EFFECTS).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    soon("all three run", tool_server.wait_for_calls(3)).await?;
    let _second = process_fleet.spawn("executor").await?;
    executor.kill()?;
    soon("two run again", tool_server.wait_for_calls(5)).await?;
    gate.open();
    let events = client.watch("s").await?.to_end().await?;

    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    let expected = [("at_most_once", "unknown"), ("idempotent", "ok"), ("pure", "ok")];
    assert_eq!(outcomes(&events), expected.map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned())).into());
    let ids = |tool: &str| -> Vec<String> {
        tool_server.calls().into_iter().filter(|call| call.tool == tool).map(|call| call.call).collect()
    };
    assert_eq!(ids("at_most_once").len(), 1, "it must not run twice");
    let idempotent = ids("idempotent");
    assert_eq!((idempotent.len(), &idempotent[0]), (2, &idempotent[1]), "the same call id");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrator_killed_in_any_phase_another_one_goes_on() -> anyhow::Result<()> {
    let (reply, tools) = (Gate::new(), Gate::new());
    let calls: Vec<(&str, Value)> = EFFECTS.iter().map(|name| (*name, json!({"of": name}))).collect();
    let replies = vec![
        ScriptedReply::text("I call. ").and_gate(&reply).and_calls(&calls),
        ScriptedReply::signal("I think. ", "CONTINUE"),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = held_tools(&process_fleet.nats.url(), &tools, PATIENCE).await?;
    let _others = (process_fleet.spawn("executor").await?, process_fleet.spawn("gateway").await?);
    let mut first = process_fleet.spawn("orchestrator").await?;
    process_fleet.wait_for_tools(&EFFECTS).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("call. ").await?;
    first.kill()?;
    // No orchestrator runs when the reply is stored: it waits.
    reply.open();
    soon("the reply has ended", model.wait_until_idle()).await?;
    let mut second = process_fleet.spawn("orchestrator").await?;
    soon("the tools run", tool_server.wait_for_calls(3)).await?;
    let _third = process_fleet.spawn("orchestrator").await?;
    second.kill()?;
    tools.open();
    let events = watching.to_end().await?;

    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    assert_eq!((model.requests().len(), tool_server.calls().len()), (3, 3), "nothing ran twice");
    assert!(outcomes(&events).values().all(|outcome| outcome == "ok"), "{:?}", outcomes(&events));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_killed_after_a_start_loses_nothing() -> anyhow::Result<()> {
    let gate = Gate::new();
    let replies = vec![ScriptedReply::text("half ").and_gate(&gate).and_text("whole")];
    let model = ModelServer::with_replies(replies).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("gateway").await?);
    let (mut first, second) = (process_fleet.edge().await?, process_fleet.edge().await?);
    let start = json!({"session_id": "s", "command_id": "once", "prompt": "go"});
    first.ws().await?.ok("session.start", &start).await?;
    let mut watching = first.client().await?.watch("s").await?;
    watching.until_streamed("half ").await?;
    first.replica.kill()?;
    // A client without an answer repeats its command at another edge.
    let again = second.ws().await?.ok("session.start", &start).await?;
    assert_eq!(again["done"], true);
    let mut watching = second.client().await?.watch("s").await?;
    // A late viewer gets the reply so far.
    watching.until_streamed("half ").await?;
    gate.open();
    let events = watching.to_end().await?;
    judge::seqs(&events)?;
    let chunks = of(&events, "message.ai_chunk_received");
    let streamed: String = chunks.iter().map(|chunk| chunk["delta"].as_str().unwrap()).collect();
    assert_eq!(streamed, "half whole");
    assert_eq!((of(&events, "session_started").len(), model.requests().len()), (1, 1));
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_gateway_that_continues_changes_nothing() -> anyhow::Result<()> {
    let (first, second) = (Gate::new(), Gate::new());
    let replies = vec![
        ScriptedReply::text("too ").and_gate(&first).and_text("late"),
        ScriptedReply::text("in ").and_gate(&second).and_text("time"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let _orchestrator = process_fleet.spawn("orchestrator").await?;
    let frozen = process_fleet.spawn("gateway").await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start_interactive("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("too ").await?;
    frozen.freeze()?;
    let _second = process_fleet.spawn("gateway").await?;
    soon("another gateway asks the model", model.wait_for_requests(2)).await?;
    second.open();
    let reply = watching.until("message.ai_full_received", |_| true).await?;
    assert_eq!(reply.data["text"], "in time");
    first.open();
    frozen.thaw()?;
    client.send("s", "and now?", "queue").await?;
    soon("the second turn asks the model", model.wait_for_requests(3)).await?;
    watching.until("turn.completed", |data| data["turn"] == 2).await?;
    client.control("s", ailoop_tests::client::Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    Ok(())
}

/// Replies of each session: two parallel calls, one call, a step by signal, the end.
fn busy(request: &RecordedRequest) -> ScriptedReply {
    let user = request.messages().iter().find(|message| message["role"] == "user");
    let session = user.map(|message| message["content"].clone()).unwrap_or_default();
    let call = |tool: &'static str| (tool, json!({"session": session, "of": tool}));
    let pause = Duration::from_millis(40);
    let replies = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    match replies {
        0 => ScriptedReply::text("Two. ").and_delay(pause).and_calls(&[call("idempotent"), call("at_most_once")]),
        1 => ScriptedReply::text("One. ").and_delay(pause).and_calls(&[call("pure")]),
        2 => ScriptedReply::text("I think. ")
            .and_delay(pause)
            .and_calls(&[("continuation", json!({"status": "CONTINUE"}))]),
        _ => ScriptedReply::signal("Done.", "TERMINATE"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_with_repeated_kills_complete() -> anyhow::Result<()> {
    const SESSIONS: usize = 8;
    const KILLED: [&str; 3] = ["orchestrator", "gateway", "executor"];
    let model = ModelServer::start(busy).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let gate = Gate::new();
    gate.open();
    let tool_server = held_tools(&process_fleet.nats.url(), &gate, PATIENCE).await?;
    let mut replicas = VecDeque::new();
    for service in KILLED.repeat(2) {
        replicas.push_back((service, process_fleet.spawn(service).await?));
    }
    process_fleet.wait_for_tools(&EFFECTS).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    let sessions: Vec<String> = (0..SESSIONS).map(|n| format!("s{n}")).collect();
    for session in &sessions {
        client.start(session, session).await?;
    }
    for kills in 1..=9 {
        soon("the sessions go on", model.wait_for_requests(kills * 3)).await?;
        let (service, mut oldest) = replicas.pop_front().unwrap();
        oldest.kill()?;
        replicas.push_back((service, process_fleet.spawn(service).await?));
    }
    for session in &sessions {
        let events = client.watch(session).await?.to_end().await?;
        judge::seqs(&events)?;
        let commits = judge::log(&process_fleet.bus, &key(session)?, 10).await?;
        assert!(commits.len() > 4);
        assert_eq!(events.last().unwrap().data["reason"], "completed", "{session}");
        let outcomes = outcomes(&events);
        assert_eq!((&*outcomes["pure"], &*outcomes["idempotent"]), ("ok", "ok"), "{session}");
        assert!(["ok", "unknown"].contains(&&*outcomes["at_most_once"]), "{session}: {outcomes:?}");
    }
    judge::requests(&model.requests())?;
    let mut ids: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for call in tool_server.calls() {
        ids.entry((call.session, call.tool)).or_default().push(call.call);
    }
    for ((session, tool), ids) in ids {
        assert!(ids.iter().all(|id| *id == ids[0]), "{session}: {tool} ran under several ids: {ids:?}");
        assert!(tool != "at_most_once" || ids.len() == 1, "{session}: {tool} ran {} times", ids.len());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_server_restarted_services_reconnect() -> anyhow::Result<()> {
    let (reply, tools) = (Gate::new(), Gate::new());
    let calls: Vec<(&str, Value)> = EFFECTS.iter().map(|name| (*name, json!({"of": name}))).collect();
    let replies = vec![
        ScriptedReply::text("I call. ").and_gate(&reply).and_calls(&calls),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let mut fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    // The answer to an `at_most_once` call can be lost; then the call times out.
    let tool_server = held_tools(&fleet.nats.url(), &tools, Duration::from_secs(8)).await?;
    fleet.wait_for_tools(&EFFECTS).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("call. ").await?;
    fleet.nats.restart().await?;
    reply.open();
    soon("the tools run", tool_server.wait_for_calls(3)).await?;
    fleet.nats.kill();
    tools.open();
    fleet.nats.resume().await?;
    let events = watching.to_end().await?;
    judge::seqs(&events)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    assert_eq!(model.requests().len(), 2, "the stored reply must not be requested again");
    let once = tool_server.calls().iter().filter(|call| call.tool == "at_most_once").count();
    assert_eq!(once, 1);
    let outcomes = outcomes(&events);
    assert_eq!((&*outcomes["pure"], &*outcomes["idempotent"]), ("ok", "ok"), "repeatable calls are made again");
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_killed_at_once_session_completes() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::calls(&[("mark", json!({"n": 1}))]),
        ScriptedReply::text("lost ").and_hang(),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let mut process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = ToolServer::plain(&process_fleet.nats.url()).await?;
    let before = process_fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    process_fleet.wait_for_tools(&["mark"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.until_streamed("lost ").await?;
    let _after = process_fleet.replace_all(before, edge).await?;
    let edge = process_fleet.edge().await?;
    let events = edge.client().await?.watch("s").await?.to_end().await?;
    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    assert_eq!((model.requests().len(), tool_server.calls().len()), (3, 1));
    assert_eq!(events.last().unwrap().data["final_response"], "Done.");
    Ok(())
}
