//! Idle sessions: one that had a turn, copied many times, and woken again.

use std::time::Duration;

use anyhow::{Context, ensure};
use bus::transport::ReadMany;
use bus::{Bus, Read};
use bytes::Bytes;
use contract::commit::SessionSummary;
use contract::event::Topic;
use contract::limits::IDLE_MAX;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{SessionId, TenantId, Timestamp};
use proto::sessions_client::SessionsClient;
use proto::{SendMessageRequest, StartSessionRequest, WatchSessionRequest};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::transport::Channel;

use crate::load::sorted_ms;

/// Copies under way at the same time.
pub(crate) const COPIES: usize = 512;
/// Idle sessions that are woken, and how many of them in a second: each then has a turn of five steps, so that more would
/// measure how long a message waits for the steps of other sessions.
const WOKEN: (usize, u32) = (200, 20);
/// Attempts to write a line of the index.
const TRIES: usize = 5;
/// The number of the session that is copied.
const TEMPLATE: usize = 9_999_999_999;

/// A session that had a turn and waits for the next one, to be copied.
pub(crate) struct Idle {
    id: SessionId,
    log: Vec<(u64, Bytes)>,
    timers: u64,
    summary: SessionSummary,
}

impl Idle {
    pub(crate) async fn of(bus: &Bus, client: &mut SessionsClient<Channel>) -> anyhow::Result<Self> {
        let id = copied(TEMPLATE);
        let start = StartSessionRequest {
            session_id: Some(id.to_string()),
            prompt: Some("Count the words of each part.".to_owned().into()),
            interactive: Some(true),
            ..StartSessionRequest::default()
        };
        client.start_session(start).await?;
        turns(client, &id, 1, "", &watch::channel(0).0).await?;
        let key = key(&id);
        // The end of the turn is published after its commit; the line of the index follows.
        sleep(Duration::from_secs(1)).await;
        let ReadMany::Messages(found) = bus.transport().last_many(Stream::Log, &[subject::log_session(&key)]).await?
        else {
            anyhow::bail!("a log of one turn is too long");
        };
        let slot = |stored: &bus::Stored| Some(subject::parse_log(&stored.subject)?.slot);
        let log = found.into_iter().filter_map(|stored| Some((slot(&stored)?, stored.payload))).collect();
        let head = bus.head(&key, Read::Leader).await?.context("it is not in the log")?;
        let summary = bus.summary(&key).await?.context("it is not in the index")?;
        Ok(Self { id, log, timers: head.meta.timers, summary })
    }

    /// The number of its timer.
    pub(crate) fn timers(&self) -> u64 {
        self.timers
    }

    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    pub(crate) fn slots(&self) -> f64 {
        self.log.len() as f64
    }

    /// Copies the session: its log, its timer, its line of the index.
    pub(crate) async fn copy(&self, bus: &Bus, n: usize) -> anyhow::Result<()> {
        let id = copied(n);
        let key = key(&id);
        for (slot, body) in &self.log {
            let text = String::from_utf8_lossy(body).replace(self.id.as_str(), id.as_str());
            let commit: contract::commit::CommitHead = serde_json::from_str(&text)?;
            let body = Bytes::from(text);
            let committed = bus.commit(&key, *slot, &commit.meta.commit, body).await?;
            ensure!(committed == bus::Committed::Ours, "there is a session {id} already");
        }
        bus.set_timer(&key, self.timers, now()?.after(IDLE_MAX)).await?;
        let summary = SessionSummary { session_id: id, ..self.summary.clone() };
        // A busy machine may answer late, and the same line may be written again.
        for _ in 1..TRIES {
            if bus.advance_summary(&summary, None).await.is_ok() {
                return Ok(());
            }
        }
        Ok(bus.advance_summary(&summary, None).await?)
    }

    /// Wakes some of `count` copies for a turn, from copy `first` on, at an even rate; milliseconds from when each was due
    /// until the log has the message, sorted.
    pub(crate) async fn wake(client: &SessionsClient<Channel>, count: usize, first: usize) -> anyhow::Result<Vec<f64>> {
        let (woken, per_second) = WOKEN;
        let every = (count / woken).max(1);
        let (first_due, pause) = (Instant::now(), Duration::from_secs(1) / per_second);
        let copies = (first..count).step_by(every).take(woken);
        let took = futures::future::try_join_all((0..).zip(copies).map(|(turn, n)| {
            let (mut client, session_id) = (client.clone(), copied(n).to_string());
            async move {
                let due = first_due + pause * turn;
                sleep_until(due).await;
                client
                    .send_message(SendMessageRequest {
                        session_id,
                        content: Some("Once more.".to_owned().into()),
                        ..SendMessageRequest::default()
                    })
                    .await?;
                anyhow::Ok(due.elapsed())
            }
        }))
        .await?;
        Ok(sorted_ms(took.into_iter()))
    }
}

/// The time by the clock of this machine.
pub(crate) fn now() -> anyhow::Result<Timestamp> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(Timestamp::from_millis(u64::try_from(now.as_millis())?))
}

pub(crate) fn key(id: &SessionId) -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: id.clone() }
}

/// The id of a copy; all are as long, so that one can stand in the place of another.
#[allow(clippy::expect_used, reason = "digits and letters")]
pub(crate) fn copied(n: usize) -> SessionId {
    SessionId::new(&format!("idle{n:028}")).expect("a valid id")
}

/// Watches a session from its beginning until so many of its turns are over, and begins each next one with `text`; tells
/// how many steps there were so far.
pub(crate) async fn turns(
    client: &mut SessionsClient<Channel>,
    id: &SessionId,
    turns: usize,
    text: &str,
    steps_done: &watch::Sender<usize>,
) -> anyhow::Result<()> {
    let (mut steps, mut over) = (0, 0);
    let watch = WatchSessionRequest { session_id: id.to_string(), from_seq: Some(1), no_chunks: Some(true) };
    let mut events = client.watch_session(watch).await?.into_inner();
    while let Some(event) = events.message().await? {
        if event.topic == Topic::ToolCallResult.as_str() {
            steps += 1;
            steps_done.send_if_modified(|known| std::mem::replace(known, steps.max(*known)) < steps);
        }
        if event.topic == Topic::TurnCompleted.as_str() {
            over += 1;
            if over == turns {
                return Ok(());
            }
            let (session_id, content) = (id.to_string(), Some(text.to_owned().into()));
            client.send_message(SendMessageRequest { session_id, content, ..SendMessageRequest::default() }).await?;
        }
    }
    anyhow::bail!("session {id} ended before its turn")
}
