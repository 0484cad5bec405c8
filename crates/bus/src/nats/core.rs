//! Core NATS: publish and request.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{PublishErrorKind, RequestErrorKind, Subscriber};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::connection::{ANSWER_MAX, NatsTransport};
use super::header_map::{header_map, headers_of};
use super::losses::Losses;
use super::refusal::closed;
use crate::{BusError, CoreMessage, Headers, SubscriptionEvent};

/// Pause between two looks whether the connection is back.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl NatsTransport {
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Runs an operation over a connection that is up; the wait for the connection is part of `timeout`. An operation
    /// that async-nats is given without a connection goes into a channel that nobody reads: its caller waits without a
    /// limit once the channel is full, and the operation is performed long after its caller has given up.
    pub(super) async fn over_connection<T>(
        &self,
        timeout: Duration,
        what: &str,
        operation: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, BusError> {
        let deadline = Instant::now() + timeout;
        let connected = async {
            while !self.is_connected() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if timeout_at(deadline, connected).await.is_err() {
            return Err(BusError::Unavailable(format!("nats-server is away: {what} was not sent")));
        }
        let late = |_| Err(BusError::Timeout { what: what.to_owned() });
        timeout_at(deadline, operation).await.unwrap_or_else(late)
    }

    /// Longest time that a message waits for a connection. It outlasts a reconnect, and shrinks to zero while the
    /// server is away.
    fn publish_patience(&self) -> Duration {
        if self.is_connected() { ANSWER_MAX } else { ANSWER_MAX.saturating_sub(self.uptime.elapsed()) }
    }

    pub(super) async fn core_publish(&self, subject: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        let bytes = payload.len();
        let publish = async {
            let published = if headers.is_empty() {
                self.client.publish(subject.to_owned(), payload).await
            } else {
                self.client.publish_with_headers(subject.to_owned(), header_map(headers)?, payload).await
            };
            published.map_err(|error| self.publish_error(&error, subject, bytes))
        };
        self.over_connection(self.publish_patience(), subject, publish).await
    }

    pub(super) async fn core_request(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<async_nats::Message, BusError> {
        let bytes = payload.len();
        let mut request = async_nats::Request::new().payload(payload).timeout(Some(timeout));
        if !headers.is_empty() {
            request = request.headers(header_map(headers)?);
        }
        let ask = async {
            let asked = self.client.send_request(subject.to_owned(), request).await;
            asked.map_err(|error| request_error(&error, subject, bytes, self.client.max_payload()))
        };
        self.over_connection(timeout, subject, ask).await
    }

    /// Sends a request to the server itself. Its answer is lost with the connection, so a broken connection ends the
    /// wait.
    pub(super) async fn ask_server(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<async_nats::Message, BusError> {
        let mut gaps = self.gaps.subscribe();
        tokio::select! {
            biased;
            answer = self.core_request(subject, headers, payload, timeout) => answer,
            _ = gaps.recv() => Err(BusError::Unavailable("the connection broke".to_owned())),
        }
    }

    /// Sends a request with an inbox of its own, which gets every answer and every status.
    pub(super) async fn ask_many(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Subscriber, BusError> {
        let ask = async {
            let inbox = self.client.new_inbox();
            let answers = self.client.subscribe(inbox.clone()).await.map_err(|e| closed(&e))?;
            self.ask(subject, inbox, headers, payload).await?;
            Ok(answers)
        };
        self.over_connection(ANSWER_MAX, subject, ask).await
    }

    /// Publishes a request whose answers go to the subject `to`.
    pub(super) async fn ask(&self, subject: &str, to: String, headers: Headers, body: Bytes) -> Result<(), BusError> {
        let bytes = body.len();
        let asked = if headers.is_empty() {
            self.client.publish_with_reply(subject.to_owned(), to, body).await
        } else {
            self.client.publish_with_reply_and_headers(subject.to_owned(), to, header_map(headers)?, body).await
        };
        asked.map_err(|error| self.publish_error(&error, subject, bytes))
    }

    fn publish_error(&self, error: &async_nats::PublishError, subject: &str, bytes: usize) -> BusError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => BusError::TooLarge { bytes, max: self.client.max_payload() },
            PublishErrorKind::InvalidSubject => BusError::Malformed(format!("{subject:?} is no subject")),
            PublishErrorKind::Send => closed(error),
        }
    }
}

/// The next message, or a gap where messages may be lost.
pub(super) async fn next_or_gap<S: Stream<Item = SubscriptionEvent> + Unpin>(
    (mut events, mut losses): (S, Losses),
) -> Option<(SubscriptionEvent, (S, Losses))> {
    let next = tokio::select! {
        // What came before the gap is delivered before it.
        biased;
        event = events.next() => event?,
        () = losses.next() => SubscriptionEvent::Gap,
    };
    Some((next, (events, losses)))
}

impl From<async_nats::Message> for SubscriptionEvent {
    fn from(received: async_nats::Message) -> Self {
        Self::Message(message(received))
    }
}

/// A message as services see it.
pub(super) fn message(message: async_nats::Message) -> CoreMessage {
    CoreMessage {
        subject: message.subject.into_string(),
        reply: message.reply.map(async_nats::Subject::into_string),
        headers: headers_of(message.headers.as_ref()),
        payload: message.payload,
    }
}

/// Maps an error of the client library to the reason why a request has no answer.
fn request_error(error: &async_nats::RequestError, subject: &str, bytes: usize, max: usize) -> BusError {
    match error.kind() {
        RequestErrorKind::TimedOut => BusError::Timeout { what: subject.to_owned() },
        RequestErrorKind::NoResponders => BusError::NoResponders { subject: subject.to_owned() },
        RequestErrorKind::InvalidSubject => BusError::Malformed(format!("{subject:?} is no subject")),
        RequestErrorKind::MaxPayloadExceeded => BusError::TooLarge { bytes, max },
        // The connection was lost, so the outcome is unknown.
        RequestErrorKind::Other => BusError::Timeout { what: format!("{subject}: {error}") },
    }
}
