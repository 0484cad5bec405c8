//! Runs one call: tries routes until one replies, publishes the reply while it grows, and ends with exactly one result.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError};
use contract::backoff;
use contract::event::{ErrorEvent, Topic};
use contract::model::{FailureKind, Usage};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use crate::breaker::{Breakers, CircuitOpen, Permit};
use crate::failure::CallFailure;
use crate::job::ModelJob;
use crate::limits::account::Amount;
use crate::limits::{CallCharge, SharedLimits};
use crate::provider::{ModelRoutes, ProviderRequest, Route};
use crate::reply::{Delta, ModelReply, estimate_tokens};
use crate::reply_publisher::ReplyPublisher;
use crate::result::{self, CallCost, ModelResult};
use crate::retry::{RetryDecision, RetryPlan, WAIT_MAX};
use crate::transcript_parts::StoredPart;
use configuration::models::BudgetRule;
use service::clock::Clock;

/// Deltas that are buffered between provider and viewers; the provider waits while the buffer is full.
const DELTAS_MAX: usize = 64;
/// Estimated tokens of a reply without a known maximum.
const OUTPUT_TOKENS_DEFAULT: u64 = 4_096;
/// Maximum tokens of reported usage if the context window of the model is not known.
const USAGE_MAX: u64 = 2_000_000;

/// One call, with the services of its gateway that it needs.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) clock: &'a dyn Clock,
    /// Limits that all gateways share.
    pub(crate) limits: &'a SharedLimits,
    /// Circuit breakers of this gateway.
    pub(crate) breakers: &'a Breakers,
    /// The call and its delivery.
    pub(crate) job: &'a ModelJob,
    /// Parts of the transcript that the log has; their messages stand in the item, behind the system prompt.
    pub(crate) parts: &'a [Arc<StoredPart>],
    /// Routes to the model of the call.
    pub(crate) routes: &'a ModelRoutes,
    /// Budgets that the call counts against.
    pub(crate) budgets: &'a [&'a BudgetRule],
    pub(crate) began: Instant,
}

/// Report of a call that ended.
#[derive(Debug)]
pub(crate) struct CallReport {
    /// Result for the session.
    pub(crate) result: ModelResult,
    /// Route of the last try.
    pub(crate) route: Route,
    /// Time from the start of the call to the first delta of the reply.
    pub(crate) first_chunk: Option<Duration>,
    /// Time from the start of the call to its end.
    pub(crate) took: Duration,
    /// Number of requests to providers.
    pub(crate) tries: u32,
    /// Number of messages to viewers.
    pub(crate) chunks: u64,
}

/// Result of the tries of a call.
enum CallEnd {
    Complete,
    Failed(CallFailure),
    Cancelled,
    /// No request was sent, since budgets or rates cannot be read.
    NotStarted(BusError),
}

/// State of a call and of its current try. It outlives the tries, which may be dropped at any point.
struct CallState<'a, 'b> {
    route: &'a Route,
    reply: ModelReply,
    /// Whether the request of this try was sent to the provider of `route`.
    is_sent: bool,
    first_delta_at: Option<Instant>,
    tries: u32,
    /// Cost of earlier tries in US dollars.
    earlier_usd: f64,
    charge: &'b mut CallCharge,
    publisher: &'b mut ReplyPublisher<'a>,
}

/// Estimates the maximum of a try: the tokens of the request by its bytes, and the longest possible reply.
fn estimate_cost(job: &ModelJob, route: &Route) -> Amount {
    let input = estimate_tokens(job.bytes).min(route.settings.context_window.unwrap_or(u64::MAX));
    let output = route.output_max(job).or(route.settings.max_output).unwrap_or(OUTPUT_TOKENS_DEFAULT);
    let usage = Usage { input, output, ..Usage::default() };
    Amount::new(result::compute_cost(usage, route.prices), usage.total())
}

impl<'a> CallContext<'a> {
    /// Runs the call to its end. An error means that no request was sent, and that the call is to be run later.
    pub(crate) async fn run(
        &self,
        publisher: &mut ReplyPublisher<'a>,
        charge: &mut CallCharge,
    ) -> Result<Option<CallReport>, BusError> {
        let job = self.job;
        let deadline = self.began + job.item.meta.deadline.since(self.clock.now());
        let Some(route) = self.routes.routes.first() else { return Ok(None) };
        let mut state = CallState {
            route,
            reply: ModelReply::default(),
            is_sent: false,
            first_delta_at: None,
            tries: 0,
            earlier_usd: 0.0,
            charge,
            publisher,
        };
        let end = tokio::select! {
            biased;
            () = job.cancelled.cancelled() => CallEnd::Cancelled,
            () = self.bus.until_closed(&job.key, &job.call, job.item.meta.slot) => CallEnd::Cancelled,
            () = sleep_until(deadline) => CallEnd::Failed(CallFailure::new(FailureKind::TimedOut, "the call's deadline has passed")),
            end = self.run_tries(&mut state, deadline) => end,
        };
        let latency = self.began.elapsed();
        state.bound_usage(job);
        let usage = match (&end, state.is_sent) {
            (_, false) => Usage::default(),
            (CallEnd::Failed(_) | CallEnd::NotStarted(_), true) => state.reply.usage_if_failed(job.bytes),
            (CallEnd::Complete | CallEnd::Cancelled, true) => state.reply.usage_or_estimate(job.bytes),
        };
        let usd = result::compute_cost(usage, state.route.prices);
        let CallState { route, reply, first_delta_at, tries, earlier_usd, charge, publisher, .. } = state;
        let cost = CallCost { usage, usd: earlier_usd + usd };
        let result = match end {
            CallEnd::Complete => Ok(result::report_finished(job, route, reply, cost, latency)),
            CallEnd::Cancelled => Ok(result::report_cancelled(job, route, reply, cost, latency)),
            CallEnd::Failed(failure) => Ok(result::report_failed(job, failure, &reply.text, cost)),
            CallEnd::NotStarted(error) => Err(error),
        };
        publisher.finish(result.as_ref().ok().and_then(ModelResult::finish_reason)).await;
        // Settle before the result is reported: if the gateway dies in between, the call is run and paid again.
        charge.settle(self.limits, Amount::new(usd, usage.total())).await;
        Ok(Some(CallReport {
            result: result?,
            route: route.clone(),
            first_chunk: first_delta_at.map(|at| at - self.began),
            took: self.began.elapsed(),
            tries,
            chunks: publisher.message_count(),
        }))
    }

    /// Tries routes until one replies, a part of a reply was published, or no route is left.
    async fn run_tries(&self, state: &mut CallState<'a, '_>, deadline: Instant) -> CallEnd {
        let (mut routes, mut number) = (&self.routes.routes, 0);
        let mut plan = RetryPlan::new(routes.len(), jitter(self.job));
        // Every try takes as many tokens from a rate limit as the most expensive route may need.
        let all_routes = routes.iter().chain(&self.routes.long_context);
        let tokens = all_routes.map(|route| estimate_cost(self.job, route).tokens).max().unwrap_or(0);
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
            let failure = match self.acquire_permit(route, tokens).await {
                Err(error) if state.tries == 0 => return CallEnd::NotStarted(error),
                Err(error) => {
                    let message = format!("the limits that gateways share cannot be read: {error}");
                    CallFailure::new(FailureKind::Unreachable, message)
                }
                Ok(Err(failure)) => failure,
                Ok(Ok(permit)) => match self.try_route(state, permit, tokens).await {
                    Ok(()) => return CallEnd::Complete,
                    Err(failure) => failure,
                },
            };
            if !state.reply.is_empty() {
                return CallEnd::Failed(failure);
            }
            let (long_context, now) = (&self.routes.long_context, Instant::now());
            let (since_start, left) = (now - self.began, deadline.saturating_duration_since(now));
            let is_too_long = failure.kind == FailureKind::ContextLength && !std::ptr::eq(routes, long_context);
            let decision = if is_too_long && plan.switch_routes(long_context.len(), state.is_sent) {
                routes = long_context;
                RetryDecision::TryRoute { route: 0, after: Duration::ZERO }
            } else {
                plan.decide(&failure, number, state.is_sent, since_start, left)
            };
            self.notify_viewers(state, &failure, &decision, routes).await;
            let (next, after) = match decision {
                RetryDecision::TryRoute { route, after } => (route, after),
                RetryDecision::GiveUp(failure) => return CallEnd::Failed(failure),
            };
            self.log_retry(route, &failure, after);
            state.settle_failed_try(self.job.bytes, self.limits).await;
            number = next;
            sleep(after).await;
        }
    }

    /// Sends the request of one try under a span of its own, and notes how it ended. `tokens` were taken from the rate
    /// limit for it.
    async fn try_route(
        &self,
        state: &mut CallState<'a, '_>,
        mut permit: Permit,
        tokens: u64,
    ) -> Result<(), CallFailure> {
        let span = self.request_span(state);
        let chunks = state.publisher.message_count();
        let sent = Instant::now();
        let ended = self.send_request(state, &mut permit).instrument(span.clone()).await;
        let first_chunk = state.first_delta_at.map(|at| at.saturating_duration_since(sent).as_secs_f64());
        telemetry::span::replied(&span, first_chunk, state.publisher.message_count() - chunks);
        if let Err(failure) = &ended {
            telemetry::span::failed(&span, failure.kind.code().as_str());
        }
        drop(span);
        state.bound_usage(self.job);
        let used = state.reply.usage.map_or(tokens, Usage::total);
        self.limits.correct_rate(&state.route.provider, state.route.rates, tokens, used);
        match &ended {
            Ok(()) => permit.record_success(),
            Err(failure) => permit.record_failure(failure),
        }
        ended
    }

    /// Reserves the maximum cost of one try in all budgets. The try before must be settled.
    async fn reserve(&self, state: &mut CallState<'a, '_>) -> Result<Result<(), CallFailure>, BusError> {
        let amount = estimate_cost(self.job, state.route);
        state.charge.reserve(self.limits, self.job, self.budgets, amount, self.clock.now()).await
    }

    /// Publishes a failed try and what follows, since a retry takes a while. A permanent failure is only reported by
    /// the orchestrator.
    async fn notify_viewers(
        &self,
        state: &mut CallState<'a, '_>,
        failure: &CallFailure,
        decision: &RetryDecision,
        routes: &[Route],
    ) {
        let follows = match decision {
            RetryDecision::TryRoute { route, after } => {
                let at = routes.get(*route).filter(|route| route.provider != state.route.provider);
                let at = at.map_or_else(String::new, |route| format!(" at {}", route.provider));
                format!(", next try{at} in {:.1} s", after.as_secs_f64())
            }
            RetryDecision::GiveUp(_) if failure.kind.is_retryable() => String::new(),
            RetryDecision::GiveUp(_) => return,
        };
        let notice = ErrorEvent {
            code: failure.kind.code(),
            message: format!("{}{follows}", failure.message),
            retryable: true,
            during: format!("model call {}", self.job.call.call),
        };
        self.job.note.set(&format!("{}: {}", notice.code, notice.message));
        state.publisher.publish_event(Topic::Error, &notice).await;
    }

    /// Acquires a permit of the circuit breaker, and waits until the rate limit of the provider allows the request.
    async fn acquire_permit(&self, route: &Route, tokens: u64) -> Result<Result<Permit, CallFailure>, BusError> {
        let Route { provider, upstream, rates, .. } = route;
        let permit = match self.breakers.acquire(provider, upstream).await {
            Ok(permit) => permit,
            Err(CircuitOpen { wait, last_kind, last_cause }) => {
                let message = format!(
                    "{upstream} of the provider {provider} failed repeatedly and gets no requests now; the last failure was {}: {last_cause}",
                    last_kind.code()
                );
                return Ok(Err(CallFailure { retry_after: Some(wait), ..CallFailure::new(last_kind, message) }));
            }
        };
        let wait = match self.limits.acquire_rate(provider, *rates, tokens, WAIT_MAX).await? {
            Ok(wait) => wait,
            Err(failure) => return Ok(Err(failure)),
        };
        // Even an empty sleep lasts until the next millisecond of the timer, and most calls need not wait.
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(Ok(permit))
    }

    /// The span of the next request. The provider gets the call's span as its parent, since this one is lost if the
    /// gateway is killed.
    fn request_span(&self, state: &CallState<'a, '_>) -> tracing::Span {
        let Some(attempt) = self.job.trace.filter(|trace| trace.is_sampled) else { return tracing::Span::none() };
        let span = telemetry::span::model_request(telemetry::span::ModelRequest {
            session: self.job.key.session.as_str(),
            call: self.job.call.call.as_str(),
            attempt: self.job.call.attempt,
            delivery: self.job.delivered,
            number: state.tries + 1,
            provider: &state.route.provider,
            model: &state.route.upstream,
        });
        telemetry::trace::set_parent(&span, attempt);
        span
    }

    /// Sends one request. Dropping the future drops the connection; `state` keeps what arrived.
    async fn send_request(&self, state: &mut CallState<'a, '_>, permit: &mut Permit) -> Result<(), CallFailure> {
        state.is_sent = true;
        state.tries += 1;
        let route = state.route;
        let request = ProviderRequest {
            item: &self.job.item,
            parts: self.parts,
            upstream: &route.upstream,
            provider: &route.provider,
            settings: &route.settings,
            traceparent: self.job.trace.map(|trace| trace.to_string()),
        };
        let (send, mut deltas) = mpsc::channel(DELTAS_MAX);
        let mut call = pin!(route.client.call(&request, &send, self.clock));
        let ended = loop {
            tokio::select! {
                // Receive deltas before the end, so that none is lost.
                biased;
                Some(more) = deltas.recv() => {
                    state.add_deltas(&more).await?;
                    if !state.reply.is_empty() {
                        permit.record_success();
                    }
                }
                ended = &mut call => break ended,
                () = wait_until(state.publisher.flush_deadline()) => state.publisher.flush().await,
            }
        };
        while let Ok(more) = deltas.try_recv() {
            state.add_deltas(&more).await?;
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

impl CallState<'_, '_> {
    async fn add_deltas(&mut self, deltas: &[Delta]) -> Result<(), CallFailure> {
        for delta in deltas {
            self.reply.add(delta)?;
            self.first_delta_at.get_or_insert_with(Instant::now);
        }
        self.publisher.publish_deltas(deltas).await;
        Ok(())
    }

    /// Replaces impossible usage: no reply has more tokens than the context window of its model, or than its bytes.
    fn bound_usage(&mut self, job: &ModelJob) {
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

    /// Settles the cost of a failed try of which nothing was published.
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

/// From 0 to below 1, different for each call. It is derived and not random, so that a simulation repeats.
fn jitter(job: &ModelJob) -> f64 {
    backoff::part(&format!("{}/{}/{}", job.key.session, job.call, job.attempt()), 0)
}

/// Waits until an instant; without one, for an hour, since nothing is due.
async fn wait_until(at: Option<Instant>) {
    sleep_until(at.unwrap_or_else(|| Instant::now() + Duration::from_hours(1))).await;
}
