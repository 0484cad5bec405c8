//! Gates: answered from any client, once, also after a restart of all processes.

use std::time::Duration;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::ReceivedEvent;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::{ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::{Approval, Effect, Tool};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// A tool that needs an approval for each call, and is `at_most_once`.
async fn launch(nats: &str) -> anyhow::Result<ToolServer> {
    let tool = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    ToolServerBuilder::at(nats).await?.with(tool, |call| ToolAnswer::Json(call.arguments.clone())).open().await
}

fn of<'a>(events: &'a [ReceivedEvent], topic: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event.topic == topic).map(|event| &event.data).collect()
}

fn replies(call: &str, arguments: &Value) -> Vec<ScriptedReply> {
    vec![ScriptedReply::calls(&[(call, arguments.clone())]), ScriptedReply::signal("Done.", "TERMINATE")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_after_a_restart_of_the_fleet_is_answered_once() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(replies("launch", &json!({"to": "the moon"}))).await?;
    let mut process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = launch(&process_fleet.nats.url()).await?;
    let before = process_fleet.spawn_all(&["orchestrator", "gateway", "executor"]).await?;
    process_fleet.wait_for_tools(&["launch"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.until("gate.opened", |gate| gate["tool"] == "launch").await?;

    // All processes are killed and started again.
    let _after = process_fleet.replace_all(before, edge).await?;
    let (one, other) = (process_fleet.edge().await?, process_fleet.edge().await?);
    let (one, other) = (one.client().await?, other.client().await?);
    let gates = one.gates("s").await?;
    let [gate] = &gates[..] else { panic!("{gates:?}") };
    assert_eq!((gate.tool.as_deref(), gate.arguments.as_str()), (Some("launch"), r#"{"to":"the moon"}"#));
    assert!(tool_server.calls().is_empty(), "the call runs without an approval");

    // An answer with the hash of other arguments is refused.
    let wrong = one.answer(gate, "approve", |answer| answer.arguments_sha256 = "0".repeat(64)).await;
    ensure!(wrong.is_err_and(|error| error.to_string().starts_with("bad_request")));
    assert_eq!(other.gates("s").await?.len(), 1);

    // Two clients at two edges answer at the same time; one answer is accepted.
    let (yes, no) = tokio::join!(one.answer(gate, "approve", |_| {}), other.answer(gate, "deny", |_| {}));
    let refused: Vec<String> =
        [&yes, &no].into_iter().filter_map(|answer| Some(answer.as_ref().err()?.to_string())).collect();
    let [refused] = &refused[..] else { panic!("{yes:?} {no:?}") };
    assert!(refused.starts_with("gate_closed"), "{refused}");
    let events = one.watch("s").await?.to_end().await?;
    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    judge::requests(&model.requests())?;
    let closed = of(&events, "gate.closed");
    assert_eq!(closed.len(), 1);
    let (outcome, calls) = if yes.is_ok() { ("ok", 1) } else { ("denied", 0) };
    assert_eq!(of(&events, "tool_call.result_processed")[0]["outcome"], outcome);
    assert_eq!(tool_server.calls().len(), calls);
    Ok(())
}

/// The agent of these tests: `write` needs an approval for some paths, and other tools need none.
const AGENTS: &str = r#"
default_agent: e
tool_sets:
  writing: [write]
  all: {extends: [writing], tools: ["re*", ask_user]}
approvals:
  - {tool: write, when: {/path: "^/etc/"}, ask: always}
  - {tool: "*", ask: never}
agents:
  e:
    name: Eamonn the Executioner
    prompt_file: eamonn_executioner.md
    tools: {sets: [all], deny: [remove]}
    continuation_config: {require_explicit_signal: true, max_iterations: 10, timeout: 120}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_by_argument_rule_approved_with_changes_runs_the_changed_call() -> anyhow::Result<()> {
    let calls = [
        ("write", json!({"path": "/tmp/a"})),
        ("write", json!({"path": "/etc/passwd"})),
        ("remove", json!({"path": "/tmp/a"})),
    ];
    let model =
        ModelServer::with_replies(vec![ScriptedReply::calls(&calls), ScriptedReply::signal("Done.", "TERMINATE")])
            .await?;
    let fleet = TestFleet::with_agents(&[("test", &model.base_url())], AGENTS).await?;
    let mut plan = ToolServerBuilder::at(&fleet.nats.url()).await?;
    for name in ["write", "remove", "read"] {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let tool = Tool::new(name).effect(Effect::AtMostOnce).parameters(parameters);
        plan = plan.with(tool, |call| ToolAnswer::Json(call.arguments.clone()));
    }
    let tool_server = plan.open().await?;
    fleet.wait_for_tools(&["write", "remove", "read"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.until("gate.opened", |_| true).await?;
    let work_dir = WorkDir::new()?.with("AILOOP_GRPC_URL", fleet.url());
    let listed = work_dir.run(["approvals", "--json"]).await?;
    let [listed] = &listed.events()?[..] else { panic!("{listed:?}") };
    assert_eq!((&listed["tool"], &listed["arguments"]), (&json!("write"), &json!({"path": "/etc/passwd"})));

    let gate = listed["gate"].as_str().context("a gate")?;
    let wrong = work_dir.run(["approvals", "approve", "s", gate, "--hash", "123"]).await?;
    assert_eq!((wrong.code, wrong.error()?), (1, "bad_request"));
    let unsaid = work_dir.run(["approvals", "approve", "s"]).await?;
    assert_eq!(unsaid.code, 2, "an approval without arguments must be refused: {}", unsaid.stderr);
    let shown = work_dir.run(["approvals", "show", "s", gate]).await?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    let hash = shown["arguments_sha256"].as_str().context("a hash")?;
    // Invalid arguments are refused before the answer is stored; later only the model would get the error.
    let unfit = work_dir.run(["approvals", "approve", "s", gate, "--arguments", r#"{"path": 3}"#]).await?;
    assert_eq!((unfit.code, unfit.error()?), (2, "invalid_arguments"));
    let changed = r#"{"path": "/tmp/b"}"#;
    let done = work_dir.run(["approvals", "approve", "s", gate, "--hash", &hash[..12], "--arguments", changed]).await?;
    assert_eq!(done.code, 0, "{}", done.stderr);
    let again = work_dir.run(["approvals", "deny", "s", gate]).await?;
    assert_eq!((again.code, again.error()?), (1, "gate_closed"));

    let events = client.watch("s").await?.to_end().await?;
    let mut paths: Vec<Value> = tool_server.calls().iter().map(|call| call.arguments["path"].clone()).collect();
    paths.sort_by_key(ToString::to_string);
    assert_eq!(paths, [json!("/tmp/a"), json!("/tmp/b")]);
    assert_eq!(of(&events, "gate.closed")[0]["arguments"], json!({"path": "/tmp/b"}));
    // A tool set that extends another one, a wildcard, and a denied tool.
    let outcomes: Vec<&Value> =
        of(&events, "tool_call.result_processed").iter().map(|result| &result["code"]).collect();
    assert!(outcomes.contains(&&json!("unknown_tool")), "remove is denied: {outcomes:?}");
    let mut offered = model.requests()[0].tools().into_iter().map(str::to_owned).collect::<Vec<_>>();
    offered.retain(|name| name != "continuation");
    assert_eq!(offered, ["ask_user", "read", "read_result", "write"]);
    let results = model.requests()[1].last_results().join("\n");
    assert!(results.contains("A person changed the arguments to {\"path\":\"/tmp/b\"}"), "{results}");
    assert!(work_dir.run(["approvals"]).await?.stderr.contains("nothing waits"));
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_of_the_model_answered_by_the_user_is_its_result() -> anyhow::Result<()> {
    let question = json!({"question": "Which one?", "choices": ["a", "b"]});
    let model = ModelServer::with_replies(replies("ask_user", &question)).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let opened = client.watch("s").await?.until("gate.opened", |_| true).await?;
    assert_eq!((&opened.data["kind"], &opened.data["arguments"]), (&json!("question"), &question));
    let work_dir = WorkDir::new()?.with("AILOOP_GRPC_URL", fleet.url());
    // The index is written beside the event.
    eventually("the question is listed", async || {
        work_dir.run(["approvals"]).await.is_ok_and(|listed| listed.stdout.contains("Which one?"))
    })
    .await?;
    let gate = opened.data["gate"].as_str().context("a gate")?;
    let wrong = work_dir.run(["approvals", "approve", "s", gate]).await?;
    assert_eq!((wrong.code, wrong.error()?), (1, "bad_request"));
    let answered = work_dir.run(["approvals", "answer", "s", gate, "--text", "b, please"]).await?;
    assert_eq!(answered.code, 0, "{}", answered.stderr);
    client.watch("s").await?.to_end().await?;
    assert_eq!(model.requests()[1].last_results(), ["b, please"]);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_session_has_no_open_gates() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(replies("launch", &json!({}))).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let tool_server = launch(&fleet.nats.url()).await?;
    fleet.wait_for_tools(&["launch"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.until("gate.opened", |_| true).await?;
    let gate = client.gates("s").await?.remove(0);
    client.control("s", ailoop_tests::client::Control::Stop).await?;
    let late = client.answer(&gate, "approve", |_| {}).await;
    ensure!(late.is_err_and(|error| error.to_string().starts_with("session_ended")));
    assert!(client.gates("").await?.is_empty() && tool_server.calls().is_empty());
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_result_with_progress_is_truncated_and_readable() -> anyhow::Result<()> {
    let long: String = (0..20_000).flat_map(|line| ["line ".to_owned(), line.to_string(), "\n".to_owned()]).collect();
    let answers = {
        let reads = json!({"call": "c1-1-1", "pattern": "^line 9999$"});
        vec![
            ScriptedReply::calls(&[("scan", json!({}))]),
            ScriptedReply::calls(&[("read_result", reads)]),
            ScriptedReply::signal("Done.", "TERMINATE"),
        ]
    };
    let model = ModelServer::with_replies(answers).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let whole = long.clone();
    let tool = Tool::new("scan").timeout(Duration::from_secs(1)).handler(move |call: ailoop_tool::Call| {
        let whole = whole.clone();
        async move {
            // Longer than its timeout, which each progress message extends.
            for part in 1..=5 {
                tokio::time::sleep(Duration::from_millis(400)).await;
                call.progress(format!("part {part}")).await;
            }
            Ok(whole)
        }
    });
    let tools = ailoop_tool::Tools::connect(&fleet.nats.url()).await?.tool(tool).serve().await?;
    fleet.wait_for_tools(&["scan", "read_result"]).await?;
    let client = fleet.client().await?;
    client.start("s", "go").await?;
    let events = client.watch("s").await?.to_end().await?;
    let texts: Vec<&Value> = of(&events, "tool_call.progress").iter().map(|progress| &progress["text"]).collect();
    assert_eq!(texts, ["part 1", "part 2", "part 3", "part 4", "part 5"]);
    let results = of(&events, "tool_call.result_processed");
    assert_eq!((&results[0]["outcome"], &results[0]["whole"]["bytes"]), (&json!("ok"), &json!(long.len())));
    let shown = results[0]["content"].as_str().context("text")?;
    assert!(shown.contains("read_result with call \"c1-1-1\" reads them") && shown.len() <= 64 << 10);
    let found: Value = serde_json::from_str(results[1]["content"].as_str().context("text")?)?;
    assert_eq!((&found["matches"], &found["lines"][0]["text"]), (&json!(1), &json!("line 9999")));
    let kept = fleet.ws().await?.ok("tools.result", &json!({"session_id": "s", "call": "c1-1-1"})).await?;
    assert!(kept["content"].as_str() == Some(long.as_str()));
    let other = fleet.ws().await?.call("tools.result", &json!({"session_id": "t", "call": "c1-1-1"})).await?;
    assert_eq!(other["error"]["data"]["code"], "unknown_call");
    tools.stop(Duration::from_secs(5)).await;
    fleet.end().await
}
