//! The fixture of one test: an in-memory bus, a fake loop, and an edge with its clients.

pub(crate) mod asking;
mod clients;
pub(crate) mod events;
mod fake_loop;
pub(crate) mod http;
pub(crate) mod issuer;
pub(crate) mod mcp;

use std::sync::Mutex;
use std::time::Duration;

use bus::Bus;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::streams::Bucket;
use contract::subject::SessionKey;
use contract::{SessionId, TenantId};
use edge::{Edge, EdgeConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) use clients::{Grpc, Ws, read_code};
pub(crate) use fake_loop::{FakeLoop, LiveDelivery};

/// Deadline for anything that a test waits for.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(3);

/// An edge with its bus and a fake loop.
pub(crate) struct Fixture {
    pub(crate) server: MemoryServer,
    pub(crate) bus: Bus,
    pub(crate) fake_loop: FakeLoop,
    pub(crate) edge: Edge,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: EdgeConfig) -> Self {
        Self::on(MemoryServer::new(), config).await
    }

    pub(crate) async fn on(server: MemoryServer, config: EdgeConfig) -> Self {
        let bus = server.bus();
        let fake_loop = FakeLoop::start(server.bus()).await;
        let edge = Edge::start(config, server.bus()).await.unwrap();
        Self { server, bus, fake_loop, edge }
    }

    pub(crate) async fn ws(&self) -> Ws {
        Ws::connect(self.edge.addresses().ws).await
    }

    pub(crate) async fn grpc(&self) -> Grpc {
        Grpc::connect(self.edge.addresses().grpc).await
    }
}

/// Returns a configuration with free ports and a short wait for commits.
pub(crate) fn config() -> EdgeConfig {
    let free = edge::config::ListenConfig { listen: "127.0.0.1:0".parse().unwrap() };
    EdgeConfig { ws: free, grpc: free, command_wait: 10, ..EdgeConfig::default() }
}

pub(crate) fn key(session: &str) -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new(session).unwrap() }
}

/// The reads of streams and of whole buckets.
#[derive(Default)]
pub(crate) struct CountedReads(Mutex<Vec<(Action, String)>>);

impl CountedReads {
    pub(crate) fn take(&self) -> Vec<(Action, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The reads of logs among them.
    pub(crate) fn take_of_logs(&self) -> Vec<Action> {
        let read = self.take().into_iter().filter(|(_, subject)| subject.starts_with("ai_loop.log."));
        read.map(|(action, _)| action).collect()
    }
}

impl Faults for CountedReads {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if matches!(op.action, Action::Last(_) | Action::LastMany | Action::KvList) {
            self.0.lock().unwrap().push((op.action, op.subject.to_owned()));
        }
        Fault::None
    }
}

/// Counts the requests whose answers were not delivered.
pub(crate) async fn noted_requests(fixture: &Fixture) -> usize {
    let notes = fixture.bus.transport().kv_list(Bucket::Sessions, "*.request.*.*").await.unwrap();
    notes.iter().filter(|(_, value)| !value.is_empty()).count()
}

/// Sends a request whose client is gone before its answer, when its note and its command are stored.
pub(crate) async fn lose_answer(fixture: &Fixture, request: reqwest::RequestBuilder) {
    let before = (noted_requests(fixture).await, fixture.fake_loop.held_commands());
    fixture.fake_loop.pause();
    let address = fixture.edge.addresses().ws;
    let mut client = http::open(address, &http::bytes_of(&request.build().unwrap(), address)).await;
    wait_until("the note and the command of the request", async || {
        noted_requests(fixture).await > before.0 && fixture.fake_loop.held_commands() > before.1
    })
    .await;
    // The edge closes its side when it sees that the client is gone: from then on nothing is delivered.
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "", "answered while the loop pauses");
    let handled = fixture.fake_loop.senders().await.len();
    fixture.fake_loop.resume();
    wait_until("the command", async || fixture.fake_loop.senders().await.len() > handled).await;
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
