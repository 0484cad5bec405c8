//! The queue of items for one client, limited in number and bytes. If it is full, chunks are dropped, and then the
//! client is disconnected.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::{ErrorCode, SessionId};
use service::connections::ByteBudget;
use tokio::sync::Notify;

use crate::api_error::ApiError;
use crate::feed::viewer_event::ViewerEvent;

/// Maximum bytes that wait for one client.
pub(crate) const CLIENT_BYTES_MAX: usize = 16 << 20;
/// Sessions whose last `seq` a queue remembers: twice as many as one connection may watch.
pub(crate) const CURSORS_MAX: usize = 512;
/// Capacity that an idle queue keeps.
const IDLE_CAPACITY: usize = 16;
/// Longest time for which a client may take no item while the log is read for it.
pub(crate) const CLIENT_STALL_MAX: Duration = Duration::from_mins(1);

/// A message to a client.
#[derive(Debug, Clone)]
pub enum QueueItem {
    /// A JSON-RPC response or notification.
    Text(String),
    /// An event of a session.
    Event(Arc<ViewerEvent>),
}

impl QueueItem {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Event(event) => event.bytes(),
        }
    }

    fn is_droppable(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Event(event) => event.is_droppable(),
        }
    }
}

/// Reason for which a queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEnd {
    /// The stream is complete; waiting items still go out.
    Complete,
    /// The client or the server has disconnected; waiting items are dropped.
    Disconnected,
    /// An error ended the stream; waiting items still go out.
    Failed(ApiError),
    /// The client does not read fast enough; waiting items are dropped.
    Slow {
        /// Session of the event that had no room.
        session: Option<SessionId>,
        /// The last `seq` of that session that was given to the connection; 0 for none.
        seq: u64,
    },
}

impl QueueEnd {
    /// Returns the error for the client, if the end is one.
    pub fn error(&self) -> Option<ApiError> {
        match self {
            Self::Complete | Self::Disconnected => None,
            Self::Failed(error) => Some(error.clone()),
            Self::Slow { seq, .. } => Some(
                ApiError::new(
                    ErrorCode::SlowClient,
                    format!("the client does not read fast enough: connect again and watch from seq {}", seq + 1),
                )
                .with_seq(*seq),
            ),
        }
    }
}

/// The queue of one client. Several tasks push, and one pops.
#[derive(Debug)]
pub struct ClientQueue {
    state: Mutex<State>,
    readable: Notify,
    free: Notify,
    items_max: usize,
    bytes_max: usize,
    budget: ByteBudget,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<QueueItem>,
    bytes: usize,
    end: Option<QueueEnd>,
    /// The last `seq` of each session that was given to the connection, at most [`CURSORS_MAX`] of them: the least
    /// recent one is removed first.
    delivered: HashMap<SessionId, DeliveredSeq>,
    deliveries: u64,
}

/// The last event of a session that was given to the connection.
#[derive(Debug, Clone, Copy)]
struct DeliveredSeq {
    seq: u64,
    /// Number of the delivery, which orders them by time.
    at: u64,
}

impl ClientQueue {
    /// Creates a queue with limits; its bytes are taken from a budget. An item over the limit is accepted by an empty
    /// queue.
    pub(crate) fn new(items_max: usize, bytes_max: usize, budget: ByteBudget) -> Self {
        Self {
            state: Mutex::default(),
            readable: Notify::new(),
            free: Notify::new(),
            items_max: items_max.max(1),
            bytes_max,
            budget,
        }
    }

    /// Adds an item without waiting. A chunk without room is dropped. Any other item drops the waiting chunks and, if
    /// that is not enough, ends the queue. Returns `false` once the queue has ended.
    pub fn push(&self, item: QueueItem) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        if !self.has_room(&state, &item) {
            if item.is_droppable() {
                return true;
            }
            state.drop_chunks(&self.budget);
        }
        if !self.has_room(&state, &item) {
            state.disconnect_slow(&item, &self.budget);
            drop(state);
            self.notify_both_sides();
            return false;
        }
        state.add(item, &self.budget);
        drop(state);
        self.readable.notify_one();
        true
    }

    /// Adds an item as soon as half of the queue is free. It is for events of the log, which can wait for the client. A
    /// client that takes nothing for [`CLIENT_STALL_MAX`] is disconnected.
    pub(crate) async fn push_when_free(&self, item: QueueItem) -> bool {
        loop {
            let free = self.free.notified();
            tokio::pin!(free);
            free.as_mut().enable();
            {
                let mut state = self.lock();
                if state.end.is_some() {
                    return false;
                }
                let has_room = state.items.len() <= self.items_max / 2
                    && state.bytes <= self.bytes_max / 2
                    && self.budget.has(item.bytes());
                if has_room || state.items.is_empty() {
                    state.add(item.clone(), &self.budget);
                    break;
                }
            }
            if tokio::time::timeout(CLIENT_STALL_MAX, free).await.is_err() {
                self.lock().disconnect_slow(&item, &self.budget);
                self.notify_both_sides();
                return false;
            }
        }
        self.readable.notify_one();
        true
    }

    /// Waits for the next item, and returns the end once there is none. Only one task may pop at a time.
    pub async fn pop(&self) -> Result<QueueItem, QueueEnd> {
        loop {
            {
                let mut state = self.lock();
                if let Some(item) = state.take(&self.budget) {
                    drop(state);
                    self.free.notify_waiters();
                    return Ok(item);
                }
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
            }
            self.readable.notified().await;
        }
    }

    /// Ends the queue; only the first end counts.
    pub fn end(&self, end: QueueEnd) {
        self.lock().finish(end, &self.budget);
        self.notify_both_sides();
    }

    /// Forgets the last `seq` of a session.
    pub fn forget_session(&self, session: &SessionId) {
        self.lock().delivered.remove(session);
    }

    /// Returns why the queue ended, if it did.
    pub fn end_reason(&self) -> Option<QueueEnd> {
        self.lock().end.clone()
    }

    /// Waits until the queue ends; returns why.
    pub async fn wait_for_end(&self) -> QueueEnd {
        loop {
            let free = self.free.notified();
            tokio::pin!(free);
            free.as_mut().enable();
            if let Some(end) = self.end_reason() {
                return end;
            }
            free.await;
        }
    }

    fn notify_both_sides(&self) {
        self.readable.notify_one();
        self.free.notify_waiters();
    }

    fn has_room(&self, state: &State, item: &QueueItem) -> bool {
        let fits = state.items.len() < self.items_max && state.bytes + item.bytes() <= self.bytes_max;
        state.items.is_empty() || (fits && self.budget.has(item.bytes()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientQueue {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.budget.give_back(bytes);
    }
}

impl State {
    fn add(&mut self, item: QueueItem, budget: &ByteBudget) {
        // Two queues that find room at the same time may exceed the budget by one item.
        budget.take_anyway(item.bytes());
        self.bytes += item.bytes();
        self.items.push_back(item);
    }

    fn take(&mut self, budget: &ByteBudget) -> Option<QueueItem> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes();
        budget.give_back(item.bytes());
        if self.items.is_empty() && self.items.capacity() > IDLE_CAPACITY {
            self.items.shrink_to(IDLE_CAPACITY);
        }
        if let QueueItem::Event(event) = &item
            && let Some(seq) = event.envelope.seq
        {
            self.record_delivery(&event.envelope.session_id, seq);
        }
        Some(item)
    }

    fn record_delivery(&mut self, session: &SessionId, seq: u64) {
        self.deliveries += 1;
        let delivered = DeliveredSeq { seq, at: self.deliveries };
        if let Some(known) = self.delivered.get_mut(session) {
            *known = delivered;
            return;
        }
        if self.delivered.len() >= CURSORS_MAX
            && let Some(oldest) =
                self.delivered.iter().min_by_key(|(_, delivered)| delivered.at).map(|(session, _)| session.clone())
        {
            self.delivered.remove(&oldest);
        }
        self.delivered.insert(session.clone(), delivered);
    }

    /// Ends the queue of a client that had no room for this item.
    fn disconnect_slow(&mut self, item: &QueueItem, budget: &ByteBudget) {
        let session = match item {
            QueueItem::Text(_) => None,
            QueueItem::Event(event) => Some(event.envelope.session_id.clone()),
        };
        let seq = session.as_ref().and_then(|session| self.delivered.get(session)).map_or(0, |delivered| delivered.seq);
        self.finish(QueueEnd::Slow { session, seq }, budget);
    }

    fn drop_chunks(&mut self, budget: &ByteBudget) {
        let before = self.bytes;
        self.items.retain(|item| !item.is_droppable());
        self.bytes = self.items.iter().map(QueueItem::bytes).sum();
        budget.give_back(before - self.bytes);
    }

    fn finish(&mut self, end: QueueEnd, budget: &ByteBudget) {
        if self.end.is_some() {
            return;
        }
        match end {
            QueueEnd::Complete | QueueEnd::Failed(_) => {}
            QueueEnd::Disconnected | QueueEnd::Slow { .. } => {
                budget.give_back(self.bytes);
                self.items.clear();
                self.bytes = 0;
            }
        }
        self.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use contract::event::{Envelope, Topic};
    use contract::{Json, TenantId, Timestamp};

    use super::*;

    fn make_item(seq: Option<u64>, bytes: usize) -> QueueItem {
        let (topic, data) = match seq {
            Some(_) => (Topic::UserProcessed, serde_json::json!({"text": "x".repeat(bytes)})),
            None => (
                Topic::AiChunkReceived,
                serde_json::json!({"turn": 1, "step": 1, "attempt": "1.1", "index": 0, "delta": "x".repeat(bytes)}),
            ),
        };
        let envelope = Envelope {
            id: String::new(),
            session_id: SessionId::new("s").unwrap(),
            tenant: TenantId::default(),
            seq,
            time: Timestamp::default(),
            trace_id: String::new(),
            data: Json::of(&data),
        };
        QueueItem::Event(Arc::new(ViewerEvent::from_envelope(topic, envelope).unwrap()))
    }

    fn budget() -> ByteBudget {
        ByteBudget::new(usize::MAX)
    }

    fn event(seq: u64) -> QueueItem {
        make_item(Some(seq), 0)
    }

    async fn seqs(queue: &ClientQueue) -> (Vec<Option<u64>>, QueueEnd) {
        let mut seqs = Vec::new();
        loop {
            match queue.pop().await {
                Ok(QueueItem::Event(event)) => seqs.push(event.envelope.seq),
                Ok(QueueItem::Text(_)) => seqs.push(Some(0)),
                Err(end) => return (seqs, end),
            }
        }
    }

    #[tokio::test]
    async fn full_queue_drops_chunks_then_disconnects_client() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        for item in [event(1), make_item(None, 0), event(2), make_item(None, 0), make_item(None, 0)] {
            assert!(queue.push(item));
        }
        assert!(queue.push(event(3)), "the waiting chunks make room");
        assert!(queue.push(event(4)));
        assert!(queue.push(make_item(None, 0)), "a chunk without room is dropped, not the client");
        assert!(matches!(queue.pop().await, Ok(QueueItem::Event(_))));
        assert!(queue.push(event(5)));
        assert!(!queue.push(event(6)));
        let slow = QueueEnd::Slow { session: SessionId::new("s").ok(), seq: 1 };
        assert_eq!(seqs(&queue).await, (vec![], slow.clone()));
        assert_eq!(slow.error().unwrap().seq, Some(1));
        assert!(!queue.push(event(7)));
    }

    #[tokio::test]
    async fn queue_over_byte_limit_refuses_events() {
        let queue = ClientQueue::new(100, 10_000, budget());
        assert!(queue.push(make_item(Some(1), 50_000)), "an empty queue accepts an item over the limit");
        assert!(!queue.push(event(2)));
    }

    #[tokio::test]
    async fn log_push_waits_for_slow_reader() {
        let queue = Arc::new(ClientQueue::new(4, CLIENT_BYTES_MAX, budget()));
        let fill = async {
            for seq in 1..=100 {
                assert!(queue.push_when_free(event(seq)).await);
            }
            queue.end(QueueEnd::Complete);
        };
        let (received, ()) = tokio::join!(seqs(&queue), fill);
        assert_eq!(received, ((1..=100).map(Some).collect(), QueueEnd::Complete));
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_log_reader_is_disconnected() {
        let queue = ClientQueue::new(1, CLIENT_BYTES_MAX, budget());
        assert!(queue.push_when_free(event(1)).await);
        assert!(!queue.push_when_free(event(2)).await);
        assert_eq!(queue.end_reason(), Some(QueueEnd::Slow { session: SessionId::new("s").ok(), seq: 0 }));
    }

    #[tokio::test]
    async fn queue_ended_twice_keeps_first_end() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        queue.push(event(1));
        queue.end(QueueEnd::Complete);
        queue.end(QueueEnd::Disconnected);
        assert_eq!(seqs(&queue).await, (vec![Some(1)], QueueEnd::Complete));
        assert_eq!(queue.wait_for_end().await, QueueEnd::Complete);
    }

    #[tokio::test]
    async fn cursors_of_many_sessions_are_bounded_and_latest_stay() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        let of = |session: usize| {
            let QueueItem::Event(event) = event(7) else { unreachable!() };
            let envelope =
                Envelope { session_id: SessionId::new(&format!("s{session}")).unwrap(), ..event.envelope.clone() };
            QueueItem::Event(Arc::new(ViewerEvent::from_envelope(event.topic, envelope).unwrap()))
        };
        for session in 0..CURSORS_MAX * 3 {
            assert!(queue.push(of(session)));
            queue.pop().await.unwrap();
        }
        assert_eq!(queue.lock().delivered.len(), CURSORS_MAX);
        let last = SessionId::new(&format!("s{}", CURSORS_MAX * 3 - 1)).unwrap();
        assert_eq!(queue.lock().delivered.get(&last).unwrap().seq, 7);
    }

    #[tokio::test]
    async fn queues_share_byte_budget_and_return_it() {
        let budget = ByteBudget::new(4_000);
        let queues = [(); 2].map(|()| ClientQueue::new(100, CLIENT_BYTES_MAX, budget.clone()));
        assert!(queues[0].push(make_item(Some(1), 2_500)));
        assert!(queues[1].push(make_item(Some(1), 2_500)), "an empty queue accepts one item always");
        assert!(queues[1].push(make_item(None, 10)), "a chunk without room is dropped");
        assert!(!queues[1].push(event(2)), "a second event exceeds the budget");
        assert!(matches!(queues[1].end_reason(), Some(QueueEnd::Slow { .. })));
        drop(queues);
        assert_eq!(budget.used(), 0);
    }
}
