//! Records a call for operators: its metrics and one log line, never its contents (I9).

use telemetry::metric;

use crate::call::CallReport;
use crate::job::ModelJob;
use crate::provider::Route;
use crate::result::ModelResult;

/// Records a call that ended.
pub(crate) fn record_call(job: &ModelJob, report: &CallReport) {
    let CallReport { result, route, first_chunk, took, tries, chunks } = report;
    let Route { provider, upstream, .. } = route;
    if let Some(first_chunk) = first_chunk {
        metric::first_chunk(provider, upstream, *first_chunk);
    }
    let (usage, cost, code) = match result {
        ModelResult::Finished(finished) => (finished.usage, finished.cost_usd, None),
        ModelResult::Failed(failed) => {
            let code = failed.kind.code();
            tracing::warn!(session = %job.key, call = %job.call, provider, model = upstream, %code, "model call failed");
            (failed.usage, failed.cost_usd, Some(code))
        }
    };
    metric::chat(provider, upstream, *took, code.as_ref().map(contract::ErrorCode::as_str));
    metric::model_cost(provider, upstream, cost);
    metric::tokens(upstream, usage.input, usage.output, usage.cached, usage.reasoning);
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        session = %job.key, call = %job.call, provider, model = upstream, ms, tries, chunks,
        input = usage.input, output = usage.output, "model call"
    );
}
