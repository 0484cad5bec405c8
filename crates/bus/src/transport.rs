//! The trait between the bus and a server. NATS and the in-memory server of `bus-memory` implement it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, ControlSubject, Subject};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::BusError;

/// Names and values. Headers cost more than body bytes (see benchmarks.md), so there are few.
pub type Headers = Vec<(String, String)>;

/// A message on core NATS.
#[derive(Debug, Clone)]
pub struct CoreMessage {
    /// The subject that it was sent to.
    pub subject: String,
    /// The subject for the answer; none where no answer is expected.
    pub reply: Option<String>,
    /// Headers in the order of the message.
    pub headers: Headers,
    /// The body as it was sent.
    pub payload: Bytes,
}

impl CoreMessage {
    /// A header by name, letter case aside.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// A header by name, letter case aside.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Stream of the events of a subscription. Dropping it unsubscribes.
pub type Subscription = BoxStream<'static, SubscriptionEvent>;

/// An event of a subscription.
#[derive(Debug, Clone)]
pub enum SubscriptionEvent {
    /// A message of the subscription.
    Message(CoreMessage),
    /// Messages may have been lost here (a reconnect, a full buffer): read what can be read again.
    Gap,
}

/// A message of a stream.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The subject that it was stored under.
    pub subject: String,
    /// Its sequence in the stream.
    pub seq: u64,
    /// Time at which it was stored, by the server's clock.
    pub stored_at: Timestamp,
    /// The [`Transport::generation`] of the connection over which it was read.
    pub generation: u64,
    /// Headers in the order of the message.
    pub headers: Headers,
    /// The body, which may be a reference (see [`crate::body`]).
    pub payload: Bytes,
}

/// Header that lets a message in only when the last one of its subject has this sequence; 0: when there is none.
pub const EXPECTED_LAST: &str = "Nats-Expected-Last-Subject-Sequence";

/// Header on the marker that a deleted entry of a bucket leaves.
pub const KV_OPERATION: &str = "KV-Operation";

/// Most bytes of one object: a body of full size, with room for its JSON.
pub const OBJECT_BYTES_MAX: usize = 64 << 20;

/// Header that applies [`EXPECTED_LAST`] to another subject or filter than the message's own.
pub const EXPECTED_OF: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

/// Header that says when a scheduled message is due: `@at <RFC 3339>`.
pub const SCHEDULE: &str = "Nats-Schedule";

/// Header that names the subject to which the server sends a scheduled message when it is due.
pub const SCHEDULE_TARGET: &str = "Nats-Schedule-Target";

/// Header with the time to live of a message in seconds, for less than its stream would keep it.
pub const TTL: &str = "Nats-TTL";

/// The header for a time to live; whole seconds, at least one.
pub fn ttl_header(ttl: Duration) -> (String, String) {
    (TTL.to_owned(), ttl.as_secs().max(1).to_string())
}

/// The outcome of an append that the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Appended {
    /// Stored under this sequence.
    Stored(u64),
    /// The server says that a message is or may be there already, or that another one was faster: only a leader read
    /// tells.
    Doubtful(Doubt),
}

/// Reason why the answer to an append leaves open what is stored. The text is the server's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// The server answered `duplicate: true`.
    #[error("duplicate")]
    Duplicate,
    /// Another message was or may have been faster (10071, 10164, 10158).
    #[error("{0}")]
    Overtaken(String),
    /// The subject has its one message (10077, maximum messages per subject).
    #[error("{0}")]
    Taken(String),
    /// The stream takes no more messages (10077).
    #[error("{0}")]
    Full(String),
}

impl Doubt {
    /// Returns the error for a caller that knows that nothing is stored: [`BusError::Full`] if the stream takes no more
    /// messages, else [`BusError::Unavailable`], because the write is not visible yet.
    pub fn into_error(self) -> BusError {
        let text = self.to_string();
        match self {
            Self::Full(_) => BusError::Full(text),
            Self::Duplicate | Self::Overtaken(_) | Self::Taken(_) => BusError::Unavailable(text),
        }
    }
}

/// Required freshness of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// From any replica; may be stale: "there" may be believed, "not there" never.
    Any,
    /// From the leader, which has every acknowledged write.
    Leader,
}

/// The result of a read of several subjects.
#[derive(Debug, Clone)]
pub enum ReadMany {
    /// The last message of each subject, in stream order.
    Messages(Vec<Stored>),
    /// More than 1,024 subjects match (error 413).
    TooMany,
}

/// An item that waited less was not delivered before: a server, or another leader, takes longer to start.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(500);
/// Pause before a worker subscribes as the holder of a call: long before its item can be redelivered.
pub(crate) const HOLD_AFTER: Duration = Duration::from_millis(500);
/// Delay before a worker asks for the holder of an item that was published again. If an earlier worker got the item
/// only a moment ago, that one can answer by then.
const ASK_AFTER: Duration = HOLD_AFTER.saturating_mul(2);
/// Longest pause between two tries to reach a server that went away.
pub(crate) const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Time after a reconnect by which all other clients have reconnected too.
const RECONNECTED_AFTER: Duration = RECONNECT_MAX.saturating_add(Duration::from_millis(250));

/// An item of a work queue, held until it is settled.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The subject that it was stored under.
    pub subject: String,
    /// Its sequence in the stream.
    pub seq: u64,
    /// Number of the delivery, from 1; 0 for a result that a worker sent by request, which no stream has.
    pub delivered: u64,
    /// Time at which it was stored, by the server's clock.
    pub stored_at: Timestamp,
    /// Time from storing to this delivery, by the server's clock.
    pub waited: Duration,
    /// Age of the connection at this delivery.
    pub connected_for: Duration,
    /// The [`Transport::generation`] of that connection.
    pub generation: u64,
    /// Headers in the order of the message.
    pub headers: Headers,
    /// The body, which may be a reference (see [`crate::body`]).
    pub payload: Bytes,
    /// The reply subject for acknowledgements.
    pub ack: String,
}

impl Delivery {
    /// A result that a worker sent by request, with the number `seq` of this worker. It has the subject under which it
    /// would be stored otherwise, and its worker waits for the answer. None for a request that is no result.
    pub(crate) fn of_request(message: CoreMessage, seq: u64, generation: u64) -> Option<Self> {
        let ControlSubject { key, verb, id } = subject::parse_result(&message.subject)?;
        Some(Self {
            subject: subject::control(&key, verb, &id).to_string(),
            seq,
            delivered: 0,
            stored_at: Timestamp::default(),
            waited: Duration::ZERO,
            connected_for: Duration::MAX,
            generation,
            headers: message.headers,
            payload: message.payload,
            ack: message.reply?,
        })
    }

    /// Whether a worker sent it by request, and no stream has it.
    pub fn is_request(&self) -> bool {
        self.delivered == 0
    }

    /// The delivery without headers and body, which an ack does not need.
    #[must_use]
    pub fn without_content(&self) -> Self {
        let Self { subject, ack, .. } = self;
        Self { subject: subject.clone(), ack: ack.clone(), headers: Vec::new(), payload: Bytes::new(), ..*self }
    }

    /// Whether a worker may have held it before, or an earlier copy: it was delivered before, or published before, or
    /// it waited for so long that a server may have died meanwhile and forgotten that.
    pub fn may_have_been_held(&self) -> bool {
        // What was there before this connection may have been given away by a server that died since, however short it
        // was gone.
        self.delivered > 1 || self.is_again() || self.waited > FORGOTTEN_AFTER.min(self.connected_for)
    }

    /// Whether it was published before.
    fn is_again(&self) -> bool {
        header(&self.headers, contract::tool::header::AGAIN).is_some()
    }

    /// Returns the delay before its holder is asked; none if a holder, should there be one, answers at once.
    pub(crate) fn ask_after(&self) -> Option<Duration> {
        if self.delivered == 1 && self.is_again() {
            // It may have been given away only a moment ago.
            return Some(ASK_AFTER);
        }
        // The server was away, and its holder may still look for it.
        let is_back = self.generation > 1 && self.waited > self.connected_for && self.connected_for < RECONNECTED_AFTER;
        is_back.then(|| RECONNECTED_AFTER.saturating_sub(self.connected_for))
    }
}

/// An acknowledgement of a held item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The item is handled: remove it.
    Done,
    /// The item is in progress: restart its ack wait.
    Progress,
    /// Deliver the item again after this pause.
    Retry(Duration),
}

/// Policy for a stream or consumer that is missing or has other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftPolicy {
    /// Other settings are an error, and so is its absence after some patience: nothing is made or changed.
    Verify,
    /// Other settings are an error; what is missing is made.
    Refuse,
    /// Other settings are changed, where the server lets it be; what is missing is made.
    Repair,
}

/// A stream that went back: it was put back to an older state, or made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRewind {
    /// The stream that lost messages.
    pub stream: Stream,
    /// The highest sequence that this process saw in it.
    pub seen: u64,
    /// Its last sequence now.
    pub last: u64,
}

/// Number of items in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Depth {
    /// Items that no worker holds.
    pub waiting: u64,
    /// Items that were delivered and not settled, including those that are delivered again later.
    pub held: u64,
}

/// State of a queue: its items and the workers' requests for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueState {
    /// Items that wait, and items that are held.
    pub depth: Depth,
    /// Requests of workers for items.
    pub pullers: u64,
    /// Time at which the oldest item was stored; none if there is no item, or if the time is not known.
    pub oldest: Option<Timestamp>,
}

/// Size of a stream or object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageSize {
    /// Number of stored messages.
    pub messages: u64,
    /// Bytes on the disk of one replica, subjects and headers included.
    pub bytes: u64,
}

/// Something that holds data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One of the streams.
    Stream(Stream),
    /// An object store: each object is some messages.
    Objects(Objects),
}

/// The operations of a server.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Publishes on core NATS; returns when it is queued for sending.
    async fn publish(&self, subject: &Subject, headers: Headers, payload: Bytes) -> Result<(), BusError>;

    /// Publishes an answer to a request.
    async fn reply(&self, to: &str, headers: Headers, payload: Bytes) -> Result<(), BusError>;

    /// Sends a request and awaits one answer. [`BusError::NoResponders`] comes at once.
    async fn request(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<CoreMessage, BusError>;

    /// Sends a request and yields every answer until the stream is dropped; ends at once without a subscriber.
    async fn request_many(&self, subject: &Subject, headers: Headers, payload: Bytes)
    -> Result<Subscription, BusError>;

    /// Subscribes. The server processes this before everything that this connection sends afterwards; a
    /// [`Transport::ping`] confirms that it did.
    async fn subscribe(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError>;

    /// Appends to a stream. With `create`, only if its subject holds no message (expected-last-subject-sequence 0).
    async fn append(
        &self,
        subject: &Subject,
        create: bool,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Appended, BusError>;

    /// The last message whose subject matches the filter.
    async fn last(&self, stream: Stream, filter: &Subject, read: Read) -> Result<Option<Stored>, BusError>;

    /// The last message of every subject that matches one of the filters, in stream order, from any replica.
    async fn last_many(&self, stream: Stream, filters: &[Subject]) -> Result<ReadMany, BusError>;

    /// Removes every message whose subject matches; returns how many. Not for items of a queue: nats-server 2.15 may
    /// then forget other items that are held.
    async fn purge(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError>;

    /// Removes one message; one that is not there any more is fine. An error over another connection than that of its
    /// read: a server that came back with an older store may have given its sequence to another message.
    async fn delete(&self, stream: Stream, message: &Stored) -> Result<(), BusError>;

    /// Pulls up to `max` items, waiting up to `wait` for the first and the following ones. The stream ends when
    /// `max` came or `wait` is over; a lost server ends it early with an error. After `stop` it may end at once where
    /// nothing is on its way; otherwise it goes on until `wait` is over, so that nothing is left to the ack wait.
    async fn pull(
        &self,
        queue: Queue,
        max: usize,
        wait: Duration,
        stop: CancellationToken,
    ) -> Result<BoxStream<'static, Result<Delivery, BusError>>, BusError>;

    /// Tells the server about a held item; returns when that is on its way. One that gets lost costs a redelivery. An
    /// error over another connection than that of the delivery.
    async fn ack(&self, delivery: &Delivery, ack: Ack) -> Result<(), BusError>;

    /// Delivers nothing from a queue for this time; without one, delivers again at once.
    async fn pause_deliveries(&self, queue: Queue, duration: Option<Duration>) -> Result<(), BusError>;

    /// Forgets what was delivered from a queue: everything that its stream has is delivered again, as for the first time.
    async fn reset(&self, queue: Queue) -> Result<(), BusError>;

    /// Puts an entry; the newest wins. It expires after `ttl`, or as its bucket says.
    async fn kv_put(&self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<(), BusError>;

    /// Creates an entry, and returns its revision; `None` when there is one. It expires after `ttl`, or as its bucket
    /// says.
    async fn kv_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError>;

    /// Reads an entry from the leader.
    async fn kv_get(&self, bucket: Bucket, key: &str) -> Result<Option<Bytes>, BusError> {
        Ok(self.kv_entry(bucket, key).await?.map(|(_, value)| value))
    }

    /// Reads an entry and its revision from the leader.
    async fn kv_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError>;

    /// Replaces an entry of this revision, and returns that of the new one; `None` when it is of another one, or may
    /// be. The new one expires after `ttl`, or as its bucket says.
    async fn kv_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError>;

    /// Deletes an entry, present or not.
    async fn kv_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError>;

    /// Every entry whose key matches the filter (`tenant.*`), sorted by key. More than 1,024 are read page by page.
    async fn kv_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError>;

    /// The entries of [`Transport::kv_list`] page by page, so that not all of them are in memory at the same time.
    fn kv_pages<'a>(
        &'a self,
        bucket: Bucket,
        filter: &'a str,
    ) -> BoxStream<'a, Result<Vec<(String, Bytes)>, BusError>> {
        futures::stream::once(self.kv_list(bucket, filter)).boxed()
    }

    /// Stores a body under its SHA-256 in hex; storing it again changes nothing.
    async fn put_object(&self, store: Objects, sha256: &str, body: Bytes) -> Result<(), BusError>;

    /// Reads a body; `None` when it is not (or not yet) there.
    async fn get_object(&self, store: Objects, sha256: &str) -> Result<Option<Bytes>, BusError>;

    /// Removes a body; one that is not there any more is fine. An error over another connection than that by which it
    /// was learned that nothing needs it: in an older store something may.
    async fn delete_object(&self, store: Objects, sha256: &str, generation: u64) -> Result<(), BusError>;

    /// Retention of the archive.
    fn retention(&self) -> Duration;

    /// Creates or verifies the streams, consumers, buckets and stores of [`contract::streams`]. A setting that
    /// drifted is repaired, or an error that names it.
    async fn ensure(&self, drift: DriftPolicy) -> Result<(), BusError>;

    /// Reads the number of waiting and of held items of a queue.
    async fn depth(&self, queue: Queue) -> Result<Depth, BusError>;

    /// Reads the state of a queue. A server that knows only the depth returns only that.
    async fn queue_state(&self, queue: Queue) -> Result<QueueState, BusError> {
        Ok(QueueState { depth: self.depth(queue).await?, ..QueueState::default() })
    }

    /// Messages that match `filter`, in a stream that keeps one for each subject.
    async fn count(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError>;

    /// Counts the connections of this client so far: while it stays the same, the server is the one that it was. With
    /// another one, nothing that was learned of its streams before may be relied on: it may have an older store.
    fn generation(&self) -> u64;

    /// Whether there is a connection, and it is that of this generation.
    fn is_connected_as(&self, generation: u64) -> bool {
        self.generation() == generation
    }

    /// The streams that went back to an older state; each is reported once. Ask after a change of
    /// [`Transport::generation`], and when [`Transport::may_be_rewound`].
    async fn rewound(&self) -> Result<Vec<StreamRewind>, BusError>;

    /// Whether a message got a sequence that was given out before: its stream went back, also where it has grown past
    /// its old end since.
    fn may_be_rewound(&self) -> bool {
        false
    }

    /// The time of the server's clock.
    async fn server_time(&self) -> Result<Timestamp, BusError>;

    /// Reads the size of a stream or object store, over all tenants.
    async fn storage_size(&self, storage: Storage) -> Result<StorageSize, BusError>;

    /// A round trip: returns when the server has dealt with what came through this connection before.
    async fn ping(&self) -> Result<(), BusError>;

    /// Sends what is queued and closes.
    async fn close(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_later_marked_or_old_may_have_been_held_and_its_holder_may_reconnect_first() {
        let ms = Duration::from_millis;
        for (delivered, again, waited, connected_for, expected, ask_after) in [
            (1, false, 5, 60_000, false, None),
            (2, false, 5, 60_000, true, None),
            (1, true, 5, 60_000, true, Some(1_000)),
            (2, true, 5, 60_000, true, None),
            (1, false, 600, 60_000, true, None),
            // Stored before the connection was made: a server may have been back that soon.
            (1, false, 380, 3, true, Some(1_247)),
            (2, false, 9_000, 250, true, Some(1_000)),
            (2, false, 9_000, 1_250, true, None),
            (1, false, 2, 3, false, None),
        ] {
            let delivery = Delivery {
                subject: "s".to_owned(),
                seq: 1,
                delivered,
                stored_at: Timestamp::default(),
                waited: ms(waited),
                connected_for: ms(connected_for),
                generation: 2,
                headers: if again {
                    vec![(contract::tool::header::AGAIN.to_owned(), "1".to_owned())]
                } else {
                    Vec::new()
                },
                payload: Bytes::new(),
                ack: String::new(),
            };
            let found = (delivery.may_have_been_held(), delivery.ask_after());
            assert_eq!(found, (expected, ask_after.map(ms)), "{delivered} {again} {waited} {connected_for}");
            // The first connection of a process that was started: the others have theirs.
            let started = Delivery { generation: 1, ..delivery };
            assert_eq!(started.ask_after(), ask_after.filter(|_| again).map(ms), "{delivered} {again}");
        }
    }
}
