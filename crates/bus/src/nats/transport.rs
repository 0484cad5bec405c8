//! The operations of the bus over NATS.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::Subject;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use super::connection::{JETSTREAM_MAX, NatsTransport};
use super::core::message;
use super::object_stores::OBJECT_MAX;
use crate::transport::{
    Ack, Appended, DriftPolicy, QueueState, ReadMany, Storage, StorageSize, StreamRewind, Transport,
};
use crate::{BusError, CoreMessage, Delivery, Depth, Headers, Read, Stored, Subscription};

impl NatsTransport {
    /// For what names a message by its sequence, as it was learned over the connection of this generation. In an older
    /// store that sequence may be another message's, and what is published without a connection the client keeps for
    /// the next server.
    pub(super) fn require_connection(&self, generation: u64) -> Result<(), BusError> {
        if self.is_connected_as(generation) {
            return Ok(());
        }
        Err(BusError::Unavailable("the connection broke".to_owned()))
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
        self.core_request_many(subject.as_str(), headers, payload).await
    }

    async fn subscribe(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError> {
        self.core_subscribe(subject.as_str(), queue).await
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
            Read::Leader if stream == Stream::Log && self.has_one_replica(stream.name()).await => {
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
        self.js_delete(stream.name(), message.seq).await
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
        self.require_connection(delivery.generation)?;
        match ack {
            Ack::Done => self.publish_ack(&delivery.ack, "+ACK").await,
            Ack::Progress => self.publish_ack(&delivery.ack, "+WPI").await,
            Ack::Retry(Duration::ZERO) => self.publish_ack(&delivery.ack, "-NAK").await,
            Ack::Retry(after) => {
                self.publish_ack(&delivery.ack, format!("-NAK {{\"delay\": {}}}", after.as_nanos())).await
            }
        }
    }

    async fn pause_deliveries(&self, queue: Queue, duration: Option<Duration>) -> Result<(), BusError> {
        let until = match duration {
            Some(duration) => Some(self.time_of_server().await?.after(duration)),
            None => None,
        };
        self.js_pause(queue, until).await
    }

    async fn reset(&self, queue: Queue) -> Result<(), BusError> {
        self.js_reset(queue).await
    }

    async fn kv_put(&self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<(), BusError> {
        self.key_put(bucket, key, value, ttl).await
    }

    async fn kv_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        self.key_create(bucket, key, value, ttl).await
    }

    async fn kv_get(&self, bucket: Bucket, key: &str) -> Result<Option<Bytes>, BusError> {
        Ok(self.key_entry(bucket, key).await?.map(|(_, value)| value))
    }

    async fn kv_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError> {
        self.key_entry(bucket, key).await
    }

    async fn kv_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        self.key_update(bucket, key, value, revision, ttl).await
    }

    async fn kv_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError> {
        self.key_delete(bucket, key).await
    }

    async fn kv_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError> {
        self.key_list(bucket, filter).await
    }

    fn kv_pages<'a>(
        &'a self,
        bucket: Bucket,
        filter: &'a str,
    ) -> BoxStream<'a, Result<Vec<(String, Bytes)>, BusError>> {
        self.key_pages(bucket, filter).boxed()
    }

    async fn put_object(&self, store: Objects, sha256: &str, body: Bytes) -> Result<(), BusError> {
        self.over_connection(OBJECT_MAX, sha256, self.stores.put(&self.jetstream, store, sha256, body)).await
    }

    async fn get_object(&self, store: Objects, sha256: &str) -> Result<Option<Bytes>, BusError> {
        self.over_connection(OBJECT_MAX, sha256, self.object_get(store, sha256)).await
    }

    async fn delete_object(&self, store: Objects, sha256: &str, generation: u64) -> Result<(), BusError> {
        let subjects = self.stores.subjects(&self.jetstream, store, sha256);
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
        self.js_depth(queue).await
    }

    async fn queue_state(&self, queue: Queue) -> Result<QueueState, BusError> {
        self.js_queue_state(queue).await
    }

    async fn count(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        self.js_count(stream.name(), filter.as_str()).await
    }

    fn generation(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    fn is_connected_as(&self, generation: u64) -> bool {
        self.is_connected() && self.generation() == generation
    }

    async fn rewound(&self) -> Result<Vec<StreamRewind>, BusError> {
        self.rewound_streams().await
    }

    fn may_be_rewound(&self) -> bool {
        self.seen_seqs.any_went_back()
    }

    async fn server_time(&self) -> Result<Timestamp, BusError> {
        self.time_of_server().await
    }

    async fn storage_size(&self, storage: Storage) -> Result<StorageSize, BusError> {
        match storage {
            Storage::Stream(stream) => self.js_size(stream.name()).await,
            Storage::Objects(store) => self.js_size(&format!("OBJ_{}", store.name())).await,
        }
    }

    async fn ping(&self) -> Result<(), BusError> {
        self.round_trip(Duration::from_secs(2)).await
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
