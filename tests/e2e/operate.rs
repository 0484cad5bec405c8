//! Questions of an operator: the status of the fleet, the reason why a session makes no progress, and what is wrong.

use std::time::Duration;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::Control;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::eventually;
use ailoop_tool::{Effect, Tool};
use serde_json::{Value, json};

/// The services of a fleet, each a process with its own NATS user.
struct Services {
    edge: EdgeReplica,
    _others: Vec<Replica>,
}

async fn start(fleet: &ProcessFleet, services: &[&str]) -> anyhow::Result<Services> {
    let mut others = Vec::new();
    for service in services {
        others.push(fleet.spawn(service).await?);
    }
    Ok(Services { edge: fleet.edge().await?, _others: others })
}

impl Services {
    /// Returns the output of a command on stdout, which must be one line of JSON.
    async fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let work_dir = WorkDir::new()?;
        let all = arguments.iter().copied().chain(["--json", "--url"]).map(str::to_owned).chain([self.edge.url()]);
        let outcome = work_dir.run(all).await?;
        anyhow::ensure!(outcome.code == 0, "{arguments:?}: {}", outcome.stderr);
        Ok(serde_json::from_str(&outcome.stdout)?)
    }

    /// The groups and texts of the checks of `ailoop doctor` that are not well, and its exit code.
    async fn doctor(&self) -> anyhow::Result<(Vec<String>, i32)> {
        let work_dir = WorkDir::new()?;
        let outcome = work_dir.run(["doctor", "--json", "--url", &self.edge.url()]).await?;
        let checks = outcome.stdout.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let bad = checks.iter().filter(|check| check["outcome"] != "ok");
        let text = |check: &Value| format!("{} {}", check["outcome"].as_str().unwrap_or_default(), check["found"]);
        Ok((bad.map(text).collect(), outcome.code))
    }

    async fn finding(&self, session: &str) -> anyhow::Result<String> {
        let described = self.json(&["describe", session]).await?;
        Ok(described["findings"][0]["what"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_doctor_see_every_process_and_what_is_missing() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(Vec::new()).await?;
    let fleet = ProcessFleet::guarded(&[("test", &model.base_url())], &[]).await?;
    let services = start(&fleet, &["orchestrator", "orchestrator", "executor"]).await?;
    let mut gateway = fleet.spawn("gateway").await?;
    let count = async || -> anyhow::Result<Vec<String>> {
        let status = services.json(&["status"]).await?;
        let replicas = status["replicas"].as_array().cloned().unwrap_or_default();
        assert!(replicas.iter().all(|replica| replica["version"] == env!("CARGO_PKG_VERSION")), "{status}");
        Ok(replicas.iter().map(|replica| replica["service"].as_str().unwrap_or_default().to_owned()).collect())
    };
    let all = ["edge", "loop-orchestrator", "loop-orchestrator", "model-gateway", "prompt-composer", "tool-executor"];
    eventually("every process answers", async || count().await.is_ok_and(|found| found == all)).await?;
    // Its queue has a worker that asks for items.
    let no_tools = vec!["warning \"there is no tool\"".to_owned()];
    let healthy = async || services.doctor().await.is_ok_and(|(bad, code)| (&bad, code) == (&no_tools, 0));
    if let Err(error) = eventually("only the tools are missing", healthy).await {
        anyhow::bail!("{error}: {:?}", services.doctor().await?);
    }

    gateway.kill()?;
    let gone = async || {
        let Ok((bad, code)) = services.doctor().await else { return false };
        let has = |text: &str| bad.iter().any(|found| found.contains(text));
        code == 1 && has("no model-gateway answers") && has("model: 0 waiting, 0 held, 0 requests of workers")
    };
    eventually("the gateway is missed", gone).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_says_why_a_session_does_not_move() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::status(503, "{\"error\": {\"message\": \"too busy\"}}").header("retry-after", "8"),
        ScriptedReply::calls(&[("wait", json!({}))]),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = ProcessFleet::guarded(&[("test", &model.base_url())], &[]).await?;
    let services = start(&fleet, &["orchestrator"]).await?;
    let client = services.edge.client().await?;
    client.start("s", "go").await?;

    // No gateway runs: the call waits in its queue.
    let waits = services.json(&["describe", "s"]).await?;
    assert_eq!(waits["waits"][0]["kind"], "model_call", "{waits}");
    assert_eq!(waits["waits"][0]["holder"], Value::Null);
    assert_eq!(services.finding("s").await?, "no gateway answers: the queue `model` has 1 waiting, 0 held");

    // The gateway waits for the next request after one that failed.
    let _gateway = fleet.spawn("gateway").await?;
    let retries = async || services.finding("s").await.is_ok_and(|found| found.contains("model_overloaded"));
    eventually("the gateway says why it waits", retries).await?;
    let held = services.json(&["describe", "s"]).await?;
    let holder = &held["waits"][0]["holder"];
    assert!(holder["note"].as_str().is_some_and(|note| note.contains("next try in")), "{held}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_names_the_tool_and_its_worker() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![ScriptedReply::calls(&[("wait", json!({}))])]).await?;
    let fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let services = start(&fleet, &["orchestrator", "gateway"]).await?;
    let mut executor = fleet.spawn("executor").await?;
    let hanging = ToolServerBuilder::at(&fleet.nats.url()).await?;
    let tool = Tool::new("wait").effect(Effect::AtMostOnce).timeout(Duration::from_mins(5));
    let tool_server = hanging.with(tool, |_| ToolAnswer::Never).open().await?;
    fleet.wait_for_tools(&["wait"]).await?;
    let client = services.edge.client().await?;
    client.start("s", "go").await?;
    tool_server.wait_for_calls(1).await;

    let held = async || {
        let described = services.json(&["describe", "s"]).await.unwrap_or_default();
        let wait = &described["waits"][0];
        (&wait["tool"], &wait["effect"], &wait["holder"]["delivery"])
            == (&json!("wait"), &json!("at_most_once"), &json!(1))
    };
    eventually("the executor says that it has the call", held).await?;
    executor.kill()?;
    let gone = async || services.finding("s").await.is_ok_and(|found| found.starts_with("no executor answers"));
    eventually("the executor is gone", gone).await?;

    client.control("s", Control::Pause).await?;
    let paused = services.json(&["describe", "s"]).await?;
    assert_eq!(paused["findings"][0]["what"], "the session is paused", "{paused}");
    client.control("s", Control::Stop).await?;
    let ended = services.json(&["describe", "s"]).await?;
    assert_eq!((&ended["phase"], &ended["waits"], &ended["findings"]), (&json!("ended"), &json!([]), &json!([])));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_are_selected_and_stopped_at_once() -> anyhow::Result<()> {
    let model = ModelServer::with_replies((0..4).map(|_| ScriptedReply::hang()).collect()).await?;
    let fleet = ProcessFleet::start(&[("test", &model.base_url()), ("other", &model.base_url())]).await?;
    let services = start(&fleet, &["orchestrator", "gateway"]).await?;
    let client = services.edge.client().await?;
    for (session, model) in [("t1", "test"), ("t2", "test"), ("o1", "other"), ("o2", "other")] {
        client.begin(session, "go", &json!({"model": model})).await?;
    }
    let (work_dir, url) = (WorkDir::new()?, services.edge.url());
    let run = async |arguments: &[&str]| {
        let all = arguments.iter().copied().chain(["--url", &url]);
        work_dir.run(all).await
    };
    let listed = async |arguments: &[&str]| -> anyhow::Result<Vec<String>> {
        let outcome = run(&[&["sessions", "--json"], arguments].concat()).await?;
        let lines = outcome.stdout.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let mut ids: Vec<_> =
            lines.iter().map(|line| line["session_id"].as_str().unwrap_or_default().to_owned()).collect();
        ids.sort();
        Ok(ids)
    };
    let known = async |wanted: &[&str], arguments: &[&str]| -> anyhow::Result<()> {
        let found = async || listed(arguments).await.is_ok_and(|found| found == wanted);
        eventually(&format!("{arguments:?} list {wanted:?}"), found).await
    };
    known(&["o1", "o2", "t1", "t2"], &["--phase", "running"]).await?;
    known(&["t1", "t2"], &["--model", "test"]).await?;
    known(&["o1", "o2", "t1", "t2"], &["--since", "1h", "--agent", "e"]).await?;
    known(&[], &["--since", "2099-01-01T00:00:00Z"]).await?;
    known(&[], &["--error"]).await?;

    let unasked = run(&["stop", "--all", "--model", "test"]).await?;
    assert_eq!((unasked.code, unasked.error()?), (2, "bad_request"), "{}", unasked.stderr);
    assert!(unasked.stderr.contains("2 sessions will be stopped"), "{}", unasked.stderr);
    let stopped = run(&["stop", "--all", "--model", "test", "--yes", "--reason", "enough"]).await?;
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    known(&["t1", "t2"], &["--phase", "ended"]).await?;
    known(&["o1", "o2"], &["--phase", "running"]).await?;
    known(&["t1", "t2"], &["--stop-reason", "stopped"]).await?;
    let neither = run(&["stop"]).await?;
    assert_eq!(neither.code, 2, "{}", neither.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_are_listed_and_reset() -> anyhow::Result<()> {
    let reply = ScriptedReply::signal("Done.", "TERMINATE").usage(1_000, 20);
    let model = ModelServer::with_replies(vec![reply]).await?;
    let fleet = ProcessFleet::guarded(&[("test", &model.base_url())], &[]).await?;
    fleet.write_models(&json!({
        "providers": {"local": {"kind": "openai_chat", "base_url": model.base_url()}},
        "models": {"test": {"provider": "local"}},
        "budgets": [
            {"tenant": "*", "per": "month", "tokens": 10_000},
            {"tenant": "*", "agent": "*", "per": "day", "tokens": 100_000},
        ],
        "default": "test",
    }))?;
    let services = start(&fleet, &["orchestrator", "gateway"]).await?;
    let client = services.edge.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.to_end().await?;

    let (work_dir, url) = (WorkDir::new()?, services.edge.url());
    let budgets = async || -> anyhow::Result<Vec<Value>> {
        let outcome = work_dir.run(["budgets", "--json", "--url", &url]).await?;
        anyhow::ensure!(outcome.code == 0, "{}", outcome.stderr);
        Ok(outcome.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    };
    let spent = async |budget: &str| -> anyhow::Result<Value> {
        let all = budgets().await?;
        let found = all.iter().find(|status| status["budget"] == budget);
        Ok(found.map(|status| status["tokens_spent"].clone()).unwrap_or_default())
    };
    assert_eq!((spent("month").await?, spent("day.e").await?), (json!(1_020), json!(1_020)), "{:?}", budgets().await?);
    let reset = work_dir.run(["budgets", "reset", "month", "--url", &url]).await?;
    assert_eq!(reset.code, 0, "{}", reset.stderr);
    assert_eq!((spent("month").await?, spent("day.e").await?), (json!(0), json!(1_020)));
    let unknown = work_dir.run(["budgets", "reset", "year", "--url", &url]).await?;
    assert_eq!((unknown.code, unknown.error()?), (1, "unknown_budget"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("day.e, month"), "{}", unknown.stderr);
    Ok(())
}
