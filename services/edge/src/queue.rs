//! What waits for one client: bounded in number and bytes. When it is full, chunks go first, then the client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::{ErrorCode, SessionId};
use service::connections::ByteBudget;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::watch::notice::Notice;

/// Bytes that may wait for one client.
pub(crate) const CLIENT_BYTES_MAX: usize = 16 << 20;
/// Sessions whose last `seq` a queue remembers: twice as many as one connection may watch.
pub(crate) const CURSORS_MAX: usize = 512;
/// Places for items that an idle queue keeps.
const IDLE_CAPACITY: usize = 16;
/// How long a client that is read the log to may take none of it.
pub(crate) const CLIENT_STALL_MAX: Duration = Duration::from_mins(1);

/// One thing on its way to a client.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// A JSON-RPC answer or notification.
    Text(String),
    /// An event of a watched session.
    Notice(Arc<Notice>),
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Notice(notice) => notice.bytes(),
        }
    }

    fn is_chunk(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Notice(notice) => notice.is_chunk(),
        }
    }
}

/// Why a queue ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// All is said; what waits still goes out.
    Complete,
    /// The client or the server leaves; what waits is dropped.
    Gone,
    /// Something went wrong; what waits still goes out.
    Failed(Failure),
    /// The client does not read; what waits is dropped.
    Slow {
        /// The session whose event had no room.
        session: Option<SessionId>,
        /// The last `seq` of it that was handed to the connection; 0 for none.
        seq: u64,
    },
}

impl End {
    /// The failure to tell, when it is one.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Complete | Self::Gone => None,
            Self::Failed(failure) => Some(failure.clone()),
            Self::Slow { seq, .. } => Some(
                Failure::new(
                    ErrorCode::SlowClient,
                    format!("you do not read fast enough: connect again and watch from seq {}", seq + 1),
                )
                .with_seq(*seq),
            ),
        }
    }
}

/// The queue of one client.
#[derive(Debug)]
pub(crate) struct ClientQueue {
    state: Mutex<State>,
    readable: Notify,
    room: Notify,
    items_max: usize,
    bytes_max: usize,
    budget: ByteBudget,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    end: Option<End>,
    /// The last `seq` of each session that was handed to the connection, and which of them came when. At most
    /// [`CURSORS_MAX`]: what was handed over longest ago goes first.
    told: HashMap<SessionId, Cursor>,
    cursors: u64,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    seq: u64,
    /// Number of the hand-over.
    at: u64,
}

impl ClientQueue {
    /// A queue of at most so many items and bytes, which it takes from a budget; a single larger item is taken when
    /// nothing else waits.
    pub(crate) fn new(items_max: usize, bytes_max: usize, budget: ByteBudget) -> Self {
        Self {
            state: Mutex::default(),
            readable: Notify::new(),
            room: Notify::new(),
            items_max: items_max.max(1),
            bytes_max,
            budget,
        }
    }

    /// Adds without waiting. A chunk without room is dropped; anything else drops the waiting chunks and, when that
    /// is not enough, ends the queue. `false` once it has ended.
    pub(crate) fn push(&self, item: Item) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        if !self.has_room(&state, &item) {
            if item.is_chunk() {
                return true;
            }
            state.drop_chunks(&self.budget);
        }
        if !self.has_room(&state, &item) {
            state.let_go(&item, &self.budget);
            drop(state);
            self.wake();
            return false;
        }
        state.add(item, &self.budget);
        drop(state);
        self.readable.notify_one();
        true
    }

    /// Adds as soon as half of the queue is free: for what can be read again and so may wait for its reader. A reader
    /// that takes nothing for [`CLIENT_STALL_MAX`] ends the queue.
    pub(crate) async fn push_patiently(&self, item: Item) -> bool {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
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
            if tokio::time::timeout(CLIENT_STALL_MAX, room).await.is_err() {
                self.lock().let_go(&item, &self.budget);
                self.wake();
                return false;
            }
        }
        self.readable.notify_one();
        true
    }

    /// Takes the next item, waiting for it; the end once there is none. One reader at a time.
    pub(crate) async fn pop(&self) -> Result<Item, End> {
        loop {
            {
                let mut state = self.lock();
                if let Some(item) = state.take(&self.budget) {
                    drop(state);
                    self.room.notify_waiters();
                    return Ok(item);
                }
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
            }
            self.readable.notified().await;
        }
    }

    /// Ends the queue; the first end counts.
    pub(crate) fn end(&self, end: End) {
        self.lock().finish(end, &self.budget);
        self.wake();
    }

    /// Forgets how far a session was told.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.lock().told.remove(session);
    }

    /// Why it ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        self.lock().end.clone()
    }

    /// Waits for the end.
    pub(crate) async fn until_end(&self) -> End {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if let Some(end) = self.ended() {
                return end;
            }
            room.await;
        }
    }

    fn wake(&self) {
        self.readable.notify_one();
        self.room.notify_waiters();
    }

    fn has_room(&self, state: &State, item: &Item) -> bool {
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
    fn add(&mut self, item: Item, budget: &ByteBudget) {
        // Two queues that find room at the same instant may be one item over.
        budget.take_anyway(item.bytes());
        self.bytes += item.bytes();
        self.items.push_back(item);
    }

    fn take(&mut self, budget: &ByteBudget) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes();
        budget.give_back(item.bytes());
        if self.items.is_empty() && self.items.capacity() > IDLE_CAPACITY {
            self.items.shrink_to(IDLE_CAPACITY);
        }
        if let Item::Notice(notice) = &item
            && let Some(seq) = notice.envelope.seq
        {
            self.remember(&notice.envelope.session_id, seq);
        }
        Some(item)
    }

    fn remember(&mut self, session: &SessionId, seq: u64) {
        self.cursors += 1;
        let cursor = Cursor { seq, at: self.cursors };
        if let Some(known) = self.told.get_mut(session) {
            *known = cursor;
            return;
        }
        if self.told.len() >= CURSORS_MAX
            && let Some(oldest) =
                self.told.iter().min_by_key(|(_, cursor)| cursor.at).map(|(session, _)| session.clone())
        {
            self.told.remove(&oldest);
        }
        self.told.insert(session.clone(), cursor);
    }

    /// Ends for a client that had no room for this.
    fn let_go(&mut self, item: &Item, budget: &ByteBudget) {
        let session = match item {
            Item::Text(_) => None,
            Item::Notice(notice) => Some(notice.envelope.session_id.clone()),
        };
        let seq = session.as_ref().and_then(|session| self.told.get(session)).map_or(0, |cursor| cursor.seq);
        self.finish(End::Slow { session, seq }, budget);
    }

    fn drop_chunks(&mut self, budget: &ByteBudget) {
        let before = self.bytes;
        self.items.retain(|item| !item.is_chunk());
        self.bytes = self.items.iter().map(Item::bytes).sum();
        budget.give_back(before - self.bytes);
    }

    fn finish(&mut self, end: End, budget: &ByteBudget) {
        if self.end.is_some() {
            return;
        }
        match end {
            End::Complete | End::Failed(_) => {}
            End::Gone | End::Slow { .. } => {
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

    fn notice(seq: Option<u64>, bytes: usize) -> Item {
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
        Item::Notice(Arc::new(Notice::heard(topic, envelope).unwrap()))
    }

    fn budget() -> ByteBudget {
        ByteBudget::new(usize::MAX)
    }

    fn event(seq: u64) -> Item {
        notice(Some(seq), 0)
    }

    async fn seqs(queue: &ClientQueue) -> (Vec<Option<u64>>, End) {
        let mut seqs = Vec::new();
        loop {
            match queue.pop().await {
                Ok(Item::Notice(notice)) => seqs.push(notice.envelope.seq),
                Ok(Item::Text(_)) => seqs.push(Some(0)),
                Err(end) => return (seqs, end),
            }
        }
    }

    #[tokio::test]
    async fn chunks_go_first_then_the_client() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        for item in [event(1), notice(None, 0), event(2), notice(None, 0), notice(None, 0)] {
            assert!(queue.push(item));
        }
        assert!(queue.push(event(3)), "the waiting chunks make room");
        assert!(queue.push(event(4)));
        assert!(queue.push(notice(None, 0)), "a chunk without room is dropped, not the client");
        assert!(matches!(queue.pop().await, Ok(Item::Notice(_))));
        assert!(queue.push(event(5)));
        assert!(!queue.push(event(6)));
        let slow = End::Slow { session: SessionId::new("s").ok(), seq: 1 };
        assert_eq!(seqs(&queue).await, (vec![], slow.clone()));
        assert_eq!(slow.failure().unwrap().seq, Some(1));
        assert!(!queue.push(event(7)));
    }

    #[tokio::test]
    async fn bytes_are_bounded_too() {
        let queue = ClientQueue::new(100, 10_000, budget());
        assert!(queue.push(notice(Some(1), 50_000)), "a large one alone is taken");
        assert!(!queue.push(event(2)));
    }

    #[tokio::test]
    async fn the_log_waits_for_its_reader() {
        let queue = Arc::new(ClientQueue::new(4, CLIENT_BYTES_MAX, budget()));
        let fill = async {
            for seq in 1..=100 {
                assert!(queue.push_patiently(event(seq)).await);
            }
            queue.end(End::Complete);
        };
        let (told, ()) = tokio::join!(seqs(&queue), fill);
        assert_eq!(told, ((1..=100).map(Some).collect(), End::Complete));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_of_the_log_that_stalls_is_let_go() {
        let queue = ClientQueue::new(1, CLIENT_BYTES_MAX, budget());
        assert!(queue.push_patiently(event(1)).await);
        assert!(!queue.push_patiently(event(2)).await);
        assert_eq!(queue.ended(), Some(End::Slow { session: SessionId::new("s").ok(), seq: 0 }));
    }

    #[tokio::test]
    async fn the_first_end_counts() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        queue.push(event(1));
        queue.end(End::Complete);
        queue.end(End::Gone);
        assert_eq!(seqs(&queue).await, (vec![Some(1)], End::Complete));
        assert_eq!(queue.until_end().await, End::Complete);
    }

    #[tokio::test]
    async fn cursors_of_many_sessions_are_bounded_and_the_latest_stay() {
        let queue = ClientQueue::new(4, CLIENT_BYTES_MAX, budget());
        let of = |session: usize| {
            let Item::Notice(notice) = event(7) else { unreachable!() };
            let envelope =
                Envelope { session_id: SessionId::new(&format!("s{session}")).unwrap(), ..notice.envelope.clone() };
            Item::Notice(Arc::new(Notice::heard(notice.topic, envelope).unwrap()))
        };
        for session in 0..CURSORS_MAX * 3 {
            assert!(queue.push(of(session)));
            queue.pop().await.unwrap();
        }
        assert_eq!(queue.lock().told.len(), CURSORS_MAX);
        let last = SessionId::new(&format!("s{}", CURSORS_MAX * 3 - 1)).unwrap();
        assert_eq!(queue.lock().told.get(&last).unwrap().seq, 7);
    }

    #[tokio::test]
    async fn queues_share_a_budget_and_give_it_back() {
        let budget = ByteBudget::new(4_000);
        let queues = [(); 2].map(|()| ClientQueue::new(100, CLIENT_BYTES_MAX, budget.clone()));
        assert!(queues[0].push(notice(Some(1), 2_500)));
        assert!(queues[1].push(notice(Some(1), 2_500)), "one item is always taken");
        assert!(queues[1].push(notice(None, 10)), "a chunk without room is dropped");
        assert!(!queues[1].push(event(2)), "a second fact is too much");
        assert!(matches!(queues[1].ended(), Some(End::Slow { .. })));
        drop(queues);
        assert_eq!(budget.used(), 0);
    }
}
