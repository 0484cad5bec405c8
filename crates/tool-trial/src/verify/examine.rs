//! Calls a tool for all checks, and passes the replies to `judge`.

use std::time::Duration;

use bus::BusError;
use bytes::Bytes;
use contract::tool::{EffectClass, ToolSpec};
use contract::{Json, Timestamp};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tool_schema::Schema;

use super::{Check, judge};
use crate::sample;
use crate::tool_client::{CallExchange, CallRecord, ToolClient, ToolReplicas};
use crate::trial_call::{TrialCall, TrialCaller};

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
pub struct ExaminedTool {
    /// The description of the tool.
    pub spec: ToolSpec,
    /// The compiled schema of its arguments.
    pub(crate) schema: Schema,
    pub(crate) replicas: ToolReplicas,
}

/// Options of the calls.
pub struct CallOptions {
    /// Arguments that should work; without them some are made from the schema.
    pub arguments: Option<Json>,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

/// Checks the description of the tool; returns no tool if it cannot be called.
pub async fn check_description(client: &ToolClient<'_>) -> Result<(Vec<Check>, Option<ExaminedTool>), BusError> {
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
pub fn choose_arguments(tool: &ExaminedTool, options: &CallOptions) -> Result<Json, String> {
    let made = || Json::of(&sample::make_smallest(&parse_schema(tool)));
    let arguments = options.arguments.clone().unwrap_or_else(made);
    tool.schema.check(&arguments).map(|()| arguments)
}

/// Calls the tool for all checks. [`count_effects`] says how many of the calls may take effect.
pub async fn check_calls(
    client: &ToolClient<'_>,
    tool: &ExaminedTool,
    arguments: &Json,
    options: &CallOptions,
    caller: TrialCaller,
    now: impl Fn() -> Timestamp,
) -> Result<Vec<Check>, BusError> {
    let valid_body = Bytes::copy_from_slice(arguments.get().as_bytes());
    let timeout = options.timeout;
    let mut examiner = Examiner { client, tool, caller, now, valid_body, timeout, exchanges: Vec::new() };

    let call = examiner.make_valid_call();
    let first = examiner.call(&call, timeout).await?;
    let error = if first.first_answer().is_none() { client.fetch_last_error().await? } else { None };
    let mut checks =
        vec![judge::check_valid_arguments(&first, arguments.get(), options.arguments.is_some(), error.as_deref())];
    if first.first_answer().is_none() {
        checks.push(Check::skip(REMAINING_CHECKS, "not tried: it does not answer"));
        return Ok(checks);
    }

    checks.extend(examiner.check_invalid_calls().await?);
    let after_invalid = examiner.call_again(&call).await?;
    let remaining = client.find_replicas().await?.replicas.len();
    checks.push(judge::check_survival(&after_invalid, tool.replicas.replicas.len(), remaining));
    if after_invalid.first_answer().is_none() {
        checks.push(Check::skip(REMAINING_CHECKS, "not tried: it does not answer any more"));
        return Ok(checks);
    }

    checks.extend(examiner.check_redelivered_calls(&call, &first).await?);
    checks.extend(examiner.check_late_and_cancelled_calls().await?);
    checks.extend(examiner.check_all_replies(&first).await);
    Ok(checks)
}

/// Returns how many calls may take effect.
pub const fn count_effects(effect: EffectClass) -> usize {
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
struct Examiner<'a, Now> {
    client: &'a ToolClient<'a>,
    tool: &'a ExaminedTool,
    caller: TrialCaller,
    /// Returns the current time, from which deadlines are counted.
    now: Now,
    /// The body of calls with valid arguments.
    valid_body: Bytes,
    timeout: Duration,
    exchanges: Vec<CallExchange>,
}

impl<Now: Fn() -> Timestamp> Examiner<'_, Now> {
    /// Checks that calls with wrong arguments or without JSON are refused.
    async fn check_invalid_calls(&mut self) -> Result<Vec<Check>, BusError> {
        let (tool, quick) = (self.tool, self.quick_timeout());
        let value: Value = serde_json::from_slice(&self.valid_body).unwrap_or_default();
        let is_valid = |made: &Value| tool.schema.check(&Json::of(made)).is_ok();
        let invalid = sample::make_invalid(&parse_schema(tool), &value, is_valid);
        let mut checks = Vec::new();
        if invalid.is_empty() {
            checks.push(Check::skip("wrong arguments", "its schema accepts everything"));
        }
        for (what, made) in invalid {
            let call = self.make_call(made.to_string());
            checks.push(judge::check_refusal("wrong arguments", &what, &self.call(&call, quick).await?));
        }
        let invalid_body = self.make_call(INVALID_BODY);
        checks.push(judge::check_refusal("garbage", "no JSON", &self.call(&invalid_body, quick).await?));
        Ok(checks)
    }

    /// Calls the tool with valid arguments after the invalid calls.
    async fn call_again(&mut self, first: &TrialCall) -> Result<CallRecord, BusError> {
        let call = match self.tool.spec.effect {
            // A redelivery has no second effect.
            EffectClass::Idempotent => first.redeliver(),
            EffectClass::Pure | EffectClass::AtMostOnce | EffectClass::Reconcilable => self.make_valid_call(),
        };
        self.call(&call, self.timeout).await
    }

    /// Checks the answers to calls that are delivered twice, or the probe of a tool that has one.
    async fn check_redelivered_calls(&mut self, call: &TrialCall, first: &CallRecord) -> Result<Vec<Check>, BusError> {
        match self.tool.spec.effect {
            EffectClass::AtMostOnce => Ok(vec![Check::skip("repeated", "no call of an at_most_once tool is repeated")]),
            EffectClass::Reconcilable => {
                let unsent = self.make_valid_call();
                let answer = self.client.probe(&unsent, self.quick_timeout()).await?;
                Ok(vec![judge::check_probe(answer.as_ref())])
            }
            effect @ (EffectClass::Pure | EffectClass::Idempotent) => {
                let second = self.call(&call.redeliver(), self.timeout).await?;
                let repeated = judge::check_redelivery("repeated", effect, first, &second);
                let call = self.make_valid_call();
                let (one, other) = self.call_twice(&call, self.timeout).await?;
                Ok(vec![repeated, judge::check_redelivery("twice at once", effect, &one, &other)])
            }
        }
    }

    /// Checks the end of a call whose deadline has passed, and of one that is cancelled.
    async fn check_late_and_cancelled_calls(&mut self) -> Result<[Check; 2], BusError> {
        let late = self.caller.make_call(self.valid_body.clone(), PASSED_DEADLINE);
        let deadline = judge::check_deadline(&self.call(&late, self.quick_timeout()).await?);
        let call = self.make_valid_call();
        let (cancelled_at, record) = self.call_and_cancel(&call).await?;
        Ok([deadline, judge::check_cancel(cancelled_at, &record)])
    }

    /// Checks the replies to all calls together, and the trace of the first one.
    async fn check_all_replies(self, first: &CallRecord) -> [Check; 4] {
        let tool = self.tool;
        let trace = judge::check_trace(first, self.caller.trace_id());
        let records = self.finish().await;
        let records: Vec<&CallRecord> = records.iter().collect();
        [
            judge::check_single_reply(&records, tool.replicas.replicas.len()),
            judge::check_progress(&records),
            judge::check_size(&records, &tool.spec),
            trace,
        ]
    }

    fn make_valid_call(&mut self) -> TrialCall {
        self.make_call(self.valid_body.clone())
    }

    fn make_call(&mut self, body: impl Into<Bytes>) -> TrialCall {
        let deadline = (self.now)().after(self.timeout);
        self.caller.make_call(body, deadline)
    }

    /// Returns the longest wait for an answer that needs no work.
    fn quick_timeout(&self) -> Duration {
        QUICK_ANSWER_MAX.min(self.timeout)
    }

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
            exchange.wait_for_answer(at + self.quick_timeout()).await;
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
