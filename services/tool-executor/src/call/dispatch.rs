//! Dispatch of one call: the request to the tool, and everything that can end the call.

use std::pin::pin;
use std::time::Duration;

use bus::call::OpenCall;
use bus::{Bus, BusError, CallStatus, Headers, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::{self, SessionKey};
use contract::tool::{Outcome, ToolItem, header};
use contract::{ErrorCode, limits};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::call_deadline::{CallDeadline, Deadlines, REPLICA_PING_EVERY};
use super::replica_check::{Loss, ReplicaAnswer, ReplicaCheck, ask_replicas};
use super::tool_reply::{ToolAnswer, ToolReply, parse_reply, unknown_answer};
use crate::Clock;
use crate::connection_health::ConnectionHealth;

/// Times a repeatable call is sent again after its answer may have been lost.
const RESENDS_MAX: u32 = 3;
/// Pause before a call is sent again.
const RESEND_PAUSE: Duration = Duration::from_millis(200);

/// A call that may be dispatched.
pub(crate) struct Dispatch<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) work: &'a OpenCall<ToolItem>,
    /// Whether an executor that was lost may have sent the call, so that it may have taken effect.
    pub(crate) sent_before: bool,
    /// Time that the tool has, counted from the dispatch.
    pub(crate) timeout: Duration,
    pub(crate) deadlines: Deadlines,
    /// Decides how long to wait for a tool that is in the catalogue but has no replica now.
    pub(crate) health: Option<&'a ConnectionHealth>,
    /// Wait for the tool until then in any case: this process is too young to know whether the tool exists.
    pub(crate) expected_until: Option<Instant>,
}

/// Reason why the wait for a reply ended.
enum WaitOutcome {
    Replied(ToolAnswer),
    /// No replica subscribes to the tool's subject.
    NoTool,
    Lost(Loss),
    TimedOut,
    Cancelled,
    /// The call is no longer open in the log.
    Closed,
}

impl Dispatch<'_> {
    /// Calls the tool. `None`: the session no longer wants an answer.
    pub(crate) async fn run(&self) -> Option<ToolAnswer> {
        let mut call_deadline = CallDeadline::new(self.bus, self.clock, self.work, self.deadlines);
        let mut resends = 0;
        let (mut missed, mut has_lost_reply) = (None, false);
        let mut replies = Replies::default();
        loop {
            if self.work.cancelled.is_cancelled() {
                return Some(self.cancel(resends > 0 || self.sent_before).await);
            }
            let outcome = match self.send().await {
                Ok(subscription) => {
                    replies.add(subscription);
                    self.wait(&mut replies, &mut call_deadline).await
                }
                Err(BusError::NoResponders { .. }) => WaitOutcome::NoTool,
                Err(error @ BusError::TooLarge { .. }) => WaitOutcome::Replied(ToolAnswer::error(
                    ErrorCode::TooLarge,
                    format!("the arguments are too large: {error}"),
                )),
                Err(error) => {
                    tracing::warn!(session = %self.work.key, call = %self.work.call, %error, "request to tool failed");
                    WaitOutcome::Lost(Loss::Connection)
                }
            };
            let loss = match outcome {
                WaitOutcome::Replied(answer) => return Some(answer),
                // The server reports that no replica got the call, so every effect class may be sent again.
                WaitOutcome::NoTool if self.can_come_back(&mut missed, call_deadline.deadline()) => {
                    match self.wait_until_open(call_deadline.deadline()).await {
                        Some(true) => continue,
                        Some(false) => return Some(self.no_tool_answer(resends)),
                        None => return None,
                    }
                }
                WaitOutcome::NoTool => return Some(self.no_tool_answer(resends)),
                WaitOutcome::Lost(loss) => loss,
                WaitOutcome::TimedOut => {
                    self.notify_cancel().await;
                    return Some(self.timeout_answer(&call_deadline));
                }
                WaitOutcome::Cancelled => return Some(self.cancel(true).await),
                WaitOutcome::Closed => {
                    self.notify_cancel().await;
                    return None;
                }
            };
            let loses_reply = loss == Loss::NotHeld && call_deadline.has_progress();
            // A second reply that is lost is one that cannot be delivered.
            if !self.is_repeatable() || resends == RESENDS_MAX || loses_reply && has_lost_reply {
                return Some(self.lost_answer(loss, resends));
            }
            tracing::info!(session = %self.work.key, call = %self.work.call, ?loss, "the call is lost; sent again");
            resends += 1;
            has_lost_reply |= loses_reply;
            // While a session is paused nothing is sent, a repeated call included.
            match self.wait_until_open(call_deadline.deadline()).await {
                Some(true) => {}
                Some(false) => return Some(self.timeout_answer(&call_deadline)),
                None => return None,
            }
            match loss {
                Loss::Connection => call_deadline.forget_replica(),
                Loss::NotHeld | Loss::Replica => call_deadline.restart(),
            }
        }
    }

    /// Whether to wait for a tool that has had no replica since `missed`.
    fn can_come_back(&self, missed: &mut Option<Instant>, deadline: Instant) -> bool {
        let now = Instant::now();
        let missed = *missed.get_or_insert(now);
        let until = self.health.map_or(missed, |health| health.back_until(missed));
        let until = self.expected_until.map_or(until, |expected| until.max(expected));
        !self.work.cancelled.is_cancelled() && now < until.min(deadline)
    }

    /// Pauses, then asks the log whether the call is still open: a stop or a pause may have been published while its
    /// message to this process was lost. `None`: the session no longer wants the call. `Some(false)`: the deadline
    /// passed first.
    async fn wait_until_open(&self, deadline: Instant) -> Option<bool> {
        let mut pause = RESEND_PAUSE;
        loop {
            tokio::select! {
                () = self.work.cancelled.cancelled() => return Some(true),
                () = sleep_until(deadline) => return Some(false),
                () = sleep(pause) => {}
            }
            match self.bus.call_status(&self.work.key, &self.work.call, self.work.item.meta.slot).await {
                Ok(CallStatus::Open) => return Some(true),
                Ok(CallStatus::Closed) => return None,
                Ok(CallStatus::Paused | CallStatus::Parked | CallStatus::NotVisible) => {
                    pause = limits::WORKER_CHECK_EVERY;
                }
                // While the log is unavailable a result could not be stored either.
                Err(error) => {
                    tracing::debug!(session = %self.work.key, call = %self.work.call, %error, "the log cannot be read");
                }
            }
        }
    }

    async fn send(&self) -> Result<Subscription, BusError> {
        let subject = subject::tool(&self.work.key.tenant, &self.work.item.tool);
        let body = Bytes::copy_from_slice(self.work.item.arguments.get().as_bytes());
        self.bus.transport().request_many(&subject, self.build_headers(), body).await
    }

    async fn wait(&self, replies: &mut Replies, call_deadline: &mut CallDeadline<'_>) -> WaitOutcome {
        let OpenCall { key, call, item, .. } = self.work;
        let mut closed = pin!(self.bus.until_closed(key, call, item.meta.slot));
        let mut ping = interval_at(Instant::now() + REPLICA_PING_EVERY, REPLICA_PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_received = false;
        let mut check = ReplicaCheck::new(self.is_repeatable());
        let mut query: Option<BoxFuture<'_, ReplicaAnswer>> = None;
        loop {
            let (deadline, next_extension_at) = (call_deadline.deadline(), call_deadline.next_extension_at());
            let next_check_at = check.next_check_at().filter(|_| query.is_none());
            tokio::select! {
                biased;
                event = replies.next() => match event {
                    Some(SubscriptionEvent::Message(message)) => {
                        has_received = true;
                        match parse_reply(&message, self.work.item.effect) {
                            ToolReply::Final(answer) => return WaitOutcome::Replied(answer),
                            ToolReply::Progress { text, instance } => {
                                call_deadline.record_progress(text, instance.as_deref()).await;
                                check.record_progress();
                            }
                        }
                    }
                    Some(SubscriptionEvent::Gap) => {
                        has_received = true;
                        // The answer to a call that must not run twice can still arrive: wait for it for a short time.
                        if self.is_repeatable() {
                            return WaitOutcome::Lost(Loss::Connection);
                        }
                        check.record_gap();
                    }
                    None if has_received => return WaitOutcome::Lost(Loss::Connection),
                    None => return WaitOutcome::NoTool,
                },
                () = self.work.cancelled.cancelled() => return WaitOutcome::Cancelled,
                () = sleep_until(deadline) => return WaitOutcome::TimedOut,
                () = sleep_until(next_extension_at.unwrap_or(deadline)), if next_extension_at.is_some() => call_deadline.request_extension().await,
                () = sleep_until(next_check_at.unwrap_or(deadline)), if next_check_at.is_some() => {
                    query = Some(ask_replicas(self.bus, call_deadline.query_subject(), self.call_key()).boxed());
                }
                answer = await_query(&mut query) => {
                    query = None;
                    if let Some(loss) = check.evaluate(answer) {
                        return WaitOutcome::Lost(loss);
                    }
                }
                _ = ping.tick() => {
                    let state = call_deadline.ping_replica(self.call_key(), self.health).await;
                    if let Some(loss) = check.evaluate_ping(state) {
                        return WaitOutcome::Lost(loss);
                    }
                }
                () = &mut closed => return WaitOutcome::Closed,
            }
        }
    }

    /// Ends a call that was cancelled. `sent`: a replica may have got it.
    async fn cancel(&self, sent: bool) -> ToolAnswer {
        if !sent {
            return ToolAnswer::new(Outcome::Cancelled, "cancelled; it was not called");
        }
        self.notify_cancel().await;
        ToolAnswer::new(Outcome::Cancelled, "cancelled")
    }

    /// Notifies the tool that no caller waits any more; best effort.
    async fn notify_cancel(&self) {
        let subject = subject::tool_cancel(&self.work.key.tenant, &self.work.item.tool);
        let headers = vec![(header::CALL.to_owned(), self.call_key())];
        if let Err(error) = self.bus.transport().publish(&subject, headers, Bytes::new()).await {
            tracing::debug!(session = %self.work.key, call = %self.work.call, %error, "the cancel was not sent to the tool");
        }
    }

    /// Idempotency key of the call at its tool.
    fn call_key(&self) -> String {
        self.work.item.call_key(&self.work.key.tenant, &self.work.key.session)
    }

    fn build_headers(&self) -> Headers {
        let mut headers = identity_headers(&self.work.key, &self.work.item);
        // A call that must not run twice never gets a later deadline than its claim names, however late this executor
        // sends it: a probe of another executor relies on that.
        let deadline = if self.is_repeatable() { self.clock.now().after(self.timeout) } else { self.deadlines.claimed };
        headers.extend([
            (header::ATTEMPT.to_owned(), self.work.attempt()),
            (header::DEADLINE.to_owned(), deadline.to_string()),
        ]);
        let started = self.work.item.session_started;
        headers.extend(started.map(|started| (header::SESSION_STARTED.to_owned(), started.to_string())));
        headers.extend(self.work.trace.map(|call| (header::TRACEPARENT.to_owned(), call.to_string())));
        headers
    }

    fn is_repeatable(&self) -> bool {
        self.work.item.effect.may_repeat()
    }

    /// The answer of a call that fell silent.
    fn timeout_answer(&self, call_deadline: &CallDeadline<'_>) -> ToolAnswer {
        let text = match call_deadline.silent_for() {
            Some(silence) => format!("silent for {} seconds after it showed progress", silence.as_secs_f64().ceil()),
            None => format!("no answer within {} seconds", self.timeout.as_secs_f64().ceil()),
        };
        ToolAnswer::new(Outcome::Timeout, text).or_unknown(self.work.item.effect)
    }

    /// No replica serves the tool now; an earlier try may have taken effect.
    fn no_tool_answer(&self, resends: u32) -> ToolAnswer {
        let tool = self.work.item.tool.as_str();
        if resends > 0 && self.work.item.effect.takes_effect() {
            return self.lost_answer(Loss::Replica, resends - 1);
        }
        if self.sent_before {
            return unknown_answer(&format!(
                "no replica serves the tool {tool} now, and another executor may have called it before"
            ));
        }
        no_tool_error(tool, resends > 0)
    }

    /// The answer of a call that was lost after it was sent again so many times.
    fn lost_answer(&self, loss: Loss, resends: u32) -> ToolAnswer {
        let text = match loss {
            Loss::Connection => {
                "the connection to NATS broke while the call ran, and its answer may be lost".to_owned()
            }
            Loss::NotHeld => {
                "no replica of the tool has the call: it was lost on its way, or its answer was".to_owned()
            }
            Loss::Replica => {
                format!("the tool's process ended while it worked on the call ({} times)", resends + 1)
            }
        };
        ToolAnswer::error(ErrorCode::Unavailable, text).or_unknown(self.work.item.effect)
    }
}

/// Headers that identify a call to its tool: its key, its session and its agent.
pub(super) fn identity_headers(key: &SessionKey, item: &ToolItem) -> Headers {
    vec![
        (header::CALL.to_owned(), item.call_key(&key.tenant, &key.session)),
        (header::SESSION.to_owned(), key.session.to_string()),
        (header::AGENT.to_owned(), item.meta.agent.chars().filter(|c| !c.is_control()).collect()),
    ]
}

async fn await_query(query: &mut Option<BoxFuture<'_, ReplicaAnswer>>) -> ReplicaAnswer {
    match query {
        Some(query) => query.await,
        None => std::future::pending().await,
    }
}

/// Replies to every send of one call. A reply to an earlier send still counts, since a tool that takes effect once may
/// answer any of them. The stream ends when that of the newest send ends.
#[derive(Default)]
struct Replies {
    all: SelectAll<BoxStream<'static, (u32, Option<SubscriptionEvent>)>>,
    newest: u32,
}

impl Replies {
    fn add(&mut self, subscription: Subscription) {
        self.newest += 1;
        let number = self.newest;
        let end = futures::stream::once(std::future::ready((number, None)));
        self.all.push(subscription.map(move |event| (number, Some(event))).chain(end).boxed());
    }

    async fn next(&mut self) -> Option<SubscriptionEvent> {
        loop {
            match self.all.next().await? {
                (_, Some(event)) => return Some(event),
                (number, None) if number == self.newest => return None,
                (_, None) => {}
            }
        }
    }
}

fn no_tool_error(tool: &str, went: bool) -> ToolAnswer {
    let text = if went { "went away" } else { "is not running" };
    ToolAnswer::error(ErrorCode::NoToolAvailable, format!("no replica serves the tool {tool} now: it {text}"))
}
