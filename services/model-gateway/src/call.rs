//! Runs one call: asks the provider, shows the reply while it grows, and ends with the one result.

use std::pin::pin;
use std::time::Duration;

use bus::Bus;
use contract::model::FailureKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::gate;
use crate::job::Job;
use crate::outcome::{self, Asked, Outcome};
use crate::provider::{Provider, Request};
use crate::reply::{Delta, Reply};
use crate::running::Entry;
use crate::viewers::Viewers;
use service::clock::Clock;

/// Pieces of a reply that wait between provider and viewers; then the provider waits.
const DELTAS_MAX: usize = 64;

/// How a try of a provider ended.
enum End {
    Complete,
    Failed(Failure),
    Cancelled,
}

/// Runs one call to its end, whatever that is, and tells how long its first piece took. A retry of another kind of failure would go around `attempt`, as
/// long as `reply` is empty: what was shown cannot be taken back.
pub async fn run(
    bus: &Bus,
    clock: &dyn Clock,
    job: &Job,
    asked: Asked<'_>,
    provider: &Provider,
    entry: &Entry,
    viewers: &mut Viewers<'_>,
) -> (Outcome, Option<Duration>) {
    let began = Instant::now();
    let mut reply = Reply::default();
    let request = Request {
        item: &job.item,
        upstream: asked.upstream,
        traceparent: telemetry::trace::current().or_else(|| job.traceparent.clone()),
    };
    let mut first = None;
    let end = {
        let attempt = attempt(clock, &request, provider, viewers, &mut reply, &mut first);
        let until = began + job.meta().deadline.since(clock.now());
        tokio::select! {
            biased;
            () = entry.cancelled() => End::Cancelled,
            () = gate::closed(bus, job) => End::Cancelled,
            () = sleep_until(until) => End::Failed(Failure::new(FailureKind::Hung, "the call's deadline has passed")),
            end = attempt => end,
        }
    };
    viewers.end().await;
    let took = began.elapsed();
    let outcome = match end {
        End::Complete => outcome::finished(job, asked, reply, took),
        End::Cancelled => outcome::cancelled(job, asked, reply, took),
        End::Failed(failure) => outcome::failed(job, asked, failure, &reply),
    };
    (outcome, first.map(|first| first - began))
}

/// One try. Dropping it drops the provider's connection; what had come stays in `reply`.
async fn attempt(
    clock: &dyn Clock,
    request: &Request<'_>,
    provider: &Provider,
    viewers: &mut Viewers<'_>,
    reply: &mut Reply,
    first: &mut Option<Instant>,
) -> End {
    let (send, mut deltas) = mpsc::channel(DELTAS_MAX);
    let mut call = pin!(provider.call(request, &send, clock));
    let ended = loop {
        tokio::select! {
            // Deltas before the end, so that none is left behind.
            biased;
            Some(more) = deltas.recv() => {
                if let Err(failure) = take(&more, viewers, reply, first).await {
                    return End::Failed(failure);
                }
            }
            ended = &mut call => break ended,
            () = due(viewers.due()) => viewers.flush().await,
        }
    };
    while let Ok(more) = deltas.try_recv() {
        if let Err(failure) = take(&more, viewers, reply, first).await {
            return End::Failed(failure);
        }
    }
    match ended {
        Ok(()) => End::Complete,
        Err(failure) => End::Failed(failure),
    }
}

async fn take(
    deltas: &[Delta],
    viewers: &mut Viewers<'_>,
    reply: &mut Reply,
    first: &mut Option<Instant>,
) -> Result<(), Failure> {
    for delta in deltas {
        reply.add(delta)?;
        first.get_or_insert_with(Instant::now);
    }
    viewers.show(deltas).await;
    Ok(())
}

/// Never, where nothing is due.
async fn due(at: Option<Instant>) {
    sleep_until(at.unwrap_or_else(|| Instant::now() + Duration::from_hours(1))).await;
}
