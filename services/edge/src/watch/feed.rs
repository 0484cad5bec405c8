//! One feed per watched session: one pair of subscriptions, put in order once, shared by all viewers of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, Read, Subscription, SubscriptionEvent};
use contract::backoff::Backoff;
use contract::event::Envelope;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::{self, SessionKey};
use futures::StreamExt;
use service::tasks::Tasks;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::Instant;

use super::merger::Merger;
use super::notice::Notice;
use super::pages::{self, Stretch};
use crate::failure::Failure;

/// Pause between looks at the head of a watched session: the last event has no successor that would show its loss.
pub(crate) const HEAD_EVERY: Duration = Duration::from_secs(5);
/// Notices that a viewer's task may fall behind before it reads the log instead.
pub(crate) const FEED_MAX: usize = 512;
/// The pauses before the log is read again for something that it did not show yet.
pub(super) const AGAIN: Backoff = Backoff::new(Duration::from_millis(50), HEAD_EVERY);

/// What a feed tells its viewers.
#[derive(Debug, Clone)]
pub(crate) enum Fed {
    /// An event, in order and without holes from the moment of joining on, or a chunk.
    Notice(Arc<Notice>),
    /// Events up to this `seq` exist.
    Exists(u64),
}

/// The feeds of this process.
#[derive(Debug, Clone)]
pub(crate) struct Feeds {
    bus: Bus,
    tasks: Tasks,
    open: Arc<Mutex<HashMap<SessionKey, Open>>>,
}

#[derive(Debug)]
struct Open {
    sender: broadcast::Sender<Fed>,
    ready: watch::Receiver<Ready>,
}

/// Whether a feed hears; nothing as long as nobody knows.
type Ready = Option<Result<(), BusError>>;

struct Found {
    feed: broadcast::Receiver<Fed>,
    ready: watch::Receiver<Ready>,
    page: Option<oneshot::Receiver<Stretch>>,
}

/// A feed that was joined.
#[derive(Debug)]
pub(super) struct Joined {
    /// What is published from now on.
    pub(crate) feed: broadcast::Receiver<Fed>,
    /// For whoever made it: the head's page, with everything that was before.
    pub(crate) page: Option<Stretch>,
}

impl Feeds {
    /// No feed yet.
    pub(crate) fn new(bus: Bus, tasks: Tasks) -> Self {
        Self { bus, tasks, open: Arc::default() }
    }

    /// Joins a session's feed; returns when what is published from now on will be heard.
    pub(super) async fn join(&self, key: &SessionKey) -> Result<Joined, Failure> {
        let Found { feed, mut ready, page } = self.find(key);
        let state = ready.wait_for(Option::is_some).await;
        match state.as_deref() {
            Ok(Some(Ok(()))) => Ok(Joined { feed, page: page.and_then(|mut page| page.try_recv().ok()) }),
            Ok(Some(Err(error))) => Err(error.clone().into()),
            Ok(None) | Err(_) => Err(BusError::Unavailable("the edge is going down".to_owned()).into()),
        }
    }

    /// How many sessions are watched.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn find(&self, key: &SessionKey) -> Found {
        let mut feeds = self.lock();
        if let Some(open) = feeds.get(key) {
            return Found { feed: open.sender.subscribe(), ready: open.ready.clone(), page: None };
        }
        let (sender, joined) = broadcast::channel(FEED_MAX);
        let (tell_ready, ready) = watch::channel(None);
        let (give_page, page) = oneshot::channel();
        feeds.insert(key.clone(), Open { sender: sender.clone(), ready: ready.clone() });
        drop(feeds);
        let (ending, feeds, key) = (self.tasks.token(), self.clone(), key.clone());
        self.tasks.spawn("feed", async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = feeds.run(&key, &sender, tell_ready, give_page) => {}
            }
            feeds.forget(&key, &sender);
        });
        Found { feed: joined, ready, page: Some(page) }
    }

    async fn run(
        &self,
        key: &SessionKey,
        sender: &broadcast::Sender<Fed>,
        ready: watch::Sender<Ready>,
        give_page: oneshot::Sender<Stretch>,
    ) {
        match Feed::start(&self.bus, key).await {
            Err(error) => {
                // The next viewer tries again, so this one must not be found any more.
                self.forget(key, sender);
                ready.send_replace(Some(Err(error)));
            }
            Ok((mut feed, page)) => {
                // Whoever made the feed may be gone already.
                let _ = give_page.send(page);
                ready.send_replace(Some(Ok(())));
                while feed.turn(sender).await && !self.is_left(key, sender) {}
            }
        }
    }

    /// Whether nobody watches any more; then the feed is taken off the list, so that nobody joins what ends.
    fn is_left(&self, key: &SessionKey, sender: &broadcast::Sender<Fed>) -> bool {
        let mut feeds = self.lock();
        let left = sender.receiver_count() == 0;
        if left {
            feeds.remove(key);
        }
        left
    }

    /// Takes this feed off the list, but not a newer one of the same session.
    fn forget(&self, key: &SessionKey, sender: &broadcast::Sender<Fed>) {
        let mut feeds = self.lock();
        if feeds.get(key).is_some_and(|open| open.sender.same_channel(sender)) {
            feeds.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Feed {
    bus: Bus,
    key: SessionKey,
    heard: Subscription,
    merger: Merger,
    /// The last slot that was read from the log.
    slot: u64,
    look_at: Instant,
    read_at: Option<Instant>,
    again: Duration,
}

impl Feed {
    async fn start(bus: &Bus, key: &SessionKey) -> Result<(Self, Stretch), BusError> {
        let heard = bus.events(key).await?;
        let page = pages::head_page(bus, key).await?;
        let mut merger = Merger::new(page.last_seq + 1);
        merger.view(None, &mut Vec::new());
        let feed = Self {
            bus: bus.clone(),
            key: key.clone(),
            heard,
            merger,
            slot: page.last_slot.unwrap_or(0),
            look_at: Instant::now() + HEAD_EVERY,
            read_at: None,
            again: AGAIN.pause(0),
        };
        Ok((feed, page))
    }

    /// Waits for one thing to happen and passes on what comes of it; `false` after the session's end.
    async fn turn(&mut self, sender: &broadcast::Sender<Fed>) -> bool {
        let mut out = Vec::new();
        let mut exists = None;
        let read_at = self.read_at.unwrap_or(self.look_at).min(self.look_at);
        tokio::select! {
            heard = self.heard.next() => match heard {
                Some(SubscriptionEvent::Message(message)) => self.hear(&message, &mut out),
                Some(SubscriptionEvent::Gap) => self.read(&mut out).await,
                None => self.subscribe_again(&mut out).await,
            },
            () = tokio::time::sleep_until(read_at) => {
                if self.look_at <= Instant::now() {
                    self.look(&mut out).await;
                    exists = Some(Fed::Exists(self.merger.next() - 1));
                } else {
                    self.read(&mut out).await;
                }
            }
        }
        self.read_at = match (self.merger.wants_log(), self.read_at) {
            (true, None) => Some(Instant::now() + AGAIN.pause(0)),
            (true, at) => at,
            (false, _) => {
                self.again = AGAIN.pause(0);
                None
            }
        };
        for (index, fed) in out.into_iter().map(Fed::Notice).chain(exists).enumerate() {
            // Nobody may be there to hear it; then the feed ends after this turn.
            let _ = sender.send(fed);
            if index % (FEED_MAX / 2) == FEED_MAX / 4 {
                // A long stretch of the log must not run over viewers that would take it in time.
                tokio::task::yield_now().await;
            }
        }
        !self.merger.ended()
    }

    fn hear(&mut self, message: &bus::Message, out: &mut Vec<Arc<Notice>>) {
        let Some((topic, _)) = subject::parse_event(&message.subject) else { return };
        let Ok(envelope) = serde_json::from_slice::<Envelope>(&message.payload) else { return };
        // The topic's subject may be written by others than the loop: what it says of itself must fit.
        if envelope.session_id != self.key.session || envelope.tenant != self.key.tenant {
            return;
        }
        match envelope.seq {
            Some(seq) if Notice::is_stub(&envelope) => self.merger.exists(seq),
            Some(_) | None => {
                if let Some(notice) = Notice::heard(topic, envelope) {
                    self.merger.live(Arc::new(notice), out);
                }
            }
        }
    }

    /// Reads what the log holds since the last read.
    async fn read(&mut self, out: &mut Vec<Arc<Notice>>) {
        let before = self.merger.next();
        match pages::rest(&self.bus, &self.key, self.slot / SLOTS_PER_PAGE).await {
            Ok(stretch) => {
                self.slot = stretch.last_slot.unwrap_or(self.slot);
                if let Err(gone) = self.merger.log(&stretch.notices, out) {
                    tracing::warn!(session = %self.key, wanted = gone.wanted, found = gone.found, "the log has a hole");
                    self.merger.give_up();
                }
            }
            Err(error) => tracing::warn!(session = %self.key, %error, "the log of a watched session cannot be read"),
        }
        if self.merger.next() > before {
            self.again = AGAIN.pause(0);
        } else {
            self.again = AGAIN.after(self.again);
        }
        self.read_at = Some(Instant::now() + self.again);
    }

    /// Looks whether the log went on without our hearing of it, and tells viewers how far it is.
    async fn look(&mut self, out: &mut Vec<Arc<Notice>>) {
        self.look_at = Instant::now() + HEAD_EVERY;
        match self.bus.head(&self.key, Read::Any).await {
            Ok(Some(head)) if head.slot > self.slot => self.read(out).await,
            Ok(Some(_) | None) => {}
            Err(error) => tracing::warn!(session = %self.key, %error, "the head of a watched session cannot be read"),
        }
    }

    async fn subscribe_again(&mut self, out: &mut Vec<Arc<Notice>>) {
        tokio::time::sleep(AGAIN.pause(0) * 10).await;
        match self.bus.events(&self.key).await {
            Ok(heard) => {
                self.heard = heard;
                self.read(out).await;
            }
            Err(error) => tracing::warn!(session = %self.key, %error, "a watched session cannot be subscribed"),
        }
    }
}
