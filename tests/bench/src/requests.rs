//! Cost of requests of one size to the model server, by a plain client: the bytes that a provider needs whatever a
//! fleet does.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::process::{announce, usage_of};

const WARM: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// Requests of one size, so many at the same time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Posts {
    url: String,
    concurrency: usize,
    bytes: usize,
}

/// CPU seconds of a plain client for 1 000 requests of this size to a model server.
pub(crate) async fn cpu_s_per_1000(url: &str, concurrency: usize, bytes: usize) -> anyhow::Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["posts", url, &concurrency.to_string(), &bytes.to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let id = child.id().context("the client of the model server ended at once")?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    lines.next_line().await?.context("the client of the model server does not begin")?;
    let before = usage_of(id)?.cpu_s;
    let sent: u32 = lines.next_line().await?.context("it prints no result")?.parse()?;
    let after = usage_of(id)?.cpu_s;
    ensure!(sent > 0, "no request was answered");
    Ok((after - before) * 1e3 / f64::from(sent))
}

/// The plain client: announces the beginning of the measurement and the number of requests, and waits to be ended.
pub(crate) async fn post(posts: Posts) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let body = Bytes::from(json!({"messages": [], "filler": "x".repeat(posts.bytes)}).to_string());
    let (client, sent, stop) = (reqwest::Client::new(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut workers = JoinSet::new();
    for _ in 0..posts.concurrency {
        let (client, url, body) = (client.clone(), format!("{}/chat/completions", posts.url), body.clone());
        let (sent, stop) = (sent.clone(), stop.clone());
        workers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.post(&url).body(body.clone()).send().await?.bytes().await?;
                sent.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    sleep(WARM).await;
    let before = sent.load(Ordering::Relaxed);
    announce("counting");
    sleep(WINDOW).await;
    announce(&(sent.load(Ordering::Relaxed) - before).to_string());
    stop.store(true, Ordering::Relaxed);
    while let Some(worked) = workers.join_next().await {
        worked??;
    }
    // The process is looked at before it is ended.
    std::future::pending().await
}
