//! Runs one call: asks providers until one answers, shows the reply while it grows, and ends with the one result.

use std::pin::pin;
use std::time::Duration;

use bus::{Bus, BusError};
use contract::backoff;
use contract::event::ErrorEvent;
use contract::model::{FailureKind, Usage};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::breaker::{Breakers, CircuitOpen, Permit};
use crate::failure::CallFailure;
use crate::job::Job;
use crate::limits::account::Amount;
use crate::limits::{Charge, SharedLimits};
use crate::provider::{ProviderRequest, Route, Routes};
use crate::reply::{Delta, ModelReply};
use crate::reply_publisher::ReplyPublisher;
use crate::result::{self, CallCost, ModelResult};
use crate::retry::{RetryDecision, RetryPlan, TRIES_MAX, WAIT_MAX};
use service::clock::Clock;
use service::models::Budget;

/// Pieces of a reply that wait between provider and viewers; then the provider waits.
const DELTAS_MAX: usize = 64;
/// Tokens of a reply where nobody says how many it may have.
const OUTPUT_TOKENS_DEFAULT: u64 = 4_096;
/// Tokens of a request or reply that a provider may claim where nobody knows the model's window.
const USAGE_MAX: u64 = 2_000_000;

/// What a call needs of its gateway.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    /// The bus.
    pub(crate) bus: &'a Bus,
    /// The time.
    pub(crate) clock: &'a dyn Clock,
    /// What all gateways share.
    pub(crate) limits: &'a SharedLimits,
    /// Which models are left alone.
    pub(crate) breakers: &'a Breakers,
    /// What the call's agent may spend.
    pub(crate) budgets: &'a [&'a Budget],
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct CallReport {
    /// What the loop is told.
    pub(crate) result: ModelResult,
    /// Who was asked last.
    pub(crate) route: Route,
    /// From the beginning to the first piece of the reply.
    pub(crate) first: Option<Duration>,
    /// Requests that were made.
    pub(crate) tries: u32,
}

/// How the tries of providers ended.
enum CallEnd {
    Complete,
    Failed(CallFailure),
    Cancelled,
    /// Nothing was asked: budgets or rates cannot be read.
    NotStarted(BusError),
}

/// What has become of a call so far. It outlives the tries, which may be dropped at any point.
struct CallState<'a> {
    route: &'a Route,
    reply: ModelReply,
    /// The provider of `route` knows of the request that `reply` answers.
    is_sent: bool,
    first: Option<Instant>,
    tries: u32,
    /// What tries cost in US dollars that are over.
    earlier_usd: f64,
    charge: &'a mut Charge,
}

/// The most that a try is thought to take: every token of the request as its bytes suggest, and the longest reply that it
/// may have.
fn estimate(job: &Job, route: &Route) -> Amount {
    let input = crate::reply::estimate_tokens(job.bytes).min(route.settings.context_window.unwrap_or(u64::MAX));
    let output = route.output_max(job).or(route.settings.max_output).unwrap_or(OUTPUT_TOKENS_DEFAULT);
    let usage = Usage { input, output, ..Usage::default() };
    Amount::new(result::compute_cost(usage, route.prices), usage.total())
}

/// Runs one call to its end, whatever that is. An error: nothing was asked of anybody, and the call is to be made later.
pub(crate) async fn run(
    context: CallContext<'_>,
    job: &Job,
    routes: &Routes,
    publisher: &mut ReplyPublisher<'_>,
    charge: &mut Charge,
) -> Result<Option<CallReport>, BusError> {
    let began = Instant::now();
    let until = began + job.meta().deadline.since(context.clock.now());
    let Some(first_route) = routes.routes.first() else { return Ok(None) };
    let mut state = CallState {
        route: first_route,
        reply: ModelReply::default(),
        is_sent: false,
        first: None,
        tries: 0,
        earlier_usd: 0.0,
        charge,
    };
    let end = {
        let most = routes.routes.iter().chain(&routes.long_context).map(|route| estimate(job, route).tokens).max();
        let runner = CallRunner { context, job, routes, tokens: most.unwrap_or(0), began, until };
        tokio::select! {
            biased;
            () = job.cancelled.cancelled() => CallEnd::Cancelled,
            () = context.bus.until_closed(&job.key, &job.call, job.meta().slot) => CallEnd::Cancelled,
            () = sleep_until(until) => CallEnd::Failed(CallFailure::new(FailureKind::TimedOut, "the call's deadline has passed")),
            end = runner.run_tries(&mut state, publisher) => end,
        }
    };
    let took = began.elapsed();
    state.bound_usage(job);
    let usage = match (&end, state.is_sent) {
        (_, false) => Usage::default(),
        (CallEnd::Failed(_) | CallEnd::NotStarted(_), true) => state.reply.usage_if_failed(job.bytes),
        (CallEnd::Complete | CallEnd::Cancelled, true) => state.reply.usage_or_estimate(job.bytes),
    };
    let usd = result::compute_cost(usage, state.route.prices);
    let CallState { route, reply, first, tries, earlier_usd, charge, .. } = state;
    let cost = CallCost { usage, usd: earlier_usd + usd };
    let result = match end {
        CallEnd::Complete => Ok(result::report_finished(job, route, reply, cost, took)),
        CallEnd::Cancelled => Ok(result::report_cancelled(job, route, reply, cost, took)),
        CallEnd::Failed(failure) => Ok(result::report_failed(job, failure, cost)),
        CallEnd::NotStarted(error) => Err(error),
    };
    publisher.finish(result.as_ref().ok().and_then(ModelResult::finish_reason)).await;
    // Before the session is told of the result: a gateway that dies in between makes the call again, and pays again.
    charge.settle(context.limits, Amount::new(usd, usage.total())).await;
    let result = result?;
    Ok(Some(CallReport { result, route: route.clone(), first: first.map(|first| first - began), tries }))
}

struct CallRunner<'a> {
    context: CallContext<'a>,
    job: &'a Job,
    routes: &'a Routes,
    /// What a try is thought to take.
    tokens: u64,
    began: Instant,
    until: Instant,
}

impl<'a> CallRunner<'a> {
    /// Asks one way after another, until one answers, something was shown, or no way is left.
    async fn run_tries(&self, state: &mut CallState<'a>, publisher: &mut ReplyPublisher<'_>) -> CallEnd {
        let (mut routes, mut number) = (&self.routes.routes, 0);
        let mut plan = RetryPlan::new(routes.len(), jitter(self.job));
        loop {
            let Some(route) = routes.get(number) else {
                return CallEnd::Failed(CallFailure::new(FailureKind::Unreachable, "the model has no route"));
            };
            state.route = route;
            match self.reserve(state).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return CallEnd::Failed(failure),
                Err(error) if state.tries == 0 => return CallEnd::NotStarted(error),
                Err(error) => {
                    let message = format!("the budgets that gateways share cannot be read: {error}");
                    return CallEnd::Failed(CallFailure::new(FailureKind::Unreachable, message));
                }
            }
            let failure = match self.acquire_permit(route).await {
                Err(error) if state.tries == 0 => return CallEnd::NotStarted(error),
                Err(error) => {
                    let message = format!("the limits that gateways share cannot be read: {error}");
                    CallFailure::new(FailureKind::Unreachable, message)
                }
                Ok(Err(failure)) => failure,
                Ok(Ok(mut permit)) => {
                    let ended = self.send_request(state, publisher, &mut permit).await;
                    state.bound_usage(self.job);
                    let took = state.reply.usage.map_or(self.tokens, Usage::total);
                    self.context.limits.correct_rate(&route.provider, route.rates, self.tokens, took);
                    match ended {
                        Ok(()) => {
                            permit.record_success();
                            return CallEnd::Complete;
                        }
                        Err(failure) => {
                            permit.record_failure(&failure);
                            failure
                        }
                    }
                }
            };
            if !state.reply.is_empty() {
                return CallEnd::Failed(failure);
            }
            let (longer, now) = (&self.routes.long_context, Instant::now());
            let (since, left) = (now - self.began, self.until.saturating_duration_since(now));
            let is_too_long = failure.kind == FailureKind::ContextLength && !std::ptr::eq(routes, longer);
            let next = if is_too_long && plan.switch_routes(longer.len(), state.is_sent) {
                routes = longer;
                RetryDecision::TryRoute { route: 0, after: Duration::ZERO }
            } else {
                plan.decide(&failure, number, state.is_sent, since, left)
            };
            self.notify_viewers(state, &failure, &next, routes, publisher).await;
            let (next, after) = match next {
                RetryDecision::TryRoute { route, after } => (route, after),
                RetryDecision::GiveUp(failure) => return CallEnd::Failed(failure),
            };
            self.log_retry(route, &failure, after);
            state.settle_failed_try(self.job.bytes, self.context.limits).await;
            number = next;
            sleep(after).await;
        }
    }

    /// Room in every budget for one more try. It must be settled before the next one reserves.
    async fn reserve(&self, state: &mut CallState<'a>) -> Result<Result<(), CallFailure>, BusError> {
        let CallContext { limits, budgets, clock, .. } = self.context;
        let amount = estimate(self.job, state.route);
        state.charge.reserve(limits, self.job, budgets, amount, clock.now()).await
    }

    /// Viewers are told of each request that failed and of what follows, since all of that takes a while. A failure that no
    /// further request can mend is told by the loop alone.
    async fn notify_viewers(
        &self,
        state: &CallState<'a>,
        failure: &CallFailure,
        next: &RetryDecision,
        routes: &[Route],
        publisher: &mut ReplyPublisher<'_>,
    ) {
        let follows = match next {
            RetryDecision::TryRoute { route, after } => {
                let at = routes.get(*route).filter(|route| route.provider != state.route.provider);
                let at = at.map_or_else(String::new, |route| format!(" at {}", route.provider));
                format!(", next try{at} in {:.1} s", after.as_secs_f64())
            }
            RetryDecision::GiveUp(_) if failure.kind.is_retryable() => String::new(),
            RetryDecision::GiveUp(_) => return,
        };
        let attempt = if state.is_sent { format!("attempt {} of {TRIES_MAX}: ", state.tries) } else { String::new() };
        let notice = ErrorEvent {
            code: failure.kind.code(),
            message: format!("{attempt}{}{follows}", failure.message),
            retryable: true,
            during: format!("model call {}", self.job.call.call),
        };
        publisher.publish_notice(&notice).await;
    }

    /// Leave to ask: the model is thought to be well, and its provider's rate allows it.
    async fn acquire_permit(&self, route: &Route) -> Result<Result<Permit, CallFailure>, BusError> {
        let Route { provider, upstream, rates, .. } = route;
        let permit = match self.context.breakers.acquire(provider, upstream).await {
            Ok(permit) => permit,
            Err(CircuitOpen { wait, last_kind, last_cause }) => {
                let message = format!(
                    "{upstream} of the provider {provider} failed repeatedly and gets no requests now; the last failure was {}: {last_cause}",
                    last_kind.code()
                );
                return Ok(Err(CallFailure { retry_after: Some(wait), ..CallFailure::new(last_kind, message) }));
            }
        };
        let wait = match self.context.limits.acquire_rate(provider, *rates, self.tokens, WAIT_MAX).await? {
            Ok(wait) => wait,
            Err(failure) => return Ok(Err(failure)),
        };
        // Also a sleep of no time lasts until the timer's next millisecond, and most calls need not wait.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(Ok(permit))
    }

    /// One request. Dropping it drops the provider's connection; what had come stays in `so_far`.
    async fn send_request(
        &self,
        state: &mut CallState<'a>,
        publisher: &mut ReplyPublisher<'_>,
        permit: &mut Permit,
    ) -> Result<(), CallFailure> {
        state.is_sent = true;
        state.tries += 1;
        let request = ProviderRequest {
            item: &self.job.item,
            upstream: &state.route.upstream,
            provider: &state.route.provider,
            settings: &state.route.settings,
            traceparent: telemetry::trace::current().or_else(|| self.job.traceparent.clone()),
        };
        let (send, mut deltas) = mpsc::channel(DELTAS_MAX);
        let mut call = pin!(state.route.client.call(&request, &send, self.context.clock));
        let ended = loop {
            tokio::select! {
                // Deltas before the end, so that none is left behind.
                biased;
                Some(more) = deltas.recv() => {
                    state.add_deltas(&more, publisher).await?;
                    if !state.reply.is_empty() {
                        permit.record_success();
                    }
                }
                ended = &mut call => break ended,
                () = wait_until(publisher.flush_deadline()) => publisher.flush().await,
            }
        };
        while let Ok(more) = deltas.try_recv() {
            state.add_deltas(&more, publisher).await?;
        }
        ended
    }

    fn log_retry(&self, route: &Route, failure: &CallFailure, after: Duration) {
        let (code, Route { provider, upstream, .. }) = (failure.kind.code(), route);
        telemetry::metric::model_retry(provider, upstream, code.as_str());
        tracing::info!(
            session = %self.job.key, call = %self.job.call, provider, model = upstream, %code,
            after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX), "model call is made again"
        );
    }
}

impl CallState<'_> {
    async fn add_deltas(&mut self, deltas: &[Delta], publisher: &mut ReplyPublisher<'_>) -> Result<(), CallFailure> {
        for delta in deltas {
            self.reply.add(delta)?;
            self.first.get_or_insert_with(Instant::now);
        }
        publisher.publish_deltas(deltas).await;
        Ok(())
    }

    /// Figures that cannot be are not believed: no reply is longer than its model's window, or than what came of it.
    fn bound_usage(&mut self, job: &Job) {
        let Route { provider, upstream, settings, .. } = self.route;
        let window = settings.context_window.unwrap_or(USAGE_MAX);
        let max = window.max(settings.max_output.unwrap_or(0)).max(self.route.output_max(job).unwrap_or(0));
        if let Some(reported) = self.reply.bound_usage(job.bytes, max) {
            tracing::warn!(
                session = %job.key, call = %job.call, provider, model = upstream, ?reported,
                "the provider reports impossible usage, which is replaced by an estimate"
            );
        }
    }

    /// A try is over of which nothing was shown: what it took is settled.
    async fn settle_failed_try(&mut self, request_bytes: usize, limits: &SharedLimits) {
        let reply = std::mem::take(&mut self.reply);
        let mut cost = Amount::default();
        if std::mem::take(&mut self.is_sent) {
            let usage = reply.usage_if_failed(request_bytes);
            let usd = result::compute_cost(usage, self.route.prices);
            cost = Amount::new(usd, usage.total());
            self.earlier_usd += usd;
        }
        self.charge.settle(limits, cost).await;
    }
}

/// From 0 to below 1, another one for each call: derived, not rolled, so that a simulation repeats.
fn jitter(job: &Job) -> f64 {
    backoff::part(&format!("{}/{}/{}", job.key.session, job.call, job.attempt), 0)
}

/// Never, where nothing is due.
async fn wait_until(at: Option<Instant>) {
    sleep_until(at.unwrap_or_else(|| Instant::now() + Duration::from_hours(1))).await;
}
