//! Runs the model calls that may start, and says what came of each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use bus::call::{CallHandler, CallResult, OpenCall, result_id};
use bus::{Bus, BusError};
use contract::CommandId;
use contract::command::Verb;
use contract::ids::{CallAttempt, ToolName};
use contract::model::{FailureKind, ItemMeta, ModelItem, ResultMeta};
use futures::FutureExt;
use tracing::Instrument;

use crate::breaker::Breakers;
use crate::call::{self, Around};
use crate::failure::Failure;
use crate::job::Job;
use crate::limits::{Charge, Limits};
use crate::observe::{self, Seen};
use crate::outcome::Outcome;
use crate::provider::{Providers, Routes};
use crate::viewers::{Shared, Viewers};
use service::clock::Clock;
use service::reload::Reload;

/// What the worker needs.
pub struct Calls {
    /// The bus.
    pub bus: Bus,
    /// Who serves models.
    pub providers: Arc<Reload<Providers>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What all gateways share.
    pub limits: Limits,
    /// Which models are left alone.
    pub breakers: Breakers,
}

#[async_trait]
impl CallHandler for Calls {
    type Item = ModelItem;

    const RESULTS: &'static [Verb] = &[Verb::ModelFinished, Verb::ModelFailed];

    fn meta(item: &ModelItem) -> &ItemMeta {
        &item.meta
    }

    fn tool(_: &ModelItem) -> Option<&ToolName> {
        None
    }

    fn result_ids(call: &CallAttempt) -> Result<Vec<CommandId>, BusError> {
        Ok(vec![result_id(call, "")?])
    }

    async fn run(&self, open: OpenCall<ModelItem>) -> Result<Option<CallResult>, BusError> {
        let job = Job::new(open);
        let outcome = self.outcome(&job).await?.of_run(&job.run);
        // A second run of the attempt is stored beside the first one, for its costs.
        let beside = result_id(&job.call, &format!("-{}", job.run))?;
        result(&job.call, &outcome, Some(beside)).map(Some)
    }

    /// What a gateway that died had reserved is booked.
    async fn leave(&self, open: OpenCall<ModelItem>) -> Result<(), BusError> {
        let (job, providers) = (Job::new(open), self.providers.get());
        self.limits.forfeit(&job, &providers.budgets(&job.key.tenant, &job.meta().agent)).await
    }

    fn unreadable(&self, call: &CallAttempt, meta: ResultMeta, why: &str) -> Result<CallResult, BusError> {
        result(call, &Outcome::refused(meta, Failure::new(FailureKind::BadRequest, why)), None)
    }
}

fn result(call: &CallAttempt, outcome: &Outcome, beside: Option<CommandId>) -> Result<CallResult, BusError> {
    let body = outcome.encode().map_err(|error| BusError::Malformed(error.to_string()))?;
    Ok(CallResult { verb: outcome.verb(), id: result_id(call, "")?, beside, body })
}

impl Calls {
    /// Runs a call that may start. Whatever happens within it, there is one outcome.
    async fn outcome(&self, job: &Job) -> Result<Outcome, BusError> {
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
        let run = call::run(around, job, &routes, &mut viewers, &mut charge);
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
