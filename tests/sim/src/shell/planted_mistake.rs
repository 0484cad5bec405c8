//! Mistakes in the use of the bus, planted to show that the checks of ring 3 find them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bus::transport::{
    Ack, Appended, CoreMessage, DriftPolicy, Headers, Read, ReadMany, Storage, StorageSize, Stored, StreamRewind,
    Subscription, Transport,
};
use bus::{Bus, BusError, Delivery, Depth, SubscriptionEvent};
use bytes::Bytes;
use contract::Timestamp;
use contract::fleet::ResultAnswer;
use contract::repair::RepairReply;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, ControlSubject, Subject};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

/// A plausible mistake between the services and their server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedMistake {
    /// The bus without a planted mistake.
    None,
    /// A doubtful answer to an append is treated as success.
    BelieveDuplicateAck,
    /// Reads that need the leader go to any replica.
    TrustStaleRead,
    /// Items that should be returned are acknowledged.
    AckWhatFailed,
    /// A claim of another executor is treated as our own.
    BelieveEveryClaim,
    /// A reply of a model is neither sent nor appended, and success is reported.
    ForgetReplies,
    /// A result is answered before it is handled.
    AnswerBeforeCommit,
    /// A result that was sent without an answer is not stored.
    BelieveUnansweredResults,
    /// A page is not written to the archive, and success is reported.
    ForgetArchivedPages,
    /// No worker finds the one that runs a call already.
    ForgetHolders,
    /// A worker lets the item of a closed call go, and no orchestrator looks after its session.
    ForgetRepairs,
}

impl PlantedMistake {
    /// All mistakes, without [`PlantedMistake::None`].
    pub const ALL: &'static [Self] = &[
        Self::BelieveDuplicateAck,
        Self::TrustStaleRead,
        Self::AckWhatFailed,
        Self::BelieveEveryClaim,
        Self::ForgetReplies,
        Self::AnswerBeforeCommit,
        Self::BelieveUnansweredResults,
        Self::ForgetArchivedPages,
        Self::ForgetHolders,
        Self::ForgetRepairs,
    ];

    /// Whether a run shows the mistake only where a machine dies.
    pub(super) fn needs_deaths(self) -> bool {
        self == Self::ForgetRepairs
    }

    /// Whether a run shows the mistake only without faults: what it leads to may follow from a fault as well.
    pub(super) fn needs_calm(self) -> bool {
        self == Self::ForgetHolders
    }
}

/// The results of which workers learned that the log has them.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises(Arc<Mutex<Vec<ControlSubject>>>);

impl Promises {
    fn note(&self, subject: &Subject) {
        let result = subject::parse_result(subject.as_str());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(result);
    }

    pub(super) fn all(&self) -> Vec<ControlSubject> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A bus that makes the mistake, and notes what it promises to workers.
pub(super) fn plant(bus: Bus, mistake: PlantedMistake, promises: Promises) -> Bus {
    Bus::new(Arc::new(FaultyBus { bus, mistake, promises }))
}

fn answer_of(answer: ResultAnswer) -> Bytes {
    serde_json::to_vec(&answer).unwrap_or_default().into()
}

fn in_log(subject: &Subject) -> CoreMessage {
    let payload = answer_of(ResultAnswer::InLog);
    CoreMessage { subject: subject.as_str().to_owned(), reply: None, headers: Headers::new(), payload }
}

struct FaultyBus {
    bus: Bus,
    mistake: PlantedMistake,
    promises: Promises,
}

#[async_trait]
impl Transport for FaultyBus {
    async fn publish(&self, subject: &Subject, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.bus.transport().publish(subject, headers, payload).await
    }

    async fn reply(&self, to: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.bus.transport().reply(to, headers, payload).await
    }

    async fn request(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<CoreMessage, BusError> {
        let is_result = subject.as_str().starts_with("ai_rpc.result.");
        let is_reply = subject.as_str().starts_with("ai_rpc.result.model_finished");
        if is_reply && self.mistake == PlantedMistake::ForgetReplies {
            return Ok(in_log(subject));
        }
        if subject.as_str().starts_with("ai_rpc.call.") && self.mistake == PlantedMistake::ForgetHolders {
            return Err(BusError::NoResponders { subject: subject.to_string() });
        }
        if *subject == subject::repair() && self.mistake == PlantedMistake::ForgetRepairs {
            let payload = serde_json::to_vec(&RepairReply::Repaired(Vec::new())).unwrap_or_default().into();
            return Ok(CoreMessage { subject: subject.to_string(), reply: None, headers: Headers::new(), payload });
        }
        let answer = match self.bus.transport().request(subject, headers, payload, timeout).await {
            Err(_) if is_result && self.mistake == PlantedMistake::BelieveUnansweredResults => in_log(subject),
            answer => answer?,
        };
        if is_result && answer.payload == answer_of(ResultAnswer::InLog) {
            self.promises.note(subject);
        }
        Ok(answer)
    }

    async fn request_many(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Subscription, BusError> {
        self.bus.transport().request_many(subject, headers, payload).await
    }

    async fn subscribe(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError> {
        let subscribed = self.bus.transport().subscribe(subject, queue).await?;
        if self.mistake != PlantedMistake::AnswerBeforeCommit || !subject.as_str().starts_with("ai_rpc.result.") {
            return Ok(subscribed);
        }
        let bus = self.bus.clone();
        let answered = subscribed.then(move |event| {
            let bus = bus.clone();
            async move {
                if let SubscriptionEvent::Message(CoreMessage { reply: Some(reply), .. }) = &event {
                    let _sent = bus.transport().reply(reply, Vec::new(), answer_of(ResultAnswer::InLog)).await;
                }
                event
            }
        });
        Ok(answered.boxed())
    }

    async fn append(
        &self,
        subject: &Subject,
        create: bool,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Appended, BusError> {
        // The watchdog of the loop repeats the call, so the reply is paid twice.
        if self.mistake == PlantedMistake::ForgetReplies
            && subject.as_str().starts_with("ai_loop.control.model_finished")
        {
            return Ok(Appended::Stored(0));
        }
        if self.mistake == PlantedMistake::ForgetArchivedPages && subject.as_str().starts_with("ai_archive.") {
            return Ok(Appended::Stored(0));
        }
        match self.bus.transport().append(subject, create, headers, payload).await? {
            Appended::Doubtful(_) if self.mistake == PlantedMistake::BelieveDuplicateAck => Ok(Appended::Stored(0)),
            answer @ (Appended::Doubtful(_) | Appended::Stored(_)) => Ok(answer),
        }
    }

    async fn last(&self, stream: Stream, filter: &Subject, read: Read) -> Result<Option<Stored>, BusError> {
        let read = if self.mistake == PlantedMistake::TrustStaleRead { Read::Any } else { read };
        self.bus.transport().last(stream, filter, read).await
    }

    async fn last_many(&self, stream: Stream, filters: &[Subject]) -> Result<ReadMany, BusError> {
        self.bus.transport().last_many(stream, filters).await
    }

    async fn purge(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        self.bus.transport().purge(stream, filter).await
    }

    async fn delete(&self, stream: Stream, message: &Stored) -> Result<(), BusError> {
        self.bus.transport().delete(stream, message).await
    }

    async fn pull(
        &self,
        queue: Queue,
        max: usize,
        wait: Duration,
        stop: CancellationToken,
    ) -> Result<BoxStream<'static, Result<Delivery, BusError>>, BusError> {
        self.bus.transport().pull(queue, max, wait, stop).await
    }

    async fn ack(&self, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
        let ack = match ack {
            Ack::Retry(_) if self.mistake == PlantedMistake::AckWhatFailed => Ack::Done,
            Ack::Retry(_) | Ack::Done | Ack::Progress => ack,
        };
        self.bus.transport().ack(delivery, ack).await
    }

    async fn pause_deliveries(&self, queue: Queue, duration: Option<Duration>) -> Result<(), BusError> {
        self.bus.transport().pause_deliveries(queue, duration).await
    }

    async fn reset(&self, queue: Queue) -> Result<(), BusError> {
        self.bus.transport().reset(queue).await
    }

    async fn kv_put(&self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<(), BusError> {
        self.bus.transport().kv_put(bucket, key, value, ttl).await
    }

    async fn kv_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        let created = self.bus.transport().kv_create(bucket, key, value, ttl).await?;
        let is_believed = bucket == Bucket::Claims && self.mistake == PlantedMistake::BelieveEveryClaim;
        Ok(created.or(is_believed.then_some(1)))
    }

    async fn kv_get(&self, bucket: Bucket, key: &str) -> Result<Option<Bytes>, BusError> {
        self.bus.transport().kv_get(bucket, key).await
    }

    async fn kv_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError> {
        self.bus.transport().kv_entry(bucket, key).await
    }

    async fn kv_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        self.bus.transport().kv_update(bucket, key, value, revision, ttl).await
    }

    async fn kv_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError> {
        self.bus.transport().kv_delete(bucket, key).await
    }

    async fn kv_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError> {
        self.bus.transport().kv_list(bucket, filter).await
    }

    async fn put_object(&self, store: Objects, sha256: &str, body: Bytes) -> Result<(), BusError> {
        self.bus.transport().put_object(store, sha256, body).await
    }

    async fn get_object(&self, store: Objects, sha256: &str) -> Result<Option<Bytes>, BusError> {
        self.bus.transport().get_object(store, sha256).await
    }

    async fn delete_object(&self, store: Objects, sha256: &str, generation: u64) -> Result<(), BusError> {
        self.bus.transport().delete_object(store, sha256, generation).await
    }

    fn retention(&self) -> Duration {
        self.bus.transport().retention()
    }

    async fn ensure(&self, drift: DriftPolicy) -> Result<(), BusError> {
        self.bus.transport().ensure(drift).await
    }

    async fn depth(&self, queue: Queue) -> Result<Depth, BusError> {
        self.bus.transport().depth(queue).await
    }

    async fn count(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        self.bus.transport().count(stream, filter).await
    }

    fn generation(&self) -> u64 {
        self.bus.transport().generation()
    }

    async fn rewound(&self) -> Result<Vec<StreamRewind>, BusError> {
        self.bus.transport().rewound().await
    }

    fn may_be_rewound(&self) -> bool {
        self.bus.transport().may_be_rewound()
    }

    async fn server_time(&self) -> Result<Timestamp, BusError> {
        self.bus.transport().server_time().await
    }

    async fn storage_size(&self, storage: Storage) -> Result<StorageSize, BusError> {
        self.bus.transport().storage_size(storage).await
    }

    async fn ping(&self) -> Result<(), BusError> {
        self.bus.transport().ping().await
    }

    async fn close(&self) {
        self.bus.transport().close().await;
    }
}
