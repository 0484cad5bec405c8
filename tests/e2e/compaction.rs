//! Logs of idle sessions are compacted by separate processes on a real nats-server, while orchestrators are killed.

use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::eventually;
use bus::{Bus, Read};
use contract::event::Event;
use contract::streams::Stream;
use contract::subject::every;

const SESSIONS: usize = 16;

fn name(n: usize) -> String {
    format!("idle-{n}")
}

async fn in_log(bus: &Bus) -> u64 {
    bus.transport().count(Stream::Log, &every::log_slot()).await.unwrap_or(u64::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrators_killed_while_logs_are_compacted_lose_nothing() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| ScriptedReply::signal("Done.", "TERMINATE")).await?;
    let environment = [("AILOOP__ORCHESTRATOR__COMPACT_AFTER", "2")];
    let fleet = ProcessFleet::with(&[("test", &model.base_url())], &environment).await?;
    let _gateway = fleet.spawn("gateway").await?;
    let mut orchestrators = vec![fleet.spawn("orchestrator").await?, fleet.spawn("orchestrator").await?];
    let edge = fleet.edge().await?;
    let client = edge.client().await?;
    for n in 0..SESSIONS {
        client.start_interactive(&name(n), "first").await?;
    }
    let archived =
        async || fleet.bus.transport().count(Stream::Archive, &every::archive_page()).await.unwrap_or_default();
    for (round, enough) in [1, 4, 8].into_iter().enumerate() {
        for n in 0..SESSIONS {
            client.send(&name(n), &format!("more {round}"), "queue").await?;
        }
        eventually("some logs are being compacted", async || archived().await >= enough).await?;
        orchestrators.remove(0).kill()?;
        orchestrators.push(fleet.spawn("orchestrator").await?);
    }
    eventually("each log is one message", async || in_log(&fleet.bus).await == SESSIONS as u64).await?;
    for n in 0..SESSIONS {
        let head = fleet.bus.head(&key(&name(n))?, Read::Leader).await?;
        assert!(head.is_some_and(|head| head.meta.log_start == Some(head.slot)), "{n}");
    }

    // Each of them wakes, and has everything that it ever had.
    for n in 0..SESSIONS {
        let session = name(n);
        let mut watching = client.watch(&session).await?;
        client.send(&session, "wake up", "queue").await?;
        watching.until("message.user_processed", |data| data["content"] == "wake up").await?;
        watching.until("turn.completed", |_| true).await?;
        // The prompt, and of each turn the message, the reply with its signal, and the result of that.
        let history = client.history(&session).await?;
        assert_eq!(history.len(), 1 + 3 * 5, "{session}: {history:#?}");
        let commits = judge::log(&fleet.bus, &key(&session)?, 10).await?;
        let compactions = commits.iter().flat_map(|commit| &commit.events);
        assert!(compactions.filter(|event| matches!(event, Event::LogCompacted(_))).count() > 0, "{session}");
        client.control(&session, ailoop_tests::client::Control::Stop).await?;
        judge::seqs(&client.watch(&session).await?.to_end().await?)?;
    }
    assert_eq!(model.requests().len(), SESSIONS * 5, "no call was made twice");
    Ok(())
}
