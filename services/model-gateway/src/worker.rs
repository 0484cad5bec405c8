//! Handles the model calls of the queue: runs each one and encodes its result.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use bus::call::{CallHandler, CallResult, result_id};
use bus::{Bus, BusError};
use contract::CommandId;
use contract::command::Verb;
use contract::ids::{CallAttempt, ToolName};
use contract::model::{FailureKind, ItemMeta, ModelItem, ResultMeta};
use futures::FutureExt;

use crate::breaker::Breakers;
use crate::call::CallContext;
use crate::failure::CallFailure;
use crate::job::ModelJob;
use crate::limits::{CallCharge, SharedLimits};
use crate::observe;
use crate::provider::Providers;
use crate::reply_publisher::{ReplyPublisher, SharedSnapshot};
use crate::result::ModelResult;
use crate::transcript_parts::{StoredPart, TranscriptParts, bytes_of};
use service::clock::Clock;
use service::reload::Reload;

/// Start of the twelve random digits of a UUID v7, which name a run.
const RUN_OFFSET: usize = 20;

/// Handler of the model queue, with the state that all its calls share.
pub(crate) struct ModelCallHandler {
    pub(crate) bus: Bus,
    pub(crate) providers: Arc<Reload<Providers>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: SharedLimits,
    pub(crate) breakers: Breakers,
    pub(crate) transcripts: TranscriptParts,
}

#[async_trait]
impl CallHandler for ModelCallHandler {
    type Item = ModelItem;

    const WORKER: &'static str = "gateway";

    const RESULTS: &'static [Verb] = &[Verb::ModelFinished, Verb::ModelFailed];

    fn meta(item: &ModelItem) -> &ItemMeta {
        &item.meta
    }

    fn opened_by(item: &ModelItem) -> &str {
        &item.opened_by
    }

    fn tool(_: &ModelItem) -> Option<&ToolName> {
        None
    }

    fn result_ids(call: &CallAttempt) -> Result<Vec<CommandId>, BusError> {
        Ok(vec![result_id(call, "")?])
    }

    async fn run(&self, mut job: ModelJob) -> Result<Option<CallResult>, BusError> {
        let parts = self.transcripts.take(&job.key, &mut job.item).await?;
        job.bytes += bytes_of(&parts);
        // Unique among the runs of the attempt by all gateways.
        let run = uuid::Uuid::now_v7().simple().to_string().split_off(RUN_OFFSET);
        let result = self.run_call(&job, &parts).await?.with_run(&run);
        // If a second gateway runs the same attempt, both results are stored, since both cost money.
        let beside = result_id(&job.call, &format!("-{run}"))?;
        encode_result(&job.call, &result, Some(beside)).map(Some)
    }

    /// Charges what a gateway that died had reserved for the call.
    async fn leave(&self, job: ModelJob) -> Result<(), BusError> {
        let providers = self.providers.get();
        self.limits.charge_abandoned(&job, &providers.find_budgets(&job.key.tenant, &job.item.meta.agent)).await
    }

    fn unreadable(&self, call: &CallAttempt, meta: ResultMeta, why: &str) -> Result<CallResult, BusError> {
        let result = ModelResult::fail_before_request(meta, CallFailure::new(FailureKind::BadRequest, why));
        encode_result(call, &result, None)
    }
}

fn encode_result(call: &CallAttempt, result: &ModelResult, beside: Option<CommandId>) -> Result<CallResult, BusError> {
    let body = result.encode().map_err(|error| BusError::Malformed(error.to_string()))?;
    Ok(CallResult { verb: result.verb(), id: result_id(call, "")?, beside, body })
}

impl ModelCallHandler {
    /// Runs a call that may start. There is exactly one result, even if the adapter panics.
    async fn run_call(&self, job: &ModelJob, parts: &[Arc<StoredPart>]) -> Result<ModelResult, BusError> {
        let refused = |kind: FailureKind, message: &str| {
            tracing::warn!(session = %job.key, call = %job.call, code = %kind.code(), message, "model call refused");
            ModelResult::fail_before_request(job.item.result_meta(), CallFailure::new(kind, message))
        };
        if job.item.meta.deadline <= self.clock.now() {
            return Ok(refused(FailureKind::TimedOut, "the call's deadline passed before a gateway was free"));
        }
        let mut providers = self.providers.get();
        if !providers.has_model(&job.item.model) {
            // The prompt-composer may have read a new model before this gateway did.
            providers = self.providers.fresh().await;
        }
        let routes = match providers.find_routes(&job.item.model) {
            Ok(routes) => routes,
            Err(failure) => return Ok(refused(failure.kind, &failure.message)),
        };
        let snapshot = SharedSnapshot::new(job);
        let served = snapshot.clone();
        // Serves the snapshot of the reply as long as this guard lives.
        let _guard = self.bus.serve_view(&job.key, move || Some(served.get())).await?;
        let budgets = providers.find_budgets(&job.key.tenant, &job.item.meta.agent);
        if let Some(route) = routes.find_unpriced().filter(|_| budgets.iter().any(|budget| budget.usd.is_some())) {
            let message = format!(
                "models.yaml has no prices for {route}, so a budget in US dollars cannot count its cost: set `prices`, with 0 for a free model"
            );
            return Ok(refused(FailureKind::BadRequest, &message));
        }
        let mut charge = CallCharge::default();
        let mut publisher = ReplyPublisher::new(&self.bus, &*self.clock, job, snapshot);
        let context = CallContext {
            bus: &self.bus,
            clock: &*self.clock,
            limits: &self.limits,
            breakers: &self.breakers,
            job,
            parts,
            routes: &routes,
            budgets: &budgets,
            began: tokio::time::Instant::now(),
        };
        let run = context.run(&mut publisher, &mut charge);
        let report = AssertUnwindSafe(run).catch_unwind().await;
        let Some(report) = report.unwrap_or(Ok(None))? else {
            tracing::error!(session = %job.key, call = %job.call, "the adapter panicked");
            publisher.finish(None).await;
            charge.charge_abandoned(&self.limits).await;
            return Ok(refused(FailureKind::BadRequest, "the adapter panicked: this is a bug of ailoop"));
        };
        observe::record_call(job, &report);
        Ok(report.result)
    }
}
