//! One call on its way: the request to the tool, and everything that may end it.

use std::pin::pin;
use std::time::Duration;

use bus::call::OpenCall;
use bus::{Bus, BusError, CallStatus, Headers, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::{self, SessionKey};
use contract::tool::{EffectClass, Outcome, ToolItem, UNKNOWN_OUTCOME_TEXT, header};
use contract::{ErrorCode, limits};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::doubt::{Doubt, ReplicaAnswer, Verdict, ask_replicas};
use super::life::{Deadlines, LOOK_EVERY, Life};
use super::reply::{Answer, Reply, read};
use crate::Clock;
use crate::connection_health::ConnectionHealth;

/// How often a call that may run again is sent once more after its answer may have been lost.
const RESENDS_MAX: u32 = 3;
/// Pause before that.
const RESEND_AFTER: Duration = Duration::from_millis(200);

/// A call that may be dispatched.
pub(crate) struct Dispatch<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) work: &'a OpenCall<ToolItem>,
    /// Whether an executor that was lost may have sent it, and it may have taken effect.
    pub(crate) sent_before: bool,
    /// How long the tool has, from the dispatch.
    pub(crate) timeout: Duration,
    pub(crate) deadlines: Deadlines,
    /// What tells how long a tool of the catalogue that nobody serves just now is worth waiting for.
    pub(crate) health: Option<&'a ConnectionHealth>,
    /// Until when it is waited for in any case: this process has not heard of it, and has not been there for long.
    pub(crate) expected_until: Option<Instant>,
}

/// What waiting for a reply came to.
enum Waited {
    Answered(Answer),
    /// Nobody subscribes.
    NoTool,
    /// Replicas are there, and none of them has the call.
    Unread,
    /// The connection was lost, and perhaps the answer with it.
    Lost,
    /// The replica that worked on it is gone.
    Gone,
    /// The deadline passed.
    Late,
    /// Called off.
    Cancelled,
    /// No longer open in the log.
    Closed,
}

impl Dispatch<'_> {
    /// Calls the tool; `None` when meanwhile nobody wants the answer any more.
    pub(crate) async fn run(&self) -> Option<Answer> {
        let mut life = Life::new(self.bus, self.clock, self.work, self.deadlines);
        let mut resends = 0;
        let mut missed = None;
        let mut replies = Replies::default();
        loop {
            if self.work.cancelled.is_cancelled() {
                return Some(self.called_off(resends > 0 || self.sent_before).await);
            }
            let waited = match self.send().await {
                Ok(subscription) => {
                    replies.add(subscription);
                    self.wait(&mut replies, &mut life).await
                }
                Err(BusError::NoResponders { .. }) => Waited::NoTool,
                Err(error @ BusError::TooLarge { .. }) => Waited::Answered(Answer::error(
                    ErrorCode::TooLarge,
                    format!("the arguments are too large: {error}"),
                )),
                Err(error) => {
                    tracing::warn!(session = %self.work.key, call = %self.work.call, %error, "request to tool failed");
                    Waited::Lost
                }
            };
            match waited {
                Waited::Answered(answer) => return Some(answer),
                // The server says so: nobody has got the call, of whatever class it is.
                Waited::NoTool if self.may_come_back(&mut missed, life.deadline()) => {
                    match self.may_still_begin(life.deadline()).await {
                        Some(true) => {}
                        Some(false) => return Some(self.nobody(resends)),
                        None => return None,
                    }
                }
                Waited::NoTool => return Some(self.nobody(resends)),
                Waited::Lost if self.repeatable() && resends < RESENDS_MAX => {
                    resends += 1;
                    // In a pause nothing is sent, also not again.
                    if let Some(ended) = self.ends_before_resend(&life).await {
                        return ended;
                    }
                }
                Waited::Lost => return Some(self.lost()),
                Waited::Gone if self.repeatable() && resends < RESENDS_MAX => {
                    tracing::info!(session = %self.work.key, call = %self.work.call, "the tool's replica is gone; sent again");
                    resends += 1;
                    if let Some(ended) = self.ends_before_resend(&life).await {
                        return ended;
                    }
                    life.begins_anew();
                }
                Waited::Gone => return Some(self.gone(resends)),
                Waited::Unread if self.repeatable() && resends < RESENDS_MAX => {
                    tracing::info!(session = %self.work.key, call = %self.work.call, "no replica has the call; sent again");
                    resends += 1;
                    if let Some(ended) = self.ends_before_resend(&life).await {
                        return ended;
                    }
                    life.begins_anew();
                }
                Waited::Unread => return Some(self.unread()),
                Waited::Late => {
                    self.tell_tool().await;
                    return Some(self.late(&life));
                }
                Waited::Cancelled => return Some(self.called_off(true).await),
                Waited::Closed => {
                    self.tell_tool().await;
                    return None;
                }
            }
        }
    }

    /// Whether a tool that nobody serves since `missed` is worth waiting for.
    fn may_come_back(&self, missed: &mut Option<Instant>, deadline: Instant) -> bool {
        let now = Instant::now();
        let missed = *missed.get_or_insert(now);
        let until = self.health.map_or(missed, |health| health.back_until(missed));
        let until = self.expected_until.map_or(until, |expected| until.max(expected));
        !self.work.cancelled.is_cancelled() && now < until.min(deadline)
    }

    /// How the call ends where it must not be sent again: the inner value is `None` when nobody wants an answer any more.
    async fn ends_before_resend(&self, life: &Life<'_>) -> Option<Option<Answer>> {
        match self.may_still_begin(life.deadline()).await {
            Some(true) => None,
            Some(false) => Some(Some(self.late(life))),
            None => Some(None),
        }
    }

    /// Rests, and asks the log before a call begins after that: a stop or a pause may have come, and its word may be lost.
    /// `None`: nobody wants it any more; `Some(false)`: the deadline came first.
    async fn may_still_begin(&self, deadline: Instant) -> Option<bool> {
        let mut pause = RESEND_AFTER;
        loop {
            tokio::select! {
                () = self.work.cancelled.cancelled() => return Some(true),
                () = sleep_until(deadline) => return Some(false),
                () = sleep(pause) => {}
            }
            match self.bus.call_status(&self.work.key, &self.work.call, self.work.item.meta.slot).await {
                Ok(CallStatus::Open) => return Some(true),
                Ok(CallStatus::Closed) => return None,
                Ok(CallStatus::Paused | CallStatus::NotVisible) => pause = limits::WORKER_CHECK_EVERY,
                // Nobody could be told of a result either.
                Err(error) => {
                    tracing::debug!(session = %self.work.key, call = %self.work.call, %error, "the log is not there");
                }
            }
        }
    }

    async fn send(&self) -> Result<Subscription, BusError> {
        let subject = subject::tool(&self.work.key.tenant, &self.work.item.tool);
        let body = Bytes::copy_from_slice(self.work.item.arguments.get().as_bytes());
        self.bus.transport().request_many(&subject, self.headers(), body).await
    }

    async fn wait(&self, replies: &mut Replies, life: &mut Life<'_>) -> Waited {
        let OpenCall { key, call, item, .. } = self.work;
        let mut closed = pin!(self.bus.until_closed(key, call, item.meta.slot));
        let mut look = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard_any = false;
        let mut doubt = Doubt::new(self.repeatable());
        let mut question: Option<BoxFuture<'_, ReplicaAnswer>> = None;
        loop {
            let (deadline, asks_at) = (life.deadline(), life.asks_at());
            let doubts_at = doubt.asks_at().filter(|_| question.is_none());
            tokio::select! {
                biased;
                heard = replies.next() => match heard {
                    Some(SubscriptionEvent::Message(message)) => {
                        heard_any = true;
                        match read(&message, self.work.item.effect) {
                            Reply::Final(answer) => return Waited::Answered(answer),
                            Reply::Progress { text, instance } => {
                                doubt.settle();
                                life.progress(text, instance.as_deref()).await;
                            }
                        }
                    }
                    Some(SubscriptionEvent::Gap) => {
                        heard_any = true;
                        // A call that must not run twice can still be answered: it is waited for, but not for long.
                        if self.repeatable() {
                            return Waited::Lost;
                        }
                        doubt.broke();
                    }
                    None if heard_any => return Waited::Lost,
                    None => return Waited::NoTool,
                },
                () = self.work.cancelled.cancelled() => return Waited::Cancelled,
                () = sleep_until(deadline) => return Waited::Late,
                () = sleep_until(asks_at.unwrap_or(deadline)), if asks_at.is_some() => life.ask().await,
                () = sleep_until(doubts_at.unwrap_or(deadline)), if doubts_at.is_some() => {
                    question = Some(ask_replicas(self.bus, life.asked_at(), self.call_key()).boxed());
                }
                asked = answer_of(&mut question) => {
                    question = None;
                    match doubt.verdict(asked) {
                        Verdict::Wait => {}
                        Verdict::Lost => return Waited::Lost,
                        Verdict::Unread => return Waited::Unread,
                    }
                }
                _ = look.tick() => if life.is_gone(self.health).await {
                    return Waited::Gone;
                },
                () = &mut closed => return Waited::Closed,
            }
        }
    }

    /// Nobody wants it any more; `sent`: somebody may have got it.
    async fn called_off(&self, sent: bool) -> Answer {
        if !sent {
            return Answer::new(Outcome::Cancelled, "cancelled; it was not called");
        }
        self.tell_tool().await;
        Answer::new(Outcome::Cancelled, "cancelled")
    }

    /// Tells the tool that nobody waits any more; best effort.
    async fn tell_tool(&self) {
        let subject = subject::tool_cancel(&self.work.key.tenant, &self.work.item.tool);
        let headers = vec![(header::CALL.to_owned(), self.call_key())];
        if let Err(error) = self.bus.transport().publish(&subject, headers, Bytes::new()).await {
            tracing::debug!(session = %self.work.key, call = %self.work.call, %error, "tool not told of the cancel");
        }
    }

    /// The call's id at the tool, which takes effect once per id.
    fn call_key(&self) -> String {
        self.work.item.call_key(&self.work.key.tenant, &self.work.key.session)
    }

    fn headers(&self) -> Headers {
        let mut headers = identity(&self.work.key, &self.work.item);
        headers.extend([
            (header::ATTEMPT.to_owned(), self.work.attempt()),
            (header::DEADLINE.to_owned(), self.clock.now().after(self.timeout).to_string()),
        ]);
        let started = self.work.item.session_started;
        headers.extend(started.map(|started| (header::SESSION_STARTED.to_owned(), started.to_string())));
        headers.extend(telemetry::trace::current().map(|parent| (header::TRACEPARENT.to_owned(), parent)));
        headers
    }

    fn repeatable(&self) -> bool {
        self.work.item.effect.may_repeat()
    }

    /// Nobody knows what a tool did that does not answer. A model that calls an idempotent one again makes another call,
    /// with another key: only what changes nothing is just late.
    fn late(&self, life: &Life<'_>) -> Answer {
        let text = match life.silence() {
            Some(silence) => format!("silent for {} seconds after it showed progress", silence.as_secs_f64().ceil()),
            None => format!("no answer within {} seconds", self.timeout.as_secs_f64().ceil()),
        };
        match self.work.item.effect {
            EffectClass::Pure => Answer::new(Outcome::Timeout, text),
            EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => unknown(&text),
        }
    }

    /// Nobody serves the tool now; an earlier try may have taken effect.
    fn nobody(&self, resends: u32) -> Answer {
        let tool = self.work.item.tool.as_str();
        if resends > 0 && self.work.item.effect.takes_effect() {
            return self.gone(resends - 1);
        }
        if self.sent_before {
            return unknown(&format!(
                "nobody serves the tool {tool} now, and another executor may have called it before"
            ));
        }
        no_tool(tool, resends > 0)
    }

    fn gone(&self, resends: u32) -> Answer {
        let text = format!("the tool's process ended while it worked on the call ({} times)", resends + 1);
        match self.work.item.effect {
            EffectClass::Pure => Answer::error(ErrorCode::Unavailable, text),
            EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => unknown(&text),
        }
    }

    fn lost(&self) -> Answer {
        match self.work.item.effect {
            EffectClass::Pure => {
                Answer::error(ErrorCode::Unavailable, "the tool could not be reached: the connection was lost")
            }
            EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                unknown("the connection to NATS broke while the call ran, and its answer may be lost")
            }
        }
    }

    fn unread(&self) -> Answer {
        let text = "no replica of the tool has the call: it was lost on its way, or its answer was";
        match self.work.item.effect {
            EffectClass::Pure => Answer::error(ErrorCode::Unavailable, text),
            EffectClass::Idempotent | EffectClass::AtMostOnce | EffectClass::Reconcilable => unknown(text),
        }
    }
}

/// The headers that name a call to its tool: its id there, its session and its agent.
pub(super) fn identity(key: &SessionKey, item: &ToolItem) -> Headers {
    vec![
        (header::CALL.to_owned(), item.call_key(&key.tenant, &key.session)),
        (header::SESSION.to_owned(), key.session.to_string()),
        (header::AGENT.to_owned(), item.meta.agent.chars().filter(|c| !c.is_control()).collect()),
    ]
}

async fn answer_of(question: &mut Option<BoxFuture<'_, ReplicaAnswer>>) -> ReplicaAnswer {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

/// The replies to every time that a call was sent: those to an earlier one still count, since a tool that takes effect once
/// may answer either. Over when the newest one is.
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
        self.all.push(subscription.map(move |heard| (number, Some(heard))).chain(end).boxed());
    }

    async fn next(&mut self) -> Option<SubscriptionEvent> {
        loop {
            match self.all.next().await? {
                (_, Some(heard)) => return Some(heard),
                (number, None) if number == self.newest => return None,
                (_, None) => {}
            }
        }
    }
}

/// A call of which nobody knows whether it took effect.
pub(crate) fn unknown(why: &str) -> Answer {
    Answer::new(Outcome::Unknown, format!("{why}; {UNKNOWN_OUTCOME_TEXT}"))
}

fn no_tool(tool: &str, went: bool) -> Answer {
    let text = if went { "went away" } else { "is not running" };
    Answer::error(ErrorCode::NoToolAvailable, format!("nobody serves the tool {tool} now: it {text}"))
}
