//! A session under the permissions: every service a process and a NATS user of its own.

use ailoop_tests::client::Seen;
use ailoop_tests::crowd::Crowd;
use ailoop_tests::fleet::{PATIENCE, key, soon};
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, Reply};
use ailoop_tests::nats::password;
use contract::limits::INLINE_BYTES_MAX;
use serde_json::json;

/// The only thing that is refused to a fleet that works: built-in tools announce themselves, where they may.
const BEST_EFFORT: &str = "ai_rpc.tool.announce";

/// What the server refused to whom, except for what may be.
fn violations(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("Violation") && !line.contains(BEST_EFFORT)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_session_needs_nothing_that_is_refused() -> anyhow::Result<()> {
    let files = tempfile::tempdir()?;
    std::fs::write(files.path().join("a.txt"), "one\ntwo\n")?;
    let (root, out) = (files.path().display().to_string(), files.path().join("out").display().to_string());
    let gate = Gate::new();
    let model = ModelServer::with_replies(vec![
        Reply::text("I look.").and_gate(&gate).and_calls(&[("read_file", json!({"path": "a.txt"}))]),
        Reply::text("I write.").and_calls(&[("write_file", json!({"path": "b.txt", "content": "three"}))]),
        Reply::text("I tell.")
            .and_calls(&[("send_mail", json!({"to": "eamonn", "subject": "b", "text": "It is there."}))]),
        Reply::text("I look for answers.").and_calls(&[("check_mail", json!({}))]),
        Reply::signal("done", "TERMINATE"),
    ])
    .await?;
    let (files_password, mail_password) = (password("files"), password("mail"));
    let crowd = Crowd::guarded(
        &[("test", &model.base_url())],
        &[
            ("AILOOP__TOOL_HOST__FILES__ROOT", &root),
            ("AILOOP__TOOL_HOST__FILES__OUT", &out),
            ("AILOOP__TOOL_HOST__FILES__LOGIN__USER", "files"),
            ("AILOOP__TOOL_HOST__FILES__LOGIN__PASSWORD", &files_password),
            ("AILOOP__TOOL_HOST__MAIL__LOGIN__USER", "mail"),
            ("AILOOP__TOOL_HOST__MAIL__LOGIN__PASSWORD", &mail_password),
        ],
    )
    .await?;
    let mut first = crowd.spawn("orchestrator").await?;
    let _others = (crowd.spawn("orchestrator").await?, crowd.spawn("gateway").await?);
    let _tools = (crowd.spawn("executor").await?, crowd.spawn("tool-host").await?);
    let edge = crowd.edge().await?;
    crowd.knows(&["read_file", "write_file", "send_mail", "check_mail", "reply_mail"]).await?;
    let client = edge.client().await?;

    // So large that inputs, items and commits travel by reference.
    let prompt = "x ".repeat(INLINE_BYTES_MAX);
    client.start("s", &prompt).await?;
    let watching = client.watch("s").await?;
    soon("the model is asked", model.asked_times(1)).await?;
    first.kill()?;
    gate.open();
    let seen = tokio::time::timeout(PATIENCE * 2, watching.to_end()).await??;

    judge::seqs(&seen)?;
    judge::log(&crowd.bus, &key("s")?, 10).await?;
    let ok = |seen: &&Seen| seen.topic == "tool_call.result_processed" && seen.data["outcome"] == "ok";
    assert_eq!(seen.iter().filter(ok).count(), 4, "{seen:?}");
    let mails =
        seen.iter().find(|seen| seen.topic == "tool_call.result_processed" && seen.data["tool"] == "check_mail");
    assert!(mails.is_some_and(|seen| seen.data["content"].to_string().contains("It is there.")), "{mails:?}");
    assert_eq!(std::fs::read_to_string(files.path().join("out/b.txt"))?, "three");
    assert_eq!(violations(&crowd.nats.log()), Vec::<&str>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stopped_half_way_needs_nothing_that_is_refused_either() -> anyhow::Result<()> {
    let gate = Gate::new();
    let model = ModelServer::with_replies(vec![Reply::text("a long story").and_gate(&gate)]).await?;
    let crowd = Crowd::guarded(&[("test", &model.base_url())], &[]).await?;
    let _loop = (crowd.spawn("orchestrator").await?, crowd.spawn("gateway").await?, crowd.spawn("executor").await?);
    let edge = crowd.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    soon("the model is asked", model.asked_times(1)).await?;
    let mut ws = edge.ws().await?;
    ws.ok("session.pause", &json!({"session_id": "s"})).await?;
    ws.ok("session.resume", &json!({"session_id": "s"})).await?;
    ws.ok("session.stop", &json!({"session_id": "s"})).await?;
    client.watch("s").await?.to_end().await?;
    assert_eq!(violations(&crowd.nats.log()), Vec::<&str>::new());
    Ok(())
}
