//! Sessions of other clients, alternately over gRPC and WebSocket: each one calls a tool and is watched to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ailoop_tests::client::{TestClient, Ws};
use ailoop_tests::process_fleet::EdgeReplica;
use anyhow::ensure;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Sessions at the same time.
const AT_ONCE: usize = 4;
/// Pause of a client between two sessions, so that clients do not wait for each other. Short enough for many sessions:
/// a pause of the machine affects all running sessions, and these must be less than a hundredth of all.
const PAUSE: Duration = Duration::from_millis(80);
/// Timeout of one session.
const SESSION_MAX: Duration = Duration::from_secs(20);

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Durations and failures of the other sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Durations of the sessions that ended.
    pub(crate) took: Vec<Duration>,
    pub(crate) failed: Vec<String>,
}

impl Sessions {
    /// The 99th percentile; a failed session counts as [`SESSION_MAX`].
    pub(crate) fn p99(&self) -> Duration {
        let mut took = self.took.clone();
        took.extend(self.failed.iter().map(|_| SESSION_MAX));
        took.sort_unstable();
        let at = (took.len() * 99).div_ceil(100).saturating_sub(1);
        took.get(at).copied().unwrap_or_default()
    }
}

/// Runs sessions until `stop` is set, and at least `least` of them.
pub(crate) async fn run(edge: &EdgeReplica, least: usize, stop: &Arc<AtomicBool>) -> anyhow::Result<Sessions> {
    let mut lanes = JoinSet::new();
    let ws = format!("ws://{}/ws", edge.addresses()?.0);
    for lane in 0..AT_ONCE {
        let (grpc, ws, stop) = (edge.url(), ws.clone(), stop.clone());
        lanes.spawn(async move {
            let mut sessions = Sessions::default();
            let mut number = 0;
            while number < least.div_ceil(AT_ONCE) || !stop.load(Ordering::Relaxed) {
                number += 1;
                let name = format!("other{:06}", NUMBER.fetch_add(1, Ordering::Relaxed));
                let from = Instant::now();
                let session =
                    async { if lane % 2 == 0 { over_grpc(&grpc, &name).await } else { over_ws(&ws, &name).await } };
                match timeout(SESSION_MAX, session).await {
                    Ok(Ok(())) => sessions.took.push(from.elapsed()),
                    Ok(Err(error)) => sessions.failed.push(format!("{name}: {error:#}")),
                    Err(_) => sessions.failed.push(format!("{name}: has not ended after {SESSION_MAX:?}")),
                }
                sleep(PAUSE).await;
            }
            sessions
        });
    }
    let mut all = Sessions::default();
    while let Some(lane) = lanes.join_next().await {
        let lane = lane?;
        all.took.extend(lane.took);
        all.failed.extend(lane.failed);
    }
    Ok(all)
}

async fn over_grpc(edge: &str, name: &str) -> anyhow::Result<()> {
    let client = TestClient::connect(edge).await?;
    client.start(name, "please help").await?;
    let events = client.watch(name).await?.to_end().await?;
    let outcome =
        events.iter().find(|event| event.topic == "tool_call.result_processed").map(|event| &event.data["outcome"]);
    ensure!(outcome.is_some_and(|outcome| outcome == "ok"), "the tool call ended as {outcome:?}");
    Ok(())
}

async fn over_ws(edge: &str, name: &str) -> anyhow::Result<()> {
    let mut ws = Ws::connect(edge).await?;
    ws.ok("session.start", &json!({"session_id": name, "prompt": "please help"})).await?;
    ws.ok("session.watch", &json!({"session_id": name, "from_seq": 1})).await?;
    let result = ws.until("tool_call.result_processed").await?;
    let outcome = &result["params"]["data"]["outcome"];
    ensure!(outcome == "ok", "the tool call ended as {outcome}");
    ws.until("session_ended").await?;
    Ok(())
}
