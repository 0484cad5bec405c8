//! A session under the permissions: each service is a process with its own NATS user.

use ailoop_tests::client::ReceivedEvent;
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::soon;
use contract::limits::INLINE_BYTES_MAX;
use serde_json::json;

/// The only expected refusal: built-in tools announce themselves, even if their user may not.
const BEST_EFFORT: &str = "ai_rpc.tool.announce";

/// Permission violations in the log of a server, without the expected one.
fn violations(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("Violation") && !line.contains(BEST_EFFORT)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_under_permissions_causes_no_violation() -> anyhow::Result<()> {
    let files = tempfile::tempdir()?;
    std::fs::write(files.path().join("a.txt"), "one\ntwo\n")?;
    let (root, out) = (files.path().display().to_string(), files.path().join("out").display().to_string());
    let gate = Gate::new();
    let model = ModelServer::with_replies(vec![
        ScriptedReply::text("I look.").and_gate(&gate).and_calls(&[("read_file", json!({"path": "a.txt"}))]),
        ScriptedReply::text("I write.").and_calls(&[("write_file", json!({"path": "b.txt", "content": "three"}))]),
        ScriptedReply::text("I tell.")
            .and_calls(&[("send_mail", json!({"to": "eamonn", "subject": "b", "text": "It is there."}))]),
        ScriptedReply::text("I look for answers.").and_calls(&[("check_mail", json!({}))]),
        ScriptedReply::signal("done", "TERMINATE"),
    ])
    .await?;
    let process_fleet = ProcessFleet::guarded_with_logins(
        &[("test", &model.base_url())],
        &["files", "mail"],
        &[("AILOOP__TOOL_HOST__FILES__ROOT", &root), ("AILOOP__TOOL_HOST__FILES__OUT", &out)],
    )
    .await?;
    let mut first = process_fleet.spawn("orchestrator").await?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("gateway").await?);
    let _tools = (process_fleet.spawn("executor").await?, process_fleet.spawn("tool-host").await?);
    let edge = process_fleet.edge().await?;
    process_fleet.wait_for_tools(&["read_file", "write_file", "send_mail", "check_mail", "reply_mail"]).await?;
    let client = edge.client().await?;

    // Large enough that inputs, items and commits are stored as objects.
    let prompt = "x ".repeat(INLINE_BYTES_MAX);
    client.start("s", &prompt).await?;
    let watching = client.watch("s").await?;
    soon("the model is asked", model.wait_for_requests(1)).await?;
    first.kill()?;
    gate.open();
    let events = soon("the end of the session", watching.to_end()).await??;

    judge::seqs(&events)?;
    judge::log(&process_fleet.bus, &key("s")?, 10).await?;
    let ok = |event: &&ReceivedEvent| event.topic == "tool_call.result_processed" && event.data["outcome"] == "ok";
    assert_eq!(events.iter().filter(ok).count(), 4, "{events:?}");
    let mails =
        events.iter().find(|event| event.topic == "tool_call.result_processed" && event.data["tool"] == "check_mail");
    assert!(mails.is_some_and(|event| event.data["content"].to_string().contains("It is there.")), "{mails:?}");
    assert_eq!(std::fs::read_to_string(files.path().join("out/b.txt"))?, "three");
    assert_eq!(violations(&process_fleet.nats.log()), Vec::<&str>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_stopped_under_permissions_causes_no_violation() -> anyhow::Result<()> {
    let gate = Gate::new();
    let model = ModelServer::with_replies(vec![ScriptedReply::text("a long story").and_gate(&gate)]).await?;
    let process_fleet = ProcessFleet::guarded(&[("test", &model.base_url())], &[]).await?;
    let _loop = (
        process_fleet.spawn("orchestrator").await?,
        process_fleet.spawn("gateway").await?,
        process_fleet.spawn("executor").await?,
    );
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    soon("the model is asked", model.wait_for_requests(1)).await?;
    let mut ws = edge.ws().await?;
    ws.ok("session.pause", &json!({"session_id": "s"})).await?;
    ws.ok("session.resume", &json!({"session_id": "s"})).await?;
    ws.ok("session.stop", &json!({"session_id": "s"})).await?;
    client.watch("s").await?.to_end().await?;
    assert_eq!(violations(&process_fleet.nats.log()), Vec::<&str>::new());
    Ok(())
}
