//! Requests to JetStream and what it answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Queue, Stream};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use super::connection::{ANSWER_MAX, JETSTREAM_MAX, NatsTransport};
use super::refusal::Refusal;
use crate::json::{encode, parse};
use crate::transport::{Appended, Doubt, EXPECTED_LAST};
use crate::{BusError, Headers};

/// The message is larger than the stream takes.
const TOO_LARGE: u32 = 10_054;
/// There is no message of this sequence, as a cluster answers.
const NO_SEQUENCE: u32 = 10_043;
/// A message is not deleted, with the descriptions of a single server for a message that is not there.
const NOT_DELETED: u32 = 10_057;
const GONE: [&str; 2] = ["no message found", "stream store EOF"];

#[derive(Deserialize)]
#[serde(untagged)]
enum JsResponse<T> {
    Error { error: Refusal },
    Success(T),
}

/// The answer to an append, parsed in one pass since appends are frequent.
#[derive(Deserialize)]
struct Published<'a> {
    #[serde(default)]
    error: Option<Refusal>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
}

/// The fields have the names of the server.
#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "as the server names them")]
pub(super) struct ConsumerInfo {
    pub(super) num_pending: u64,
    pub(super) num_ack_pending: u64,
    #[serde(default)]
    pub(super) num_waiting: u64,
}

/// The used part of the server's information about a stream, under the server's names.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StreamInfo {
    pub(super) config: StreamConfig,
    pub(super) state: StreamState,
    /// Subjects that match the filter of the question.
    pub(super) total: usize,
    /// Time of the server when it answered.
    pub(super) ts: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub(super) num_replicas: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) last_seq: u64,
    /// In year 1 where there was never a message.
    pub(super) first_ts: Value,
    pub(super) subjects: Option<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct Purged {
    purged: u64,
}

impl NatsTransport {
    /// Sends a request to JetStream; the inner error is its refusal.
    pub(super) async fn js_request<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: Option<&Value>,
    ) -> Result<Result<T, Refusal>, BusError> {
        let body = body.map(encode).transpose()?.unwrap_or_default();
        let answer = self.js_raw(subject, Headers::new(), body, JETSTREAM_MAX).await?;
        Ok(match parse(&answer)? {
            JsResponse::Error { error } => Err(error),
            JsResponse::Success(success) => Ok(success),
        })
    }

    /// Appends to the stream that takes `subject`, if the last message there has sequence `expected`.
    pub(super) async fn js_append(
        &self,
        subject: &str,
        expected: Option<u64>,
        mut headers: Headers,
        payload: Bytes,
    ) -> Result<Appended, BusError> {
        if let Some(expected) = expected {
            headers.push((EXPECTED_LAST.to_owned(), expected.to_string()));
        }
        let (bytes, before) = (payload.len(), self.seen_seqs.before());
        let answer = self.js_raw(subject, headers, payload, ANSWER_MAX).await.map_err(|error| {
            if let BusError::Timeout { what } = error {
                let what = format!("{what} (nats-server's log may say why: a full disk, for example)");
                return BusError::Timeout { what };
            }
            error
        })?;
        let Published { error, seq, duplicate, stream } = parse(&answer)?;
        if error.is_none() && !duplicate && seq > 0 {
            self.seen_seqs.note_stored(&stream, seq, &before);
        }
        match error {
            None if seq == 0 => Err(BusError::Malformed("an append was answered without a sequence".to_owned())),
            None if duplicate => Ok(Appended::Doubtful(Doubt::Duplicate)),
            None => Ok(Appended::Stored(seq)),
            Some(refusal) if refusal.err_code == TOO_LARGE => {
                Err(BusError::TooLarge { bytes, max: self.client.max_payload() })
            }
            Some(refusal) => match refusal.doubt() {
                Some(doubt) => Ok(Appended::Doubtful(doubt)),
                None => Err(refusal.into_error()),
            },
        }
    }

    /// Requests the server's information about a stream; `question` may have a filter of subjects.
    pub(super) async fn stream_info(&self, stream: &str, question: Option<&Value>) -> Result<StreamInfo, BusError> {
        self.js_request(&format!("$JS.API.STREAM.INFO.{stream}"), question).await?.map_err(Refusal::into_error)
    }

    /// The time of the server that leads a stream.
    pub(super) async fn time_at(&self, stream: Stream) -> Result<Timestamp, BusError> {
        let time = self.stream_info(stream.name(), None).await?.ts;
        time.ok_or_else(|| BusError::Malformed("nats-server sent no time".to_owned()))
    }

    /// Sends a request about the consumer of a queue.
    pub(super) async fn consumer_request<T: DeserializeOwned>(
        &self,
        verb: &str,
        queue: Queue,
        body: Option<&Value>,
    ) -> Result<T, BusError> {
        let subject = format!("$JS.API.CONSUMER.{verb}.{}.{}", queue.stream().name(), queue.durable());
        self.js_request(&subject, body).await?.map_err(Refusal::into_error)
    }

    /// Removes every message of a stream whose subject matches the filter; returns how many.
    pub async fn purge_messages(&self, stream: &str, filter: &str) -> Result<u64, BusError> {
        let body = json!({ "filter": filter });
        let answer = self.js_request::<Purged>(&format!("$JS.API.STREAM.PURGE.{stream}"), Some(&body)).await?;
        answer.map(|purged| purged.purged).map_err(Refusal::into_error)
    }

    /// Removes a message, and overwrites it first if `erases`; that it is gone already is success as well.
    pub(super) async fn delete_message(&self, stream: &str, seq: u64, erases: bool) -> Result<(), BusError> {
        let body = json!({ "seq": seq, "no_erase": !erases });
        let subject = format!("$JS.API.STREAM.MSG.DELETE.{stream}");
        match self.js_request::<IgnoredAny>(&subject, Some(&body)).await? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.err_code == NO_SEQUENCE => Ok(()),
            // One code for every reason; there is no other way to tell this one.
            Err(refusal) if refusal.err_code == NOT_DELETED && GONE.contains(&refusal.description.as_str()) => Ok(()),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    /// Sends a request; without responders JetStream has no leader, or is not enabled.
    async fn js_raw(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        match self.ask_server(subject, headers, payload, timeout).await {
            Ok(message) => Ok(message.payload),
            Err(BusError::NoResponders { subject }) => {
                Err(BusError::Unavailable(format!("JetStream does not answer on {subject}")))
            }
            Err(error) => Err(error),
        }
    }
}
