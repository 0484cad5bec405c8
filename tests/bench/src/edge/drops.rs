//! Clients that disconnect at random and go on after the last event that they have: each must have every event once.

use std::time::Duration;

use anyhow::{Context, ensure};
use contract::event::Topic;
use proto::StartSessionRequest;
use proto::sessions_client::SessionsClient;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::options::EdgeOptions;
use super::sse::SseConnection;
use crate::fixture::Fixture;
use crate::report::{self, Figure};

/// Steps of each session.
const STEPS: usize = 60;
/// The longest that a client may take to see a session's end.
const SESSION_MAX: Duration = Duration::from_mins(5);
/// Time for which a connection is kept: random in this range, in milliseconds.
const KEPT_MS: (u64, u64) = (200, 2_000);
/// Retry delay of a client whose connection was refused: random in this range, in milliseconds. The edge keeps only so
/// many new connections of one address.
const RETRY_MS: (u64, u64) = (50, 500);

/// Counts of clients, connections and events; an event that is missing or doubled is an error.
pub(super) async fn figures(fixture: &Fixture, options: &EdgeOptions) -> anyhow::Result<Vec<Figure>> {
    report::note(&format!("edge: {} clients that disconnect at random", options.dropping));
    let edge = &fixture.http_edges[0];
    let sessions: Vec<String> = (0..options.sessions).map(|n| format!("drops-{n}")).collect();
    let mut client = SessionsClient::connect(fixture.edges[0].clone()).await?;
    for session in &sessions {
        let start = StartSessionRequest {
            session_id: Some(session.clone()),
            agent: Some("long".to_owned()),
            prompt: Some(format!("Count the words of {STEPS} parts.").into()),
            ..StartSessionRequest::default()
        };
        client.start_session(start).await?;
    }
    let mut clients = JoinSet::new();
    for n in 0..options.dropping {
        let (edge, session) = (edge.clone(), sessions[n % sessions.len()].clone());
        clients.spawn(async move {
            let read = timeout(SESSION_MAX, read_session(&edge, &session, n)).await;
            read.with_context(|| format!("client {n} does not see the end of {session}"))?
        });
    }
    let (mut connections, mut refused, mut events) = (0, 0, 0);
    while let Some(client) = clients.join_next().await {
        let client = client??;
        connections += client.connections;
        refused += client.refused;
        events += client.last_seq;
    }
    let figure = |name: &str, value: f64| Figure::new(format!("edge.drops.{name}"), value, "");
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let figures = vec![
        figure("clients", options.dropping as f64),
        figure("connections", connections as f64),
        figure("refused", refused as f64),
        figure("events", events as f64),
    ];
    Ok(figures)
}

/// Connections of a client, and the last event that it read.
#[derive(Debug, Default)]
struct SessionRead {
    connections: u64,
    /// Connections that the edge closed before it answered.
    refused: u64,
    last_seq: u64,
}

/// Reads a session from its first event to its last one.
async fn read_session(edge: &str, session: &str, seed: usize) -> anyhow::Result<SessionRead> {
    let (mut read, mut random) = (SessionRead::default(), Random::new(seed));
    loop {
        let Ok(mut connection) = SseConnection::watch(edge, session, read.last_seq).await else {
            read.refused += 1;
            sleep(Duration::from_millis(random.between(RETRY_MS))).await;
            continue;
        };
        read.connections += 1;
        let until = Instant::now() + Duration::from_millis(random.between(KEPT_MS));
        loop {
            // Its time is over, or the edge closed it because the client was too slow.
            let Ok(Ok(frame)) = timeout_at(until, connection.next()).await else { break };
            let Some(seq) = frame.seq else { continue };
            ensure!(seq == read.last_seq + 1, "client {seed} of {session} got event {seq} after {}", read.last_seq);
            read.last_seq = seq;
            if frame.is(Topic::SessionEnded) {
                return Ok(read);
            }
        }
    }
}

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Self(u64::try_from(seed).unwrap_or_default().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        // The generator of the C standard's example has short cycles in its low bits: take the high ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) % (most - least)
    }
}
