//! Reading streams: from any replica, or from the leader.

use std::sync::PoisonError;
use std::time::Duration;

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::{HeaderValue, StatusCode};
use contract::streams::Stream;
use contract::{ErrorCode, Timestamp};
use futures::StreamExt;
use tokio::time::Instant;

use super::connection::{ANSWER_MAX, NatsTransport};
use super::header_map::{headers_of, headers_without};
use crate::transport::{ReadMany, Transport, header};
use crate::{BusError, Headers, Stored};

/// Headers that the server adds to the message of a direct read.
const ADDED: [&str; 6] =
    ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"];
/// Statuses of a direct read.
const END: u16 = 204;
const NOT_FOUND: u16 = 404;
const TOO_MANY: u16 = 413;
/// Messages of one direct read of a subject: 8 MiB of chunks.
const BATCH: usize = 64;
/// Timeout of the next message of a read.
const NEXT_MAX: Duration = ANSWER_MAX;

/// Most attempts of one read that gets no answer.
const READS_MAX: u32 = 3;
/// Longest time that a read waits for a broken connection to return.
const BACK_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at the connection.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lifetime of the cached answer whether a stream has one replica: the replicas of a running stream may be increased.
const REPLICA_COUNT_AGE_MAX: Duration = Duration::from_secs(5);

impl NatsTransport {
    /// Whether the log has one replica: then every read is as fresh as the leader's, and a direct read costs the server
    /// a fraction of an API request. `false` also where its info cannot be read.
    pub(super) async fn has_one_replica(&self) -> bool {
        let known = *self.one_replica_cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((requested_at, is_one)) = known
            && requested_at.elapsed() < REPLICA_COUNT_AGE_MAX
        {
            return is_one;
        }
        let requested_at = Instant::now();
        let info = self.stream_info(Stream::Log.name(), None).await;
        let is_one = info.is_ok_and(|info| info.config.num_replicas == 1);
        *self.one_replica_cache.lock().unwrap_or_else(PoisonError::into_inner) = Some((requested_at, is_one));
        is_one
    }

    /// Reads, and reads again what had no answer. While nats-server replaces an account, it loses requests to JetStream
    /// that arrive in that instant; and it closes the connection of a credential that is revoked, which is back at once
    /// with the next one. The second may happen a timeout after the first. Where a server or a leader is away, this
    /// costs up to two seconds or two more timeouts.
    async fn read_again<T: Sync, R: Future<Output = Result<T, BusError>>>(
        &self,
        read: impl Fn() -> R,
    ) -> Result<T, BusError> {
        let mut reads = 1;
        loop {
            let generation = self.generation();
            let answer = read().await;
            if reads == READS_MAX || !self.is_lost(generation, &answer).await {
                return answer;
            }
            reads += 1;
        }
    }

    /// Whether a read that had no answer is made again: the server is there, or back within a moment.
    async fn is_lost<T: Sync>(&self, generation: u64, answer: &Result<T, BusError>) -> bool {
        if !matches!(answer, Err(BusError::Timeout { .. } | BusError::Unavailable(_))) {
            return false;
        }
        if self.is_connected_as(generation) {
            return true;
        }
        let is_back = async {
            while self.generation() == generation || !self.is_connected() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(BACK_MAX, is_back).await.is_ok()
    }

    /// The last message of a filter, from any replica.
    pub(super) async fn direct_last(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        self.read_again(|| self.direct_last_once(stream, filter)).await
    }

    async fn direct_last_once(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        let generation = self.generation();
        let body = crate::json::encode(&serde_json::json!({ "last_by_subj": filter }))?;
        let answer = self.ask_server(&direct(stream), Headers::new(), body, ANSWER_MAX).await;
        let answer = answer.map_err(|error| not_responding(error, stream))?;
        match answer.status {
            None => read_direct(&answer, generation).map(Some),
            Some(status) if status.as_u16() == NOT_FOUND => Ok(None),
            Some(status) => Err(refused(stream, status, answer.description)),
        }
    }

    /// The last message of a filter, from the leader.
    pub(super) async fn leader_last(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        self.read_again(|| self.leader_last_once(stream, filter)).await
    }

    async fn leader_last_once(&self, stream: &str, filter: &str) -> Result<Option<Stored>, BusError> {
        let generation = self.generation();
        let handle = self.jetstream.get_stream_no_info(stream).await.map_err(|e| BusError::Malformed(e.to_string()))?;
        let read = async { Ok(handle.get_last_raw_message_by_subject(filter).await) };
        match self.over_connection(ANSWER_MAX, stream, read).await? {
            Ok(found) => Ok(Some(Stored {
                subject: found.subject.into_string(),
                seq: found.sequence,
                stored_at: millis(found.time.unix_timestamp_nanos()),
                generation,
                headers: headers_of(Some(&found.headers)),
                payload: found.payload,
            })),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                LastRawMessageErrorKind::InvalidSubject => {
                    Err(BusError::Malformed(format!("{filter:?} is no subject")))
                }
                LastRawMessageErrorKind::JetStream(refusal) if refusal.code() < 500 => Err(BusError::Unusable {
                    code: ErrorCode::Internal,
                    message: format!("JetStream refuses to read {stream}: {refusal}"),
                }),
                LastRawMessageErrorKind::JetStream(_) | LastRawMessageErrorKind::Other => {
                    Err(BusError::Unavailable(format!("{stream}: {error}")))
                }
            },
        }
    }

    /// The last message of every subject that matches one of the filters, in stream order, from any replica.
    pub(super) async fn direct_last_many(&self, stream: &str, filters: &[&str]) -> Result<ReadMany, BusError> {
        self.read_again(|| self.direct_last_many_once(stream, filters)).await
    }

    async fn direct_last_many_once(&self, stream: &str, filters: &[&str]) -> Result<ReadMany, BusError> {
        let mut messages = Vec::new();
        let mut body = serde_json::json!({ "multi_last": filters });
        loop {
            match self.direct_page(stream, &body, &mut messages).await? {
                Page::Last => return Ok(ReadMany::Messages(messages)),
                Page::TooMany => return Ok(ReadMany::TooMany),
                Page::More { after, up_to } => {
                    body = serde_json::json!({ "multi_last": filters, "seq": after + 1, "up_to_seq": up_to });
                }
            }
        }
    }

    /// Every message of a subject, in stream order, from any replica.
    pub(super) async fn direct_all(&self, stream: &str, subject: &str) -> Result<Vec<Stored>, BusError> {
        self.read_again(|| self.direct_all_once(stream, subject)).await
    }

    async fn direct_all_once(&self, stream: &str, subject: &str) -> Result<Vec<Stored>, BusError> {
        let (mut messages, mut from) = (Vec::new(), 1);
        loop {
            let body = serde_json::json!({ "next_by_subj": subject, "seq": from, "batch": BATCH });
            match self.direct_page(stream, &body, &mut messages).await? {
                Page::More { after, .. } => from = after + 1,
                Page::Last | Page::TooMany => return Ok(messages),
            }
        }
    }

    async fn direct_page(
        &self,
        stream: &str,
        body: &serde_json::Value,
        messages: &mut Vec<Stored>,
    ) -> Result<Page, BusError> {
        let generation = self.generation();
        let mut answers = self.ask_many(&direct(stream), Headers::new(), crate::json::encode(body)?).await?;
        loop {
            let late = || BusError::Timeout { what: format!("read of {stream}") };
            let answer = tokio::time::timeout(NEXT_MAX, answers.next()).await.map_err(|_| late())?;
            let answer = answer.ok_or_else(late)?;
            let Some(status) = answer.status else {
                messages.push(read_direct(&answer, generation)?);
                continue;
            };
            return match status.as_u16() {
                NOT_FOUND => Ok(Page::Last),
                TOO_MANY => Ok(Page::TooMany),
                END => {
                    let headers = headers_of(answer.headers.as_ref());
                    let number = |name| header(&headers, name).and_then(|value| value.parse().ok());
                    Ok(match (number("Nats-Num-Pending"), messages.last()) {
                        (Some(1..), Some(last)) => Page::More { after: last.seq, up_to: number("Nats-UpTo-Sequence") },
                        _ => Page::Last,
                    })
                }
                _ => Err(refused(stream, status, answer.description)),
            };
        }
    }
}

/// End of one page of a read.
enum Page {
    /// All messages were read.
    Last,
    /// The read reached a limit of the server or of its batch: there are more messages. `up_to` is the last sequence of
    /// a read of several subjects, which the rest must not go beyond.
    More { after: u64, up_to: Option<u64> },
    /// The server refused: too many subjects match.
    TooMany,
}

/// Nanoseconds since the epoch, as the client library has them.
fn millis(nanos: i128) -> Timestamp {
    Timestamp::from_millis(u64::try_from(nanos / 1_000_000).unwrap_or_default())
}

fn direct(stream: &str) -> String {
    format!("$JS.API.DIRECT.GET.{stream}")
}

/// A message that a direct read over the connection of this generation has found.
fn read_direct(message: &async_nats::Message, generation: u64) -> Result<Stored, BusError> {
    let missing = |name: &str| BusError::Malformed(format!("a direct read without {name}"));
    let map = message.headers.as_ref().ok_or_else(|| missing("headers"))?;
    let added = |name: &str| map.get_last(name).map(HeaderValue::as_str);
    let subject = added("Nats-Subject").ok_or_else(|| missing("Nats-Subject"))?.to_owned();
    let seq = added("Nats-Sequence").and_then(|seq| seq.parse().ok()).ok_or_else(|| missing("Nats-Sequence"))?;
    let stored_at = added("Nats-Time-Stamp").and_then(Timestamp::parse).ok_or_else(|| missing("Nats-Time-Stamp"))?;
    let headers = headers_without(map, &ADDED);
    Ok(Stored { subject, seq, stored_at, generation, headers, payload: message.payload.clone() })
}

fn refused(stream: &str, status: StatusCode, description: Option<String>) -> BusError {
    BusError::Unavailable(format!("read of {stream}: {status} {}", description.unwrap_or_default()))
}

fn not_responding(error: BusError, stream: &str) -> BusError {
    if let BusError::NoResponders { .. } = error {
        return BusError::Unavailable(format!("JetStream does not serve stream {stream} now"));
    }
    error
}
