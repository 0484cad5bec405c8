//! Takes inputs and timers from their queues, in the order that the stream gave them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::control::Inbox;
use bus::work::{Handler, Settle};
use bus::{BusError, Delivery, Stored};
use contract::ErrorCode;
use contract::backoff::Backoff;
use contract::event::ErrorEvent;
use contract::limits::DELIVERIES_MAX;
use contract::subject::{self, SessionKey};
use session::Session;

use crate::failures::Failures;
use crate::input::{Sent, Unreadable};
use crate::share::Shared;
use crate::shell::{Loaded, Shell, Trouble, folded};

/// Times that an inbox is read because a replica does not show the delivered command yet.
const INBOX_READS_MAX: u32 = 20;
/// Pause between those reads.
const INBOX_PAUSE: Duration = Duration::from_millis(25);
/// For how long an input is handed back when the bus or the composer is in trouble.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), RETRY_MAX);
/// The longest such pause, and how long it is left to the replicas of a newer version.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Handles inputs.
pub(crate) struct Drive {
    shell: Arc<Shell>,
    shared: Shared,
}

/// Handles due timers.
pub(crate) struct Due(pub(crate) Arc<Shell>);

#[async_trait]
impl Handler for Due {
    async fn handle(&self, delivery: &Delivery) -> Settle {
        let due = serde_json::from_slice::<bus::timer::Due>(&delivery.payload).ok();
        let sent = subject::parse_timer(&delivery.subject).zip(due).and_then(|(key, due)| Sent::timer(key, due.number));
        let Some(sent) = sent else {
            return Settle::Reject { code: ErrorCode::BadRequest, reason: "this is no timer".to_owned() };
        };
        let key = sent.key.clone();
        if let Err(trouble) = self.0.check_clock(delivery.stored_at).await {
            return settle(&self.0.failures, Taken::new(&key, delivery), Err(trouble));
        }
        let mut place = self.0.cache.lock(&key).await;
        let result = self.0.handle(&key, &mut place, &[sent]).await;
        settle(&self.0.failures, Taken::new(&key, delivery), result)
    }
}

#[async_trait]
impl Handler for Drive {
    async fn handle(&self, delivery: &Delivery) -> Settle {
        let Some(subject) = subject::parse_control(&delivery.subject) else {
            return self.malformed(delivery, "the subject is not ai_loop.control.<verb>.<tenant>.<session>.<id>").await;
        };
        let key = subject.key.clone();
        if let Err(trouble) = self.shell.check_clock(delivery.stored_at).await {
            return settle(&self.shell.failures, Taken::new(&key, delivery), Err(trouble));
        }
        let message = Stored {
            subject: delivery.subject.clone(),
            seq: delivery.seq,
            stored_at: delivery.stored_at,
            headers: delivery.headers.clone(),
            payload: delivery.payload.clone(),
        };
        let sent = match Sent::read(&self.shell.bus, subject, message).await {
            Ok(sent) => sent,
            Err(Unreadable::Malformed(why)) => return self.malformed(delivery, &why).await,
            Err(Unreadable::Later(error)) => {
                return settle(&self.shell.failures, Taken::new(&key, delivery), Err(Trouble::Bus(error)));
            }
        };
        if sent.may_share() {
            return self.shared.handle(&self.shell, sent, delivery).await;
        }
        let mut place = self.shell.cache.lock(&key).await;
        let result = if sent.is_client() {
            self.in_order(&key, &mut place, sent).await
        } else {
            self.shell.handle(&key, &mut place, &[sent]).await
        };
        settle(&self.shell.failures, Taken::new(&key, delivery), result)
    }
}

impl Drive {
    pub(crate) fn new(shell: Arc<Shell>) -> Self {
        Self { shell, shared: Shared::default() }
    }

    /// Client commands take effect in the order of the stream, whatever order they are delivered in: those that wait
    /// before the delivered one are handled first.
    async fn in_order(&self, key: &SessionKey, place: &mut Option<Loaded>, sent: Sent) -> Result<(), Trouble> {
        let upto = sent.control_seq.unwrap_or(0);
        for _ in 0..INBOX_READS_MAX {
            if place.as_ref().is_some_and(|loaded| folded(loaded.session(), &sent)) {
                return self.shell.handle(key, place, &[sent]).await;
            }
            let Inbox::Messages(messages) = self.shell.bus.inbox(key).await? else {
                // Too many to read: this one alone, without claiming anything about those before it.
                return self.shell.handle(key, place, &[sent.alone()]).await;
            };
            let holds = messages.iter().any(|message| message.seq == upto);
            if holds {
                for message in messages.into_iter().filter(|message| message.seq < upto) {
                    self.earlier(key, place, message).await?;
                }
                return self.shell.handle(key, place, &[sent]).await;
            }
            // Either the read is stale, or another replica has handled and acknowledged the command: the log tells.
            *place = Some(self.shell.load(key, 0).await?);
            tokio::time::sleep(INBOX_PAUSE).await;
        }
        Err(Trouble::Busy)
    }

    /// Handles a command that waits before the delivered one. One that cannot be read is left to its own delivery.
    async fn earlier(&self, key: &SessionKey, place: &mut Option<Loaded>, message: Stored) -> Result<(), Trouble> {
        let Some(subject) = subject::parse_control(&message.subject).filter(|subject| subject.verb.is_client()) else {
            return Ok(());
        };
        match Sent::read(&self.shell.bus, subject, message).await {
            Ok(sent) => match self.shell.handle(key, place, &[sent]).await {
                // It is in the log as poison; its own delivery buries it.
                Err(Trouble::Poison) | Ok(()) => Ok(()),
                Err(trouble) => Err(trouble),
            },
            Err(Unreadable::Malformed(_)) => Ok(()),
            Err(Unreadable::Later(error)) => Err(error.into()),
        }
    }

    /// Tells the session that a message could not be read, and buries it. It never reaches the loop.
    async fn malformed(&self, delivery: &Delivery, why: &str) -> Settle {
        if let Some(key) = subject::parse_control_key(&delivery.subject) {
            let told = self.tell(&key, delivery, why).await;
            if let Err(error) = told {
                return settle(&self.shell.failures, Taken::new(&key, delivery), Err(error.into()));
            }
        }
        Settle::Reject { code: ErrorCode::BadRequest, reason: why.to_owned() }
    }

    async fn tell(&self, key: &SessionKey, delivery: &Delivery, why: &str) -> Result<(), BusError> {
        let data = ErrorEvent {
            code: ErrorCode::BadRequest,
            message: format!("a control message cannot be read: {why}"),
            retryable: false,
            during: format!("control message {}", delivery.seq),
        };
        self.shell.publish_error(key, format!("{}-control-{}", key.session, delivery.seq), &data).await
    }
}

/// The span under which an input is handled. While a turn runs its parent is what the log says of the turn, whoever sends
/// the input and whichever replica handles it; between turns it is the sender's.
pub(crate) fn span(session: &Session, sent: &Sent) -> tracing::Span {
    let (agent, turn, step) = session.position();
    let span = telemetry::span::step(sent.key.session.as_str(), turn, step, agent);
    let (given, committed) = (sent.traceparent.as_deref(), session.traceparent());
    let runs = session.running_turn().is_some();
    let parent = if runs { committed.or(given) } else { given.or(committed) };
    if let Some(parent) = parent {
        telemetry::trace::set_parent(&span, parent);
        let trace = telemetry::trace::trace_id;
        if let Some(other) = given.filter(|given| trace(given) != trace(parent)) {
            telemetry::trace::link(&span, other);
        }
    }
    span
}

/// An input that was delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) key: &'a SessionKey,
    /// Its name, as far as failures go: no other input has it.
    pub(crate) subject: &'a str,
    /// Index of this delivery among those of the input, from 1.
    pub(crate) delivered: u64,
}

impl<'a> Taken<'a> {
    fn new(key: &'a SessionKey, delivery: &'a Delivery) -> Self {
        Self { key, subject: &delivery.subject, delivered: delivery.delivered }
    }
}

/// What becomes of an input after a delivery. Trouble of the bus is waited out however long it takes;
/// what is wrong with the session itself is given up in the end, so that it does not come again for ever.
pub(crate) fn settle(failures: &Failures, taken: Taken<'_>, result: Result<(), Trouble>) -> Settle {
    let Taken { key, subject, delivered } = taken;
    let pause = RETRY.pause(u32::try_from(delivered.saturating_sub(1)).unwrap_or(u32::MAX));
    match result {
        Ok(()) => {
            failures.forget(subject);
            Settle::Done
        }
        Err(Trouble::Bus(BusError::Malformed(why)) | Trouble::Internal(why)) => {
            tracing::error!(session = %key, why, delivered, "an input cannot be handled");
            // Counted in any case.
            let often = failures.count(subject);
            if !often || delivered < DELIVERIES_MAX {
                return Settle::Retry(pause);
            }
            Settle::Reject { code: ErrorCode::TooManyDeliveries, reason: why }
        }
        Err(Trouble::Bus(error @ BusError::TooLarge { .. })) => {
            tracing::error!(session = %key, %error, "an input cannot be written");
            Settle::Reject { code: ErrorCode::TooLarge, reason: error.to_string() }
        }
        Err(Trouble::Bus(error)) => {
            tracing::warn!(session = %key, %error, "an input waits for the bus");
            Settle::Retry(pause)
        }
        Err(Trouble::Skewed(skew)) => {
            tracing::error!(session = %key, %skew, "this replica decides nothing; another one takes the input");
            Settle::Retry(RETRY_MAX)
        }
        Err(Trouble::Busy | Trouble::Split) => Settle::Retry(RETRY.pause(0)),
        Err(Trouble::Newer { fold }) => {
            tracing::warn!(session = %key, fold, "a newer version runs this session; its replicas take the input");
            Settle::Retry(RETRY_MAX)
        }
        Err(Trouble::Poison) => {
            Settle::Reject { code: ErrorCode::Poison, reason: "the loop panicked over this input".to_owned() }
        }
    }
}
