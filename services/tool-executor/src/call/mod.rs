//! Handler of the tool queue: runs calls and reports their results.

mod call_deadline;
mod dispatch;
mod probe;
mod replica_check;
pub(crate) mod tool_reply;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::call::{CallHandler, CallResult, OpenCall, result_id};
use bus::{Bus, BusError, CallStatus, Claim};
use bytes::Bytes;
use contract::command::Verb;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ResultMeta};
use contract::streams::Objects;
use contract::subject::SessionKey;
use contract::tool::{FullResultRef, Outcome, READ_RESULT, ToolItem, ToolResult};
use contract::{CommandId, ErrorCode, TenantId, Timestamp, ToolName, limits};
use tokio::time::Instant;
use tracing::Instrument;

use call_deadline::Deadlines;
use dispatch::Dispatch;
use tool_reply::{ToolAnswer, unknown_answer};

use crate::Clock;
use crate::connection_health::{BACK_WITHIN, ConnectionHealth};
use crate::schemas::Schemas;
use tool_schema::ArgumentsError;

/// A call status older than this is read again before the call is sent.
const STATUS_AGE_MAX: Duration = Duration::from_millis(20);
/// Pause before the bus is asked again that could not serve a call.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Longest wait of a call for the first poll of the catalogue after this process started.
const CATALOGUE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Suffix of the id of a result with an unknown outcome.
const UNKNOWN_ID_SUFFIX: &str = "-unknown";

/// Age of a call from which on its claim may have expired. The margin covers the timeout of a call, for an item that
/// names only its deadline.
const CLAIM_BELIEVED_MAX: Duration = Duration::from_secs(limits::CLAIM_AGE_MAX.as_secs() - 24 * 3_600);

/// Reason why the outcome of an earlier delivery is unknown.
const EXECUTOR_LOST_TEXT: &str = "the executor of this call was lost";
/// Reason why it is unknown whether a call was sent.
const CLAIM_EXPIRED_TEXT: &str = "the call was opened so long ago that the record of whether it was sent has expired";

/// An earlier delivery that may have sent the call.
struct EarlierDelivery {
    /// Reason why it may have sent the call.
    reason: &'static str,
    /// The latest deadline that it may have told the tool.
    deadline: Timestamp,
}

/// The handler of the tool queue.
pub(crate) struct ToolCallHandler {
    bus: Bus,
    clock: Arc<dyn Clock>,
    schemas: Schemas,
    health: ConnectionHealth,
    started: Instant,
}

type ToolCall = OpenCall<ToolItem>;

impl ToolCallHandler {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, schemas: Schemas, health: ConnectionHealth) -> Self {
        Self { bus, clock, schemas, health, started: Instant::now() }
    }

    async fn execute(&self, work: &ToolCall) -> Result<Option<CallResult>, BusError> {
        let began = Instant::now();
        let Some(answer) = self.call_tool(work).await? else {
            tracing::info!(session = %work.key, call = %work.call, "no longer wanted");
            return Ok(None);
        };
        let duration = began.elapsed();
        let (tool, outcome) = (work.item.tool.as_str(), answer.outcome.as_str());
        let span = tracing::Span::current();
        telemetry::span::outcome(&span, outcome);
        if let Some(code) = &answer.code {
            telemetry::span::failed(&span, code.as_str());
        }
        telemetry::metric::tool(tool, outcome, duration);
        tracing::info!(session = %work.key, call = %work.call, tool, outcome, took_ms = duration.as_millis(), "tool call");
        let (content, whole) = self.truncate_content(work, answer.content).await;
        let result = ToolResult {
            meta: work.item.result_meta(),
            outcome: answer.outcome,
            content,
            code: answer.code,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            whole,
            used: None,
        };
        call_result(&work.call, &result).map(Some)
    }

    /// Claims a call that takes effect, with the `deadline` that the tool is told. Returns the earlier delivery that
    /// may have sent it, if one may: it has claimed the call, or its claim may have expired.
    async fn claim_dispatch(&self, work: &ToolCall, deadline: Timestamp) -> Result<Option<EarlierDelivery>, BusError> {
        let item = &work.item;
        if !item.effect.takes_effect() {
            return Ok(None);
        }
        // Where no claim names its deadline: it has sent the call by now, and granted it the whole timeout.
        let latest = || self.clock.now().max(item.meta.deadline).after(Duration::from_millis(item.timeout_ms));
        let opened = item.opened_at.unwrap_or(item.meta.deadline);
        if work.may_have_been_held && self.clock.now().since(opened) > CLAIM_BELIEVED_MAX {
            return Ok(Some(EarlierDelivery { reason: CLAIM_EXPIRED_TEXT, deadline: latest() }));
        }
        // Each delivery is an owner of its own, since the outcome of an earlier one is unknown, also to the same
        // process. Its number is no owner: an item that is published again counts from 1 again.
        let owner = uuid::Uuid::now_v7().simple();
        let value = format!("{owner} {}", deadline.as_millis());
        Ok(match self.claim(work, &[&item.origin()], &value).await? {
            Claim::Mine => None,
            Claim::Theirs(value) => {
                let deadline = parse_claimed_deadline(&value).unwrap_or_else(latest);
                Some(EarlierDelivery { reason: EXECUTOR_LOST_TEXT, deadline })
            }
        })
    }

    /// Answers a call that an earlier delivery may have sent and that is not sent again; `None`: the session no longer
    /// wants one.
    async fn answer_lost_call(&self, work: &ToolCall, earlier: &EarlierDelivery, more: &str) -> Option<ToolAnswer> {
        let answer = unknown_answer(&format!("{}{more}", earlier.reason));
        self.reconcile(work, answer, earlier.deadline).await
    }

    /// Answers a call whose deadline passed before this delivery sent it.
    async fn answer_late_call(&self, work: &ToolCall, earlier: Option<&EarlierDelivery>) -> Option<ToolAnswer> {
        if let Some(earlier) = earlier {
            return self.answer_lost_call(work, earlier, ", and its deadline has passed").await;
        }
        let text = "the deadline had passed before the tool could be called; it was not called";
        Some(ToolAnswer::new(Outcome::Timeout, text))
    }

    /// Reads the call status again if the last one is too old; `false`: the session no longer wants the call. Waits
    /// here while the session is paused, since the call is claimed: its next delivery would count it as sent. A log that
    /// does not show the call any more was put back to an older state, in which the call is never opened.
    async fn wait_until_open(&self, work: &ToolCall, checked_at: Instant) -> bool {
        if checked_at.elapsed() < STATUS_AGE_MAX {
            return true;
        }
        let mut unseen = 0;
        loop {
            match self.bus.call_status(&work.key, &work.call, work.item.meta.slot).await {
                Ok(CallStatus::Open) => return true,
                Ok(CallStatus::Closed) => return false,
                Ok(CallStatus::NotVisible) if unseen >= limits::UNSEEN_DELIVERIES_MAX => return false,
                Ok(CallStatus::NotVisible) => unseen += 1,
                Ok(CallStatus::Paused | CallStatus::Parked) => unseen = 0,
                Err(error) => tracing::debug!(session = %work.key, call = %work.call, %error, "the log cannot be read"),
            }
            tokio::select! {
                () = work.cancelled.cancelled() => return true,
                () = tokio::time::sleep(RETRY_AFTER) => {}
            }
        }
    }

    /// Claims for one owner, however long the bus is away. A second owner, that of the next delivery, would find a
    /// claim that this one may have made, and the call would count as sent.
    async fn claim(&self, work: &ToolCall, parts: &[&str], value: &str) -> Result<Claim, BusError> {
        loop {
            match self.bus.claim(&work.key, &work.call.call, parts, value).await {
                Err(error) if !error.is_final() => {
                    tracing::warn!(session = %work.key, call = %work.call, %error, "call not claimed yet");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                claimed => return claimed,
            }
        }
    }

    /// Runs a call from its arguments to the answer; `None`: the session no longer wants one.
    async fn call_tool(&self, work: &ToolCall) -> Result<Option<ToolAnswer>, BusError> {
        let (item, checked_at) = (&work.item, Instant::now());
        let tool = (work.key.tenant.clone(), item.tool.clone());
        // Before the first poll no tool is known.
        self.schemas.wait_for_catalogue(CATALOGUE_WAIT_MAX).await;
        let checked = match self.schemas.check_small(&tool, &item.arguments) {
            Some(checked) => checked,
            None => self.check_large(work, &tool).await?,
        };
        let (now, clock_now) = (Instant::now(), self.clock.now());
        let left = item.meta.deadline.since(clock_now);
        // An earlier delivery may have been granted more time, and another try needs its own. The loop has the last
        // word.
        let timeout = if work.may_have_been_held { left.max(Duration::from_millis(item.timeout_ms)) } else { left };
        let deadlines = Deadlines { deadline: now + timeout, known: now + left, claimed: clock_now.after(timeout) };
        // A repeated delivery is claimed before any answer: none may say that an earlier one did not send the call.
        let mut earlier =
            if work.may_have_been_held { self.claim_dispatch(work, deadlines.claimed).await? } else { None };
        if let Err(ArgumentsError { code, text }) = checked {
            // The tool may have had another schema when the call was sent.
            let Some(earlier) = &earlier else { return Ok(Some(ToolAnswer::error(code, text))) };
            let more = format!(", and the call cannot be made again: {text}");
            return Ok(self.answer_lost_call(work, earlier, &more).await);
        }
        if timeout.is_zero() {
            return Ok(self.answer_late_call(work, earlier.as_ref()).await);
        }
        if !work.may_have_been_held {
            earlier = self.claim_dispatch(work, deadlines.claimed).await?;
        }
        if !self.wait_until_open(work, checked_at).await {
            return Ok(None);
        }
        if let Some(earlier) = &earlier
            && !item.effect.may_repeat()
        {
            return Ok(self.answer_lost_call(work, earlier, "").await);
        }
        // The claim, or a pause after it, may have taken that long.
        if Instant::now() >= deadlines.deadline {
            return Ok(self.answer_late_call(work, earlier.as_ref()).await);
        }
        let sent_before = earlier.is_some();
        // A tool that was never there will not come back. But this one was in the catalogue when its session looked:
        // when a whole fleet restarts, the tool's client may connect after the first calls.
        let health = self.schemas.has_tool(&tool).then_some(&self.health);
        let expected_until = (!self.schemas.has_answered(&tool)).then(|| self.started + BACK_WITHIN);
        let (bus, clock) = (&self.bus, &*self.clock);
        let dispatch = Dispatch { bus, clock, work, sent_before, timeout, deadlines, health, expected_until };
        let Some(answer) = dispatch.run().await else { return Ok(None) };
        Ok(self.reconcile(work, answer, deadlines.claimed).await)
    }

    /// Checks arguments that are not small. A mark in the bus stands for the check while it runs, so that arguments
    /// that crash an executor crash only one.
    async fn check_large(
        &self,
        work: &ToolCall,
        tool: &(TenantId, ToolName),
    ) -> Result<Result<(), ArgumentsError>, BusError> {
        let OpenCall { key, call, item, .. } = work;
        let (origin, attempt) = (item.origin(), format!("check-{}", call.attempt));
        let parts = [origin.as_str(), attempt.as_str()];
        let owner = uuid::Uuid::now_v7().simple().to_string();
        let mut claim = self.claim(work, &parts, &owner).await?;
        if claim != Claim::Mine {
            // The item may have been delivered twice, and another executor may be checking it: its check has ended by
            // then.
            tokio::time::sleep(limits::VALIDATION_MAX + RETRY_AFTER).await;
            claim = self.claim(work, &parts, &owner).await?;
        }
        if claim != Claim::Mine {
            let text = "an executor was lost while it checked these arguments; they are not checked again, and the tool was \
                        not called";
            return Ok(Err(ArgumentsError::new(ErrorCode::Poison, text)));
        }
        let checked = self.schemas.check(tool, &item.arguments).await;
        while let Err(error) = self.bus.release_claim(key, &call.call, &parts).await {
            tracing::warn!(session = %key, %call, %error, "the mark of a check is not deleted yet");
            if error.is_final() {
                break;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        Ok(checked)
    }

    /// Shortens a result for the model, and stores the whole of a longer one.
    async fn truncate_content(&self, work: &ToolCall, content: String) -> (String, Option<FullResultRef>) {
        let max = work.item.max_output;
        if content.len() <= max {
            return (content, None);
        }
        let SessionKey { tenant, session } = &work.key;
        let call = &work.call.call;
        let object = FullResultRef::id(tenant, session, work.item.session_started, call);
        let stored_bytes = content.floor_char_boundary(limits::WHOLE_RESULT_BYTES_MAX);
        let body = Bytes::copy_from_slice(&content.as_bytes()[..stored_bytes]);
        let whole = match self.bus.transport().put_object(Objects::Results, &object, body).await {
            Ok(()) => Some(FullResultRef { object, bytes: stored_bytes as u64 }),
            Err(error) => {
                tracing::warn!(session = %work.key, %call, %error, "the whole result was not stored");
                None
            }
        };
        let reader = ToolName::new(READ_RESULT).ok();
        let is_readable = reader.is_some_and(|reader| self.schemas.has_tool(&(tenant.clone(), reader)));
        let call = (whole.is_some() && is_readable).then_some(call.as_str());
        (tool_reply::truncate(&content, max, call), whole)
    }
}

#[async_trait]
impl CallHandler for ToolCallHandler {
    type Item = ToolItem;

    const RESULTS: &'static [Verb] = &[Verb::ProvideToolResult];

    const WORKER: &'static str = "executor";

    fn meta(item: &ToolItem) -> &ItemMeta {
        &item.meta
    }

    fn opened_by(item: &ToolItem) -> &str {
        &item.opened_by
    }

    fn tool(item: &ToolItem) -> Option<&ToolName> {
        Some(&item.tool)
    }

    fn result_ids(call: &CallAttempt) -> Result<Vec<CommandId>, BusError> {
        Ok(vec![result_id(call, "")?, result_id(call, UNKNOWN_ID_SUFFIX)?])
    }

    async fn run(&self, work: ToolCall) -> Result<Option<CallResult>, BusError> {
        let span = delivery_span(&work);
        self.execute(&work).instrument(span).await
    }

    fn unreadable(&self, call: &CallAttempt, meta: ResultMeta, why: &str) -> Result<CallResult, BusError> {
        let ToolAnswer { outcome, content, code } = ToolAnswer::error(ErrorCode::BadRequest, why);
        call_result(call, &ToolResult { meta, outcome, content, code, duration_ms: 0, whole: None, used: None })
    }
}

/// Parses the deadline in the value of a claim: `<owner> <milliseconds>`. Executors of an older version wrote none.
fn parse_claimed_deadline(value: &str) -> Option<Timestamp> {
    let (_, ms) = value.split_once(' ')?;
    ms.parse().ok().map(Timestamp::from_millis)
}

/// The span of this delivery. The tool gets the call's span as its parent, since this one is lost if the executor is
/// killed.
fn delivery_span(work: &ToolCall) -> tracing::Span {
    let Some(attempt) = work.trace.filter(|trace| trace.is_sampled) else { return tracing::Span::none() };
    let (session, call, tool) = (work.key.session.as_str(), work.call.call.as_str(), work.item.tool.as_str());
    let span = telemetry::span::tool_delivery(session, call, work.call.attempt, work.delivered, tool);
    telemetry::trace::set_parent(&span, attempt);
    span
}

/// An unknown outcome has an id of its own, so that a result that is known later still counts.
fn call_result(call: &CallAttempt, result: &ToolResult) -> Result<CallResult, BusError> {
    let is_known = !matches!(result.outcome, Outcome::Unknown | Outcome::Timeout);
    let id = result_id(call, if is_known { "" } else { UNKNOWN_ID_SUFFIX })?;
    let body = serde_json::to_vec(result).map_err(|error| BusError::Malformed(error.to_string()))?;
    Ok(CallResult { verb: Verb::ProvideToolResult, id, beside: None, body: Bytes::from(body) })
}
