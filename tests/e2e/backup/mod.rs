//! `ailoop backup` and `ailoop restore`, over real nats-servers.

mod refusals;
mod restores;
mod round_trip;

use std::path::{Path, PathBuf};

use ailoop_tests::cli::{CliOutput, WorkDir};
use ailoop_tests::fleet::key;
use ailoop_tool::async_nats::{self, Client};
use anyhow::ensure;
use bus::{Bus, Read};
use contract::streams::{Objects, Stream};
use contract::tool::sha256_hex;
use serde_json::{Value, json};

/// Sessions of [`fill`], each with one commit.
const SESSIONS: usize = 20;

/// Writes the logs of some sessions and some bodies, which are hard to compress, of a megabyte each.
async fn fill(bus: &Bus, megabytes: u64) -> anyhow::Result<()> {
    for session in 0..SESSIONS {
        let meta = json!({
            "v": 1, "commit": "c0", "fold": 1, "phase": "idle", "open": [], "control_seq": 0, "seq": 1,
            "time": contract::Timestamp::default(),
        });
        let body = json!({"meta": meta, "events": []}).to_string();
        bus.commit(&key(&format!("s{session}"))?, 0, "c0", body.into()).await?;
    }
    for number in 0..megabytes {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        let mut body = Vec::with_capacity(1 << 20);
        while body.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            body.extend_from_slice(&state.to_le_bytes());
        }
        bus.transport().put_object(Objects::Blobs, &sha256_hex(&body), body.into()).await?;
    }
    Ok(())
}

/// Checks that everything of [`fill`] is there.
async fn check_filled(bus: &Bus, megabytes: u64) -> anyhow::Result<()> {
    for session in 0..SESSIONS {
        let head = bus.head(&key(&format!("s{session}"))?, Read::Leader).await?;
        ensure!(head.is_some_and(|head| head.slot == 0), "s{session} is not as it was");
    }
    let bytes = bus.transport().storage_size(bus::Storage::Objects(Objects::Blobs)).await?.bytes;
    ensure!(bytes >= megabytes << 20, "{bytes} bytes of bodies");
    Ok(())
}

/// A directory for commands, and the backups in it.
struct Backups {
    work: WorkDir,
}

impl Backups {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { work: WorkDir::new()? })
    }

    /// As the user with these credentials.
    fn with_credentials(credentials: &Path) -> anyhow::Result<Self> {
        Ok(Self { work: WorkDir::new()?.with("AILOOP__NATS__CREDENTIALS", credentials.display().to_string()) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    async fn run(&self, args: &[&str]) -> anyhow::Result<CliOutput> {
        self.work.run(args).await
    }

    /// Makes a backup, which must succeed.
    async fn backup(&self, name: &str, nats: &str) -> anyhow::Result<CliOutput> {
        let output = self.run(&["backup", "--out", name, "--nats", nats]).await?;
        ensure!(output.code == 0, "{}", output.stderr);
        let part = format!("{}.part", name.trim_end_matches('/'));
        ensure!(!self.path(&part).exists(), "the partial directory is still there");
        Ok(output)
    }

    /// Restores a backup, which must succeed.
    async fn restore(&self, name: &str, nats: &str, more: &[&str]) -> anyhow::Result<CliOutput> {
        let output = self.run(&[&["restore", name, "--nats", nats], more].concat()).await?;
        ensure!(output.code == 0, "{}", output.stderr);
        Ok(output)
    }

    fn manifest(&self, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.path(name).join("manifest.json"))?)?)
    }
}

/// Returns the answer of nats-server about a stream; `None` if there is no such stream.
async fn stream_info(client: &Client, stream: &str) -> anyhow::Result<Option<Value>> {
    let answer = client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    Ok(answer.get("error").is_none().then_some(answer))
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    Ok(async_nats::connect(url).await?)
}

/// Names of the streams of a server.
async fn streams(client: &Client) -> anyhow::Result<Vec<String>> {
    let answer = client.request("$JS.API.STREAM.NAMES", "".into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    Ok(serde_json::from_value(answer["streams"].clone()).unwrap_or_default())
}

/// The number of streams of ailoop.
fn stream_count() -> usize {
    Stream::ALL.len() + contract::streams::Bucket::ALL.len() + Objects::ALL.len()
}
