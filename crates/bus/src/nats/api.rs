//! Requests to JetStream and what it answers.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use async_nats::{HeaderMap, HeaderName, HeaderValue, RequestErrorKind};
use bytes::Bytes;
use contract::ErrorCode;
use contract::streams::Queue;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ANSWER_MAX, JETSTREAM_MAX, Nats};
use crate::transport::{Appended, Doubt, EXPECTED_LAST};
use crate::{BusError, Depth, Headers};

/// The server's codes that mean "another message was or may have been faster".
const OVERTAKEN: [u32; 3] = [10_071, 10_164, 10_158];
/// A maximum is exceeded: of the stream, or of one subject.
const MAXIMUM_EXCEEDED: u32 = 10_077;
/// Codes for "something is full": the account; the server, three times.
const FULL: [u32; 4] = [10_002, 10_023, 10_047, 10_028];
/// What the server says of a message where the subject has one.
const PER_SUBJECT: &str = "per subject";
/// The message is larger than the stream takes.
const TOO_LARGE: u32 = 10_054;
/// There is no message of this sequence: what a cluster says.
const NO_SEQUENCE: u32 = 10_043;
/// A message is not deleted; and what a single server says of one that is not there.
const NOT_DELETED: u32 = 10_057;
const GONE: [&str; 2] = ["no message found", "stream store EOF"];
/// JetStream is not enabled, for the server and for the account.
const NOT_ENABLED: [u32; 2] = [10_076, 10_039];

/// What JetStream refuses, in its own words.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refusal {
    /// As in HTTP.
    code: u16,
    /// Which.
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    description: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}{}", self.err_code, self.description, advice(self.err_code, &self.description))
    }
}

impl Refusal {
    pub(super) fn is_not_enabled(&self) -> bool {
        NOT_ENABLED.contains(&self.err_code)
    }

    /// The doubt that the refusal leaves; none where it is plain that nothing is stored.
    fn doubt(&self) -> Option<Doubt> {
        let text = self.to_string();
        match self.err_code {
            code if OVERTAKEN.contains(&code) => Some(Doubt::Overtaken(text)),
            MAXIMUM_EXCEEDED if self.description.contains(PER_SUBJECT) => Some(Doubt::Taken(text)),
            MAXIMUM_EXCEEDED => Some(Doubt::Full(text)),
            _ => None,
        }
    }

    /// The refusal as the caller's error.
    pub(super) fn into_error(self) -> BusError {
        if FULL.contains(&self.err_code) || self.code == 429 {
            BusError::Full(self.to_string())
        } else if self.code >= 500 {
            BusError::Unavailable(self.to_string())
        } else {
            BusError::Unusable { code: ErrorCode::Internal, message: format!("JetStream refuses: {self}") }
        }
    }
}

/// What to do about a refusal, where there is something to be done.
fn advice(err_code: u32, description: &str) -> &'static str {
    match err_code {
        10_002 => " (the account's limit: raise its max_file, or make room)",
        10_023 | 10_047 | 10_028 => " (nats-server's limit: raise max_file_store, or make room)",
        // A message that is there already is refused with the same code.
        MAXIMUM_EXCEEDED if !description.contains(PER_SUBJECT) => {
            " (somebody limited the stream: `ailoop bootstrap --fix`)"
        }
        _ => "",
    }
}

/// The refusal that a text of async-nats tells of, as the caller's error.
pub(super) fn full(text: &str) -> Option<BusError> {
    let rest = text.split("error code ").nth(1)?;
    let err_code = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let is_full = FULL.contains(&err_code) || err_code == MAXIMUM_EXCEEDED;
    is_full.then(|| BusError::Full(format!("error {err_code}: {text}{}", advice(err_code, text))))
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Refused { error: Refusal },
    Given(T),
}

/// What every append is answered with, in one look: there are many of them.
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

#[derive(Deserialize)]
struct Told {
    num_pending: u64,
    num_ack_pending: u64,
}

#[derive(Deserialize)]
struct Purged {
    purged: u64,
}

impl Nats {
    /// Asks JetStream; the inner error is its refusal.
    pub(super) async fn js_request<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: Option<&Value>,
    ) -> Result<Result<T, Refusal>, BusError> {
        let body = body.map(crate::log::encode).transpose()?.unwrap_or_default();
        let answer = self.js_raw(subject, Headers::new(), body, JETSTREAM_MAX).await?;
        read_answer(&answer)
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
        let bytes = payload.len();
        let answer = self.js_raw(subject, headers, payload, ANSWER_MAX).await.map_err(|error| {
            if let BusError::Timeout { what } = error {
                let what = format!("{what} (nats-server's log may say why: a full disk, for example)");
                return BusError::Timeout { what };
            }
            error
        })?;
        let Published { error, seq, duplicate, stream } = read_published(&answer)?;
        if error.is_none() {
            self.seen.note_by_name(&stream, seq);
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

    /// What a consumer has before it, and what it has given away.
    pub(super) async fn js_depth(&self, queue: Queue) -> Result<Depth, BusError> {
        let subject = format!("$JS.API.CONSUMER.INFO.{}.{}", queue.stream().name(), queue.durable());
        let told = self.js_request::<Told>(&subject, None).await?.map_err(Refusal::into_error)?;
        Ok(Depth { waiting: told.num_pending, held: told.num_ack_pending })
    }

    /// Removes what matches `filter`.
    pub(super) async fn js_purge(&self, stream: &str, filter: &str) -> Result<u64, BusError> {
        let body = serde_json::json!({ "filter": filter });
        let answer = self.js_request::<Purged>(&format!("$JS.API.STREAM.PURGE.{stream}"), Some(&body)).await?;
        answer.map(|purged| purged.purged).map_err(Refusal::into_error)
    }

    /// Removes a message; that it is gone already is success as well.
    pub(super) async fn js_delete(&self, stream: &str, seq: u64) -> Result<(), BusError> {
        let body = serde_json::json!({ "seq": seq, "no_erase": true });
        let subject = format!("$JS.API.STREAM.MSG.DELETE.{stream}");
        match self.js_request::<serde::de::IgnoredAny>(&subject, Some(&body)).await? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.err_code == NO_SEQUENCE => Ok(()),
            // One code for every reason; there is no other way to tell this one.
            Err(refusal) if refusal.err_code == NOT_DELETED && GONE.contains(&refusal.description.as_str()) => Ok(()),
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    /// A request that JetStream answers; nobody answering means that it has no leader, or is not there.
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

fn read_published(answer: &[u8]) -> Result<Published<'_>, BusError> {
    serde_json::from_slice(answer).map_err(|error| BusError::Malformed(error.to_string()))
}

fn read_answer<T: DeserializeOwned>(body: &[u8]) -> Result<Result<T, Refusal>, BusError> {
    Ok(match crate::log::parse(body)? {
        Answer::Refused { error } => Err(error),
        Answer::Given(given) => Ok(given),
    })
}

/// Our headers as async-nats wants them; one that could break out of its line is refused.
pub(super) fn header_map(headers: Headers) -> Result<HeaderMap, BusError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let malformed = || BusError::Malformed(format!("header {name:?} cannot be sent"));
        let value: HeaderValue = value.parse().map_err(|_| malformed())?;
        map.append(HeaderName::try_from(name.as_str()).map_err(|_| malformed())?, value);
    }
    Ok(map)
}

/// Headers as we keep them.
pub(super) fn headers_of(map: Option<&HeaderMap>) -> Headers {
    let Some(map) = map else { return Headers::new() };
    let all = map.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    let mut headers: Headers = all.map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect();
    // The map's order is chance.
    headers.sort();
    headers
}

/// Why a request was not answered.
pub(super) fn request_error(error: &async_nats::RequestError, subject: &str, bytes: usize, max: usize) -> BusError {
    match error.kind() {
        RequestErrorKind::TimedOut => BusError::Timeout { what: subject.to_owned() },
        RequestErrorKind::NoResponders => BusError::NoResponders { subject: subject.to_owned() },
        RequestErrorKind::InvalidSubject => BusError::Malformed(format!("{subject:?} is no subject")),
        RequestErrorKind::MaxPayloadExceeded => BusError::TooLarge { bytes, max },
        // The connection went away under it: nobody knows.
        RequestErrorKind::Other => BusError::Timeout { what: format!("{subject}: {error}") },
    }
}
