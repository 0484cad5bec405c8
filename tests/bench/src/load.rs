//! The load: clients that begin a session by the edge's gRPC, watch it to its end, and begin the next one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use contract::event::Topic;
use proto::sessions_client::SessionsClient;
use proto::{StartSessionRequest, WatchSessionRequest};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tonic::transport::Channel;

use crate::fixture::{Fixture, Used};
use crate::model::STEPS;
use crate::nats::Traffic;

/// Sessions that share a connection to the edge.
const PER_CONNECTION: usize = 16;
/// Longest time that a session may take.
const SESSION_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy)]
struct Step {
    at: Instant,
    took: Duration,
    /// Counts the steps of its session from 0.
    number: usize,
}

#[derive(Debug, Default)]
struct Record {
    // A plain lock: it is held for a push.
    steps: Mutex<Vec<Step>>,
    starts: Mutex<Vec<Duration>>,
    stop: AtomicBool,
}

/// Measurements of a level within its window.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Sessions at the same time.
    pub(crate) concurrency: usize,
    /// Length of the measured window.
    pub(crate) window: Duration,
    /// Milliseconds of each step, sorted.
    pub(crate) step_ms: Vec<f64>,
    /// The same for each position in a session.
    pub(crate) step_ms_at: [Vec<f64>; STEPS],
    /// Milliseconds from asking for a session to the answer that its start is in the log, sorted; of the whole level.
    pub(crate) start_ms: Vec<f64>,
    /// Sessions that had ended at the end of the window, the warm-up's included.
    pub(crate) sessions: usize,
    /// Resource usage before and after.
    pub(crate) used: [Used; 2],
    /// Counters of the nats-server before and after.
    pub(crate) traffic: [Traffic; 2],
}

/// Clients that keep so many sessions running.
pub(crate) struct Load {
    record: Arc<Record>,
    clients: JoinSet<anyhow::Result<()>>,
}

impl Load {
    /// Starts the clients; each one begins its first session.
    pub(crate) async fn start(fixture: &Fixture, concurrency: usize) -> anyhow::Result<Self> {
        let (record, mut clients) = (Arc::new(Record::default()), JoinSet::new());
        let mut channel = None;
        for n in 0..concurrency {
            if n % PER_CONNECTION == 0 {
                let edge = &fixture.edges[n / PER_CONNECTION % fixture.edges.len()];
                channel = Some(SessionsClient::connect(edge.clone()).await?);
            }
            let client = channel.clone().context("no connection")?;
            clients.spawn(sessions(client, record.clone()));
        }
        Ok(Self { record, clients })
    }

    /// Awaits a future while the clients run; a client that ends meanwhile has failed.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            Some(failed) = self.clients.join_next() => { failed??; anyhow::bail!("a client ended early") }
        }
    }

    /// Steps that were finished so far, and milliseconds of those of the last while, sorted.
    pub(crate) fn steps(&self, last: Duration) -> (usize, Vec<f64>) {
        let steps = self.record.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = steps.iter().rev().take_while(|step| step.at.elapsed() <= last);
        (steps.len(), sorted_ms(recent.map(|step| step.took)))
    }

    /// Lets the sessions that run come to their end.
    async fn stop(mut self) -> anyhow::Result<Arc<Record>> {
        self.record.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended??;
        }
        Ok(self.record)
    }
}

/// Keeps so many sessions running, and measures within a window after a warm-up.
pub(crate) async fn run(
    fixture: &Fixture,
    concurrency: usize,
    warm: Duration,
    window: Duration,
) -> anyhow::Result<Measured> {
    let mut load = Load::start(fixture, concurrency).await?;
    let measured = async {
        sleep(warm).await;
        let (began, used, traffic) = (Instant::now(), fixture.used()?, fixture.nats.traffic().await?);
        sleep(window).await;
        let (ended, used_then, traffic_then) = (Instant::now(), fixture.used()?, fixture.nats.traffic().await?);
        anyhow::Ok((began, ended, [used, used_then], [traffic, traffic_then]))
    };
    let (began, ended, used, traffic) = load.during(measured).await?;
    let record = load.stop().await?;
    let steps = record.steps.lock().unwrap_or_else(PoisonError::into_inner);
    let within: Vec<&Step> = steps.iter().filter(|step| step.at > began && step.at <= ended).collect();
    ensure!(!within.is_empty(), "not one step was finished");
    let sorted = |number: Option<usize>| {
        let fits = within.iter().filter(|step| number.is_none_or(|number| step.number == number));
        sorted_ms(fits.map(|step| step.took))
    };
    let starts = record.starts.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Measured {
        concurrency,
        window: ended - began,
        step_ms: sorted(None),
        step_ms_at: std::array::from_fn(|number| sorted(Some(number))),
        sessions: steps.iter().filter(|step| step.at <= ended && step.number + 1 == STEPS).count(),
        start_ms: sorted_ms(starts.iter().copied()),
        used,
        traffic,
    })
}

/// Begins so many sessions a second, whatever becomes of those before; milliseconds of each one, sorted.
pub(crate) async fn at_rate(fixture: &Fixture, rate: u32, window: Duration) -> anyhow::Result<Vec<f64>> {
    let client = SessionsClient::connect(fixture.edges[0].clone()).await?;
    let mut ticks = interval(Duration::from_secs(1) / rate.max(1));
    // A late one is made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (end, mut sessions) = (Instant::now() + window, JoinSet::new());
    loop {
        let due = ticks.tick().await;
        if due >= end {
            break;
        }
        let client = client.clone();
        sessions.spawn(async move {
            let record = Record::default();
            timeout(SESSION_MAX, session(&client, &record)).await.context("a session does not end")??;
            anyhow::Ok(due.elapsed())
        });
    }
    let mut took = Vec::new();
    while let Some(one) = sessions.join_next().await {
        took.push(one??);
    }
    Ok(sorted_ms(took.into_iter()))
}

/// So many sessions, one after the other.
pub(crate) async fn some(fixture: &Fixture, count: usize) -> anyhow::Result<()> {
    let (client, record) = (SessionsClient::connect(fixture.edges[0].clone()).await?, Record::default());
    for _ in 0..count {
        timeout(SESSION_MAX, session(&client, &record)).await.context("a session does not end")??;
    }
    Ok(())
}

async fn sessions(client: SessionsClient<Channel>, record: Arc<Record>) -> anyhow::Result<()> {
    while !record.stop.load(Ordering::Relaxed) {
        timeout(SESSION_MAX, session(&client, &record)).await.context("a session does not end")??;
    }
    Ok(())
}

/// One session. A step ends when its tool's result, or the session's end, has reached the client.
async fn session(client: &SessionsClient<Channel>, record: &Record) -> anyhow::Result<()> {
    let mut client = client.clone();
    let sent_at = Instant::now();
    let session_id = uuid::Uuid::now_v7().simple().to_string();
    let start = StartSessionRequest {
        session_id: Some(session_id.clone()),
        prompt: Some("Count the words of each part, then say that you are done.".to_owned().into()),
        ..StartSessionRequest::default()
    };
    client.start_session(start).await?;
    let mut last = Instant::now();
    record.starts.lock().unwrap_or_else(PoisonError::into_inner).push(last - sent_at);
    let watch = WatchSessionRequest { session_id: session_id.clone(), from_seq: Some(1), no_chunks: Some(false) };
    let mut events = client.watch_session(watch).await?.into_inner();
    let mut number = 0;
    while let Some(event) = events.message().await? {
        let ends = event.topic == Topic::SessionEnded.as_str();
        if ends {
            check(&event.data_json).with_context(|| format!("session {session_id}"))?;
        }
        if ends || event.topic == Topic::ToolCallResult.as_str() {
            let at = Instant::now();
            let step = Step { at, took: at - last, number };
            record.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
            (last, number) = (at, number + 1);
        }
    }
    ensure!(number == STEPS, "session {session_id} had {number} steps instead of {STEPS}");
    Ok(())
}

fn check(ended: &str) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Ended {
        reason: String,
    }
    let Ended { reason } = serde_json::from_str(ended)?;
    ensure!(reason == "completed", "it ended as {reason}");
    Ok(())
}

/// Durations in milliseconds, sorted in ascending order.
pub(crate) fn sorted_ms(durations: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut ms: Vec<f64> = durations.map(|duration| duration.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    ms
}

/// The value below which `percent` of the sorted values lie; 0 where there are none.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}
