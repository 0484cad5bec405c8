//! Full streams: commands are refused with a reason, and sessions go on once there is room.

use ailoop_tests::client::Control;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::wait::{eventually, soon};
use ailoop_tool::async_nats;
use anyhow::ensure;
use bus::{Depth, Read};
use contract::streams::{Queue, Stream};
use serde_json::{Value, json};

/// Limits a stream to what it holds now.
async fn fill(fleet: &TestFleet, stream: Stream) -> anyhow::Result<()> {
    let client = async_nats::connect(fleet.nats.url()).await?;
    let info = client.request(format!("$JS.API.STREAM.INFO.{}", stream.name()), "".into()).await?;
    let mut info: Value = serde_json::from_slice(&info.payload)?;
    let used = info["state"]["bytes"].as_u64().unwrap_or_default().max(1);
    info["config"]["max_bytes"] = json!(used);
    let body = serde_json::to_vec(&info["config"])?;
    let update = client.request(format!("$JS.API.STREAM.UPDATE.{}", stream.name()), body.into()).await?;
    let update: Value = serde_json::from_slice(&update.payload)?;
    ensure!(update.get("error").is_none(), "{update}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_a_full_log_goes_on_after_cleanup() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![
        ScriptedReply::text("one"),
        ScriptedReply::text("two"),
        ScriptedReply::text("three"),
    ])
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start_interactive("s", "first").await?;
    let mut watching = client.watch("s").await?;
    watching.until("turn.completed", |data| data["final_response"] == "one").await?;
    fill(&fleet, Stream::Log).await?;
    // Both commands are stored and wait without an answer.
    let commands = async { tokio::join!(client.send_as("s", "m2", "second", "queue"), client.start("other", "hello")) };
    let mend = async {
        let held = async || fleet.bus.transport().depth(Queue::Inputs).await.is_ok_and(|depth| depth.held == 2);
        eventually("orchestrators hold both", held).await?;
        ensure!(model.requests().len() == 1, "a call without a commit");
        ensure!(fleet.bus.head(&key("other")?, Read::Leader).await?.is_none(), "a session without room for it");
        Ok(fleet.bus.repair().await?)
    };
    let ((sent, started), mended) = soon("both are done", Box::pin(async { tokio::join!(commands, mend) })).await?;
    mended?;
    ensure!(sent?.done && started?.done);
    let turn = soon("the turn", watching.until("turn.completed", |data| data["turn"] == 2)).await??;
    ensure!(turn.data["stop_reason"] == "completed", "{turn:?}");
    client.control("s", Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    client.watch("other").await?.to_end().await?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    judge::log(&fleet.bus, &key("other")?, 10).await?;
    judge::requests(&model.requests())?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_with_full_storage_is_refused_with_a_remedy() -> anyhow::Result<()> {
    let model = ModelServer::with_replies(vec![ScriptedReply::text("one"), ScriptedReply::text("two")]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = fleet.client().await?;
    client.start_interactive("s", "first").await?;
    let mut watching = client.watch("s").await?;
    watching.until("turn.completed", |data| data["final_response"] == "one").await?;
    // The last result stays for a moment after it is handled, and would leave room later.
    eventually("every input is settled", async || {
        fleet.bus.transport().depth(Queue::Inputs).await.is_ok_and(|depth| depth == Depth::default())
    })
    .await?;
    fill(&fleet, Stream::Control).await?;
    let Err(refused) = soon("an answer", client.send_as("s", "m2", "second", "queue")).await? else {
        anyhow::bail!("the command was accepted")
    };
    let error = refused.to_string();
    ensure!(error.starts_with("overloaded: ") && error.contains("bootstrap --fix"), "{error}");
    fleet.bus.repair().await?;
    ensure!(client.send_as("s", "m2", "second", "queue").await?.done);
    let turn = soon("the turn", watching.until("turn.completed", |data| data["turn"] == 2)).await??;
    ensure!(turn.data["final_response"] == "two", "{turn:?}");
    client.control("s", Control::Stop).await?;
    judge::seqs(&watching.to_end().await?)?;
    judge::log(&fleet.bus, &key("s")?, 10).await?;
    fleet.end().await
}
