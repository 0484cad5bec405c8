//! Runs one call: asks providers until one answers, shows the reply while it grows, and ends with the one result.

use std::pin::pin;
use std::time::Duration;

use bus::{Bus, BusError};
use contract::backoff;
use contract::event::ErrorEvent;
use contract::model::{FailureKind, Usage};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::breaker::{Breakers, Leave, LeftAlone};
use crate::failure::Failure;
use crate::job::Job;
use crate::limits::account::Amount;
use crate::limits::{Charge, Limits};
use crate::outcome::{self, Outcome, Paid};
use crate::provider::{Request, Route, Routes};
use crate::reply::{Delta, Reply};
use crate::retry::{Next, Plan, TRIES_MAX, WAIT_MAX};
use crate::viewers::Viewers;
use service::clock::Clock;
use service::models::Budget;

/// Pieces of a reply that wait between provider and viewers; then the provider waits.
const DELTAS_MAX: usize = 64;
/// Tokens of a reply where nobody says how many it may have.
const OUTPUT_TOKENS: u64 = 4_096;
/// Tokens of a request or reply that a provider may claim where nobody knows the model's window.
const USAGE_MAX: u64 = 2_000_000;

/// What a call needs of its gateway.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The bus.
    pub bus: &'a Bus,
    /// The time.
    pub clock: &'a dyn Clock,
    /// What all gateways share.
    pub limits: &'a Limits,
    /// Which models are left alone.
    pub breakers: &'a Breakers,
    /// What the call's agent may spend.
    pub budgets: &'a [&'a Budget],
}

/// How a call ended.
#[derive(Debug)]
pub struct Ran {
    /// What the loop is told.
    pub outcome: Outcome,
    /// Who was asked last.
    pub route: Route,
    /// From the beginning to the first piece of the reply.
    pub first: Option<Duration>,
    /// Requests that were made.
    pub tries: u32,
}

/// How the tries of providers ended.
enum End {
    Complete,
    Failed(Failure),
    Cancelled,
    /// Nothing was asked: budgets or rates cannot be read.
    NoBudgets(BusError),
}

/// What has become of a call so far. It outlives the tries, which may be dropped at any point.
struct Progress<'a> {
    route: &'a Route,
    reply: Reply,
    /// The provider of `route` knows of the request that `reply` answers.
    asked: bool,
    first: Option<Instant>,
    tries: u32,
    /// What tries cost in US dollars that are over.
    before_usd: f64,
    charge: &'a mut Charge,
}

/// The most that a try is thought to take: every token of the request as its bytes suggest, and the longest reply that it
/// may have.
fn estimate(job: &Job, way: &Route) -> Amount {
    let input = crate::reply::tokens(job.bytes).min(way.settings.context_window.unwrap_or(u64::MAX));
    let output = way.output_max(job).or(way.settings.max_output).unwrap_or(OUTPUT_TOKENS);
    let usage = Usage { input, output, ..Usage::default() };
    Amount::new(outcome::cost(usage, way.prices), usage.total())
}

/// Runs one call to its end, whatever that is. An error: nothing was asked of anybody, and the call is to be made later.
pub async fn run(
    around: Around<'_>,
    job: &Job,
    routes: &Routes,
    viewers: &mut Viewers<'_>,
    charge: &mut Charge,
) -> Result<Option<Ran>, BusError> {
    let began = Instant::now();
    let until = began + job.meta().deadline.since(around.clock.now());
    let Some(first_way) = routes.ways.first() else { return Ok(None) };
    let mut so_far = Progress {
        route: first_way,
        reply: Reply::default(),
        asked: false,
        first: None,
        tries: 0,
        before_usd: 0.0,
        charge,
    };
    let end = {
        let most = routes.ways.iter().chain(&routes.too_long).map(|way| estimate(job, way).tokens).max();
        let call = Call { around, job, routes, tokens: most.unwrap_or(0), began, until };
        tokio::select! {
            biased;
            () = job.cancelled.cancelled() => End::Cancelled,
            () = around.bus.until_closed(&job.key, &job.call, job.meta().slot) => End::Cancelled,
            () = sleep_until(until) => End::Failed(Failure::new(FailureKind::TimedOut, "the call's deadline has passed")),
            end = call.tries(&mut so_far, viewers) => end,
        }
    };
    let took = began.elapsed();
    so_far.bound_usage(job);
    let usage = match (&end, so_far.asked) {
        (_, false) => Usage::default(),
        (End::Failed(_) | End::NoBudgets(_), true) => so_far.reply.usage_of_failed(job.bytes),
        (End::Complete | End::Cancelled, true) => so_far.reply.usage_or_estimate(job.bytes),
    };
    let usd = outcome::cost(usage, so_far.route.prices);
    let Progress { route, reply, first, tries, before_usd, charge, .. } = so_far;
    let paid = Paid { usage, usd: before_usd + usd };
    let outcome = match end {
        End::Complete => Ok(outcome::finished(job, route, reply, paid, took)),
        End::Cancelled => Ok(outcome::cancelled(job, route, reply, paid, took)),
        End::Failed(failure) => Ok(outcome::failed(job, failure, paid)),
        End::NoBudgets(error) => Err(error),
    };
    viewers.end(outcome.as_ref().ok().and_then(Outcome::finish_reason)).await;
    // Before the session is told of the result: a gateway that dies in between makes the call again, and pays again.
    charge.settle(around.limits, Amount::new(usd, usage.total())).await;
    let outcome = outcome?;
    Ok(Some(Ran { outcome, route: route.clone(), first: first.map(|first| first - began), tries }))
}

struct Call<'a> {
    around: Around<'a>,
    job: &'a Job,
    routes: &'a Routes,
    /// What a try is thought to take.
    tokens: u64,
    began: Instant,
    until: Instant,
}

impl<'a> Call<'a> {
    /// Asks one way after another, until one answers, something was shown, or no way is left.
    async fn tries(&self, so_far: &mut Progress<'a>, viewers: &mut Viewers<'_>) -> End {
        let (mut ways, mut number) = (&self.routes.ways, 0);
        let mut plan = Plan::new(ways.len(), spread(self.job));
        loop {
            let Some(route) = ways.get(number) else {
                return End::Failed(Failure::new(FailureKind::Unreachable, "no way"));
            };
            so_far.route = route;
            match self.reserve(so_far).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return End::Failed(failure),
                Err(error) if so_far.tries == 0 => return End::NoBudgets(error),
                Err(error) => {
                    let message = format!("the budgets that gateways share cannot be read: {error}");
                    return End::Failed(Failure::new(FailureKind::Unreachable, message));
                }
            }
            let failure = match self.leave(route).await {
                Err(error) if so_far.tries == 0 => return End::NoBudgets(error),
                Err(error) => {
                    let message = format!("the limits that gateways share cannot be read: {error}");
                    Failure::new(FailureKind::Unreachable, message)
                }
                Ok(Err(failure)) => failure,
                Ok(Ok(mut leave)) => {
                    let ended = self.attempt(so_far, viewers, &mut leave).await;
                    so_far.bound_usage(self.job);
                    let took = so_far.reply.usage.map_or(self.tokens, Usage::total);
                    self.around.limits.correct(&route.provider, route.rates, self.tokens, took);
                    match ended {
                        Ok(()) => {
                            leave.succeeded();
                            return End::Complete;
                        }
                        Err(failure) => {
                            leave.failed(&failure);
                            failure
                        }
                    }
                }
            };
            if !so_far.reply.is_empty() {
                return End::Failed(failure);
            }
            let (longer, now) = (&self.routes.too_long, Instant::now());
            let (since, left) = (now - self.began, self.until.saturating_duration_since(now));
            let too_long = failure.kind == FailureKind::ContextLength && !std::ptr::eq(ways, longer);
            let next = if too_long && plan.again(longer.len(), so_far.asked) {
                ways = longer;
                Next::Ask { route: 0, after: Duration::ZERO }
            } else {
                plan.next(&failure, number, so_far.asked, since, left)
            };
            self.notice(so_far, &failure, &next, ways, viewers).await;
            let (next, after) = match next {
                Next::Ask { route, after } => (route, after),
                Next::GiveUp(told) => return End::Failed(told),
            };
            self.tell(route, &failure, after);
            so_far.write_off(self.job.bytes, self.around.limits).await;
            number = next;
            sleep(after).await;
        }
    }

    /// Room in every budget for one more try. It must be settled before the next one reserves.
    async fn reserve(&self, so_far: &mut Progress<'a>) -> Result<Result<(), Failure>, BusError> {
        let Around { limits, budgets, clock, .. } = self.around;
        let amount = estimate(self.job, so_far.route);
        so_far.charge.reserve(limits, self.job, budgets, amount, clock.now()).await
    }

    /// Viewers are told of each request that failed and of what follows, since all of that takes a while. A failure that no
    /// further request can mend is told by the loop alone.
    async fn notice(
        &self,
        so_far: &Progress<'a>,
        failure: &Failure,
        next: &Next,
        ways: &[Route],
        viewers: &mut Viewers<'_>,
    ) {
        let follows = match next {
            Next::Ask { route, after } => {
                let at = ways.get(*route).filter(|way| way.provider != so_far.route.provider);
                let at = at.map_or_else(String::new, |way| format!(" at {}", way.provider));
                format!(", next try{at} in {:.1} s", after.as_secs_f64())
            }
            Next::GiveUp(_) if failure.kind.is_retryable() => String::new(),
            Next::GiveUp(_) => return,
        };
        let attempt = if so_far.asked { format!("attempt {} of {TRIES_MAX}: ", so_far.tries) } else { String::new() };
        let notice = ErrorEvent {
            code: failure.kind.code(),
            message: format!("{attempt}{}{follows}", failure.message),
            retryable: true,
            during: format!("model call {}", self.job.call.call),
        };
        viewers.notice(&notice).await;
    }

    /// Leave to ask: the model is thought to be well, and its provider's rate allows it.
    async fn leave(&self, route: &Route) -> Result<Result<Leave, Failure>, BusError> {
        let Route { provider, upstream, rates, .. } = route;
        let leave = match self.around.breakers.leave(provider, upstream).await {
            Ok(leave) => leave,
            Err(LeftAlone { wait, last, cause }) => {
                let message = format!(
                    "{upstream} of the provider {provider} fails again and again, last with {}: {cause}",
                    last.code()
                );
                return Ok(Err(Failure { retry_after: Some(wait), ..Failure::new(last, message) }));
            }
        };
        let wait = match self.around.limits.turn(provider, *rates, self.tokens, WAIT_MAX).await? {
            Ok(wait) => wait,
            Err(failure) => return Ok(Err(failure)),
        };
        // Also a sleep of no time lasts until the timer's next millisecond, and most calls need not wait.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(Ok(leave))
    }

    /// One request. Dropping it drops the provider's connection; what had come stays in `so_far`.
    async fn attempt(
        &self,
        so_far: &mut Progress<'a>,
        viewers: &mut Viewers<'_>,
        leave: &mut Leave,
    ) -> Result<(), Failure> {
        so_far.asked = true;
        so_far.tries += 1;
        let request = Request {
            item: &self.job.item,
            upstream: &so_far.route.upstream,
            provider: &so_far.route.provider,
            settings: &so_far.route.settings,
            traceparent: telemetry::trace::current().or_else(|| self.job.traceparent.clone()),
        };
        let (send, mut deltas) = mpsc::channel(DELTAS_MAX);
        let mut call = pin!(so_far.route.client.call(&request, &send, self.around.clock));
        let ended = loop {
            tokio::select! {
                // Deltas before the end, so that none is left behind.
                biased;
                Some(more) = deltas.recv() => {
                    so_far.take(&more, viewers).await?;
                    if !so_far.reply.is_empty() {
                        leave.answers();
                    }
                }
                ended = &mut call => break ended,
                () = due(viewers.due()) => viewers.flush().await,
            }
        };
        while let Ok(more) = deltas.try_recv() {
            so_far.take(&more, viewers).await?;
        }
        ended
    }

    fn tell(&self, route: &Route, failure: &Failure, after: Duration) {
        let (code, Route { provider, upstream, .. }) = (failure.kind.code(), route);
        telemetry::metric::model_retry(provider, upstream, code.as_str());
        tracing::info!(
            session = %self.job.key, call = %self.job.call, provider, model = upstream, %code,
            after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX), "model call is made again"
        );
    }
}

impl Progress<'_> {
    async fn take(&mut self, deltas: &[Delta], viewers: &mut Viewers<'_>) -> Result<(), Failure> {
        for delta in deltas {
            self.reply.add(delta)?;
            self.first.get_or_insert_with(Instant::now);
        }
        viewers.show(deltas).await;
        Ok(())
    }

    /// Figures that cannot be are not believed: no reply is longer than its model's window, or than what came of it.
    fn bound_usage(&mut self, job: &Job) {
        let Route { provider, upstream, settings, .. } = self.route;
        let window = settings.context_window.unwrap_or(USAGE_MAX);
        let max = window.max(settings.max_output.unwrap_or(0)).max(self.route.output_max(job).unwrap_or(0));
        if let Some(told) = self.reply.bound_usage(job.bytes, max) {
            tracing::warn!(
                session = %job.key, call = %job.call, provider, model = upstream, ?told,
                "the provider's usage cannot be: what is out of bounds is estimated"
            );
        }
    }

    /// A try is over of which nothing was shown: what it took is settled.
    async fn write_off(&mut self, request_bytes: usize, limits: &Limits) {
        let reply = std::mem::take(&mut self.reply);
        let mut cost = Amount::default();
        if std::mem::take(&mut self.asked) {
            let usage = reply.usage_of_failed(request_bytes);
            let usd = outcome::cost(usage, self.route.prices);
            cost = Amount::new(usd, usage.total());
            self.before_usd += usd;
        }
        self.charge.settle(limits, cost).await;
    }
}

/// From 0 to below 1, another one for each call: derived, not rolled, so that a simulation repeats.
fn spread(job: &Job) -> f64 {
    backoff::part(&format!("{}/{}/{}", job.key.session, job.call, job.attempt), 0)
}

/// Never, where nothing is due.
async fn due(at: Option<Instant>) {
    sleep_until(at.unwrap_or_else(|| Instant::now() + Duration::from_hours(1))).await;
}
