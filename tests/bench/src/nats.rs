//! The nats-server: configured as `ailoop up` does, and its own counts.

use std::path::Path;
use std::process::Command;

use ailoop::nats_binary::{Places, find};
use anyhow::Context;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::Process;

/// A running nats-server.
#[derive(Debug)]
pub(crate) struct Nats {
    /// The process.
    pub(crate) process: Process,
    /// Where clients connect.
    pub(crate) url: String,
    monitor: String,
}

/// What the server has counted since its start.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Traffic {
    /// Messages from clients: publishes, requests, replies, acks.
    pub(crate) in_msgs: u64,
    /// Messages to clients.
    pub(crate) out_msgs: u64,
}

#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
    monitoring: Vec<String>,
}

impl Nats {
    /// Starts it with its data below `dir`.
    pub(crate) async fn start(dir: &Path) -> anyhow::Result<Self> {
        let env = service::config::env;
        let places = Places {
            named: env("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(Into::into),
            from: std::env::current_dir()?,
            path: env("PATH").map(Into::into),
        };
        let binary = find(&places).await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let config = dir.join("nats.conf");
        let quoted = format!("{:?}", dir.display().to_string());
        let text = format!(
            "server_name: bench\nhost: \"127.0.0.1\"\nport: -1\nhttp: \"127.0.0.1:-1\"\nports_file_dir: {quoted}\n\
             jetstream {{\n  store_dir: {quoted}\n  sync_interval: \"1s\"\n}}\n"
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(binary);
        command.arg("-c").arg(&config);
        let mut process = Process::start("nats-server", command, dir)?;
        let ports = dir.join(format!("nats-server_{}.ports", process.id()));
        let ports: Ports = process.says(|_| serde_json::from_slice(&std::fs::read(&ports).ok()?).ok()).await?;
        let url = ports.nats.into_iter().next().context("the server tells no port")?;
        let monitor = ports.monitoring.into_iter().next().context("the server tells no monitoring port")?;
        let monitor = monitor.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Self { process, url, monitor })
    }

    /// What it has counted.
    pub(crate) async fn traffic(&self) -> anyhow::Result<Traffic> {
        let mut stream = TcpStream::connect(&self.monitor).await?;
        stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("/varz")?;
        Ok(serde_json::from_str(body)?)
    }
}
