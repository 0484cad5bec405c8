//! Identity of requests: a repeated request must not begin a second turn, and no request may meet the turn of another
//! one.
//!
//! A client that gives its request an id, or an `Idempotency-Key`, says itself what is a repetition: its ids follow
//! from that. A client that only counts its tries says that it repeats something, but not what. Its first try is noted
//! by a digest until its answer is delivered, and a later try takes over the only one that is still noted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::Response;
use bus::{Bus, BusError};
use contract::tool::sha256_hex;
use contract::{TenantId, Timestamp};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use service::tasks::Tasks;

use crate::access::ApiCaller;
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::clock;

/// Shortest time for which a request can be repeated under its `Idempotency-Key`.
const WINDOW: Duration = Duration::from_mins(15);
/// Longest time that the turn of a request waits until its note is stored.
const NOTE_MAX: Duration = Duration::from_secs(1);

/// Identity of a request, by which its repetitions are recognized. Clones identify the same request.
#[derive(Debug, Clone)]
pub struct RequestIdentity {
    /// The id of the session or message of the request.
    id: String,
    /// An id that an earlier try may have had in its place.
    earlier: Option<String>,
    pub(super) is_retry: bool,
    /// The id of a command of a request that names a key: the same for each repetition.
    command_id: Option<String>,
    note: Option<Arc<RequestNote>>,
}

/// The note of a request whose client may repeat it without a key.
#[derive(Debug)]
struct RequestNote {
    bus: Bus,
    tasks: Tasks,
    tenant: TenantId,
    /// Digest of caller and content: the same for equal requests.
    digest: String,
    id: String,
    /// Number of times that the client has repeated the request.
    count: u32,
    is_noted: AtomicBool,
}

impl RequestIdentity {
    /// Identifies a request by its `Idempotency-Key`, or else by the tries that SDKs count in a header. `subject` is
    /// the caller with what the request is about beside its body.
    pub async fn of_request(
        api: &SessionApi,
        caller: &ApiCaller,
        subject: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, ApiError> {
        if let Some(key) = headers.get("idempotency-key").filter(|key| !key.is_empty()) {
            return Ok(Self::of_key(subject, key.as_bytes(), clock::now()));
        }
        let new = Self::new(api, caller)?;
        let count = headers.get("x-stainless-retry-count").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        let Some(count) = count else { return Ok(new) };
        let bus = api.any_cell(caller)?.bus.clone();
        let digest = sha256_hex(&[subject.as_bytes(), b"\0", body].concat());
        let repeated = if count > 0 { bus.repeat_request(&caller.tenant, &digest, count).await? } else { None };
        let (id, is_noted) = match repeated {
            Some(id) => (id, true),
            None => (new.id, false),
        };
        let (tasks, tenant) = (api.tasks().clone(), caller.tenant.clone());
        let is_noted = AtomicBool::new(is_noted);
        let note = RequestNote { bus, tasks, tenant, digest, id: id.clone(), count, is_noted };
        Ok(Self { id, is_retry: count > 0, note: Some(Arc::new(note)), ..new })
    }

    /// Makes the identity of a request that is no repetition of another one.
    pub fn new(api: &SessionApi, caller: &ApiCaller) -> Result<Self, ApiError> {
        let id = api.generate_session_id(caller)?.to_string();
        Ok(Self { id, earlier: None, is_retry: false, command_id: None, note: None })
    }

    /// Makes the identity of a request with an idempotency key. It is the same for 15 to 30 minutes.
    pub fn of_key(subject: &str, key: &[u8], now: Timestamp) -> Self {
        let digest = sha256_hex(&[subject.as_bytes(), b"\0key\0", key].concat());
        let window = u128::from(now.as_millis()) / WINDOW.as_millis();
        let id = |window: u128| to_id(&format!("{digest}.{window}"));
        let earlier = Some(id(window.saturating_sub(1)));
        let command_id = Some(format!("key-{}", &digest[..32]));
        Self { id: id(window), earlier, is_retry: true, command_id, note: None }
    }

    /// Makes the identity of a request to which its client gave an id of its own, for all time. Another content under
    /// the id is another request.
    pub fn of_id(caller: &str, id: &str, content: &[u8]) -> Self {
        let digest = sha256_hex(&[caller.as_bytes(), b"\0id\0", id.as_bytes(), b"\0", content].concat());
        Self { id: to_id(&digest), earlier: None, is_retry: true, command_id: None, note: None }
    }

    /// Whether the request may have been sent before.
    pub fn is_retry(&self) -> bool {
        self.is_retry
    }

    /// Returns the id that the request has unless an earlier try has another one.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the ids that an earlier try may have.
    pub(super) fn known_ids(&self) -> impl Iterator<Item = &str> {
        let ids = std::iter::once(&*self.id).chain(self.earlier.as_deref());
        ids.filter(|_| self.is_retry)
    }

    /// Returns the id of the command of a request that names a key: the same for each repetition.
    pub fn command_id(&self) -> Option<String> {
        self.command_id.clone()
    }

    /// Notes the request before its turn begins, so that a repetition finds it. It begins also without the note.
    pub(super) async fn note(&self) {
        if let Some(note) = &self.note
            && !note.is_noted.load(Ordering::Acquire)
        {
            let RequestNote { tenant, digest, id, count, .. } = &**note;
            let noted = tokio::time::timeout(NOTE_MAX, note.bus.note_request(tenant, digest, id, *count));
            let why = match noted.await {
                Ok(Ok(())) => return note.is_noted.store(true, Ordering::Release),
                Ok(Err(error)) => error,
                Err(_) => BusError::Timeout { what: "the note of a request".to_owned() },
            };
            tracing::warn!(error = %why, "a repetition of this request would begin another turn");
        }
    }

    /// Notes when the client has the answer: a later request is no repetition of this one. After an error, the client
    /// may repeat the request if the error says so.
    pub fn settle(&self, answer: Result<Response, ApiError>) -> Result<Response, ApiError> {
        let Some(note) = &self.note else { return answer };
        match answer {
            Ok(response) => {
                let note = Some(note.clone());
                Ok(response.map(|inner| Body::new(AnswerBody { inner, note })))
            }
            Err(error) => {
                if error.retry_after.is_none() {
                    note.forget();
                }
                Err(error)
            }
        }
    }
}

impl RequestNote {
    /// Forgets the request, in a task: nobody waits for it.
    fn forget(self: &Arc<Self>) {
        if !self.is_noted.swap(false, Ordering::AcqRel) {
            return;
        }
        let note = self.clone();
        self.tasks.spawn("request note", async move {
            if let Err(error) = note.bus.forget_request(&note.tenant, &note.digest, &note.id).await {
                tracing::debug!(%error, "the note of an answered request stays until it expires");
            }
        });
    }
}

/// The body of an answer. Its request is forgotten once the connection has taken all of it.
struct AnswerBody {
    inner: Body,
    note: Option<Arc<RequestNote>>,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let is_last = match &frame {
            None => true,
            Some(Ok(_)) => self.inner.is_end_stream(),
            Some(Err(_)) => false,
        };
        if is_last && let Some(note) = self.note.take() {
            note.forget();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn to_id(text: &str) -> String {
    format!("chat-{}", &sha256_hex(text.as_bytes())[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed(caller: &str, key: &str, minute: u64) -> RequestIdentity {
        RequestIdentity::of_key(caller, key.as_bytes(), Timestamp::default().after(Duration::from_mins(minute)))
    }

    #[test]
    fn repeated_request_with_a_key_knows_the_id_of_the_first_one_also_in_the_next_window() {
        let (first, again) = (keyed("a", "k", 14), keyed("a", "k", 16));
        assert!(again.known_ids().any(|id| id == first.id()));
        assert_eq!(first.command_id(), again.command_id());
        for other in [keyed("b", "k", 14), keyed("a", "l", 14), keyed("a", "k", 60)] {
            assert!(other.known_ids().all(|id| id != first.id()));
        }
    }

    #[test]
    fn identity_of_an_id_is_that_of_its_caller_and_content() {
        let id = |caller, id, content: &str| {
            let identity = RequestIdentity::of_id(caller, id, content.as_bytes());
            assert_eq!(identity.known_ids().collect::<Vec<_>>(), [identity.id()]);
            identity.id
        };
        assert_eq!(id("a", "m", "x"), id("a", "m", "x"));
        for other in [id("b", "m", "x"), id("a", "n", "x"), id("a", "m", "y")] {
            assert_ne!(other, id("a", "m", "x"));
        }
    }
}
