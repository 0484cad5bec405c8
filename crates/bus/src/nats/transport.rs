//! The operations of the bus over NATS.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::Subject;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::api::{ConsumerInfo, StreamState};
use super::connection::{ANSWER_MAX, JETSTREAM_MAX, NatsTransport};
use super::core::{message, next_or_gap};
use super::keys;
use super::losses::{Losses, sid_of};
use super::object_stores::OBJECT_MAX;
use super::refusal::closed;
use crate::transport::{
    Ack, Appended, DriftPolicy, KV_OPERATION, QueueState, ReadMany, Storage, StorageSize, StreamRewind, Transport,
    ttl_header,
};
use crate::{BusError, CoreMessage, Delivery, Depth, Headers, Read, Stored, Subscription, SubscriptionEvent};

/// Timeout of a round trip.
const PING_MAX: Duration = Duration::from_secs(2);
/// Pause before a stream that seems to end too early is read again.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

impl NatsTransport {
    /// Refuses an operation that names a message by its sequence, unless the connection is still the one of this
    /// generation. In an older store another message may have that sequence, and the client keeps a message that is
    /// published without a connection for the next server.
    pub(super) fn require_connection(&self, generation: u64) -> Result<(), BusError> {
        if self.is_connected_as(generation) {
            return Ok(());
        }
        Err(BusError::Unavailable("the connection broke".to_owned()))
    }

    /// Writes an entry of a bucket over what is there.
    async fn write_key(&self, bucket: Bucket, key: &str, headers: Headers, value: Bytes) -> Result<(), BusError> {
        match self.js_append(&keys::subject(bucket, key), None, headers, value).await? {
            Appended::Stored(_) => Ok(()),
            Appended::Doubtful(doubt) => Err(doubt.into_error()),
        }
    }
}

#[async_trait]
impl Transport for NatsTransport {
    async fn publish(&self, subject: &Subject, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.core_publish(subject.as_str(), headers, payload).await
    }

    async fn reply(&self, to: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.core_publish(to, headers, payload).await
    }

    async fn request(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<CoreMessage, BusError> {
        self.core_request(subject.as_str(), headers, payload, timeout).await.map(message)
    }

    async fn request_many(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Subscription, BusError> {
        // Subscribed before the request, so that no gap between it and its answers is missed.
        let mut losses = Losses::new(&self.gaps, &self.slow);
        let ask = async {
            let (address, sid, answers) = self.shared_inbox.open(&self.client).await?;
            losses.sid = sid;
            self.ask(subject.as_str(), address, headers, payload).await?;
            Ok(answers)
        };
        let answers = self.over_connection(ANSWER_MAX, subject.as_str(), ask).await?;
        Ok(futures::stream::unfold((answers, losses), next_or_gap).boxed())
    }

    async fn subscribe(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError> {
        let mut losses = Losses::new(&self.gaps, &self.slow);
        let subscribe = async {
            match queue {
                Some(queue) => self.client.queue_subscribe(subject.to_string(), queue.to_owned()).await,
                None => self.client.subscribe(subject.to_string()).await,
            }
        };
        // Without a connection it is made with the next one.
        let late = |_| BusError::Timeout { what: format!("subscription to {subject}") };
        let subscribed = tokio::time::timeout(JETSTREAM_MAX, subscribe).await.map_err(late)?;
        let messages = subscribed.map_err(|e| closed(&e))?;
        losses.sid = sid_of(&messages);
        Ok(futures::stream::unfold((messages.map(SubscriptionEvent::from), losses), next_or_gap).boxed())
    }

    async fn append(
        &self,
        subject: &Subject,
        create: bool,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Appended, BusError> {
        self.js_append(subject.as_str(), create.then_some(0), headers, payload).await
    }

    async fn last(&self, stream: Stream, filter: &Subject, read: Read) -> Result<Option<Stored>, BusError> {
        match read {
            Read::Any => self.direct_last(stream.name(), filter.as_str()).await,
            // With one replica, every answer is that of the leader.
            Read::Leader if stream == Stream::Log && self.has_one_replica().await => {
                self.direct_last(stream.name(), filter.as_str()).await
            }
            Read::Leader => self.leader_last(stream.name(), filter.as_str()).await,
        }
    }

    async fn last_many(&self, stream: Stream, filters: &[Subject]) -> Result<ReadMany, BusError> {
        let filters: Vec<&str> = filters.iter().map(Subject::as_str).collect();
        self.direct_last_many(stream.name(), &filters).await
    }

    async fn purge(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        self.purge_messages(stream.name(), filter.as_str()).await
    }

    async fn delete(&self, stream: Stream, message: &Stored) -> Result<(), BusError> {
        self.require_connection(message.generation)?;
        self.delete_message(stream.name(), message.seq, false).await
    }

    async fn pull(
        &self,
        queue: Queue,
        max: usize,
        wait: Duration,
        stop: CancellationToken,
    ) -> Result<BoxStream<'static, Result<Delivery, BusError>>, BusError> {
        self.js_pull(queue, max, wait, stop).await
    }

    async fn ack(&self, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
        // It does not wait for a connection: the server may have given the item away since.
        self.require_connection(delivery.generation)?;
        let ack: Bytes = match ack {
            Ack::Done => "+ACK".into(),
            Ack::Progress => "+WPI".into(),
            Ack::Retry(Duration::ZERO) => "-NAK".into(),
            Ack::Retry(after) => format!("-NAK {{\"delay\": {}}}", after.as_nanos()).into(),
        };
        self.core_publish(&delivery.ack, Headers::new(), ack).await
    }

    async fn pause_deliveries(&self, queue: Queue, duration: Option<Duration>) -> Result<(), BusError> {
        let until = match duration {
            Some(duration) => Some(self.server_time().await?.after(duration)),
            None => None,
        };
        let body = until.map_or_else(|| json!({}), |until| json!({ "pause_until": until }));
        self.consumer_request::<IgnoredAny>("PAUSE", queue, Some(&body)).await.map(drop)
    }

    async fn reset(&self, queue: Queue) -> Result<(), BusError> {
        // Without a sequence, nats-server would begin behind the last acknowledged one.
        self.consumer_request::<IgnoredAny>("RESET", queue, Some(&json!({ "seq": 1 }))).await.map(drop)
    }

    async fn kv_put(&self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<(), BusError> {
        self.write_key(bucket, key, ttl.map(ttl_header).into_iter().collect(), value).await
    }

    async fn kv_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        let subject = keys::subject(bucket, key);
        let headers: Headers = ttl.map(ttl_header).into_iter().collect();
        let mut expected = 0;
        // A deleted key is free as well: the entry replaces its marker.
        for _ in 0..2 {
            let doubt = match self.js_append(&subject, Some(expected), headers.clone(), value.clone()).await? {
                Appended::Stored(revision) => return Ok(Some(revision)),
                Appended::Doubtful(doubt) => doubt,
            };
            match self.leader_last(&keys::stream(bucket), &subject).await? {
                Some(mark) if keys::is_deleted(&mark) && mark.seq != expected => expected = mark.seq,
                Some(found) if !keys::is_deleted(&found) => return Ok(None),
                // The leader shows no other writer, so the outcome is unknown.
                Some(_) | None => return Err(doubt.into_error()),
            }
        }
        Ok(None)
    }

    async fn kv_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError> {
        let found = self.leader_last(&keys::stream(bucket), &keys::subject(bucket, key)).await?;
        Ok(found.filter(|found| !keys::is_deleted(found)).map(|found| (found.seq, found.payload)))
    }

    async fn kv_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        let headers = ttl.map(ttl_header).into_iter().collect();
        match self.js_append(&keys::subject(bucket, key), Some(revision), headers, value).await? {
            Appended::Stored(revision) => Ok(Some(revision)),
            Appended::Doubtful(_) => Ok(None),
        }
    }

    async fn kv_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError> {
        let mark = vec![(KV_OPERATION.to_owned(), "DEL".to_owned())];
        self.write_key(bucket, key, mark, Bytes::new()).await
    }

    async fn kv_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError> {
        let all = keys::subject(bucket, filter);
        match self.direct_last_many(&keys::stream(bucket), &[&all]).await? {
            ReadMany::Messages(found) => Ok(keys::entries(bucket, found)),
            ReadMany::TooMany => {
                let mut entries: Vec<(String, Bytes)> = self.kv_pages(bucket, filter).try_concat().await?;
                entries.sort();
                Ok(entries)
            }
        }
    }

    fn kv_pages<'a>(
        &'a self,
        bucket: Bucket,
        filter: &'a str,
    ) -> BoxStream<'a, Result<Vec<(String, Bytes)>, BusError>> {
        let pages = async move {
            let keys = self.keys(&keys::stream(bucket), &keys::subject(bucket, filter)).await?;
            let pages: Vec<Vec<String>> = keys.chunks(keys::KEYS_PER_READ).map(<[String]>::to_vec).collect();
            Ok(futures::stream::iter(pages).then(move |keys| self.read_keys(bucket, keys)))
        };
        futures::stream::once(pages).try_flatten().boxed()
    }

    async fn put_object(&self, store: Objects, sha256: &str, body: Bytes) -> Result<(), BusError> {
        self.over_connection(OBJECT_MAX, sha256, self.object_put(store, sha256, body)).await
    }

    async fn get_object(&self, store: Objects, sha256: &str) -> Result<Option<Bytes>, BusError> {
        self.over_connection(OBJECT_MAX, sha256, self.object_get(store, sha256)).await
    }

    async fn delete_object(&self, store: Objects, sha256: &str, generation: u64) -> Result<(), BusError> {
        let subjects = self.object_subjects(store, sha256);
        let Some(subjects) = self.over_connection(OBJECT_MAX, sha256, subjects).await? else { return Ok(()) };
        for subject in subjects {
            self.require_connection(generation)?;
            self.purge_messages(&format!("OBJ_{}", store.name()), &subject).await?;
        }
        Ok(())
    }

    fn retention(&self) -> Duration {
        self.retention
    }

    async fn ensure(&self, drift: DriftPolicy) -> Result<(), BusError> {
        self.ensure_all(drift).await
    }

    async fn depth(&self, queue: Queue) -> Result<Depth, BusError> {
        let consumer: ConsumerInfo = self.consumer_request("INFO", queue, None).await?;
        Ok(Depth { waiting: consumer.num_pending, held: consumer.num_ack_pending })
    }

    async fn queue_state(&self, queue: Queue) -> Result<QueueState, BusError> {
        let consumer: ConsumerInfo = self.consumer_request("INFO", queue, None).await?;
        // Its stream keeps an item until it is settled, so the first message is the oldest item.
        let StreamState { messages, first_ts, .. } = self.stream_info(queue.stream().name(), None).await?.state;
        Ok(QueueState {
            depth: Depth { waiting: consumer.num_pending, held: consumer.num_ack_pending },
            pullers: consumer.num_waiting,
            oldest: serde_json::from_value(first_ts).ok().filter(|_| messages > 0),
        })
    }

    async fn count(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        self.key_page(stream.name(), filter.as_str(), 0).await.map(|page| page.total as u64)
    }

    fn generation(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    fn is_connected_as(&self, generation: u64) -> bool {
        self.is_connected() && self.generation() == generation
    }

    async fn rewound(&self) -> Result<Vec<StreamRewind>, BusError> {
        let mut rewound = Vec::new();
        for stream in Stream::ALL {
            let (highest, went_back_from) = self.seen_seqs.seen(*stream);
            let last = self.stream_info(stream.name(), None).await?.state.last_seq;
            if went_back_from == 0 && last >= highest {
                // What others have written counts as well: a stream may go back by less than what is written here.
                self.seen_seqs.note(*stream, last);
                continue;
            }
            // A new leader may answer before it has applied everything.
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            let last = self.stream_info(stream.name(), None).await?.state.last_seq;
            if went_back_from > 0 || last < highest {
                let seen = if went_back_from > 0 { went_back_from } else { highest };
                rewound.push(StreamRewind { stream: *stream, seen, last });
            }
        }
        // Only now, when every stream has answered: what comes from here on counts from there.
        for StreamRewind { stream, last, .. } in &rewound {
            self.seen_seqs.rewind(*stream, *last);
        }
        Ok(rewound)
    }

    fn may_be_rewound(&self) -> bool {
        self.seen_seqs.any_went_back()
    }

    async fn server_time(&self) -> Result<Timestamp, BusError> {
        self.time_at(Stream::Log).await
    }

    async fn storage_size(&self, storage: Storage) -> Result<StorageSize, BusError> {
        let name = match storage {
            Storage::Stream(stream) => stream.name().to_owned(),
            Storage::Objects(store) => format!("OBJ_{}", store.name()),
        };
        let StreamState { messages, bytes, .. } = self.stream_info(&name, None).await?.state;
        Ok(StorageSize { messages, bytes })
    }

    async fn ping(&self) -> Result<(), BusError> {
        // The server itself answers a request to an address of ours without a subscriber.
        let unsubscribed = self.client.new_inbox();
        match self.core_request(&unsubscribed, Headers::new(), Bytes::new(), PING_MAX).await {
            Ok(_) | Err(BusError::NoResponders { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn close(&self) {
        if !self.is_connected() {
            return tracing::warn!("closed while nats-server is away");
        }
        // Queued messages are sent before the connection closes.
        let closing = async {
            if let Err(error) = self.client.flush().await {
                tracing::debug!(%error, "not everything was sent");
            }
            if let Err(error) = self.client.drain().await {
                tracing::debug!(%error, "already closed");
            }
        };
        if tokio::time::timeout(JETSTREAM_MAX, closing).await.is_err() {
            tracing::warn!("closed without the server's confirmation");
        }
    }
}
