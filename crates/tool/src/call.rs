//! One call of a tool, as its handler sees it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_nats::{Client, HeaderMap, Message, Subject};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ToolError;
use crate::wire::header;

/// Progress messages of one call that are sent without a pause.
const PROGRESS_UNPACED_MAX: u32 = 500;
/// Progress messages of one call in all: NATS users of tools may answer a call a thousand times, and one of the answers
/// is the result.
const PROGRESS_MAX: u32 = 990;
/// After [`PROGRESS_UNPACED_MAX`] messages one is sent in this part of the timeout, since each grants the whole timeout
/// again.
const PROGRESS_PER_TIMEOUT: u32 = 4;

/// One call. A caller without an executor (`nats request`) may omit every header; the texts are empty then.
#[derive(Debug, Clone)]
pub struct Call {
    client: Client,
    pub(crate) reply: Option<Subject>,
    headers: HeaderMap,
    payload: Bytes,
    clock: Arc<CallClock>,
}

/// Deadline of a call, which progress extends.
#[derive(Debug)]
struct CallClock {
    /// This replica, as `<service name>.<service id>`.
    instance: String,
    /// Granted again by each progress message.
    timeout: Duration,
    deadline: watch::Sender<Option<SystemTime>>,
    progress_budget: Mutex<ProgressBudget>,
}

/// Counts the progress messages of a call.
#[derive(Debug, Default)]
struct ProgressBudget {
    count: u32,
    last: Option<Instant>,
}

impl ProgressBudget {
    /// Takes one message from the budget; returns whether it may be sent.
    fn try_take(&mut self, timeout: Duration) -> bool {
        let has_waited = self.last.is_none_or(|last| last.elapsed() >= timeout / PROGRESS_PER_TIMEOUT);
        let is_allowed = self.count < PROGRESS_UNPACED_MAX || (self.count < PROGRESS_MAX && has_waited);
        if is_allowed {
            self.count += 1;
            self.last = Some(Instant::now());
        }
        is_allowed
    }
}

impl Call {
    pub(crate) fn new(client: Client, message: Message, instance: &str, timeout: Duration) -> Self {
        let headers = message.headers.unwrap_or_default();
        let deadline =
            headers.get(header::DEADLINE).and_then(|text| OffsetDateTime::parse(text.as_str(), &Rfc3339).ok());
        let (deadline, _) = watch::channel(deadline.map(SystemTime::from));
        let clock =
            Arc::new(CallClock { instance: instance.to_owned(), timeout, deadline, progress_budget: Mutex::default() });
        Self { client, reply: message.reply, headers, payload: message.payload, clock }
    }

    /// Waits until the call's deadline has been over for this time.
    pub(crate) async fn wait_until_overdue(&self, by: Duration) {
        let mut deadline_changes = self.clock.deadline.subscribe();
        loop {
            let deadline = *deadline_changes.borrow_and_update();
            let left = deadline.map(|at| time_until(at).saturating_add(by));
            tokio::select! {
                () = tokio::time::sleep(left.unwrap_or(Duration::MAX)) => return,
                _ = deadline_changes.changed() => {}
            }
        }
    }

    /// Parses the arguments as a type of yours; the error tells the model what does not fit. An empty body counts as
    /// `{}`.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        let body = self.body();
        // Serde would read a struct from a list, field by field.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(ToolError::new("the arguments do not fit: they are not a JSON object"));
        }
        serde_json::from_slice(body).map_err(|error| ToolError::new(format!("the arguments do not fit: {error}")))
    }

    /// The arguments object as JSON text.
    pub fn body(&self) -> &[u8] {
        if self.payload.is_empty() { b"{}" } else { &self.payload }
    }

    /// The call's id, unique in the fleet: an idempotent tool takes effect once per id.
    pub fn id(&self) -> &str {
        self.header_text(header::CALL)
    }

    /// Id of the calling session.
    pub fn session(&self) -> &str {
        self.header_text(header::SESSION)
    }

    /// Returns the start time of the session, as RFC 3339; empty if it is unknown.
    pub fn session_started(&self) -> &str {
        self.header_text(header::SESSION_STARTED)
    }

    /// Id of the calling agent.
    pub fn agent(&self) -> &str {
        self.header_text(header::AGENT)
    }

    /// `<attempt>.<delivery>`: differs between two tries of the same call.
    pub fn attempt(&self) -> &str {
        self.header_text(header::ATTEMPT)
    }

    /// The W3C trace context of the caller.
    pub fn traceparent(&self) -> &str {
        self.header_text(header::TRACEPARENT)
    }

    /// Returns the time after which the answer is no longer wanted; a second later the call is cancelled. Each
    /// [`Call::progress`] extends it by the tool's timeout.
    pub fn deadline(&self) -> Option<SystemTime> {
        *self.clock.deadline.borrow()
    }

    /// Time until the deadline; zero when it has passed.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(time_until)
    }

    /// Reports progress: viewers read it, and the call gets its whole timeout again, within the limits of its turn.
    /// Best effort: it is sent and not awaited. After 500 messages one is sent in a quarter of the timeout, and others
    /// are dropped.
    pub async fn progress(&self, text: impl Into<String>) {
        if self.reply.is_none()
            || !self.clock.progress_budget.lock().unwrap_or_else(PoisonError::into_inner).try_take(self.clock.timeout)
        {
            return;
        }
        self.clock.deadline.send_if_modified(|deadline| {
            let later = SystemTime::now() + self.clock.timeout;
            *deadline = deadline.map(|at| later.max(at));
            deadline.is_some()
        });
        self.report(Bytes::from(text.into())).await;
    }

    /// Tells the executor which replica works on the call, with a text for viewers; without one it is no progress.
    pub(crate) async fn report(&self, text: Bytes) {
        let Some(reply) = self.reply.clone() else { return };
        let mut headers = HeaderMap::new();
        headers.insert(header::PROGRESS, "1");
        headers.insert(header::INSTANCE, self.clock.instance.as_str());
        if let Err(error) = self.client.publish_with_headers(reply, headers, text).await {
            tracing::debug!(%error, "progress was not sent");
        }
    }

    fn header_text(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.as_str())
    }
}

fn time_until(until: SystemTime) -> Duration {
    until.duration_since(SystemTime::now()).unwrap_or_default()
}
