//! Handlers of the queues of inputs and of timers. Client commands are handled in the order of their stream.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::control::Inbox;
use bus::work::{Handler, Hold, Settle};
use bus::{BusError, Delivery, Stored};
use contract::ErrorCode;
use contract::command::newer_sender;
use contract::event::ErrorEvent;
use contract::subject::{self, SessionKey};

use crate::handle_error::HandleError;
use crate::input::DeliveredInput;
use crate::mark::MarkClaim;
use crate::result_batcher::ResultBatcher;
use crate::session_runner::{Handled, Loaded, SessionRunner, is_already_applied};
use crate::settlement::settle;

/// Reads of an inbox while a replica of the stream does not have the delivered command yet.
const INBOX_READS_MAX: u32 = 20;
/// Pause between two of these reads.
const INBOX_READ_INTERVAL: Duration = Duration::from_millis(25);
/// Handles commands and results from the queue of inputs.
pub(crate) struct InputHandler {
    runner: Arc<SessionRunner>,
    results: ResultBatcher,
}

/// Handles timers that are due, from the queue of timers.
pub(crate) struct TimerHandler(pub(crate) Arc<SessionRunner>);

#[async_trait]
impl Handler for TimerHandler {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        let due = serde_json::from_slice::<bus::timer::Due>(&delivery.payload).ok();
        let input = subject::parse_timer(&delivery.subject)
            .zip(due)
            .and_then(|(key, due)| DeliveredInput::timer(key, due.number));
        let Some(input) = input else {
            return Settle::Reject { code: ErrorCode::BadRequest, reason: "the message is not a due timer".to_owned() };
        };
        let key = input.key.clone();
        if let Err(error) = self.0.check_clock(delivery.stored_at).await {
            return settle(&self.0.failures, &key, delivery, Err(error)).await;
        }
        let mut cached = self.0.cache.lock(&key).await;
        let result = self.0.handle(&key, &mut cached, &[input]).await;
        drop(cached);
        settle(&self.0.failures, &key, delivery, result).await
    }
}

#[async_trait]
impl Handler for InputHandler {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        let Some(subject) = subject::parse_control(&delivery.subject) else {
            return self
                .reject_malformed(delivery, "the subject is not ai_loop.control.<verb>.<tenant>.<session>.<id>")
                .await;
        };
        let key = subject.key.clone();
        let runner = &self.runner;
        if let Err(error) = runner.check_clock(delivery.stored_at).await {
            return settle(&runner.failures, &key, delivery, Err(error)).await;
        }
        let message = Stored {
            subject: delivery.subject.clone(),
            seq: delivery.seq,
            stored_at: delivery.stored_at,
            generation: delivery.generation,
            headers: delivery.headers.clone(),
            payload: delivery.payload.clone(),
        };
        let input = match DeliveredInput::read(&runner.bus, subject, message).await {
            Ok(input) => input,
            Err(BusError::Malformed(why)) => return self.reject_malformed(delivery, &why).await,
            Err(error) => return settle(&runner.failures, &key, delivery, Err(error.into())).await,
        };
        if input.can_share_commit() {
            return Box::pin(self.results.handle(runner, input, delivery)).await;
        }
        let mut cached = runner.cache.lock(&key).await;
        let result = if input.is_client() {
            let is_first = delivery.delivered == 1;
            Box::pin(self.handle_in_order(&key, &mut cached, input, is_first)).await
        } else {
            runner.handle(&key, &mut cached, &[input]).await
        };
        drop(cached);
        settle(&runner.failures, &key, delivery, result).await
    }
}

impl InputHandler {
    pub(crate) fn new(runner: Arc<SessionRunner>) -> Self {
        Self { runner, results: ResultBatcher::default() }
    }

    /// Handles the client commands that wait before the delivered one, and then the delivered one. So they take effect
    /// in the order of the stream, although their order of delivery may be another.
    async fn handle_in_order(
        &self,
        key: &SessionKey,
        cached: &mut Option<Loaded>,
        input: DeliveredInput,
        is_first_delivery: bool,
    ) -> Result<Handled, HandleError> {
        let runner = &self.runner;
        if cached.is_none() && is_first_delivery && input.is_start() {
            // As the start of a new session, without a look at log and inbox. The server takes the commit only if the log
            // is empty; otherwise the log is read, and the start is decided again, without a claim about the commands
            // before it. A command that came before the first start has a delivery of its own: its session did not exist
            // when it was sent.
            *cached = Some(runner.assume_new(key)?);
            return runner.handle(key, cached, &[input.in_order(MarkClaim::by_empty_log())]).await;
        }
        let delivered_seq = input.position.map_or(0, |position| position.seq);
        let mut first = None;
        if cached.is_none() {
            // Neither waits for the other: a commit on a state that is older than the inbox loses its slot.
            let (inbox, loaded) = tokio::join!(runner.bus.inbox(key), runner.load(key, None));
            *cached = Some(loaded?);
            first = Some(inbox?);
        }
        for _ in 0..INBOX_READS_MAX {
            if is_already_applied(runner.refresh(key, cached).await?, &input) {
                return runner.handle(key, cached, &[input]).await;
            }
            let inbox = match first.take() {
                Some(inbox) => inbox,
                None => runner.bus.inbox(key).await?,
            };
            let Inbox::Messages(messages) = inbox else {
                // There are too many to read. Handle this one alone, without a claim about those before it.
                return runner.handle(key, cached, &[input]).await;
            };
            if let Some(claim) = MarkClaim::by_inbox(&messages, delivered_seq) {
                for message in messages.into_iter().filter(|message| message.seq < delivered_seq) {
                    self.handle_earlier(key, cached, message, claim).await?;
                }
                return runner.handle(key, cached, &[input.in_order(claim)]).await;
            }
            // The read is stale, or another replica has acknowledged the command. The log shows which.
            *cached = Some(runner.load(key, None).await?);
            tokio::time::sleep(INBOX_READ_INTERVAL).await;
        }
        Err(HandleError::Busy)
    }

    /// Handles a command that waits before the delivered one. A command that cannot be read is left to its own
    /// delivery.
    async fn handle_earlier(
        &self,
        key: &SessionKey,
        cached: &mut Option<Loaded>,
        message: Stored,
        claim: MarkClaim,
    ) -> Result<(), HandleError> {
        let Some(subject) = subject::parse_control(&message.subject) else {
            return check_sender(&message.payload);
        };
        if !subject.verb.is_client() {
            return Ok(());
        }
        let payload = message.payload.clone();
        match DeliveredInput::read(&self.runner.bus, subject, message).await {
            // Its own delivery performs what is owed, and acknowledges it.
            Ok(input) if is_already_applied(self.runner.refresh(key, cached).await?, &input) => Ok(()),
            Ok(input) => match self.runner.handle(key, cached, &[input.in_order(claim)]).await {
                // The log has it as poison; its own delivery makes it a dead letter.
                Err(HandleError::Poison) | Ok(_) => Ok(()),
                Err(error) => Err(error),
            },
            Err(BusError::Malformed(_)) => check_sender(&payload),
            Err(error) => Err(error.into()),
        }
    }

    /// Rejects a message that cannot be read, so that it becomes a dead letter, and reports it to the session's
    /// viewers. What a newer version sent is left to newer replicas.
    async fn reject_malformed(&self, delivery: &Delivery, why: &str) -> Settle {
        // What was sent by request is reported once it is stored.
        let key = subject::parse_control_key(&delivery.subject).filter(|_| !delivery.is_request());
        if let Some(key) = key {
            let reported = match check_sender(&delivery.payload) {
                Ok(()) => self.report_malformed(&key, delivery, why).await.map_err(HandleError::from),
                Err(newer) => Err(newer),
            };
            if let Err(error) = reported {
                return settle(&self.runner.failures, &key, delivery, Err(error)).await;
            }
        }
        Settle::Reject { code: ErrorCode::BadRequest, reason: why.to_owned() }
    }

    async fn report_malformed(&self, key: &SessionKey, delivery: &Delivery, why: &str) -> Result<(), BusError> {
        let data = ErrorEvent {
            code: ErrorCode::BadRequest,
            message: format!("a control message cannot be read: {why}"),
            retryable: false,
            during: format!("control message {}", delivery.seq),
        };
        self.runner.publish_error(key, format!("{}-control-{}", key.session, delivery.seq), &data).await
    }
}

/// Fails where a newer version sent a command that cannot be read. Its replicas handle it, and before that no later
/// command of the session is: a commit about that would claim this one as handled.
fn check_sender(payload: &[u8]) -> Result<(), HandleError> {
    newer_sender(payload).map_or(Ok(()), |fold| Err(HandleError::Newer { fold }))
}
