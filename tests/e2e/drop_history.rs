//! `ailoop sessions drop-history`: the end of a log that has commits of two histories is removed.

use ailoop_tests::cli::WorkDir;
use ailoop_tests::fleet::key;
use ailoop_tests::nats::NatsServer;
use anyhow::ensure;
use bus::Bus;
use contract::Timestamp;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_with_two_histories_archivist_removes_its_end() -> anyhow::Result<()> {
    let server = NatsServer::start_guarded().await?;
    let bus = Bus::connect(&server.config_of("orchestrator")).await?;
    for (slot, (id, prev)) in (0..).zip([("a0", ""), ("a1", "a0"), ("x2", "lost"), ("a3", "a2")]) {
        let meta = json!({
            "v": 1, "commit": id, "prev": prev, "fold": 1, "phase": "idle", "open": [], "control_seq": 0, "seq": 1,
            "time": Timestamp::default(),
        });
        let body = json!({"meta": meta, "events": []}).to_string();
        bus.commit(&key("s")?, slot, id, body.into()).await?;
    }
    let credentials = server.credentials_of("archivist").display().to_string();
    let (work, url) = (WorkDir::new()?.with("AILOOP__NATS__CREDENTIALS", credentials), server.url());
    let drop_history = ["sessions", "drop-history", "s", "--nats", &url];

    let asked = work.run(drop_history).await?;
    ensure!(asked.code == 2 && asked.stdout.contains("slot 2\tcommit x2\tafter lost"), "{asked:?}");
    ensure!(asked.stderr.contains("slot 2 follows commit lost, but a1 stands before it"), "{asked:?}");
    let removed = work.run(drop_history.into_iter().chain(["--yes"])).await?;
    ensure!(removed.code == 0 && removed.stdout.ends_with("s\t2 commits removed\n"), "{removed:?}");
    ensure!(bus.load(&key("s")?).await?.is_some_and(|commits| commits.len() == 2));

    let whole = work.run(drop_history).await?;
    ensure!(whole.code == 0 && whole.stderr.contains("has one history"), "{whole:?}");
    Ok(())
}
