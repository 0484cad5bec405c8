//! One call of a tool, as its handler sees it.

use std::time::{Duration, SystemTime};

use async_nats::{Client, HeaderMap, Message, Subject};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::ToolError;
use crate::wire::header;

/// One call. Whoever calls by hand (`nats request`) may leave every header out; the texts are empty then.
#[derive(Debug, Clone)]
pub struct Call {
    client: Client,
    reply: Option<Subject>,
    headers: HeaderMap,
    payload: Bytes,
}

impl Call {
    pub(crate) fn new(client: Client, message: Message) -> Self {
        let headers = message.headers.unwrap_or_default();
        Self { client, reply: message.reply, headers, payload: message.payload }
    }

    /// The arguments as a type of yours; the error tells the model what does not fit. No body counts as `{}`.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_slice(self.body())
            .map_err(|error| ToolError::new(format!("the arguments do not fit: {error}")))
    }

    /// The arguments object as JSON text.
    pub fn body(&self) -> &[u8] {
        if self.payload.is_empty() { b"{}" } else { &self.payload }
    }

    /// The call's id, unique in the fleet: an idempotent tool takes effect once per id.
    pub fn id(&self) -> &str {
        self.text(header::CALL)
    }

    /// The session that asks.
    pub fn session(&self) -> &str {
        self.text(header::SESSION)
    }

    /// The agent that asks.
    pub fn agent(&self) -> &str {
        self.text(header::AGENT)
    }

    /// `<attempt>.<delivery>`: differs between two tries of the same call.
    pub fn attempt(&self) -> &str {
        self.text(header::ATTEMPT)
    }

    /// The W3C trace context of the caller.
    pub fn traceparent(&self) -> &str {
        self.text(header::TRACEPARENT)
    }

    /// When the answer is no longer wanted; a second later the call is cancelled.
    pub fn deadline(&self) -> Option<SystemTime> {
        OffsetDateTime::parse(self.text(header::DEADLINE), &Rfc3339).ok().map(SystemTime::from)
    }

    /// How long is left until the deadline; zero when it has passed.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|at| at.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Tells how far it is. Best effort: nothing waits for it, and it ends nothing.
    pub async fn progress(&self, text: impl Into<String>) {
        let Some(reply) = self.reply.clone() else { return };
        let mut headers = HeaderMap::new();
        headers.insert(header::PROGRESS, "1");
        if let Err(error) = self.client.publish_with_headers(reply, headers, Bytes::from(text.into())).await {
            tracing::debug!(%error, "progress was not sent");
        }
    }

    pub(crate) fn reply_subject(&self) -> Option<Subject> {
        self.reply.clone()
    }

    fn text(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.as_str())
    }
}
