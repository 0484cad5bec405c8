//! The Python tool of the README: it is discovered, called, traced, and reported as missing when it has ended.

use std::path::Path;
use std::process::Stdio;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::TestClient;
use ailoop_tests::fleet::{configuration, wait_for_tools};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::otlp::Collector;
use ailoop_tests::python;
use ailoop_tests::wait::{eventually, soon};
use futures::StreamExt;
use serde_json::{Value, json};

const TOOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tools/python/word_count.py");

/// The run file of a fleet in a directory, once it exists.
async fn run_file(work_dir: &WorkDir) -> anyhow::Result<Value> {
    let path = work_dir.path().join(".ailoop/run.json");
    eventually("the fleet is up", async || path.exists()).await?;
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_tool_is_discovered_called_and_reported_missing() -> anyhow::Result<()> {
    let python = tokio::task::spawn_blocking(python::with_nats).await??;
    let gate = Gate::new();
    let call = || ScriptedReply::calls(&[("word_count", json!({"text": "one two  three"}))]);
    let replies = vec![call(), call().before(&gate), ScriptedReply::signal("Done.", "TERMINATE")];
    let model = ModelServer::with_replies(replies).await?;
    let (collector, config) = (Collector::start().await?, configuration(&[("test", &model.base_url())])?);
    let mut work_dir = WorkDir::new()?.with("AILOOP_CONFIG", config.path().display().to_string());
    for (name, value) in collector.environment() {
        work_dir = work_dir.with(&name, value);
    }
    let _fleet = work_dir.spawn(["up", "--ws-port", "0", "--grpc-port", "0"])?;
    let run = run_file(&work_dir).await?;
    let bus = bus::Bus::connect(&bus::NatsConfig { url: text(&run, "nats").to_owned(), ..Default::default() }).await?;

    // Found by its announcement.
    let observer = ailoop_tool::connect(text(&run, "nats"), "observer", None).await?;
    let mut announced = observer.subscribe("ai_rpc.tool.announce").await?;
    let mut requests = observer.subscribe("ai_tool.default.word_count").await?;
    observer.flush().await?;
    let mut tool = tokio::process::Command::new(&python)
        .arg(Path::new(TOOL))
        .env("NATS_URL", text(&run, "nats"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    soon("the tool is announced", announced.next()).await?;
    wait_for_tools(&bus, &["word_count"]).await?;

    // Called, under the session's trace.
    let client = TestClient::connect_with_key(text(&run, "grpc"), text(&run, "token")).await?;
    client.start("s", "count").await?;
    let mut watching = client.watch("s").await?;
    let result = watching.until("tool_call.result_processed", |_| true).await?;
    assert_eq!((text(&result.data, "outcome"), text(&result.data, "content")), ("ok", r#"{"words": 3}"#));
    let request = soon("the tool's request", requests.next()).await?.unwrap();
    let headers = request.headers.unwrap();
    let header = |name: &str| headers.get(name).map(|value| value.as_str().to_owned()).unwrap_or_default();
    assert_eq!(header("traceparent").get(3..35), Some(&*result.trace_id), "{headers:?}");
    assert_eq!(header("Ailoop-Session"), "s");
    assert!(header("Ailoop-Call").starts_with("s-c1-1-1-"), "{headers:?}");

    // The tool was killed: the next call waits for another replica for three seconds.
    soon("the second request", model.wait_for_requests(2)).await?;
    drop(requests);
    drop(observer);
    tool.kill().await?;
    gate.open();
    let result = watching.until("tool_call.result_processed", |_| true).await?;
    assert_eq!((text(&result.data, "outcome"), text(&result.data, "code")), ("error", "no_tool_available"));
    judge::seqs(&watching.to_end().await?)?;
    judge::requests(&model.requests())?;
    let requests = model.requests();
    assert_eq!(requests[1].last_results(), [r#"{"words": 3}"#]);
    assert!(requests[2].last_results()[0].contains("word_count"), "{:?}", requests[2].last_results());
    Ok(())
}
