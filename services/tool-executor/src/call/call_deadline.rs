//! Deadline of a running call: progress extends it and is published to viewers, and a replica that names itself can be
//! asked whether it is alive.

use std::time::Duration;

use bus::call::OpenCall;
use bus::{Bus, BusError};
use bytes::Bytes;
use contract::command::Verb;
use contract::event::{Envelope, ToolCallProgress, Topic};
use contract::limits::PROGRESS_EVERY;
use contract::subject::{self, Subject};
use contract::tool::{ExtendToolCall, ToolItem, header};
use contract::{CommandId, Json, Timestamp};
use tokio::time::{Instant, timeout};

use crate::Clock;
use crate::connection_health::ConnectionHealth;

/// Time before the deadline known to the loop at which the executor requests a later one; half the timeout if that is
/// less. The loop waits some seconds beyond its deadline, too.
const EXTENSION_LEAD: Duration = Duration::from_secs(5);
/// The least extension, from now on: each one is a commit, and a tool chooses its timeout itself.
const EXTENSION_MIN: Duration = Duration::from_secs(30);
/// Time that a request of this module may take.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// Pause before an extension that was not stored is requested again.
const REQUEST_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Pause between two pings of the replica that works on a call.
pub(super) const REPLICA_PING_EVERY: Duration = Duration::from_secs(2);
/// Longest time for which a replica may be away: a client that lost its connection is back sooner, unless the server
/// was away too.
const REPLICA_AWAY_MAX: Duration = Duration::from_secs(3);

/// State of the replica that works on a call, by its answer to a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaState {
    /// It is there, or it did not name itself, or nothing is known of it.
    There,
    /// It works on the call no more, so its reply is on its way, or lost.
    Ended,
    /// Its process is gone.
    Gone,
}

/// Deadlines of a call. `deadline` and `known` come from one reading of the clock: a later deadline than the known one
/// makes the executor request an extension, and the time between two readings must not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// After it the tool's answer is no longer wanted.
    pub(crate) deadline: Instant,
    /// The deadline that the loop knows of.
    pub(crate) known: Instant,
    /// `deadline` by the clock, as the claim names it.
    pub(crate) claimed: Timestamp,
}

/// Deadline and signs of life of one running call.
pub(super) struct CallDeadline<'a> {
    bus: &'a Bus,
    clock: &'a dyn Clock,
    work: &'a OpenCall<ToolItem>,
    /// Granted again by each sign of progress.
    timeout: Duration,
    deadline: Instant,
    /// The deadline that the loop knows of.
    known_deadline: Instant,
    /// Earliest time of the next request for an extension.
    next_request_from: Instant,
    last_progress_at: Option<Instant>,
    last_published_at: Option<Instant>,
    progress_count: u64,
    instance: Option<Subject>,
    away_since: Option<Instant>,
}

impl<'a> CallDeadline<'a> {
    pub(super) fn new(bus: &'a Bus, clock: &'a dyn Clock, work: &'a OpenCall<ToolItem>, deadlines: Deadlines) -> Self {
        let now = Instant::now();
        let Deadlines { deadline, known: known_deadline, claimed: _ } = deadlines;
        let left = deadline.saturating_duration_since(now);
        let timeout_ms = work.item.timeout_ms;
        let timeout = if timeout_ms == 0 { left } else { Duration::from_millis(timeout_ms) };
        Self {
            bus,
            clock,
            work,
            timeout,
            deadline,
            known_deadline,
            next_request_from: now,
            last_progress_at: None,
            last_published_at: None,
            progress_count: 0,
            instance: None,
            away_since: None,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the time at which to request an extension; `None` if the loop knows the deadline.
    pub(super) fn next_extension_at(&self) -> Option<Instant> {
        let before = EXTENSION_LEAD.min(self.timeout / 2);
        let early = || self.known_deadline.checked_sub(before).unwrap_or(self.known_deadline);
        (self.known_deadline < self.deadline).then(|| early().max(self.next_request_from))
    }

    /// Whether the call has shown progress since it was sent.
    pub(super) fn has_progress(&self) -> bool {
        self.last_progress_at.is_some()
    }

    /// Time since the last progress; `None` if there was none.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        self.last_progress_at.map(|at| at.elapsed())
    }

    /// Requests the time that the call has by now. The loop decides, and may cancel the call instead.
    pub(super) async fn request_extension(&mut self) {
        let now = Instant::now();
        let wanted = self.deadline.max(now + EXTENSION_MIN);
        let left = wanted.saturating_duration_since(now);
        let id = uuid::Uuid::now_v7().simple().to_string();
        let meta = self.work.item.result_meta();
        let extension = ExtendToolCall { meta, deadline: self.clock.now().after(left) };
        let body = Bytes::from(Json::of(&extension).get().to_owned());
        let Ok(id) = CommandId::new(&id) else { return };
        let stored = timeout(REQUEST_MAX, self.bus.send_control(&self.work.key, Verb::ExtendToolCall, &id, body)).await;
        let failed = match stored {
            Ok(sent) => sent.err().map(|error| error.to_string()),
            Err(late) => Some(late.to_string()),
        };
        match failed {
            None => self.known_deadline = wanted,
            Some(error) => {
                self.next_request_from = Instant::now() + REQUEST_RETRY_AFTER;
                tracing::debug!(session = %self.work.key, call = %self.work.call, error, "the extension was not requested");
            }
        }
    }

    /// Grants the whole time again, since the call is sent once more, perhaps to another replica.
    pub(super) fn restart(&mut self) {
        self.deadline = self.deadline.max(Instant::now() + self.timeout);
        self.forget_replica();
    }

    /// Forgets the replica that worked on the call, since it is sent once more.
    pub(super) fn forget_replica(&mut self) {
        self.last_progress_at = None;
        self.instance = None;
        self.away_since = None;
    }

    /// Extends the deadline, and publishes the text to viewers.
    pub(super) async fn record_progress(&mut self, text: String, instance: Option<&str>) {
        let now = Instant::now();
        self.deadline = self.deadline.max(now + self.timeout);
        self.last_progress_at = Some(now);
        if let Some(instance) = instance.and_then(subject::service_ping) {
            self.instance = Some(instance);
            self.away_since = None;
        }
        if text.is_empty() || self.last_published_at.is_some_and(|at| now.duration_since(at) < PROGRESS_EVERY) {
            return;
        }
        self.last_published_at = Some(now);
        self.work.note.set(&format!("progress: {text}"));
        self.progress_count += 1;
        let data = ToolCallProgress { call: self.work.call.call.clone(), tool: self.work.item.tool.clone(), text };
        let envelope = Envelope {
            id: format!("{}-{}-progress-{}", self.work.key.session, self.work.call, self.progress_count),
            session_id: self.work.key.session.clone(),
            tenant: self.work.key.tenant.clone(),
            seq: None,
            time: self.clock.now(),
            trace_id: self.work.trace.map_or_else(String::new, |trace| trace.trace_id_hex()),
            data: Json::of(&data),
        };
        if let Err(error) = self.bus.publish_event(&self.work.key, Topic::ToolCallProgress, &envelope).await {
            tracing::debug!(session = %self.work.key, call = %self.work.call, %error, "progress was not published");
        }
    }

    /// Subject of a check: the replica that named itself, else all replicas of the tool.
    pub(super) fn query_subject(&self) -> Subject {
        self.instance.clone().unwrap_or_else(|| subject::service_info(&self.work.item.tool))
    }

    /// Pings the replica that works on the call.
    pub(super) async fn ping_replica(&mut self, call: String, health: Option<&ConnectionHealth>) -> ReplicaState {
        let Some(instance) = &self.instance else { return ReplicaState::There };
        let headers = vec![(header::CALL.to_owned(), call)];
        let pong = self.bus.transport().request(instance, headers, Bytes::new(), REQUEST_MAX).await;
        if let Err(BusError::NoResponders { .. }) = pong {
            let now = Instant::now();
            let since = *self.away_since.get_or_insert(now);
            let back_by = health.map_or(since, |health| health.reconnected_by(since));
            let is_gone = now >= back_by.max(since + REPLICA_AWAY_MAX);
            return if is_gone { ReplicaState::Gone } else { ReplicaState::There };
        }
        // A silent replica is alive, and without an answer of NATS nothing is known.
        self.away_since = None;
        let is_ended = pong.is_ok_and(|pong| pong.header(header::RUNNING).is_some_and(|running| running != "1"));
        if is_ended { ReplicaState::Ended } else { ReplicaState::There }
    }
}
