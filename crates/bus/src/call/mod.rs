//! Calls of models and tools: what a worker does with a delivered item before it starts a call, and with its result
//! after.
//!
//! The log says whether a call may start, the worker that holds a call says so when it is asked, and the control stream
//! says whether its result waits already. Gateways and executors differ only in what they do in between.

mod cancels;
mod status;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::backoff::Backoff;
use contract::command::Verb;
use contract::fleet::{OfferedDelivery, ResultAnswer};
use contract::ids::CallAttempt;
use contract::limits::{INLINE_BYTES_MAX, UNSEEN_DELIVERIES_MAX, WORKER_CHECK_EVERY};
use contract::model::{ItemMeta, ResultMeta};
use contract::repair::RepairReply;
use contract::streams::{Objects, Queue};
use contract::subject::{self, ItemSubject, SessionKey};
use contract::tool::header::REPLICA;
use contract::tool::sha256_hex;
use contract::trace::TraceContext;
use contract::{Coded as _, CommandId, ErrorCode, ToolName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use telemetry::names::{attr, span};
use telemetry::trace::{FinishedSpan, SpanKind};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::headers::{trace_context, trace_headers};
use crate::json::parse;
use crate::rpc::{HeldCall, Holder};
use crate::transport::header;
use crate::work::call_of;
use crate::{Bus, BusError, CallNote, Delivery, Handler, Hold, SendOutcome, Settle, Worker};
use cancels::Cancels;
pub use status::CallStatus;

/// Timeout of a request that sends a result to an orchestrator, which commits it. The result waits there for a permit
/// for up to half a second.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Pause between two tries to store a result.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before an item comes again whose holder may be frozen.
const SILENT_PAUSE: Duration = Duration::from_secs(2);
/// Pauses before an item that cannot start now comes again.
const NOT_NOW: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));

/// A call that may start: the log has it as open, no other worker holds it, and no result of it waits.
#[derive(Debug)]
pub struct OpenCall<I> {
    /// The session of the call.
    pub key: SessionKey,
    /// Id of the call and number of the attempt.
    pub call: CallAttempt,
    /// Work item of the attempt.
    pub item: I,
    /// Bytes of the item.
    pub bytes: usize,
    /// Number of the delivery of the item, from 1.
    pub delivered: u64,
    /// Whether another worker may have begun with it.
    pub may_have_been_held: bool,
    /// The span of this attempt of the call, which the replica sends that ends the turn; none where nothing is traced.
    pub trace: Option<TraceContext>,
    /// Cancelled when the loop cancels the call.
    pub cancelled: CancellationToken,
    /// Note for people who ask about the call.
    pub note: CallNote,
}

impl<I> OpenCall<I> {
    /// The attempt with its delivery, as people see it: `2.1`.
    pub fn attempt(&self) -> String {
        format!("{}.{}", self.call.attempt, self.delivered)
    }
}

/// The result of a call, as it is sent to the session.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// The verb under which it is sent.
    pub verb: Verb,
    /// The same for each delivery of the item, so that a result counts once.
    pub id: CommandId,
    /// The id under which it is stored where a result waits under `id` already, which may be that of another run; none
    /// where it is left out then.
    pub beside: Option<CommandId>,
    /// The body of the input, as JSON.
    pub body: Bytes,
}

/// The part of a worker that differs between model calls and tool calls.
#[async_trait]
pub trait CallHandler: Send + Sync + 'static {
    /// Type of the work item.
    type Item: DeserializeOwned + Send + Sync + 'static;

    /// Name of the service, as spans say it: `gateway` or `executor`.
    const WORKER: &'static str;

    /// The verbs under which results are sent.
    const RESULTS: &'static [Verb];

    /// The ids of an item.
    fn meta(item: &Self::Item) -> &ItemMeta;

    /// The id of the commit that opened the call of an item; empty of older orchestrators.
    fn opened_by(item: &Self::Item) -> &str;

    /// The tool that an item is for; none of a model call.
    fn tool(item: &Self::Item) -> Option<&ToolName>;

    /// The ids under which a result of a call may wait.
    fn result_ids(call: &CallAttempt) -> Result<Vec<CommandId>, BusError>;

    /// Runs a call. `None`: the result is not needed any more. An error: nothing was started, and the call is retried
    /// later.
    async fn run(&self, call: OpenCall<Self::Item>) -> Result<Option<CallResult>, BusError>;

    /// A call is not made again that may have run at a worker that died.
    async fn leave(&self, call: OpenCall<Self::Item>) -> Result<(), BusError> {
        drop(call);
        Ok(())
    }

    /// The result of an item that cannot be read.
    fn unreadable(&self, call: &CallAttempt, meta: ResultMeta, why: &str) -> Result<CallResult, BusError>;
}

/// Takes the items of one queue of calls until it is drained.
#[derive(Debug)]
pub struct CallWorker {
    worker: Worker,
    /// Receives cancels until this is dropped.
    _cancels: JoinSet<()>,
}

impl CallWorker {
    /// Starts taking calls, at most `concurrency` at the same time.
    pub fn start<H: CallHandler>(bus: Bus, queue: Queue, concurrency: usize, handler: H) -> Self {
        let cancels = Cancels::default();
        let mut listening = JoinSet::new();
        listening.spawn(cancels.clone().listen(bus.clone()));
        let calls = Calls { bus: bus.clone(), queue, cancels, handler };
        Self { worker: Worker::start(bus, queue, concurrency, Arc::new(calls)), _cancels: listening }
    }

    /// Stops taking calls, lets those that run end for up to `timeout`, and hands the others back.
    pub async fn drain(self, timeout: Duration) {
        self.worker.drain(timeout).await;
    }
}

/// Reason why a call must not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotNow {
    /// Its result is not needed any more, or waits already.
    Closed,
    /// Its session is paused: its item is published again at the resume.
    Parked,
    /// It may start later.
    Later,
}

struct Calls<H> {
    bus: Bus,
    queue: Queue,
    cancels: Cancels,
    handler: H,
}

#[async_trait]
impl<H: CallHandler> Handler for Calls<H> {
    async fn handle(&self, delivery: &Delivery, hold: &Hold) -> Settle {
        let Some(subject) = subject::parse_item(&delivery.subject) else {
            return reject("the subject is not that of a call");
        };
        match self.process(delivery, hold, subject).await {
            Ok(settle) => settle,
            Err(BusError::Malformed(reason)) => Settle::Reject { code: ErrorCode::BadRequest, reason },
            Err(error) if error.is_final() => Settle::Reject { code: error.code(), reason: error.to_string() },
            Err(error) => {
                tracing::warn!(subject = delivery.subject, %error, "call handed back");
                // The bus is away, or a bucket of it: the call is none the worse for it, however long that takes.
                Settle::Retry(pause(delivery.delivered))
            }
        }
    }
}

impl<H: CallHandler> Calls<H> {
    async fn process(&self, delivery: &Delivery, hold: &Hold, subject: ItemSubject) -> Result<Settle, BusError> {
        let body = self.bus.load_body(Objects::Work, delivery.payload.clone(), delivery.stored_at).await?;
        let item: H::Item = match serde_json::from_slice(&body) {
            Ok(item) => item,
            Err(error) => return self.unreadable(&subject, &body, &error).await,
        };
        let ItemSubject { key, call, tool, .. } = subject;
        let meta = H::meta(&item);
        if tool.as_ref() != H::tool(&item) || call != call_of(meta) {
            return Ok(reject("the subject and the body name different calls"));
        }
        let slot = meta.slot;
        // Before the log is asked: then no cancel is missed.
        let registered = self.cancels.enter(&key, &call);
        let open = OpenCall {
            key: key.clone(),
            call: call.clone(),
            item,
            bytes: body.len(),
            delivered: delivery.delivered,
            may_have_been_held: delivery.may_have_been_held(),
            trace: trace_context(&delivery.headers).map(|turn| turn.call(&call)),
            cancelled: registered.token.clone(),
            note: CallNote::default(),
        };
        drop(body);
        if let Some(not_now) = self.not_now(&open, slot).await? {
            return self.settle(open, not_now).await;
        }
        if open.may_have_been_held {
            if let Some(pause) = delivery.ask_after() {
                // Not in a place of this worker.
                return Ok(Settle::Retry(pause));
            }
            match self.ask_holder(&open, delivery).await? {
                Holder::Took => return Ok(Settle::Leave),
                Holder::Silent => return Ok(Settle::Retry(SILENT_PAUSE)),
                Holder::Nobody => {}
            }
            for id in H::result_ids(&call)? {
                if self.bus.waits(&key, H::RESULTS, &id).await? {
                    return self.settle(open, NotNow::Closed).await;
                }
            }
            // That took a while: the log is asked again.
            if let Some(not_now) = self.not_now(&open, slot).await? {
                return self.settle(open, not_now).await;
            }
        }
        if open.may_have_been_held {
            Self::close_earlier(&open, delivery);
        }
        // The call counts as held until its result is stored: even without a stored result it may have had its effect.
        let _held = self.bus.hold_call(&key, Self::held_call(&open, hold));
        let trace = open.trace;
        let replica = header(&delivery.headers, REPLICA).and_then(|replica| CommandId::new(replica).ok());
        let settled = async {
            Ok(match self.handler.run(open).await? {
                Some(result) => match &replica {
                    Some(replica) if self.send_result(replica, &key, &result).await => Settle::Done,
                    Some(_) | None => self.store_result(&key, &call, result).await,
                },
                None => Settle::Done,
            })
        };
        telemetry::trace::scope(trace, settled).await
    }

    fn held_call(open: &OpenCall<H::Item>, hold: &Hold) -> HeldCall {
        HeldCall {
            call: open.call.clone(),
            opened_by: H::opened_by(&open.item).to_owned(),
            delivery: open.delivered,
            hold: hold.clone(),
            note: open.note.clone(),
            since: Instant::now(),
        }
    }

    /// Sends a span for the deliveries before this one: a worker that died could not send the span of its own.
    fn close_earlier(open: &OpenCall<H::Item>, delivery: &Delivery) {
        let Some(attempt) = open.trace.filter(|_| open.delivered > 1) else { return };
        let stored = delivery.stored_at.as_millis();
        let waited = u64::try_from(delivery.waited.as_millis()).unwrap_or(u64::MAX);
        let earlier = open.delivered - 1;
        telemetry::trace::send(vec![FinishedSpan {
            context: attempt.delivery(earlier),
            parent: Some(attempt),
            name: span::REDELIVERED.to_owned(),
            kind: SpanKind::Internal,
            times: (stored, stored.saturating_add(waited)),
            attributes: vec![
                (attr::CONVERSATION, open.key.session.as_str().into()),
                (attr::CALL, open.call.call.as_str().into()),
                (attr::ATTEMPT, open.call.attempt.into()),
                (attr::DELIVERY, earlier.into()),
                (attr::CLOSED_BY, H::WORKER.into()),
            ],
            links: Vec::new(),
            error: None,
        }]);
    }

    /// Offers the delivery to another worker that may run the call.
    async fn ask_holder(&self, open: &OpenCall<H::Item>, delivery: &Delivery) -> Result<Holder, BusError> {
        let Delivery { subject, seq, delivered, stored_at, ack, .. } = delivery.without_content();
        let (attempt, opened_by) = (open.call.attempt, H::opened_by(&open.item).to_owned());
        let offered = OfferedDelivery { attempt, opened_by, subject, seq, delivered, stored_at, ack };
        self.bus.offer_to_holder(&open.key, &open.call.call, &offered).await
    }

    /// Asks the log whether the call may start; why it must not.
    async fn not_now(&self, open: &OpenCall<H::Item>, slot: u64) -> Result<Option<NotNow>, BusError> {
        Ok(match self.bus.call_status(&open.key, &open.call, slot).await? {
            CallStatus::Open => None,
            CallStatus::Closed => Some(NotNow::Closed),
            CallStatus::Parked => Some(NotNow::Parked),
            // The log was put back to an older state, in which this call is never opened.
            CallStatus::NotVisible if open.delivered >= UNSEEN_DELIVERIES_MAX => Some(NotNow::Closed),
            // A call that waits must not sit in a place.
            CallStatus::NotVisible | CallStatus::Paused => Some(NotNow::Later),
        })
    }

    /// A call must not start now. One that ran at a worker that died is not made again.
    async fn settle(&self, open: OpenCall<H::Item>, not_now: NotNow) -> Result<Settle, BusError> {
        match not_now {
            NotNow::Later => return Ok(Settle::Retry(pause(open.delivered))),
            NotNow::Closed if open.may_have_been_held => {
                if !self.is_session_repaired(&open.key).await && open.delivered < UNSEEN_DELIVERIES_MAX {
                    return Ok(Settle::Retry(pause(open.delivered)));
                }
                self.handler.leave(open).await?;
            }
            NotNow::Closed | NotNow::Parked => {}
        }
        Ok(Settle::Done)
    }

    /// Lets an orchestrator perform what the session is owed, before the item goes: its result is in the log, but the
    /// orchestrator may have died before it performed the effects, and the worker before it stored the result again.
    /// Whether one did.
    async fn is_session_repaired(&self, key: &SessionKey) -> bool {
        let why = match self.bus.repair_session(key).await {
            Ok(RepairReply::Repaired(_)) => return true,
            Ok(RepairReply::Refused { code, message }) => format!("{code}: {message}"),
            Err(error) => error.to_string(),
        };
        tracing::warn!(session = %key, why, "no orchestrator looks after the session of a closed call");
        false
    }

    /// Sends a result to the orchestrator that asked for it; whether the log has it now. Where this says no, the log may
    /// have it all the same, and then a stored result of the same id counts for nothing.
    async fn send_result(&self, replica: &CommandId, key: &SessionKey, result: &CallResult) -> bool {
        let CallResult { verb, id, body, .. } = result;
        if body.len() > INLINE_BYTES_MAX {
            return false;
        }
        let (bus, subject) = (self.bus.transport(), subject::result(key, *verb, id, replica));
        match bus.request(&subject, trace_headers(), body.clone(), ANSWER_MAX).await {
            Ok(answer) => matches!(parse(&answer.payload), Ok(ResultAnswer::InLog)),
            Err(error) => {
                tracing::debug!(session = %key, %id, %error, "the result has to be stored");
                false
            }
        }
    }

    /// Stores the result before the item is acknowledged. The item is held until then, however long the bus is away:
    /// the next worker would repeat a call that was paid for, or could not tell what a tool did.
    async fn store_result(&self, key: &SessionKey, call: &CallAttempt, result: CallResult) -> Settle {
        telemetry::metric::result_stored(self.queue.durable());
        let CallResult { verb, mut id, beside, body } = result;
        loop {
            match self.bus.send_control(key, verb, &id, body.clone()).await {
                Ok(SendOutcome::Stored(_)) => return Settle::Done,
                // What waits may be the result of another run. Should it be this one, it counts once.
                Ok(SendOutcome::Duplicate) => match &beside {
                    Some(beside) if *beside != id => id = beside.clone(),
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

    /// Reports an item that cannot be read to the loop, and rejects it, which keeps it as a dead letter.
    async fn unreadable(
        &self,
        subject: &ItemSubject,
        body: &[u8],
        error: &serde_json::Error,
    ) -> Result<Settle, BusError> {
        #[derive(Deserialize)]
        struct Ids {
            meta: ItemMeta,
            #[serde(default)]
            opened_by: String,
        }
        let ids = serde_json::from_slice::<Ids>(body).ok();
        let (slot, opened_by) = ids.map(|ids| (ids.meta.slot, ids.opened_by)).unwrap_or_default();
        let CallAttempt { call, attempt } = subject.call.clone();
        let meta = ResultMeta { v: contract::commit::VERSION, slot, call, attempt, opened_by };
        let why = format!("the call cannot be read at column {}", error.column());
        let result = self.handler.unreadable(&subject.call, meta, &why)?;
        match self.store_result(&subject.key, &subject.call, result).await {
            Settle::Done => Ok(reject(&why)),
            other @ (Settle::Retry(_) | Settle::Leave | Settle::Reject { .. }) => Ok(other),
        }
    }
}

impl Bus {
    /// Returns when the log no longer lists a call as open. Reads that fail or are stale prove nothing.
    pub async fn until_closed(&self, key: &SessionKey, call: &CallAttempt, slot: u64) {
        loop {
            tokio::time::sleep(WORKER_CHECK_EVERY).await;
            match self.is_closed(key, call, slot).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(session = %key, %call, %error, "the log cannot be read"),
            }
        }
    }
}

/// The id of a result of an attempt: the same however often its item is delivered. `end` tells results of one attempt
/// apart.
pub fn result_id(call: &CallAttempt, end: &str) -> Result<CommandId, BusError> {
    let text = format!("{}-{}{end}", call.call, call.attempt);
    // A call id may fill a command id alone.
    let id = CommandId::new(&text).or_else(|_| CommandId::new(&sha256_hex(text.as_bytes())));
    id.map_err(|error| BusError::Malformed(error.to_string()))
}

fn reject(reason: &str) -> Settle {
    Settle::Reject { code: ErrorCode::BadRequest, reason: reason.to_owned() }
}

/// Pause before the redelivery of a call that cannot start now, because its session is paused or the bus is away. It is
/// short at first, so that the call starts soon after a brief wait.
fn pause(delivered: u64) -> Duration {
    NOT_NOW.pause(u32::try_from(delivered.saturating_sub(1)).unwrap_or(u32::MAX))
}
