//! Tool calls: takes items, asks the log whether they may run, runs them, and reports what came of them.

mod cancels;
mod dispatch;
mod doubt;
mod life;
mod probe;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, BusError, CallStatus, Claim, Delivery, Handler, Settle};
use bytes::Bytes;
use contract::command::Verb;
use contract::ids::CallAttempt;
use contract::model::ResultMeta;
use contract::streams::Objects;
use contract::subject::{self, SessionKey};
use contract::tool::{EffectClass, FullResultRef, Outcome, ToolItem, ToolResult};
use contract::{CommandId, ErrorCode, TenantId, ToolName, limits};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use cancels::Cancels;
use dispatch::{Dispatch, unknown};
use life::Deadlines;
use reply::Answer;

use crate::Clock;
use crate::schema::{Refusal, Schemas};
use crate::trouble::{BACK_WITHIN, Trouble};

/// What was asked of the log longer ago than this is asked again before a call is sent.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Pause before an item that the bus could not serve comes again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause before an item that somebody else runs comes again, times its deliveries.
const HELD_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Longest pause before an item that cannot start now comes again: its session is paused, or the bus is away.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// How long a call waits for the catalogue's first poll after this process started.
const CATALOGUE_WITHIN: Duration = Duration::from_secs(3);

/// Why nobody knows what an earlier delivery did.
const LOST: &str = "the executor of this call was lost";

/// The handler of the tool queue.
pub(crate) struct Calls {
    bus: Bus,
    clock: Arc<dyn Clock>,
    cancels: Cancels,
    schemas: Schemas,
    trouble: Trouble,
    started: Instant,
}

/// One delivered call.
struct Work<'a> {
    key: &'a SessionKey,
    call: &'a CallAttempt,
    item: &'a ToolItem,
    delivered: u64,
    /// Whether somebody else may have begun with it.
    again: bool,
}

impl Calls {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, cancels: Cancels, schemas: Schemas, trouble: Trouble) -> Self {
        Self { bus, clock, cancels, schemas, trouble, started: Instant::now() }
    }

    async fn settle(&self, delivery: &Delivery) -> Result<Settle, BusError> {
        let bad = |reason: &str| Settle::Reject { code: ErrorCode::BadRequest, reason: reason.to_owned() };
        let Some(subject) = subject::parse_item(&delivery.subject) else { return Ok(bad("not a tool call's subject")) };
        let (key, call) = (&subject.key, &subject.call);
        let body = self.bus.load_body(Objects::Work, delivery.payload.clone(), delivery.stored_at).await?;
        let item: ToolItem = match serde_json::from_slice(&body) {
            Ok(item) => item,
            Err(error) => return Ok(bad(&format!("not a tool call: {error}"))),
        };
        if subject.tool.as_ref() != Some(&item.tool) || call.call != item.meta.call || call.attempt != item.meta.attempt
        {
            return Ok(bad("subject and body name different calls"));
        }
        let work = Work { key, call, item: &item, delivered: delivery.delivered, again: delivery.may_have_been_held() };
        let place = self.cancels.enter(key, call);
        if let Some(settle) = self.not_now(&work).await? {
            return Ok(settle);
        }
        if delivery.may_have_been_held() {
            if self.bus.call_is_held(key, &call.call).await? {
                let deliveries = u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
                return Ok(Settle::Postpone(HELD_AGAIN_AFTER.saturating_mul(deliveries)));
            }
            // Its result may wait for the loop.
            for settled in [true, false] {
                if self.bus.waits(key, &[Verb::ProvideToolResult], &command_id(call, settled)?).await? {
                    return Ok(Settle::Done);
                }
            }
            // That took a while: the log is asked again.
            if let Some(settle) = self.not_now(&work).await? {
                return Ok(settle);
            }
        }
        let _held = self.bus.hold_call(key, &call.call);
        let attempt = format!("{}.{}", call.attempt, delivery.delivered);
        let span =
            telemetry::span::execute_tool(key.session.as_str(), call.call.as_str(), &attempt, item.tool.as_str());
        if let Some(parent) = bus::transport::header(&delivery.headers, contract::tool::header::TRACEPARENT) {
            telemetry::trace::set_parent(&span, parent);
        }
        self.execute(&work, &place.token).instrument(span).await
    }

    /// Asks the log; a settlement when the call must not start now.
    async fn not_now(&self, work: &Work<'_>) -> Result<Option<Settle>, BusError> {
        Ok(match self.bus.call_status(work.key, work.call, work.item.meta.slot).await? {
            CallStatus::Open => None,
            CallStatus::Closed => Some(Settle::Done),
            // The log was put back to an older state: nobody will ever open this call.
            CallStatus::NotVisible if work.delivered >= limits::UNSEEN_DELIVERIES_MAX => Some(Settle::Done),
            // A call that waits must not sit in a place.
            CallStatus::NotVisible | CallStatus::Paused => Some(Settle::Postpone(again_after(work.delivered))),
        })
    }

    async fn execute(&self, work: &Work<'_>, cancelled: &CancellationToken) -> Result<Settle, BusError> {
        let began = Instant::now();
        let Some(answer) = self.answer(work, cancelled).await? else {
            tracing::info!(session = %work.key, call = %work.call, "no longer wanted");
            return Ok(Settle::Done);
        };
        let answer = if answer.outcome == Outcome::Unknown && work.item.effect == EffectClass::Reconcilable {
            match self.reconcile(work, answer, cancelled).await {
                Some(answer) => answer,
                None => return Ok(Settle::Done),
            }
        } else {
            answer
        };
        let duration = began.elapsed();
        let (tool, outcome) = (work.item.tool.as_str(), word(answer.outcome));
        let span = tracing::Span::current();
        telemetry::span::outcome(&span, outcome);
        if let Some(code) = &answer.code {
            telemetry::span::failed(&span, code.as_str());
        }
        telemetry::metric::tool(tool, outcome, duration);
        tracing::info!(session = %work.key, call = %work.call, tool, outcome, took_ms = duration.as_millis(), "tool call");
        let (content, whole) = self.shown(work, answer.content).await;
        let meta = &work.item.meta;
        let result = ToolResult {
            meta: ResultMeta { v: meta.v, slot: meta.slot, call: meta.call.clone(), attempt: meta.attempt },
            outcome: answer.outcome,
            content,
            code: answer.code,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            whole,
            used: None,
        };
        self.report(work.key, work.call, &result).await
    }

    /// Claims a call that takes effect; whether another delivery has claimed it before, and so may have sent it.
    async fn was_claimed(&self, work: &Work<'_>) -> Result<bool, BusError> {
        if !work.item.effect.takes_effect() {
            return Ok(false);
        }
        // An owner of its own for each delivery: what an earlier one did is unknown, also to the same process. Its number
        // would not do, since an item that is published again counts from 1 again.
        let owner = uuid::Uuid::now_v7().simple().to_string();
        let origin = work.item.origin();
        // Executors of an older version know the second name only. Of a call that comes for the first time it may be an earlier session's.
        let parts = [origin.as_str()];
        let (claimed, by_older) = futures::try_join!(self.claim(work, &parts, &owner), self.claim(work, &[], &owner))?;
        Ok(claimed == Claim::Theirs || work.again && by_older == Claim::Theirs)
    }

    /// Asks the log again where it took long since it was asked: `false` when nobody wants the call any more. In a pause it is waited
    /// here, since the call is claimed: to its next delivery it would count as sent.
    async fn may_begin(&self, work: &Work<'_>, asked: Instant, cancelled: &CancellationToken) -> bool {
        if asked.elapsed() < ASKED_AGAIN_AFTER {
            return true;
        }
        loop {
            match self.bus.call_status(work.key, work.call, work.item.meta.slot).await {
                Ok(CallStatus::Open) => return true,
                Ok(CallStatus::Closed) => return false,
                Ok(CallStatus::Paused | CallStatus::NotVisible) => {}
                Err(error) => tracing::debug!(session = %work.key, call = %work.call, %error, "the log is not there"),
            }
            tokio::select! {
                () = cancelled.cancelled() => return true,
                () = tokio::time::sleep(AGAIN_AFTER) => {}
            }
        }
    }

    /// Claims for one owner, however long the bus is away: to an owner of its own, the next delivery's, a claim that this one may have
    /// made would be another one's, and the call would count as sent.
    async fn claim(&self, work: &Work<'_>, parts: &[&str], owner: &str) -> Result<Claim, BusError> {
        loop {
            match self.bus.claim_part(work.key, &work.call.call, parts, owner).await {
                Err(error) if !error.is_final() => {
                    tracing::warn!(session = %work.key, call = %work.call, %error, "call not claimed yet");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                claimed => return claimed,
            }
        }
    }

    /// Everything from the arguments to the answer; `None` when nobody wants one any more.
    async fn answer(
        &self,
        work: &Work<'_>,
        cancelled: &tokio_util::sync::CancellationToken,
    ) -> Result<Option<Answer>, BusError> {
        let (item, asked) = (work.item, Instant::now());
        let tool = (work.key.tenant.clone(), item.tool.clone());
        // Of what comes again it must be known first whether it was sent before: nothing is said of that otherwise.
        let mut sent_before = work.again && self.was_claimed(work).await?;
        // Until then nothing is known of any tool.
        self.schemas.wait_for_catalogue(CATALOGUE_WITHIN).await;
        let checked = match self.schemas.check_small(&tool, &item.arguments) {
            Some(checked) => checked,
            None => self.check_large(work, &tool).await?,
        };
        if let Err(Refusal { code, text }) = checked {
            // The tool may have had another schema then.
            return Ok(Some(if sent_before {
                unknown(&format!("{LOST}, and the call cannot be made again: {text}"))
            } else {
                Answer::error(code, text)
            }));
        }
        let (now, left) = (Instant::now(), item.meta.deadline.since(self.clock.now()));
        // Who began with it may have been given more time since, and another try needs its own: the loop has the last word.
        let timeout = if work.again { left.max(Duration::from_millis(item.timeout_ms)) } else { left };
        if timeout.is_zero() {
            return Ok(Some(if sent_before {
                unknown(&format!("{LOST}, and its deadline has passed"))
            } else {
                let text = "the deadline had passed before the tool could be called; it was not called";
                Answer::new(Outcome::Timeout, text)
            }));
        }
        if !work.again {
            sent_before = self.was_claimed(work).await?;
        }
        if !self.may_begin(work, asked, cancelled).await {
            return Ok(None);
        }
        if sent_before && !item.effect.may_repeat() {
            return Ok(Some(unknown(LOST)));
        }
        let Work { key, call, delivered, .. } = *work;
        let deadlines = Deadlines { deadline: now + timeout, known: now + left };
        // A tool that was never there will not come back. But it was in the catalogue when its session looked: when a whole
        // fleet starts anew, its client may come later than the first calls.
        let trouble = self.schemas.knows(&tool).then_some(&self.trouble);
        let expected_until = (!self.schemas.has_answered(&tool)).then(|| self.started + BACK_WITHIN);
        let (bus, clock) = (&self.bus, &*self.clock);
        let dispatch = Dispatch {
            bus,
            clock,
            key,
            call,
            item,
            delivered,
            sent_before,
            timeout,
            deadlines,
            trouble,
            expected_until,
            cancelled,
        };
        Ok(dispatch.run().await)
    }

    /// Checks arguments that are not small. It is noted in the bus while it lasts: an executor that is lost meanwhile, by
    /// whatever the arguments did to it, is the only one.
    async fn check_large(&self, work: &Work<'_>, tool: &(TenantId, ToolName)) -> Result<Result<(), Refusal>, BusError> {
        let Work { key, call, item, .. } = *work;
        let (origin, attempt) = (item.origin(), format!("check-{}", call.attempt));
        let parts = [origin.as_str(), attempt.as_str()];
        let owner = uuid::Uuid::now_v7().simple().to_string();
        let mut claim = self.claim(work, &parts, &owner).await?;
        if claim == Claim::Theirs {
            // The item may have come twice, and another executor be at it: by then it has an end.
            tokio::time::sleep(limits::VALIDATION_MAX + AGAIN_AFTER).await;
            claim = self.claim(work, &parts, &owner).await?;
        }
        match claim {
            Claim::Mine => {}
            Claim::Theirs => {
                let text = "an executor was lost while it checked these arguments; they are not checked again, and the tool \
                            was not called";
                return Ok(Err(Refusal::new(ErrorCode::Poison, text)));
            }
        }
        let checked = self.schemas.check(tool, &item.arguments).await;
        while let Err(error) = self.bus.release_part(key, &call.call, &parts).await {
            tracing::warn!(session = %key, %call, %error, "the mark of a check is not taken away yet");
            if error.is_final() {
                break;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(checked)
    }

    /// What the model reads of a result, and where the whole of it is when that is not all.
    async fn shown(&self, work: &Work<'_>, content: String) -> (String, Option<FullResultRef>) {
        let max = work.item.max_output;
        if content.len() <= max {
            return (content, None);
        }
        let SessionKey { tenant, session } = work.key;
        let call = &work.call.call;
        let object = FullResultRef::id(tenant, session, work.item.session_started, call);
        let kept = content.floor_char_boundary(limits::WHOLE_RESULT_BYTES_MAX);
        let body = Bytes::copy_from_slice(&content.as_bytes()[..kept]);
        let whole = match self.bus.transport().put_object(Objects::Results, &object, body).await {
            Ok(()) => Some(FullResultRef { object, bytes: kept as u64 }),
            Err(error) => {
                tracing::warn!(session = %work.key, %call, %error, "the whole result is not kept");
                None
            }
        };
        let reader = ToolName::new(crate::serve::READ_RESULT).ok();
        let readable = reader.is_some_and(|reader| self.schemas.knows(&(tenant.clone(), reader)));
        let call = (whole.is_some() && readable).then_some(call.as_str());
        (reply::cut(&content, max, call), whole)
    }

    /// Stores the result as an input of the session. Its id is the same for every delivery, so that it counts once; that
    /// nothing is known has an id of its own, so that what is known later still counts.
    ///
    /// The item is held until the result is stored: whoever had it next would have to say that nobody knows what this call
    /// did. So there are at most as many unstored results as calls at the same time, and each is within its tool's limit.
    async fn report(&self, key: &SessionKey, call: &CallAttempt, result: &ToolResult) -> Result<Settle, BusError> {
        let body = serde_json::to_vec(result).map_err(|error| BusError::Malformed(error.to_string()))?;
        let settled = !matches!(result.outcome, Outcome::Unknown | Outcome::Timeout);
        let (id, body) = (command_id(call, settled)?, Bytes::from(body));
        loop {
            match self.bus.send_control(key, Verb::ProvideToolResult, &id, body.clone()).await {
                Ok(_) => return Ok(Settle::Done),
                Err(error) if error.is_final() => {
                    return Ok(Settle::Reject { code: error.code(), reason: error.to_string() });
                }
                Err(error) => {
                    tracing::warn!(session = %key, %call, %error, "result not stored yet");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }
}

#[async_trait]
impl Handler for Calls {
    async fn handle(&self, delivery: &Delivery) -> Settle {
        match self.settle(delivery).await {
            Ok(settle) => settle,
            Err(BusError::Malformed(reason)) => Settle::Reject { code: ErrorCode::BadRequest, reason },
            Err(error) => {
                tracing::warn!(subject = delivery.subject, %error, "tool call handed back");
                // The bus is away: the call is none the worse for it, however long that takes.
                Settle::Postpone(again_after(delivery.delivered))
            }
        }
    }
}

/// The pause before an item that cannot start now comes again; it doubles with its deliveries.
fn again_after(delivered: u64) -> Duration {
    let doublings = u32::try_from(delivered.saturating_sub(1).min(8)).unwrap_or(8);
    AGAIN_AFTER.saturating_mul(1 << doublings).min(AGAIN_AFTER_MAX)
}

fn command_id(call: &CallAttempt, settled: bool) -> Result<CommandId, BusError> {
    let end = if settled { "" } else { "-unknown" };
    let text = format!("{}-{}{end}", call.call, call.attempt);
    // A call id may fill a command id alone.
    let id = CommandId::new(&text).or_else(|_| CommandId::new(&contract::tool::sha256_hex(text.as_bytes())));
    id.map_err(|error| BusError::Malformed(error.to_string()))
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Error => "error",
        Outcome::Denied => "denied",
        Outcome::Timeout => "timeout",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown => "unknown",
    }
}
