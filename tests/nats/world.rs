//! Servers for scenarios, and helpers for messages.

use std::time::Duration;

use ailoop_tests::nats::{NatsCluster, NatsServer};
use ailoop_tests::wait::soon;
use anyhow::{Context, ensure};
use bus::{Bus, BusError, Delivery};
use bytes::Bytes;
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::ids::{CommandId, SessionId, TenantId};
use contract::streams::{Queue, Stream};
use contract::subject::SessionKey;
use contract::{Json, Timestamp};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

enum Servers {
    One(Box<NatsServer>),
    Three(NatsCluster),
}

/// Servers with their streams.
pub(crate) struct World {
    servers: Servers,
    /// A connection to them.
    pub(crate) bus: Bus,
}

impl World {
    pub(crate) async fn one() -> anyhow::Result<Self> {
        let server = NatsServer::start().await?;
        let bus = server.ready().await?;
        Ok(Self { servers: Servers::One(Box::new(server)), bus })
    }

    pub(crate) async fn three() -> anyhow::Result<Self> {
        let cluster = NatsCluster::start3().await?;
        let bus = cluster.ready().await?;
        Ok(Self { servers: Servers::Three(cluster), bus })
    }

    /// Opens a new connection, in a cluster to node `n`.
    pub(crate) async fn connect(&self, n: usize) -> anyhow::Result<Bus> {
        match &self.servers {
            Servers::One(server) => server.connect().await,
            Servers::Three(cluster) => cluster.connect(n % cluster.nodes.len()).await,
        }
    }

    /// The address of the server, in a cluster of node 0.
    pub(crate) fn url(&self) -> String {
        match &self.servers {
            Servers::One(server) => server.url(),
            Servers::Three(cluster) => cluster.nodes[0].url(),
        }
    }

    /// Number of the last file that the server has made for the messages of a stream; in a cluster that of node 0.
    pub(crate) fn message_files(&self, stream: Stream) -> anyhow::Result<usize> {
        let server = match &self.servers {
            Servers::One(server) => server,
            Servers::Three(cluster) => &cluster.nodes[0],
        };
        let directory = server.store().join("jetstream/$G/streams").join(stream.name()).join("msgs");
        let mut last = 0;
        for file in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let name = file?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_suffix(".blk")).and_then(|number| number.parse().ok());
            last = last.max(number.unwrap_or(0));
        }
        ensure!(last > 0, "{} has no message file", directory.display());
        Ok(last)
    }

    /// Kills a node and starts it again; in a cluster the other two go on.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        match &mut self.servers {
            Servers::One(server) => server.restart().await,
            Servers::Three(cluster) => cluster.nodes[0].restart().await,
        }
    }

    /// Makes the leader of a stream step down; does nothing on one node.
    pub(crate) async fn step_down(&self, stream: Stream) -> anyhow::Result<()> {
        let Servers::Three(cluster) = &self.servers else { return Ok(()) };
        let client = async_nats::connect(cluster.nodes[1].url()).await?;
        let subject = format!("$JS.API.STREAM.LEADER.STEPDOWN.{}", stream.name());
        // Without a leader there is no answer: a change of leader is under way.
        drop(client.request(subject, Bytes::new()).await);
        Ok(())
    }

    /// Kills the server until [`World::resume`].
    pub(crate) fn kill(&mut self) {
        match &mut self.servers {
            Servers::One(server) => server.kill(),
            Servers::Three(cluster) => cluster.nodes[0].kill(),
        }
    }

    pub(crate) async fn resume(&mut self) -> anyhow::Result<()> {
        match &mut self.servers {
            Servers::One(server) => server.resume().await,
            Servers::Three(cluster) => cluster.nodes[0].resume().await,
        }
    }
}

/// A session of a test.
pub(crate) fn key(session: &str) -> anyhow::Result<SessionKey> {
    Ok(SessionKey { tenant: TenantId::default(), session: SessionId::new(session)? })
}

pub(crate) fn id(text: &str) -> anyhow::Result<CommandId> {
    Ok(CommandId::new(text)?)
}

/// A commit with an id of its own and a snapshot of so many bytes.
pub(crate) fn commit(id: &str, snapshot_bytes: usize) -> anyhow::Result<Bytes> {
    let meta = CommitMeta {
        v: VERSION,
        commit: id.to_owned(),
        fold: FOLD,
        phase: Phase::Running,
        open: vec!["m1-1.1".to_owned()],
        control_seq: 0,
        prev: String::new(),
        timers: 0,
        seq: 1,
        time: Timestamp::default(),
        trace_id: String::new(),
        archived: None,
        log_start: None,
        moved: None,
    };
    let snapshot = (snapshot_bytes > 0).then(|| Json::of(&"x".repeat(snapshot_bytes)));
    Ok(serde_json::to_vec(&Commit { meta, snapshot, transcript: None, events: Vec::new() })?.into())
}

/// Pulls up to `max` items, and waits up to `wait` for them.
pub(crate) async fn pull(bus: &Bus, queue: Queue, max: usize, wait: Duration) -> Result<Vec<Delivery>, BusError> {
    let pulled = bus.transport().pull(queue, max, wait, CancellationToken::new()).await?;
    pulled.collect::<Vec<_>>().await.into_iter().collect()
}

/// Pulls one item, also across a server that is away for a while.
pub(crate) async fn pull_one(bus: &Bus, queue: Queue) -> anyhow::Result<Delivery> {
    let patient = async {
        loop {
            // An interrupted pull is repeated.
            let pulled = pull(bus, queue, 1, Duration::from_secs(2)).await.unwrap_or_default();
            if let Some(delivery) = pulled.into_iter().next() {
                return delivery;
            }
        }
    };
    soon("a delivery", patient).await
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) -> anyhow::Result<()> {
    let asking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(what, asking).await
}
