//! Deals with delivered model calls: may it start, run it, report it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, BusError, CallStatus, Delivery, Handler, Sent, Settle};
use contract::ErrorCode;
use contract::ids::CallAttempt;
use contract::model::{FailureKind, ItemMeta, ModelItem, ResultMeta};
use contract::streams::Objects;
use contract::subject::{self, ItemSubject, SessionKey};
use futures::FutureExt;
use tracing::Instrument;

use crate::breaker::Breakers;
use crate::call::{self, Around};
use crate::failure::Failure;
use crate::gate;
use crate::job::{Job, result_id, run_id};
use crate::limits::{Charge, Limits};
use crate::observe::{self, Seen};
use crate::outcome::Outcome;
use crate::provider::{Providers, Routes};
use crate::running::Running;
use crate::viewers::{Shared, Viewers};
use service::clock::Clock;
use service::reload::Reload;

/// Pause between two tries to store a result.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before an item that another worker holds comes again.
const HELD_PAUSE: Duration = Duration::from_secs(2);

/// What the worker needs.
pub struct Calls {
    /// The bus.
    pub bus: Bus,
    /// Who serves models.
    pub providers: Arc<Reload<Providers>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What runs here.
    pub running: Running,
    /// What all gateways share.
    pub limits: Limits,
    /// Which models are left alone.
    pub breakers: Breakers,
}

#[async_trait]
impl Handler for Calls {
    async fn handle(&self, delivery: &Delivery) -> Settle {
        let Some(subject) = subject::parse_item(&delivery.subject).filter(|subject| subject.tool.is_none()) else {
            return reject("the subject is not that of a model call");
        };
        self.deal(delivery, subject).await.unwrap_or_else(|error| {
            tracing::warn!(subject = delivery.subject, %error, "model call handed back");
            if error.is_final() {
                return Settle::Reject { code: error.code(), reason: error.to_string() };
            }
            // The bus is away, or a bucket of it: the call is none the worse for it, however long that takes.
            Settle::Postpone(gate::pause(delivery.delivered))
        })
    }
}

impl Calls {
    async fn deal(&self, delivery: &Delivery, subject: ItemSubject) -> Result<Settle, BusError> {
        let body = self.bus.load_body(Objects::Work, delivery.payload.clone(), delivery.stored_at).await?;
        let item: ModelItem = match serde_json::from_slice(&body) {
            Ok(item) => item,
            Err(error) => return self.unreadable(&subject, &body, &error).await,
        };
        let job = Job::new(subject.key, item, body.len(), delivery);
        if job.call != subject.call {
            return Ok(reject("the item's ids are not those of its subject"));
        }
        if let Some(settle) = self.not_now(delivery, &job).await? {
            return self.leave(delivery, &job, settle).await;
        }
        if delivery.may_have_been_held() {
            if self.bus.call_is_held(&job.key, &job.call.call).await? {
                return Ok(Settle::Postpone(HELD_PAUSE));
            }
            if gate::is_answered(&self.bus, &job).await? {
                return self.leave(delivery, &job, Settle::Done).await;
            }
            // That took a while: the log is asked again.
            if let Some(settle) = self.not_now(delivery, &job).await? {
                return self.leave(delivery, &job, settle).await;
            }
        }
        // Whoever asks is told that the call is held until its result is stored: one that cannot be stored yet was paid for.
        let _held = self.bus.hold_call(&job.key, &job.call.call);
        let outcome = self.run(&job).await?.of_run(&job.run);
        Ok(self.report(&job.key, &job.call, &outcome, &job.run).await)
    }

    /// Asks the log; a settlement when the call must not start now.
    async fn not_now(&self, delivery: &Delivery, job: &Job) -> Result<Option<Settle>, BusError> {
        Ok(match self.bus.call_status(&job.key, &job.call, job.meta().slot).await? {
            CallStatus::Open => None,
            CallStatus::Closed => Some(Settle::Done),
            // The log was put back to an older state: nobody will ever open this call.
            CallStatus::NotVisible if delivery.delivered >= contract::limits::UNSEEN_DELIVERIES_MAX => {
                Some(Settle::Done)
            }
            CallStatus::NotVisible | CallStatus::Paused => Some(Settle::Postpone(gate::pause(delivery.delivered))),
        })
    }

    /// Runs a call that may start. Whatever happens within it, there is one outcome.
    async fn run(&self, job: &Job) -> Result<Outcome, BusError> {
        let refused = |kind, message: &str| Outcome::refused(job.result_meta(), Failure::new(kind, message));
        if job.meta().deadline <= self.clock.now() {
            return Ok(refused(FailureKind::TimedOut, "the call's deadline passed before a gateway was free"));
        }
        let mut providers = self.providers.get();
        if !providers.knows(&job.item.model) {
            // The composer may have read a new model a moment before us.
            providers = self.providers.fresh().await;
        }
        let routes = match providers.routes(&job.item.model) {
            Ok(routes) => routes,
            Err(failure) => return Ok(refused(failure.kind, &failure.message)),
        };
        let entry = self.running.enter(&job.key, &job.call);
        let view = Shared::new(job);
        let late = view.clone();
        // A guard: whoever asks is answered as long as it lives.
        let _viewed = self.bus.serve_view(&job.key, move || Some(late.get())).await?;
        let budgets = providers.budgets(&job.key.tenant, &job.meta().agent);
        if let Some(way) = routes.uncounted().filter(|_| budgets.iter().any(|budget| budget.usd.is_some())) {
            let message = format!(
                "models.yaml has no prices for {way}, so that a budget in US dollars cannot count it: set them, to 0 where it is free"
            );
            return Ok(refused(FailureKind::BadRequest, &message));
        }
        let mut charge = Charge::default();
        let mut viewers = Viewers::new(&self.bus, &*self.clock, job, view);
        let around = Around {
            bus: &self.bus,
            clock: &*self.clock,
            limits: &self.limits,
            breakers: &self.breakers,
            budgets: &budgets,
        };
        let span = chat_span(job, &routes);
        let began = tokio::time::Instant::now();
        let run = call::run(around, job, &routes, &entry, &mut viewers, &mut charge);
        let ran = AssertUnwindSafe(run.instrument(span.clone())).catch_unwind().await;
        let Some(ran) = ran.unwrap_or(Ok(None))? else {
            tracing::error!(session = %job.key, call = %job.call, "the adapter panicked");
            viewers.end(None).await;
            charge.forfeit(&self.limits).await;
            return Ok(refused(FailureKind::BadRequest, "the adapter panicked: this is a bug of ailoop"));
        };
        let seen = Seen { chunks: viewers.sent(), first: ran.first, took: began.elapsed(), tries: ran.tries };
        observe::tell(&span, job, &ran.route, &ran.outcome, &seen);
        Ok(ran.outcome)
    }

    /// What is left to do about a call that must not start now. One that ran at a gateway that died is not made again: what
    /// that one had reserved is booked.
    async fn leave(&self, delivery: &Delivery, job: &Job, settle: Settle) -> Result<Settle, BusError> {
        if delivery.may_have_been_held() && matches!(settle, Settle::Done) {
            let providers = self.providers.get();
            self.limits.forfeit(job, &providers.budgets(&job.key.tenant, &job.meta().agent)).await?;
        }
        Ok(settle)
    }

    /// Sends the result before the item is acknowledged. A bus that is away for a while must not cost a second call,
    /// so that the item is held until the result is stored. Where a result of the attempt waits already, it may be that of
    /// another run: this one is stored beside it, for its costs. Should it be the same one, it counts once.
    async fn report(&self, key: &SessionKey, call: &CallAttempt, outcome: &Outcome, run: &str) -> Settle {
        let (Some(mut id), Ok(body)) = (result_id(call), outcome.encode()) else {
            return reject("the result cannot be written");
        };
        loop {
            match self.bus.send_control(key, outcome.verb(), &id, body.clone()).await {
                Ok(Sent::Stored(_)) => return Settle::Done,
                Ok(Sent::Duplicate) => match run_id(call, run).filter(|beside| *beside != id) {
                    Some(beside) if !run.is_empty() => id = beside,
                    Some(_) | None => return Settle::Done,
                },
                Err(error) if error.is_final() => {
                    return Settle::Reject { code: error.code(), reason: error.to_string() };
                }
                Err(error) => {
                    tracing::warn!(session = %key, %call, %error, "result not stored yet");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// An item that cannot be read: the loop is told as far as its ids are known, and the item is kept for people.
    async fn unreadable(
        &self,
        subject: &ItemSubject,
        body: &[u8],
        error: &serde_json::Error,
    ) -> Result<Settle, BusError> {
        #[derive(serde::Deserialize)]
        struct Ids {
            meta: ItemMeta,
        }
        let slot = serde_json::from_slice::<Ids>(body).map_or(0, |ids| ids.meta.slot);
        let CallAttempt { call, attempt } = subject.call.clone();
        let meta = ResultMeta { v: contract::commit::VERSION, slot, call, attempt };
        let message = format!("the model call cannot be read at column {}", error.column());
        let outcome = Outcome::refused(meta, Failure::new(FailureKind::BadRequest, &message));
        match self.report(&subject.key, &subject.call, &outcome, "").await {
            Settle::Done => Ok(reject(&message)),
            other @ (Settle::Retry(_) | Settle::Postpone(_) | Settle::Reject { .. }) => Ok(other),
        }
    }
}

fn reject(reason: &str) -> Settle {
    Settle::Reject { code: ErrorCode::BadRequest, reason: reason.to_owned() }
}

fn chat_span(job: &Job, routes: &Routes) -> tracing::Span {
    let (session, call) = (job.key.session.as_str(), job.call.call.as_str());
    let provider = routes.ways.first().map_or("", |way| way.provider.as_str());
    let span = telemetry::span::chat(session, call, &job.attempt, &routes.id, provider);
    if let Some(traceparent) = &job.traceparent {
        telemetry::trace::set_parent(&span, traceparent);
    }
    span
}
