//! Backups and directories that cannot be used: each is refused before anything is changed.

use std::fs;
use std::path::Path;

use ailoop_tests::nats::NatsServer;
use anyhow::ensure;

use super::{Backups, connect, fill, streams};

/// Copies a backup, which has no directories.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// A change of a backup, and a part of the message that refuses it.
type Damage = (&'static str, fn(&Path) -> anyhow::Result<()>, &'static str);

const DAMAGES: [Damage; 9] = [
    (
        "a truncated file",
        |dir| edit(&dir.join("AI_LOOP_LOG.snapshot"), |bytes| bytes.truncate(bytes.len() - 1)),
        "bytes, and the manifest says",
    ),
    (
        "a flipped byte",
        |dir| edit(&dir.join("OBJ_ai_loop_blobs.snapshot"), |bytes| bytes[100] ^= 1),
        "another checksum",
    ),
    (
        "a changed tail",
        |dir| edit(&dir.join("AI_LOOP_LOG.tail.jsonl"), |bytes| bytes.push(b'\n')),
        "bytes, and the manifest says",
    ),
    ("a missing stream", |dir| Ok(fs::remove_file(dir.join("AI_LOOP_TOOL.snapshot"))?), "cannot be read"),
    ("a newer format", |dir| replace(dir, "\"format\": 1", "\"format\": 2"), "reads format 1"),
    ("a stream of somebody else", |dir| replace(dir, "AI_LOOP_TOOL", "../../SECRETS"), "is no stream of ailoop"),
    (
        "a manifest without a stream",
        |dir| replace(dir, "\"AI_LOOP_TOOL\"", "\"AI_LOOP_LOG\""),
        "names AI_LOOP_LOG twice",
    ),
    ("a manifest that is no JSON", |dir| edit(&dir.join("manifest.json"), |bytes| bytes.truncate(100)), "is not valid"),
    ("no manifest", |dir| Ok(fs::remove_file(dir.join("manifest.json"))?), "is no backup"),
];

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> anyhow::Result<()> {
    let mut bytes = fs::read(path)?;
    change(&mut bytes);
    Ok(fs::write(path, bytes)?)
}

fn replace(dir: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let path = dir.join("manifest.json");
    let text = fs::read_to_string(&path)?;
    ensure!(text.contains(old), "{old} is not in the manifest");
    Ok(fs::write(&path, text.replacen(old, new, 1))?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_backup_is_refused_before_anything_is_changed() -> anyhow::Result<()> {
    let (from, to, backups) = (NatsServer::start().await?, NatsServer::start().await?, Backups::new()?);
    fill(&from.ready().await?, 1).await?;
    backups.backup("b", &from.url()).await?;
    let client = connect(&to.url()).await?;
    for (number, (what, damage, why)) in DAMAGES.into_iter().enumerate() {
        let name = format!("damaged{number}");
        copy(&backups.path("b"), &backups.path(&name))?;
        damage(&backups.path(&name))?;
        let refused = backups.run(&["restore", &name, "--nats", &to.url(), "--force", "--yes"]).await?;
        ensure!(refused.code == 2 && refused.error()? == "bad_request", "{what}: {}", refused.stderr);
        ensure!(refused.stderr.contains(why), "{what}: {}", refused.stderr);
        ensure!(streams(&client).await?.is_empty(), "{what}: a stream was made");
    }
    for directory in ["nowhere", "b/manifest.json"] {
        let refused = backups.run(&["restore", directory, "--nats", &to.url()]).await?;
        ensure!(refused.code == 2, "{directory}: {}", refused.stderr);
    }
    // The backup itself is whole.
    backups.restore("b", &to.url(), &[]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_never_replaces_a_directory() -> anyhow::Result<()> {
    let (server, backups) = (NatsServer::start().await?, Backups::new()?);
    fill(&server.ready().await?, 0).await?;
    let url = server.url();
    backups.backup("b", &url).await?;
    let before = backups.manifest("b")?;
    fs::create_dir(backups.path("used"))?;
    fs::write(backups.path("used").join("file"), "mine")?;
    fs::create_dir(backups.path("c.part"))?;
    for (out, code, why) in [("b", 2, "has a backup already"), ("used", 2, "is not empty"), ("c", 1, "was interrupted")]
    {
        let refused = backups.run(&["backup", "--out", out, "--nats", &url]).await?;
        ensure!(refused.code == code && refused.stderr.contains(why), "{out}: {}", refused.stderr);
    }
    assert_eq!(backups.manifest("b")?, before);
    // An empty directory may be used, and one below a directory that does not exist.
    fs::create_dir(backups.path("empty"))?;
    for out in ["empty", "new/deep/b/"] {
        backups.backup(out, &url).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_some_streams_says_so() -> anyhow::Result<()> {
    let (server, backups) = (NatsServer::start().await?, Backups::new()?);
    fill(&server.ready().await?, 0).await?;
    let url = server.url();
    let only = ["--only", "KV_ai_loop_sessions", "--only", "AI_LOOP_LOG"];
    let made = backups.run(&[&["backup", "--out", "b", "--nats", &url], &only[..]].concat()).await?;
    ensure!(made.code == 0, "{}", made.stderr);
    let manifest = backups.manifest("b")?;
    assert_eq!(manifest["partial"], true);
    assert_eq!(manifest["streams"][0]["name"], "AI_LOOP_LOG", "in the order of a backup");
    assert_eq!(manifest["streams"][0]["messages_min"], 20);
    let refused = backups.run(&["backup", "--out", "c", "--nats", &url, "--only", "AI_LOOP_LOGS"]).await?;
    ensure!(refused.code == 2 && refused.stderr.contains("the streams are"), "{}", refused.stderr);
    let restored = backups.restore("b", &url, &["--force", "--yes"]).await?;
    ensure!(restored.stderr.contains("only some of the streams"), "{}", restored.stderr);
    let bus = server.connect().await?;
    bus.verify().await?;

    // A server that has no fleet, and none at all.
    let empty = NatsServer::start().await?;
    let refused = backups.run(&["backup", "--out", "d", "--nats", &empty.url()]).await?;
    ensure!(refused.stderr.contains("nats-server has no stream AI_LOOP_MODEL"), "{}", refused.stderr);
    let url = empty.url();
    drop(empty);
    let refused = backups.run(&["backup", "--out", "d", "--nats", &url]).await?;
    ensure!(refused.code == 3 && refused.error()? == "nats_unreachable", "{}", refused.stderr);
    ensure!(!backups.path("d").exists() && !backups.path("d.part").exists());
    Ok(())
}
