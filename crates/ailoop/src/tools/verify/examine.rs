//! Calls a tool for all checks, and passes the replies to [`judge`].

use std::time::Duration;

use bus::BusError;
use bytes::Bytes;
use contract::tool::{EffectClass, ToolSpec};
use contract::{Json, Timestamp};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tool_schema::Schema;

use super::{Check, judge};
use crate::tools::sample;
use crate::tools::tool_client::{CallExchange, CallRecord, ToolClient, ToolReplicas};
use crate::tools::trial_call::{TrialCall, TrialCaller};

/// Longest wait for an answer that needs no work: to invalid, cancelled or late calls.
const QUICK_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time after which a running call is cancelled.
const CANCEL_AFTER: Duration = Duration::from_millis(300);
/// Wait for a second reply to an answered call.
const SECOND_REPLY_WAIT: Duration = Duration::from_secs(1);
/// A deadline that has passed.
const PASSED_DEADLINE: Timestamp = Timestamp::from_millis(0);
/// A body that is not JSON. It has two lines, since some libraries put an unreadable body into a header, which allows
/// one.
const INVALID_BODY: &[u8] = b"this is\nno JSON {";

/// Name of the checks that are skipped without an answer.
const REMAINING_CHECKS: &str = "everything else";

/// A tool that is described and can be called.
pub(crate) struct ExaminedTool {
    pub(crate) spec: ToolSpec,
    /// The compiled schema of its arguments.
    pub(crate) schema: Schema,
    pub(crate) replicas: ToolReplicas,
}

/// Options of the calls.
pub(crate) struct CallOptions {
    /// Arguments that should work; without them some are made from the schema.
    pub(crate) arguments: Option<Json>,
    /// Longest wait for an answer.
    pub(crate) timeout: Duration,
}

/// Checks the description of the tool; returns no tool if it cannot be called.
pub(crate) async fn check_description(client: &ToolClient<'_>) -> Result<(Vec<Check>, Option<ExaminedTool>), BusError> {
    let replicas = client.find_replicas().await?;
    let (first, spec) = judge::check_description(&replicas);
    let Some(spec) = spec else { return Ok((vec![first], None)) };
    let compiled = Schema::compile(&spec.parameters);
    let checks = vec![
        first,
        judge::check_schema(&spec, compiled.as_ref().map(|_| ())),
        judge::check_replicas(&replicas),
        judge::check_catalogue(client.is_known().await?),
    ];
    Ok((checks, compiled.ok().map(|schema| ExaminedTool { spec, schema, replicas })))
}

/// Chooses valid arguments: those of the options, or some made from the schema. Fails if they are invalid.
pub(crate) fn choose_arguments(tool: &ExaminedTool, options: &CallOptions) -> Result<Json, String> {
    let made = || Json::of(&sample::make_smallest(&parse_schema(tool)));
    let arguments = options.arguments.clone().unwrap_or_else(made);
    tool.schema.check(&arguments).map(|()| arguments)
}

/// Calls the tool for all checks. [`count_effects`] says how many of the calls may take effect.
pub(crate) async fn check_calls(
    client: &ToolClient<'_>,
    tool: &ExaminedTool,
    arguments: &Json,
    options: &CallOptions,
    mut caller: TrialCaller,
    now: impl Fn() -> Timestamp,
) -> Result<Vec<Check>, BusError> {
    let mut examiner = Examiner { client, exchanges: Vec::new(), timeout: options.timeout };
    let valid_body = Bytes::copy_from_slice(arguments.get().as_bytes());
    let deadline = |timeout: Duration| now().after(timeout);

    let call = caller.make_call(valid_body.clone(), deadline(options.timeout));
    let first = examiner.call(&call, options.timeout).await?;
    let error = if first.first_answer().is_none() { client.fetch_last_error().await? } else { None };
    let mut checks =
        vec![judge::check_valid_arguments(&first, arguments.get(), options.arguments.is_some(), error.as_deref())];
    if first.first_answer().is_none() {
        checks.push(Check::skip(REMAINING_CHECKS, "not tried: it does not answer"));
        return Ok(checks);
    }

    // Invalid calls.
    let quick = QUICK_ANSWER_MAX.min(options.timeout);
    let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
    let is_valid = |made: &Value| tool.schema.check(&Json::of(made)).is_ok();
    let invalid = sample::make_invalid(&parse_schema(tool), &value, is_valid);
    if invalid.is_empty() {
        checks.push(Check::skip("wrong arguments", "its schema accepts everything"));
    }
    for (what, made) in invalid {
        let call = caller.make_call(made.to_string(), deadline(options.timeout));
        checks.push(judge::check_refusal("wrong arguments", &what, &examiner.call(&call, quick).await?));
    }
    let invalid_body = caller.make_call(INVALID_BODY, deadline(options.timeout));
    checks.push(judge::check_refusal("garbage", "no JSON", &examiner.call(&invalid_body, quick).await?));
    let valid_again = match tool.spec.effect {
        // A redelivery has no second effect.
        EffectClass::Idempotent => call.redeliver(),
        EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable => {
            caller.make_call(valid_body.clone(), deadline(options.timeout))
        }
    };
    let after_invalid = examiner.call(&valid_again, options.timeout).await?;
    let remaining = client.find_replicas().await?.replicas.len();
    checks.push(judge::check_survival(&after_invalid, tool.replicas.replicas.len(), remaining));
    if after_invalid.first_answer().is_none() {
        checks.push(Check::skip(REMAINING_CHECKS, "not tried: it does not answer any more"));
        return Ok(checks);
    }

    // Redelivered calls.
    match tool.spec.effect {
        EffectClass::AtMostOnce => checks.push(Check::skip("repeated", "no call of an at_most_once tool is repeated")),
        EffectClass::Reconcilable => {
            let unsent = caller.make_call(valid_body.clone(), deadline(options.timeout));
            checks.push(judge::check_probe(client.probe(&unsent, quick).await?.as_ref()));
        }
        effect @ (EffectClass::Pure | EffectClass::Idempotent) => {
            let second = examiner.call(&call.redeliver(), options.timeout).await?;
            checks.push(judge::check_redelivery("repeated", effect, &first, &second));
            let call = caller.make_call(valid_body.clone(), deadline(options.timeout));
            let (one, other) = examiner.call_twice(&call, options.timeout).await?;
            checks.push(judge::check_redelivery("twice at once", effect, &one, &other));
        }
    }

    // Late and cancelled calls.
    let late = caller.make_call(valid_body.clone(), PASSED_DEADLINE);
    checks.push(judge::check_deadline(&examiner.call(&late, quick).await?));
    let call = caller.make_call(valid_body, deadline(options.timeout));
    let (cancelled_at, record) = examiner.call_and_cancel(&call).await?;
    checks.push(judge::check_cancel(cancelled_at, &record));

    // All replies together.
    let records = examiner.finish().await;
    let records: Vec<&CallRecord> = records.iter().collect();
    checks.push(judge::check_single_reply(&records, tool.replicas.replicas.len()));
    checks.push(judge::check_progress(&records));
    checks.push(judge::check_size(&records, &tool.spec));
    checks.push(judge::check_trace(&first, caller.trace_id()));
    Ok(checks)
}

/// Returns how many calls may take effect.
pub(crate) const fn count_effects(effect: EffectClass) -> usize {
    match effect {
        EffectClass::Pure => 0,
        // The first, a late one, a cancelled one, and either one that is sent twice or the one after the invalid calls.
        EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => 4,
    }
}

fn parse_schema(tool: &ExaminedTool) -> Value {
    serde_json::from_str(tool.spec.parameters.get()).unwrap_or_default()
}

/// Makes the calls. It keeps every exchange until the end, since a surplus reply may come late.
struct Examiner<'a> {
    client: &'a ToolClient<'a>,
    exchanges: Vec<CallExchange>,
    timeout: Duration,
}

impl Examiner<'_> {
    async fn call(&mut self, call: &TrialCall, within: Duration) -> Result<CallRecord, BusError> {
        let mut exchange = self.client.call(call).await?;
        let record = exchange.wait_for_answer(within).await.clone();
        self.exchanges.push(exchange);
        Ok(record)
    }

    async fn call_twice(&mut self, call: &TrialCall, within: Duration) -> Result<(CallRecord, CallRecord), BusError> {
        let (mut one, mut other) = (self.client.call(call).await?, self.client.call(&call.redeliver()).await?);
        let (first, second) = tokio::join!(one.wait_for_answer(within), other.wait_for_answer(within));
        let both = (first.clone(), second.clone());
        self.exchanges.extend([one, other]);
        Ok(both)
    }

    /// Makes a call and cancels it. Returns when it was cancelled; none if it ended before that.
    async fn call_and_cancel(&mut self, call: &TrialCall) -> Result<(Option<Duration>, CallRecord), BusError> {
        let mut exchange = self.client.call(call).await?;
        exchange.wait_for_answer(CANCEL_AFTER).await;
        let at = exchange.record.answers.is_empty().then(|| exchange.elapsed());
        if let Some(at) = at {
            self.client.cancel(call.cancel_headers()).await?;
            exchange.wait_for_answer(at + QUICK_ANSWER_MAX.min(self.timeout)).await;
        }
        let record = exchange.record.clone();
        self.exchanges.push(exchange);
        Ok((at, record))
    }

    async fn finish(mut self) -> Vec<CallRecord> {
        sleep(SECOND_REPLY_WAIT).await;
        let end = Instant::now();
        for exchange in &mut self.exchanges {
            exchange.drain_until(end).await;
        }
        self.exchanges.into_iter().map(|exchange| exchange.record).collect()
    }
}
