//! Idle sessions after the fleet has compacted their logs: what they take, and how long one of them takes to wake.

use std::time::Duration;

use anyhow::{Context, ensure};
use bus::{Bus, Read};
use contract::streams::Stream;
use contract::subject;
use futures::{StreamExt, TryStreamExt};
use proto::sessions_client::SessionsClient;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::fixture::Fixture;
use crate::idle::{COPIES, Idle, copied, key, now};
use crate::load::percentile;
use crate::nats::Contents;
use crate::report::{self, Figure};

/// After how long nats-server has collected its garbage several times: it does so every two minutes.
const SETTLED: Duration = Duration::from_mins(6);
/// Time without a change of the streams after which the last log counts as compacted, and the longest wait for that.
const QUIET: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_mins(30);

/// Lets the fleet compact the logs of the first `count` copies, and measures them. `before` is what the streams held
/// before the copies were made.
pub(crate) async fn measure(
    fixture: &Fixture,
    bus: &Bus,
    client: &SessionsClient<Channel>,
    idle: &Idle,
    count: usize,
    before: Contents,
    rest: Duration,
) -> anyhow::Result<Vec<Figure>> {
    report::note(&format!("{count} logs are compacted"));
    let (began, used) = (Instant::now(), fixture.used()?.nats.cpu_s);
    let due = now()?;
    futures::stream::iter(0..count)
        .map(|n| async move { bus.set_timer(&key(&copied(n)), idle.timers(), due).await })
        .buffer_unordered(COPIES)
        .try_collect::<Vec<()>>()
        .await?;
    let contents = until_quiet(fixture).await?;
    let took = began.elapsed().saturating_sub(QUIET);
    let cpu_s = fixture.used()?.nats.cpu_s - used;
    let last = key(&copied(count - 1));
    let head = bus.head(&last, Read::Leader).await?.context("a copy is gone")?;
    ensure!(head.meta.log_start == Some(head.slot), "the log of {last} was not compacted");
    let stored = bus.transport().last(Stream::Log, &subject::log_slot(&last, head.slot), Read::Leader).await?;
    let bytes = stored.context("the head is gone")?.payload.len();

    sleep(rest).await;
    let at_rest = fixture.used()?.nats.rss_mb;
    let woken = Idle::wake(client, count, count / 1_000 + 1).await?;
    let after_wakes = fixture.used()?.nats.rss_mb;
    sleep(SETTLED).await;
    let settled = fixture.used()?.nats.rss_mb;
    let again = Idle::wake(client, count, count / 700 + 2).await?;

    let name = |what: &str| format!("loop.growth.compacted_{count}.{what}");
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let (sessions, messages, bytes) =
        (count as f64, contents.messages.saturating_sub(before.messages) as f64, bytes as f64);
    Ok(vec![
        Figure::new(name("compactions_per_s"), sessions / took.as_secs_f64(), "1/s"),
        Figure::new(name("nats_cpu_s_per_1000_compactions"), cpu_s * 1e3 / sessions, "s"),
        Figure::new(name("messages_per_session"), messages / sessions, "1"),
        Figure::new(name("bytes_in_the_log_per_session"), bytes, "B"),
        Figure::new(name("nats_rss_mb_at_rest"), at_rest, "MiB"),
        Figure::new(name("nats_rss_mb_after_wakes"), after_wakes, "MiB"),
        Figure::new(name("nats_rss_mb_6_minutes_later"), settled, "MiB"),
        Figure::new(name("wake_ms_p50"), percentile(&woken, 50), "ms"),
        Figure::new(name("wake_ms_p99"), percentile(&woken, 99), "ms"),
        Figure::new(name("wake_ms_p50_settled"), percentile(&again, 50), "ms"),
        Figure::new(name("wake_ms_p99_settled"), percentile(&again, 99), "ms"),
    ])
}

/// Waits until the streams have stayed as they are for a while.
async fn until_quiet(fixture: &Fixture) -> anyhow::Result<Contents> {
    let end = Instant::now() + PATIENCE;
    let mut known = fixture.nats.contents().await?;
    loop {
        sleep(QUIET).await;
        let now = fixture.nats.contents().await?;
        // Other sessions of the fleet are compacted, too, one by one.
        if now.messages.abs_diff(known.messages) < 100 {
            return Ok(now);
        }
        ensure!(Instant::now() < end, "logs are still being compacted");
        known = now;
    }
}
