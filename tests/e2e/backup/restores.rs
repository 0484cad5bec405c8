//! Restores that are interrupted and repeated, to other servers, and as the users of production.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ailoop_tests::fleet::key;
use ailoop_tests::nats::{NatsCluster, NatsServer, StorageLimits};
use ailoop_tests::wait::eventually;
use anyhow::{Context, ensure};
use bus::nats::RESTORE_MARK;
use bus::{Bus, Read};
use contract::streams::{Bucket, Stream};
use contract::subject;
use contract::tool::sha256_hex;
use contract::{Coded as _, ErrorCode};
use serde_json::{Value, json};

use super::{Backups, check_filled, connect, fill, stream_count, stream_info, streams};

/// Bodies that make a restore long enough to be interrupted.
const MEGABYTES: u64 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_killed_at_any_stream_can_be_repeated() -> anyhow::Result<()> {
    let (from, backups) = (NatsServer::start().await?, Backups::new()?);
    fill(&from.ready().await?, MEGABYTES).await?;
    backups.backup("b", &from.url()).await?;
    let to = NatsServer::start().await?;
    let client = connect(&to.url()).await?;
    // Between two streams, in the middle of the longest one, and near the end.
    for seen in ["AI_LOOP_MODEL", "AI_LOOP_LOG", "OBJ_ai_loop_blobs", "KV_ai_loop_claims"] {
        let mut restore = backups.work.spawn(["restore", "b", "--nats", &to.url(), "--force", "--yes"])?;
        eventually(seen, async || {
            let has_ended = restore.try_wait().is_ok_and(|status| status.is_some());
            let info = stream_info(&client, seen).await.ok().flatten();
            has_ended || info.is_some_and(|info| info["config"]["metadata"].get(RESTORE_MARK).is_some())
        })
        .await?;
        restore.start_kill()?;
        restore.wait().await?;
        // Unless the restore was faster, no service starts.
        let refused = to.connect().await?.verify().await.err().map(|error| error.code());
        let is_complete = streams(&client).await?.len() == stream_count() && refused.is_none();
        ensure!(
            is_complete || refused == Some(ErrorCode::NotNow) || refused == Some(ErrorCode::Unavailable),
            "{refused:?}"
        );
        if !is_complete {
            // Without --force: what is left of the last attempt is nobody's data.
            backups.restore("b", &to.url(), &[]).await?;
        }
        let bus = to.connect().await?;
        bus.verify().await?;
        check_filled(&bus, MEGABYTES).await?;
    }

    // Killed when it had removed all marks but one.
    let mut info = stream_info(&client, "AI_LOOP_TOOL").await?.unwrap_or_default();
    info["config"]["metadata"][RESTORE_MARK] = backups.manifest("b")?["id"].clone();
    client.request("$JS.API.STREAM.UPDATE.AI_LOOP_TOOL", info["config"].to_string().into()).await?;
    let refused = to.connect().await?.verify().await.err().map(|error| error.code());
    assert_eq!(refused, Some(ErrorCode::NotNow));
    backups.restore("b", &to.url(), &[]).await?;
    let bus = to.connect().await?;
    bus.verify().await?;
    check_filled(&bus, MEGABYTES).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_one_server_is_restored_to_a_cluster_and_back() -> anyhow::Result<()> {
    let (one, cluster, backups) = (NatsServer::start().await?, NatsCluster::start3().await?, Backups::new()?);
    fill(&one.ready().await?, 3).await?;
    backups.backup("one", &one.url()).await?;
    let url = cluster.config(0).url;
    backups.restore("one", &url, &["--replicas", "3"]).await?;
    let client = connect(&cluster.nodes[0].url()).await?;
    let info = stream_info(&client, "AI_LOOP_LOG").await?.unwrap_or_default();
    assert_eq!(info["config"]["num_replicas"], 3, "{info}");
    let bus = cluster.ready().await?;
    check_filled(&bus, 3).await?;

    backups.backup("three", &url).await?;
    backups.restore("three", &one.url(), &["--force", "--yes"]).await?;
    let bus = one.ready().await?;
    check_filled(&bus, 3).await
}

/// Adds messages to those of a backup that came while it was made. Each has a condition that was true then.
fn add_later(backup: &Path, stream: &str, subjects: &[&str]) -> anyhow::Result<()> {
    const CONDITION: &str = "TkFUUy8xLjANCk5hdHMtRXhwZWN0ZWQtTGFzdC1TdWJqZWN0LVNlcXVlbmNlOiA3DQoNCg==";
    let line =
        |subject: &&str| json!({"subject": subject, "seq": 99, "hdrs": CONDITION, "data": "bGF0ZXI="}).to_string();
    let lines: String = subjects.iter().map(|subject| line(subject) + "\n").collect();
    std::fs::write(backup.join(format!("{stream}.tail.jsonl")), &lines)?;
    let path = backup.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let entries = manifest["streams"].as_array_mut().context("streams")?;
    let entry = entries.iter_mut().find(|entry| entry["name"] == stream).context("a stream")?;
    entry["tail"] = json!({"messages": subjects.len(), "bytes": lines.len(), "sha256": sha256_hex(lines.as_bytes())});
    Ok(std::fs::write(&path, manifest.to_string())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_backs_up_and_restorer_restores_without_a_violation() -> anyhow::Result<()> {
    let (mut server, work) = (NatsServer::start_guarded().await?, tempfile::tempdir()?);
    fill(&Bus::connect(&server.config_of("orchestrator")).await?, 1).await?;
    let out = work.path().join("b").display().to_string();
    let admin = Backups::with_credentials(&server.credentials_of("admin"))?;
    admin.backup(&out, &server.url()).await?;
    // A slip of an admin deletes nothing.
    let refused = admin.run(&["restore", &out, "--nats", &server.url(), "--force", "--yes"]).await?;
    ensure!(refused.error()? == "unavailable" && refused.stderr.contains("role `restorer`"), "{}", refused.stderr);
    let restorer = Backups::with_credentials(&server.credentials_of("restorer"))?;
    restorer.restore(&out, &server.url(), &["--force", "--yes"]).await?;
    check_filled(&Bus::connect(&server.config_of("orchestrator")).await?, 1).await?;

    // Someone else may do neither.
    let composer = Backups::with_credentials(&server.credentials_of("composer"))?;
    let refused = composer.run(&["backup", "--out", "x", "--nats", &server.url()]).await?;
    ensure!(refused.error()? == "unavailable" && refused.stderr.contains("role `admin`"), "{}", refused.stderr);
    ensure!(!composer.path("x").exists() && !composer.path("x.part").exists(), "a failed backup leaves nothing");

    // Messages that came during the backup: one that is in the log already, and two that are not.
    add_later(Path::new(&out), "AI_LOOP_LOG", &["ai_loop.log.default.s0.0.0", "ai_loop.log.default.later.0.0"])?;
    add_later(Path::new(&out), "KV_ai_loop_sessions", &["$KV.ai_loop_sessions.default.later"])?;

    // On an empty server, with nothing to delete.
    server.kill();
    server.remove_store()?;
    server.resume().await?;
    restorer.restore(&out, &server.url(), &[]).await?;
    let orchestrator = Bus::connect(&server.config_of("orchestrator")).await?;
    orchestrator.verify().await?;
    check_filled(&orchestrator, 1).await?;
    let later = subject::log_slot(&key("later")?, 0);
    let later = orchestrator.transport().last(Stream::Log, &later, Read::Leader).await?.map(|found| found.payload);
    assert_eq!(later.as_deref(), Some(&b"later"[..]));
    let index = Bus::connect(&server.config_of("edge")).await?;
    let entry = index.transport().kv_get(Bucket::Sessions, "default.later").await?;
    assert_eq!(entry.as_deref(), Some(&b"later"[..]));
    let log = server.log();
    let violations: Vec<&str> = log.lines().filter(|line| line.contains("Violation")).collect();
    ensure!(violations.is_empty(), "{violations:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timer_in_a_backup_is_due_after_the_restore() -> anyhow::Result<()> {
    let (from, to, backups) = (NatsServer::start().await?, NatsServer::start().await?, Backups::new()?);
    let (bus, session) = (from.ready().await?, key("s0")?);
    let soon = bus.transport().server_time().await?.after(Duration::from_secs(3));
    bus.set_timer(&session, 1, soon).await?;
    backups.backup("b", &from.url()).await?;
    backups.restore("b", &to.url(), &[]).await?;
    let bus = to.connect().await?;
    let due = subject::timer_due(&session);
    eventually("the timer is due", async || {
        let found = bus.transport().last(Stream::Timer, &due, Read::Leader).await;
        found.is_ok_and(|found| found.is_some())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_without_space_is_refused_and_can_be_repeated() -> anyhow::Result<()> {
    let (from, backups) = (NatsServer::start().await?, Backups::new()?);
    fill(&from.ready().await?, 6).await?;
    backups.backup("b", &from.url()).await?;
    let limits = StorageLimits { server_bytes: Some(4 << 20), ..StorageLimits::default() };
    let small = NatsServer::start_limited(limits).await?;
    let refused = backups.run(&["restore", "b", "--nats", &small.url()]).await?;
    ensure!(refused.code == 1 && refused.error()? == "overloaded", "{}", refused.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_over_streams_with_messages_needs_a_confirmation() -> anyhow::Result<()> {
    let (server, backups) = (NatsServer::start().await?, Backups::new()?);
    fill(&server.ready().await?, 1).await?;
    backups.backup("b", &server.url()).await?;
    let url = server.url();
    let client = connect(&url).await?;
    let created = stream_info(&client, "AI_LOOP_LOG").await?.unwrap_or_default()["created"].clone();
    let refused = backups.run(&["restore", "b", "--nats", &url]).await?;
    ensure!(
        refused.error()? == "bad_request" && refused.stderr.contains("AI_LOOP_LOG: 20 messages"),
        "{}",
        refused.stderr
    );
    for typed in ["", "yes\n", "Delete it\n"] {
        let file = backups.path("typed");
        std::fs::write(&file, typed)?;
        let stdin = Stdio::from(std::fs::File::open(&file)?);
        let refused = backups.work.run_with(["restore", "b", "--nats", &url, "--force"], stdin).await?;
        ensure!(refused.code == 2 && refused.stderr.contains("nothing was deleted"), "{}", refused.stderr);
    }
    let now = stream_info(&client, "AI_LOOP_LOG").await?.unwrap_or_default()["created"].clone();
    assert_eq!(now, created, "nothing was replaced");
    let file = backups.path("typed");
    std::fs::write(&file, "delete\n")?;
    let stdin = Stdio::from(std::fs::File::open(&file)?);
    let restored = backups.work.run_with(["restore", "b", "--nats", &url, "--force"], stdin).await?;
    ensure!(restored.code == 0, "{}", restored.stderr);
    check_filled(&server.connect().await?, 1).await
}
