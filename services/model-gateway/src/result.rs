//! Builds the result of a call as the contract defines it.

use std::time::Duration;

use bytes::Bytes;
use configuration::models::Prices;
use contract::command::Verb;
use contract::limits::{CUT_REPLY_BYTES_MAX, JSON_DEPTH_MAX};
use contract::model::{FinishReason, ModelFailed, ModelFinished, ReasoningParts, ResultMeta, Usage};

use crate::failure::CallFailure;
use crate::job::ModelJob;
use crate::provider::Route;
use crate::reply::ModelReply;

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelResult {
    /// The complete reply, or the part that had arrived when the call was cancelled.
    Finished(Box<ModelFinished>),
    /// The call has no reply, for this reason.
    Failed(ModelFailed),
}

impl ModelResult {
    /// Verb of the command that carries the result.
    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Finished(_) => Verb::ModelFinished,
            Self::Failed(_) => Verb::ModelFailed,
        }
    }

    /// Returns the finish reason of the reply; `None` if there is no reply.
    pub(crate) fn finish_reason(&self) -> Option<FinishReason> {
        match self {
            Self::Finished(finished) => Some(finished.finish_reason),
            Self::Failed(_) => None,
        }
    }

    pub(crate) fn encode(&self) -> Result<Bytes, serde_json::Error> {
        match self {
            Self::Finished(finished) => serde_json::to_vec(finished),
            Self::Failed(failed) => serde_json::to_vec(failed),
        }
        .map(Bytes::from)
    }

    /// Names the run of the attempt that has this result.
    #[must_use]
    pub(crate) fn with_run(mut self, run: &str) -> Self {
        match &mut self {
            Self::Finished(finished) => run.clone_into(&mut finished.run),
            Self::Failed(failed) => run.clone_into(&mut failed.run),
        }
        self
    }

    /// A failure before any request was sent to a provider.
    pub(crate) fn fail_before_request(meta: ResultMeta, failure: CallFailure) -> Self {
        Self::Failed(ModelFailed {
            meta,
            kind: failure.kind,
            retry_after_ms: failure.retry_after.map(to_millis),
            message: failure.message,
            text: String::new(),
            usage: Usage::default(),
            cost_usd: 0.0,
            run: String::new(),
        })
    }
}

/// Usage of the last try of a call, and cost of all its tries. The usage of the last try says how long the transcript
/// is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct CallCost {
    pub(crate) usage: Usage,
    pub(crate) usd: f64,
}

/// The result of a complete reply.
pub(crate) fn report_finished(
    job: &ModelJob,
    route: &Route,
    reply: ModelReply,
    cost: CallCost,
    took: Duration,
) -> ModelResult {
    let tool_calls = reply.calls();
    // Reasoning parts are stored under the signer, which alone can read them again. JSON that is nested deeper cannot
    // be stored in the log, and the orchestrator could not parse the result.
    let is_embeddable = reply.replay.iter().all(|part| contract::json::depth(part) <= JSON_DEPTH_MAX);
    let reasoning_parts =
        route.client.reasoning_name().filter(|_| is_embeddable && !reply.replay.is_empty()).map(|family| {
            ReasoningParts {
                family: family.to_owned(),
                model: route.signer_id(),
                parts: reply.replay,
                positions: reply.positions,
            }
        });
    let (mut finish_reason, raw_finish_reason) = reply.finish.unwrap_or((FinishReason::Other, String::new()));
    // Some servers report a reply as complete although they cut it: its output tokens reach the maximum.
    let usage_and_max = reply.usage.zip(route.output_max(job));
    if finish_reason == FinishReason::Stop && usage_and_max.is_some_and(|(usage, max)| usage.output >= max) {
        finish_reason = FinishReason::Length;
    }
    ModelResult::Finished(Box::new(ModelFinished {
        meta: job.item.result_meta(),
        text: reply.text,
        reasoning: reply.reasoning,
        tool_calls,
        finish_reason,
        raw_finish_reason,
        usage: cost.usage,
        cost_usd: cost.usd,
        provider: route.provider.clone(),
        model: if reply.model.is_empty() { route.upstream.clone() } else { reply.model },
        latency_ms: to_millis(took),
        replay: reasoning_parts,
        run: String::new(),
    }))
}

/// The result of a cancelled call: the part of the reply that had arrived, without tool calls, which may be incomplete.
pub(crate) fn report_cancelled(
    job: &ModelJob,
    route: &Route,
    mut reply: ModelReply,
    cost: CallCost,
    took: Duration,
) -> ModelResult {
    reply.finish = Some((FinishReason::Cancelled, String::new()));
    match report_finished(job, route, reply, cost, took) {
        ModelResult::Finished(mut finished) => {
            finished.tool_calls.clear();
            finished.replay = None;
            ModelResult::Finished(finished)
        }
        failed @ ModelResult::Failed(_) => failed,
    }
}

/// The result of a failed call, with the text and the cost of what had arrived.
pub(crate) fn report_failed(job: &ModelJob, failure: CallFailure, text: &str, cost: CallCost) -> ModelResult {
    ModelResult::Failed(ModelFailed {
        meta: job.item.result_meta(),
        kind: failure.kind,
        retry_after_ms: failure.retry_after.map(to_millis),
        message: failure.message,
        text: text[..text.floor_char_boundary(CUT_REPLY_BYTES_MAX)].to_owned(),
        usage: cost.usage,
        cost_usd: cost.usd,
        run: String::new(),
    })
}

/// Cost of tokens in US dollars; 0 if the prices are not known.
#[allow(clippy::cast_precision_loss)] // The sum is for reports; budgets count whole nano-dollars.
pub(crate) fn compute_cost(usage: Usage, prices: Option<Prices>) -> f64 {
    let Some(prices) = prices else { return 0.0 };
    let cached = usage.cached.min(usage.input);
    let fresh = usage.input - cached;
    let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
    dollars(fresh, prices.input)
        + dollars(cached, prices.cached.unwrap_or(prices.input))
        + dollars(usage.output, prices.output)
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_with_prices_has_its_cost() {
        let usage = Usage { input: 1_000_000, output: 500_000, cached: 250_000, reasoning: 0 };
        let prices = Prices { input: 2.0, cached: Some(1.0), output: 8.0 };
        let dollars = |prices| format!("{:.2}", compute_cost(usage, prices));
        assert_eq!(dollars(Some(prices)), "5.75");
        assert_eq!(dollars(Some(Prices { cached: None, ..prices })), "6.00");
        assert_eq!(dollars(None), "0.00");
    }
}
