//! Whole streams for `ailoop backup` and `ailoop restore`: the snapshots that nats-server makes and restores, single
//! messages by sequence, and the deletion of a stream.
//!
//! nats-server sends a snapshot in chunks to a subject of ours and wants each one acknowledged, so that a slow reader
//! needs little memory. An empty message with a status ends it. A restore is the same in the other direction: each chunk
//! is a request, and the answer to the last, empty one comes when the stream is complete.

use std::time::Duration;

use async_nats::{Client, Subject, Subscriber};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use contract::ErrorCode;
use futures::StreamExt;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::connection::NatsTransport;
use super::refusal::{NO_STREAM, Refusal, closed};
use crate::transport::{Appended, Doubt};
use crate::{BusError, Headers, retry};

/// Bytes of a chunk: what nats-server sends if nobody asks for another size.
pub const CHUNK_BYTES: usize = 128 << 10;
/// Metadata of a stream whose restore has not ended, with the id of its backup. No service starts with such a stream.
pub const RESTORE_MARK: &str = "ailoop.restore";
/// Timeout of one chunk in either direction. nats-server itself gives up after 5 s without progress.
const CHUNK_MAX: Duration = Duration::from_secs(30);
/// Timeout of the last request of a restore: before nats-server 2.15 it reads the whole stream only then.
const RESTORE_MAX: Duration = Duration::from_hours(1);
/// Attempts to send the first chunk of a restore: some seconds.
const FIRST_ROUNDS_MAX: u32 = 12;
/// Status of the message that ends a snapshot without an error.
const COMPLETE: u16 = 204;
/// There is no message from this sequence on.
const NO_MESSAGE: u32 = 10_037;
/// Headers that were conditions of the first write of a message, and must not be conditions of the next one.
const CONDITIONS: [&str; 2] = ["nats-expected-", "nats-msg-id"];

/// Configuration and state of a stream, as the server has them.
#[derive(Debug, Clone, Deserialize)]
pub struct StreamDescription {
    /// Its settings, as the server names them.
    pub config: Map<String, Value>,
    /// Number and sequences of its messages.
    pub state: StreamState,
}

/// Number and sequences of the messages of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamState {
    /// Messages that are stored.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Sequence of the oldest message.
    pub first_seq: u64,
    /// Sequence of the newest message, also if it was removed.
    pub last_seq: u64,
    /// Everything else that the server reported.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A message as nats-server stores it, headers and body in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedMessage {
    /// The subject that it was stored under.
    pub subject: String,
    /// Its sequence in the stream.
    pub seq: u64,
    /// Its headers, as they are on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hdrs: Option<String>,
    /// Its body, none where it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

#[derive(Deserialize)]
struct MessageAnswer {
    message: EncodedMessage,
}

#[derive(Deserialize)]
struct RestoreAnswer {
    deliver_subject: String,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: Option<Refusal>,
}

/// The chunks of a snapshot that nats-server sends. Dropping it ends the snapshot.
#[derive(Debug)]
pub struct SnapshotReader {
    stream: String,
    client: Client,
    chunks: Subscriber,
    broken: broadcast::Receiver<()>,
    /// Subject of the acknowledgement of the last chunk, sent once the chunk is handled.
    unacknowledged: Option<Subject>,
    /// Index of the next chunk, from 1.
    next_index: u64,
}

/// A restore of a stream that nats-server waits for.
#[derive(Debug)]
pub struct RestoreWriter<'a> {
    stream: &'a str,
    nats: &'a NatsTransport,
    chunks_to: String,
    /// Whether the server has taken a chunk.
    is_begun: bool,
}

impl NatsTransport {
    /// The version of the server, such as `2.15.1`.
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// Sends what is queued and closes the connection.
    pub async fn disconnect(&self) {
        crate::Transport::close(self).await;
    }

    /// A stream by its name; `None` where there is none.
    pub async fn stream(&self, name: &str) -> Result<Option<StreamDescription>, BusError> {
        match self.js_request(&format!("$JS.API.STREAM.INFO.{name}"), None).await? {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.err_code == NO_STREAM => Ok(None),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    /// Begins a snapshot of a stream, with the state of its consumers if they are asked for. The description is of the
    /// instant at which it begins; what is stored later may or may not be in it.
    pub async fn snapshot(
        &self,
        name: &str,
        with_consumers: bool,
    ) -> Result<(StreamDescription, SnapshotReader), BusError> {
        let broken = self.gaps.subscribe();
        let inbox = self.client.new_inbox();
        let chunks = self.client.subscribe(inbox.clone()).await.map_err(|error| closed(&error))?;
        let request = json!({"deliver_subject": inbox, "no_consumers": !with_consumers, "chunk_size": CHUNK_BYTES});
        let answer = self.js_request(&format!("$JS.API.STREAM.SNAPSHOT.{name}"), Some(&request)).await?;
        let description = answer.map_err(|refusal| refused("make a snapshot of", name, &refusal))?;
        let client = self.client.clone();
        let stream = name.to_owned();
        Ok((description, SnapshotReader { stream, client, chunks, broken, unacknowledged: None, next_index: 1 }))
    }

    /// Begins the restore of a stream that does not exist: `config` is how it will be, `state` how it was.
    pub async fn restore<'a>(
        &'a self,
        name: &'a str,
        config: &Map<String, Value>,
        state: &StreamState,
    ) -> Result<RestoreWriter<'a>, BusError> {
        let request = json!({"config": config, "state": state});
        let answer = self.js_request(&format!("$JS.API.STREAM.RESTORE.{name}"), Some(&request)).await?;
        let RestoreAnswer { deliver_subject } = answer.map_err(|refusal| refused("restore", name, &refusal))?;
        Ok(RestoreWriter { stream: name, nats: self, chunks_to: deliver_subject, is_begun: false })
    }

    /// Changes the settings of a stream.
    pub async fn update_stream(&self, name: &str, config: &Map<String, Value>) -> Result<(), BusError> {
        let (subject, body) = (format!("$JS.API.STREAM.UPDATE.{name}"), Value::Object(config.clone()));
        let answer = self.js_request::<IgnoredAny>(&subject, Some(&body)).await?;
        answer.map(drop).map_err(|refusal| refused("change", name, &refusal))
    }

    /// Deletes a stream with its messages and consumers; one that does not exist is fine.
    pub async fn delete_stream(&self, name: &str) -> Result<(), BusError> {
        match self.js_request::<IgnoredAny>(&format!("$JS.API.STREAM.DELETE.{name}"), None).await? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.err_code == NO_STREAM => Ok(()),
            Err(refusal) => Err(refused("delete", name, &refusal)),
        }
    }

    /// The first message from sequence `seq` on whose subject matches the filter, from the leader; `None` where there is
    /// none.
    pub async fn message_from(&self, stream: &str, seq: u64, filter: &str) -> Result<Option<EncodedMessage>, BusError> {
        let request = json!({"seq": seq, "next_by_subj": filter});
        let subject = format!("$JS.API.STREAM.MSG.GET.{stream}");
        match self.js_request::<MessageAnswer>(&subject, Some(&request)).await? {
            Ok(found) => Ok(Some(found.message)),
            Err(refusal) if refusal.err_code == NO_MESSAGE => Ok(None),
            Err(refusal) => Err(refused("read", stream, &refusal)),
        }
    }

    /// Stores a message once more, at the end of the stream that takes its subject. One that is there already, in a
    /// stream that keeps one message for each subject, is fine.
    pub async fn store_message(&self, message: &EncodedMessage) -> Result<(), BusError> {
        let body = message.body()?;
        let mut headers = headers_on_the_wire(&decode(message.hdrs.as_deref())?)?;
        headers.retain(|(name, _)| !CONDITIONS.iter().any(|prefix| name.to_ascii_lowercase().starts_with(prefix)));
        match self.js_append(&message.subject, None, headers, body.into()).await? {
            Appended::Stored(_) | Appended::Doubtful(Doubt::Taken(_) | Doubt::Duplicate) => Ok(()),
            Appended::Doubtful(doubt @ (Doubt::Full(_) | Doubt::Overtaken(_))) => Err(doubt.into_error()),
        }
    }
}

impl EncodedMessage {
    /// Decodes the body of the message.
    pub fn body(&self) -> Result<Vec<u8>, BusError> {
        decode(self.data.as_deref())
    }
}

impl SnapshotReader {
    /// The next chunk; `None` when the snapshot is complete. Asking for the next one acknowledges the last one.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BusError> {
        if let Some(reply) = self.unacknowledged.take() {
            self.client.publish(reply, Bytes::new()).await.map_err(|error| closed(&error))?;
        }
        let what = || format!("the next part of the snapshot of {}", self.stream);
        let message = tokio::select! {
            biased;
            _ = self.broken.recv() => {
                return Err(BusError::Unavailable(format!("the connection broke during {}", what())));
            }
            message = tokio::time::timeout(CHUNK_MAX, self.chunks.next()) => {
                message.map_err(|_| BusError::Timeout { what: what() })?
            }
        };
        let message = message.ok_or_else(|| BusError::Unavailable("the connection is closed".to_owned()))?;
        if message.payload.is_empty() {
            return match message.status.filter(|status| status.as_u16() != COMPLETE) {
                None => Ok(None),
                Some(status) => {
                    let why = message.description.unwrap_or_default();
                    Err(BusError::Unavailable(format!("the snapshot of {} failed: {status} {why}", self.stream)))
                }
            };
        }
        // Only the last chunk may be without a reply subject, which ends in the size and the index of the chunk.
        if let Some(reply) = message.reply {
            let mut ends = reply.rsplit('.').map(|number| number.parse::<u64>().ok());
            let (index, bytes) = (ends.next().flatten(), ends.next().flatten());
            if (index, bytes) != (Some(self.next_index), Some(message.payload.len() as u64)) {
                let expected = self.next_index;
                return Err(BusError::Unavailable(format!("{}: part {expected} is missing ({reply} came)", what())));
            }
            self.next_index += 1;
            self.unacknowledged = Some(reply);
        }
        Ok(Some(message.payload))
    }
}

impl RestoreWriter<'_> {
    /// Sends a chunk, of at most [`CHUNK_BYTES`], and returns when the server has taken it.
    pub async fn write(&mut self, chunk: Bytes) -> Result<(), BusError> {
        self.send(chunk, CHUNK_MAX).await
    }

    /// Says that the last chunk was sent, and returns when the stream is restored.
    pub async fn finish(mut self) -> Result<(), BusError> {
        self.send(Bytes::new(), RESTORE_MAX).await
    }

    async fn send(&mut self, chunk: Bytes, timeout: Duration) -> Result<(), BusError> {
        // In a cluster, the subscription of the server that restores may not be known here yet.
        let may_begin = |error: &BusError| !self.is_begun && matches!(error, BusError::NoResponders { .. });
        let ask = || self.nats.ask_server(&self.chunks_to, Headers::new(), chunk.clone(), timeout);
        let answer = match retry::repeat(FIRST_ROUNDS_MAX, self.stream, may_begin, ask).await {
            Err(BusError::NoResponders { .. }) => {
                let why = format!("nats-server gave up the restore of {}; its log says why", self.stream);
                return Err(BusError::Unavailable(why));
            }
            answered => answered?,
        };
        self.is_begun = true;
        if answer.payload.starts_with(b"-ERR") {
            let why = String::from_utf8_lossy(&answer.payload).into_owned();
            let message = format!("nats-server did not restore {}: {why}", self.stream);
            return Err(BusError::Unusable { code: ErrorCode::Internal, message });
        }
        if answer.payload.is_empty() {
            return Ok(());
        }
        match crate::json::parse::<ErrorAnswer>(&answer.payload)?.error {
            None => Ok(()),
            Some(refusal) => Err(refused("restore", self.stream, &refusal)),
        }
    }
}

/// The error for a refusal. A full server stays [`BusError::Full`]; nothing else changes by waiting.
fn refused(verb: &str, stream: &str, refusal: &Refusal) -> BusError {
    let error = refusal.clone().into_error();
    if matches!(error, BusError::Full(_)) {
        return error;
    }
    let message = format!("nats-server did not {verb} {stream}: {refusal}");
    BusError::Unusable { code: ErrorCode::Internal, message }
}

fn decode(base64: Option<&str>) -> Result<Vec<u8>, BusError> {
    let decoded = BASE64_STANDARD.decode(base64.unwrap_or_default());
    decoded.map_err(|error| BusError::Malformed(format!("a stored message is not base64: {error}")))
}

/// Reads the headers of a message: a line with the version of the protocol, then one line for each header.
fn headers_on_the_wire(bytes: &[u8]) -> Result<Headers, BusError> {
    let text = std::str::from_utf8(bytes).map_err(|error| BusError::Malformed(error.to_string()))?;
    let mut headers = Headers::new();
    for line in text.split("\r\n").skip(1).filter(|line| !line.is_empty()) {
        let malformed = || BusError::Malformed(format!("{line:?} is no header"));
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_are_on_the_wire() {
        let headers = headers_on_the_wire(b"NATS/1.0\r\nNats-TTL: 60\r\nKV-Operation:DEL\r\n\r\n").unwrap();
        let expected = [("Nats-TTL", "60"), ("KV-Operation", "DEL")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(headers_on_the_wire(b"").unwrap(), Headers::new());
        assert!(headers_on_the_wire(b"NATS/1.0\r\nnothing\r\n\r\n").is_err());
    }

    #[test]
    fn state_keeps_what_it_does_not_know() {
        let state = json!({"messages": 1, "bytes": 2, "first_seq": 3, "last_seq": 4, "first_ts": "t"});
        let parsed: StreamState = serde_json::from_value(state.clone()).unwrap();
        assert_eq!((parsed.messages, parsed.last_seq), (1, 4));
        assert_eq!(serde_json::to_value(parsed).unwrap(), state);
    }
}
