//! The nats-servers, and their own counts.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use local_fleet::nats_binary::{SearchPaths, find};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{Process, Usage};

/// One nats-server, or three that are a cluster.
#[derive(Debug)]
pub(crate) struct NatsNodes {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    process: Process,
    url: String,
    monitor: String,
}

/// Replication and sync settings of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durability {
    /// Servers, and copies of each message.
    pub(crate) replicas: usize,
    /// `sync_interval` of their configuration.
    pub(crate) sync: &'static str,
}

impl Durability {
    /// One node that syncs every second: what `ailoop up` does.
    pub(crate) const ONE: Self = Self { replicas: 1, sync: "\"1s\"" };
    /// Three nodes, three copies of each message.
    pub(crate) const THREE: Self = Self { replicas: 3, ..Self::ONE };

    /// The same, with nodes that sync each message before they acknowledge it.
    pub(crate) const fn with_each_synced(self) -> Self {
        Self { sync: "always", ..self }
    }
}

/// Counters of the server since its start.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Traffic {
    /// Messages from clients: publishes, requests, replies, acks.
    pub(crate) in_msgs: u64,
    pub(crate) out_msgs: u64,
    pub(crate) in_bytes: u64,
}

/// Contents of all streams together.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Contents {
    pub(crate) messages: u64,
}

#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
    monitoring: Vec<String>,
}

impl NatsNodes {
    /// Starts it with its data below `dir`.
    pub(crate) async fn start(dir: &Path, durability: Durability) -> anyhow::Result<Self> {
        let env = configuration::env;
        let paths = SearchPaths {
            configured: env("AILOOP_NATS_SERVER").filter(|path| !path.is_empty()).map(Into::into),
            path: env("PATH").map(Into::into),
        };
        let binary = find(&paths).await.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let routes = free_ports(durability.replicas)?;
        let mut nodes = Vec::new();
        for (n, own) in routes.iter().enumerate() {
            let routes: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
            let cluster = if durability.replicas == 1 {
                String::new()
            } else {
                format!(
                    "cluster {{\n  name: bench\n  listen: \"127.0.0.1:{own}\"\n  routes: [{}]\n}}\n",
                    routes.join(", ")
                )
            };
            nodes.push(Node::start(&binary, &dir.join(format!("nats-{n}")), n, durability.sync, &cluster).await?);
        }
        Ok(Self { nodes })
    }

    /// Returns the URLs of all nodes for clients, separated by commas.
    pub(crate) fn url(&self) -> String {
        self.nodes.iter().map(|node| node.url.as_str()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.nodes.iter().map(|node| &node.process)
    }

    /// Returns the resource usage of all nodes together.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        self.processes().try_fold(Usage::default(), |sum, process| Ok(sum.plus(process.usage()?)))
    }

    /// Returns the counters of all nodes together.
    pub(crate) async fn traffic(&self) -> anyhow::Result<Traffic> {
        let mut all = Traffic::default();
        for node in &self.nodes {
            let traffic = node.traffic().await?;
            all.in_msgs += traffic.in_msgs;
            all.out_msgs += traffic.out_msgs;
            all.in_bytes += traffic.in_bytes;
        }
        Ok(all)
    }

    /// Returns the contents of the streams of the first node.
    pub(crate) async fn contents(&self) -> anyhow::Result<Contents> {
        let node = self.nodes.first().context("there is no node")?;
        Ok(serde_json::from_str(&node.monitored("/jsz").await?)?)
    }
}

impl Node {
    async fn start(binary: &Path, dir: &Path, n: usize, sync: &str, cluster: &str) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let config = dir.join("nats.conf");
        let quoted = format!("{:?}", dir.display().to_string());
        let text = format!(
            "server_name: bench{n}\nhost: \"127.0.0.1\"\nport: -1\nhttp: \"127.0.0.1:-1\"\nports_file_dir: {quoted}\n\
             jetstream {{\n  store_dir: {quoted}\n  sync_interval: {sync}\n}}\n{cluster}"
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

    async fn traffic(&self) -> anyhow::Result<Traffic> {
        Ok(serde_json::from_str(&self.monitored("/varz").await?)?)
    }

    /// A page of its monitoring.
    async fn monitored(&self, page: &'static str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.monitor).await?;
        stream.write_all(format!("GET {page} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context(page)?;
        Ok(body.to_owned())
    }
}

/// Ports that are free now: routes have to be known before any node starts.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
