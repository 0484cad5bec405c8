//! One feed for each watched session: its live events are ordered once and shared by all viewers of this process.

pub(crate) mod log_range;
pub(crate) mod merger;
#[cfg(test)]
mod merger_tests;
pub mod viewer_event;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, Subscription, SubscriptionEvent};
use contract::backoff::Backoff;
use contract::event::Envelope;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::{self, SessionKey};
use futures::StreamExt;
use service::tasks::Tasks;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::Instant;

use crate::api_error::ApiError;
use log_range::LogRange;
use merger::EventMerger;
use viewer_event::ViewerEvent;

/// Pause between checks of the head of a watched session. If its last event is lost, no later event shows the gap.
pub(crate) const HEAD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Events that a viewer may fall behind the feed before it reads the log instead.
pub(crate) const FEED_CAPACITY: usize = 512;
/// Time for which the events of a new session are kept for the watch that comes next.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// Backoff for reading the log again while it does not show an event that exists.
pub(crate) const READ_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), HEAD_CHECK_INTERVAL);

/// Message of a feed to its viewers.
#[derive(Debug, Clone)]
pub(crate) enum FeedEvent {
    /// An event, in order and without gaps since the viewer joined, or a chunk.
    Event(Arc<ViewerEvent>),
    KnownSeq(u64),
}

/// The feeds of this process by session. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Feeds {
    bus: Bus,
    tasks: Tasks,
    by_session: Arc<Mutex<HashMap<SessionKey, OpenFeed>>>,
}

/// Handles with which a viewer joins a running feed.
#[derive(Debug)]
struct OpenFeed {
    sender: broadcast::Sender<FeedEvent>,
    ready: watch::Receiver<FeedReadiness>,
    /// All events of a new session, for the watch that comes next.
    kept: Option<KeptEvents>,
}

/// The events of a session since before its start.
#[derive(Debug)]
struct KeptEvents {
    events: broadcast::Receiver<FeedEvent>,
    until: Instant,
}

/// Whether the subscriptions of a feed are active; `None` while they are being made.
type FeedReadiness = Option<Result<(), BusError>>;

/// Start of a feed: with a new session, or with a read of the log.
enum FeedBeginning {
    /// The session is about to start, and the feed has its subscriptions already.
    New(Box<Feed>),
    /// The log is read first, for the viewer that waits for it.
    Log { ready: watch::Sender<FeedReadiness>, page: oneshot::Sender<LogRange> },
}

/// A feed that may not be ready yet.
struct FeedHandle {
    events: broadcast::Receiver<FeedEvent>,
    ready: watch::Receiver<FeedReadiness>,
    page: Option<oneshot::Receiver<LogRange>>,
}

/// A viewer's end of a feed.
#[derive(Debug)]
pub(crate) struct FeedSubscription {
    /// Events that are published from now on.
    pub(crate) events: broadcast::Receiver<FeedEvent>,
    /// The head's page with the events before those; only the viewer that started the feed gets it.
    pub(crate) page: Option<LogRange>,
}

impl Feeds {
    pub(crate) fn new(bus: Bus, tasks: Tasks) -> Self {
        Self { bus, tasks, by_session: Arc::default() }
    }

    /// Joins the feed of a session, and returns when its subscriptions are active.
    pub(crate) async fn join(&self, key: &SessionKey) -> Result<FeedSubscription, ApiError> {
        let FeedHandle { events, mut ready, page } = self.find_or_start(key);
        let state = ready.wait_for(Option::is_some).await;
        match state.as_deref() {
            Ok(Some(Ok(()))) => Ok(FeedSubscription { events, page: page.and_then(|mut page| page.try_recv().ok()) }),
            Ok(Some(Err(error))) => Err(error.clone().into()),
            Ok(None) | Err(_) => Err(BusError::Unavailable("the edge is draining".to_owned()).into()),
        }
    }

    /// Follows a session that this process is about to start, and keeps its events for the watch that comes next.
    pub(crate) async fn follow_new(&self, key: &SessionKey) -> Result<(), BusError> {
        let subscription = self.bus.events_of_new(key).await?;
        let (sender, events) = broadcast::channel(FEED_CAPACITY);
        let (_, ready) = watch::channel(Some(Ok(())));
        match self.lock().entry(key.clone()) {
            // It was not new, and somebody watches it already.
            Entry::Occupied(_) => return Ok(()),
            Entry::Vacant(vacant) => {
                let kept = Some(KeptEvents { events, until: Instant::now() + KEPT_FOR });
                vacant.insert(OpenFeed { sender: sender.clone(), ready, kept });
            }
        }
        let feed = Feed::new(&self.bus, key, subscription, &LogRange::default());
        self.spawn(key, sender, FeedBeginning::New(Box::new(feed)));
        Ok(())
    }

    /// Takes the events of a session that this process has just started, from its first one on.
    pub(crate) fn take_kept(&self, key: &SessionKey) -> Option<broadcast::Receiver<FeedEvent>> {
        Some(self.lock().get_mut(key)?.kept.take()?.events)
    }

    /// Whether the feed of a session has its subscriptions.
    pub(crate) fn is_open(&self, key: &SessionKey) -> bool {
        self.lock().get(key).is_some_and(|open| matches!(*open.ready.borrow(), Some(Ok(()))))
    }

    /// Returns the number of watched sessions.
    pub(crate) fn open_count(&self) -> usize {
        self.lock().len()
    }

    fn find_or_start(&self, key: &SessionKey) -> FeedHandle {
        let mut feeds = self.lock();
        if let Some(open) = feeds.get(key) {
            return FeedHandle { events: open.sender.subscribe(), ready: open.ready.clone(), page: None };
        }
        let (sender, joined) = broadcast::channel(FEED_CAPACITY);
        let (ready_sender, ready) = watch::channel(None);
        let (page_sender, page) = oneshot::channel();
        feeds.insert(key.clone(), OpenFeed { sender: sender.clone(), ready: ready.clone(), kept: None });
        drop(feeds);
        self.spawn(key, sender, FeedBeginning::Log { ready: ready_sender, page: page_sender });
        FeedHandle { events: joined, ready, page: Some(page) }
    }

    /// Runs the task of a feed until it ends or this process does.
    fn spawn(&self, key: &SessionKey, sender: broadcast::Sender<FeedEvent>, beginning: FeedBeginning) {
        let (ending, feeds, key) = (self.tasks.token(), self.clone(), key.clone());
        self.tasks.spawn("feed", async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = feeds.run(&key, &sender, beginning) => {}
            }
            feeds.remove_feed(&key, &sender);
        });
    }

    async fn run(&self, key: &SessionKey, sender: &broadcast::Sender<FeedEvent>, beginning: FeedBeginning) {
        let (ready, page) = match beginning {
            FeedBeginning::New(mut feed) => return self.follow(key, sender, &mut feed).await,
            FeedBeginning::Log { ready, page } => (ready, page),
        };
        match Feed::start(&self.bus, key).await {
            Err(error) => {
                // The next viewer starts a new feed, so it must not find this one.
                self.remove_feed(key, sender);
                ready.send_replace(Some(Err(error)));
            }
            Ok((mut feed, read)) => {
                // The viewer that started the feed may have left already.
                let _ = page.send(read);
                ready.send_replace(Some(Ok(())));
                self.follow(key, sender, &mut feed).await;
            }
        }
    }

    async fn follow(&self, key: &SessionKey, sender: &broadcast::Sender<FeedEvent>, feed: &mut Feed) {
        while feed.process_next(sender).await && !self.close_if_unwatched(key, sender) {}
    }

    /// Removes the feed if it has no viewer, so that no viewer joins a feed that ends; returns whether it did.
    fn close_if_unwatched(&self, key: &SessionKey, sender: &broadcast::Sender<FeedEvent>) -> bool {
        let mut feeds = self.lock();
        if let Some(open) = feeds.get_mut(key) {
            let now = Instant::now();
            open.kept.take_if(|kept| kept.until <= now);
        }
        let is_unwatched = sender.receiver_count() == 0;
        if is_unwatched {
            feeds.remove(key);
        }
        is_unwatched
    }

    /// Removes this feed, but not a newer one of the same session.
    fn remove_feed(&self, key: &SessionKey, sender: &broadcast::Sender<FeedEvent>) {
        let mut feeds = self.lock();
        if feeds.get(key).is_some_and(|open| open.sender.same_channel(sender)) {
            feeds.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, OpenFeed>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one watched session.
struct Feed {
    bus: Bus,
    key: SessionKey,
    subscription: Subscription,
    merger: EventMerger,
    slot: u64,
    /// Another cell has the session, so nothing comes here any more.
    has_moved: bool,
    head_check_at: Instant,
    read_at: Option<Instant>,
    read_pause: Duration,
}

impl Feed {
    async fn start(bus: &Bus, key: &SessionKey) -> Result<(Self, LogRange), BusError> {
        let subscription = bus.events(key).await?;
        let page = log_range::load_head_page(bus, key).await?;
        Ok((Self::new(bus, key, subscription, &page), page))
    }

    /// A feed of what follows after a page.
    fn new(bus: &Bus, key: &SessionKey, subscription: Subscription, page: &LogRange) -> Self {
        let mut merger = EventMerger::new(page.last_seq + 1);
        merger.merge_snapshot(None, &mut Vec::new());
        Self {
            bus: bus.clone(),
            key: key.clone(),
            subscription,
            merger,
            slot: page.last_slot.unwrap_or(0),
            has_moved: false,
            head_check_at: Instant::now() + HEAD_CHECK_INTERVAL,
            read_at: None,
            read_pause: READ_BACKOFF.pause(0),
        }
    }

    /// Waits for the next message or timer and sends the events that follow from it; `false` after the session's end.
    async fn process_next(&mut self, sender: &broadcast::Sender<FeedEvent>) -> bool {
        let mut out = Vec::new();
        let mut known_seq = None;
        let read_at = self.read_at.unwrap_or(self.head_check_at).min(self.head_check_at);
        tokio::select! {
            received = self.subscription.next() => match received {
                Some(SubscriptionEvent::Message(message)) => self.merge_message(&message, &mut out),
                Some(SubscriptionEvent::Gap) => self.read_log(&mut out).await,
                None => self.resubscribe(&mut out).await,
            },
            () = tokio::time::sleep_until(read_at) => {
                if self.head_check_at <= Instant::now() {
                    self.check_head(&mut out).await;
                    known_seq = Some(FeedEvent::KnownSeq(self.merger.next_seq() - 1));
                } else {
                    self.read_log(&mut out).await;
                }
            }
        }
        self.read_at = match (self.merger.is_log_needed(), self.read_at) {
            (true, None) => Some(Instant::now() + READ_BACKOFF.pause(0)),
            (true, at) => at,
            (false, _) => {
                self.read_pause = READ_BACKOFF.pause(0);
                None
            }
        };
        for (index, event) in out.into_iter().map(FeedEvent::Event).chain(known_seq).enumerate() {
            // An error means that no viewer is left; then the feed ends after this event.
            let _ = sender.send(event);
            if index % (FEED_CAPACITY / 2) == FEED_CAPACITY / 4 {
                // Without this, a long range of the log would overflow the channel of viewers that keep up.
                tokio::task::yield_now().await;
            }
        }
        !self.merger.is_ended() && !self.has_moved
    }

    fn merge_message(&mut self, message: &bus::CoreMessage, out: &mut Vec<Arc<ViewerEvent>>) {
        let Some((topic, _)) = subject::parse_event(&message.subject) else { return };
        let Ok(envelope) = serde_json::from_slice::<Envelope>(&message.payload) else { return };
        // Other services may publish on this subject too, so the envelope must name this session.
        if envelope.session_id != self.key.session || envelope.tenant != self.key.tenant {
            return;
        }
        match envelope.seq {
            Some(seq) if ViewerEvent::is_body_reference(&envelope) => self.merger.raise_known_seq(seq),
            Some(_) | None => {
                if let Some(event) = ViewerEvent::from_envelope(topic, envelope) {
                    self.merger.merge_live(Arc::new(event), out);
                }
            }
        }
    }

    /// Reads what was appended to the log since the last read.
    async fn read_log(&mut self, out: &mut Vec<Arc<ViewerEvent>>) {
        let before = self.merger.next_seq();
        match log_range::load_from_page(&self.bus, &self.key, self.slot / SLOTS_PER_PAGE).await {
            Ok(range) => {
                self.slot = range.last_slot.unwrap_or(self.slot);
                if let Err(gap) = self.merger.merge_log(&range.events, out) {
                    tracing::warn!(session = %self.key, wanted = gap.wanted, found = gap.found, "the log has a gap");
                    self.merger.forget_missing();
                }
            }
            Err(error) => tracing::warn!(session = %self.key, %error, "the log of a watched session cannot be read"),
        }
        if self.merger.next_seq() > before {
            self.read_pause = READ_BACKOFF.pause(0);
        } else {
            self.read_pause = READ_BACKOFF.after(self.read_pause);
        }
        self.read_at = Some(Instant::now() + self.read_pause);
    }

    /// Reads the log if its last commit has events that did not come.
    async fn check_head(&mut self, out: &mut Vec<Arc<ViewerEvent>>) {
        self.head_check_at = Instant::now() + HEAD_CHECK_INTERVAL;
        match self.bus.last_commit(&self.key).await {
            Ok(Some((_, head))) if head.meta.moved.is_some() => self.has_moved = true,
            Ok(Some((slot, _))) if slot <= self.slot => {}
            Ok(Some((slot, head))) if head.last_seq() < self.merger.next_seq() => self.slot = slot,
            Ok(Some(_)) => self.read_log(out).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(session = %self.key, %error, "the head of a watched session cannot be read"),
        }
    }

    async fn resubscribe(&mut self, out: &mut Vec<Arc<ViewerEvent>>) {
        tokio::time::sleep(READ_BACKOFF.pause(0) * 10).await;
        match self.bus.events(&self.key).await {
            Ok(subscription) => {
                self.subscription = subscription;
                self.read_log(out).await;
            }
            Err(error) => tracing::warn!(session = %self.key, %error, "a watched session cannot be subscribed"),
        }
    }
}
