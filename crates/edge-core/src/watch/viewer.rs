//! One viewer of one session: it reads the log from its cursor at its own pace, and then follows the shared feed.

use std::sync::Arc;
use std::time::Duration;

use contract::commit::Phase;
use contract::limits::SLOTS_PER_PAGE;
use contract::{ErrorCode, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use session_api::WatchParams;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::access::ApiCaller;
use crate::api::{ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::cells::Cell;
use crate::client_queue::{ClientQueue, QueueItem};
use crate::clock;
use crate::fair_queue::RequestCost;
use crate::feed::log_range::{self, LogRange};
use crate::feed::merger::{EventMerger, LogGap};
use crate::feed::viewer_event::ViewerEvent;
use crate::feed::{FeedEvent, READ_BACKOFF};
use crate::inbox::{START_CHECK_BACKOFF, is_start_waiting};

/// The answer to `session.watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatchReply {
    pub(crate) session_id: SessionId,
    /// The session's last `seq`.
    pub(crate) seq: u64,
    pub(crate) phase: Phase,
}

/// A viewer that has joined the feed and has read nothing yet.
#[derive(Debug)]
pub struct Viewer {
    api: SessionApi,
    cell: Arc<Cell>,
    session: ReachedSession,
    has_chunks: bool,
    merger: EventMerger,
    /// `None` if the session has ended: then the log has everything.
    events: Option<broadcast::Receiver<FeedEvent>>,
    slot: u64,
    /// The head's page as of joining the feed, if all events that the viewer wants are in it.
    page: Option<LogRange>,
    /// The viewer follows the session since before its start, so it misses no part of a reply.
    is_complete: bool,
    read_pause: Duration,
}

/// Maximum number of times that a viewer looks for a session that is being moved: about half a minute.
const MOVE_CHECKS_MAX: u32 = 64;

impl SessionApi {
    /// As [`SessionApi::watch`], but waits while the start of the session is stored and not handled.
    pub async fn watch_after_start(
        &self,
        caller: &ApiCaller,
        session: &ReachedSession,
        params: &WatchParams,
    ) -> Result<(WatchReply, Viewer), ApiError> {
        let deadline = Instant::now() + self.command_wait();
        let mut checks = 0;
        loop {
            // This check comes before the log is read, so that a start that is handled in between is found in the log.
            let is_waiting = is_start_waiting(&self.cell_of(session).await?.bus, session.key()).await?;
            match self.watch(caller, session, params).await {
                Err(error) if error.code == ErrorCode::UnknownSession && is_waiting && Instant::now() < deadline => {
                    tokio::time::sleep(START_CHECK_BACKOFF.pause(checks)).await;
                    checks += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts to watch. A cursor beyond the last event is refused with `resync` and the last `seq`.
    pub async fn watch(
        &self,
        caller: &ApiCaller,
        session: &ReachedSession,
        params: &WatchParams,
    ) -> Result<(WatchReply, Viewer), ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let (cell, key) = (self.cell_of(session).await?, session.key());
        let read = async || log_range::load_head_page(&cell.bus, key).await;
        // A session that is followed or was started here needs no look at its head: its page has all of that.
        let load_phase = async || {
            let head = cell.load_head(key).await?.ok_or_else(|| Self::unknown_session(key))?;
            Ok::<_, ApiError>(head.meta.phase)
        };
        let is_open = cell.feeds.is_open(key) || cell.tenant(&key.tenant).seems_open(&key.session);
        let head_phase = if is_open { None } else { Some(load_phase().await?) };
        let ended_page = if head_phase == Some(Phase::Ended) { Some(read().await?) } else { None };
        // The head may be stale. A session that never started has the phase `ended` too, and may have started since.
        let (events, page) = match ended_page {
            Some(page) if page.phase.is_none_or(|phase| phase == Phase::Ended) => {
                if page.last_seq == 0 {
                    return Err(Self::unknown_session(key));
                }
                (None, page)
            }
            Some(_) | None => {
                let subscription = cell.feeds.join(key).await?;
                let page = if let Some(page) = subscription.page { page } else { read().await? };
                (Some(subscription.events), page)
            }
        };
        let phase = match page.phase.or(head_phase) {
            Some(phase) => phase,
            // A feed that was prepared for a session that has not begun, or a page of a replica that lags behind.
            None => load_phase().await?,
        };
        let from = params.from_seq.max(1);
        if from > page.last_seq + 1 {
            let message = format!(
                "session {} is at seq {}, there is no seq {} to watch from: begin again from 1",
                key.session,
                page.last_seq,
                from - 1
            );
            return Err(ApiError::new(ErrorCode::Resync, message).with_seq(page.last_seq));
        }
        let last_page = page.last_slot.unwrap_or(0) / SLOTS_PER_PAGE;
        let first_page = log_range::find_page(&cell.bus, key, from, last_page).await?;
        let watching = WatchReply { session_id: key.session.clone(), seq: page.last_seq, phase };
        let slot = first_page * SLOTS_PER_PAGE;
        let viewer = Viewer {
            api: self.clone(),
            cell,
            session: session.clone(),
            has_chunks: !params.no_chunks,
            merger: EventMerger::new(from),
            events,
            slot,
            page: (first_page == last_page).then_some(page),
            is_complete: false,
            read_pause: READ_BACKOFF.pause(0),
        };
        Ok((watching, viewer))
    }
}

impl Viewer {
    /// A viewer of a session that this process has started just now; `None` if the events since then were not kept.
    pub(super) fn of_new(
        api: &SessionApi,
        cell: Arc<Cell>,
        session: &ReachedSession,
        params: &WatchParams,
    ) -> Option<Self> {
        let events = cell.feeds.take_kept(session.key())?;
        Some(Self {
            api: api.clone(),
            cell,
            session: session.clone(),
            has_chunks: !params.no_chunks,
            merger: EventMerger::new(params.from_seq),
            events: Some(events),
            slot: 0,
            page: Some(LogRange::default()),
            is_complete: true,
            read_pause: READ_BACKOFF.pause(0),
        })
    }

    /// Returns the id of the session.
    pub fn session(&self) -> &SessionId {
        self.session.id()
    }

    /// Fills a client's queue until the session or the queue ends. An error means that the viewer cannot continue.
    pub async fn run(mut self, queue: &ClientQueue) -> Result<(), ApiError> {
        let is_open = match self.page.take() {
            Some(page) => {
                self.slot = page.last_slot.unwrap_or(self.slot);
                self.push_log(&page, queue).await?
            }
            None => self.catch_up(queue).await?,
        };
        if !is_open {
            return Ok(());
        }
        // Events do not wait for the snapshot: if the reply has just ended, no gateway answers the request.
        let mut snapshot = if self.is_complete {
            self.merger.merge_snapshot(None, &mut Vec::new());
            None
        } else {
            Some(self.request_snapshot())
        };
        let mut read_at = None;
        while !self.merger.is_ended() {
            let Some(events) = &mut self.events else { return Ok(()) };
            let mut out = Vec::new();
            tokio::select! {
                _ = queue.wait_for_end() => return Ok(()),
                reply = wait_for_snapshot(&mut snapshot) => {
                    snapshot = None;
                    self.merger.merge_snapshot(reply, &mut out);
                }
                received = events.recv() => match received {
                    Ok(FeedEvent::Event(event)) => self.merger.merge_live(event, &mut out),
                    Ok(FeedEvent::KnownSeq(seq)) => self.merger.raise_known_seq(seq),
                    // The missed events are in the log, and at least one of them has not gone out.
                    Err(RecvError::Lagged(_)) => read_at = Some(Instant::now()),
                    Err(RecvError::Closed) => {
                        if !self.catch_up(queue).await? || self.merger.is_ended() {
                            return Ok(());
                        }
                        self.follow_moved().await?;
                        self.events = Some(self.cell.feeds.join(self.session.key()).await?.events);
                        read_at = Some(Instant::now());
                    }
                },
                () = sleep_until(read_at) => {
                    if !self.catch_up(queue).await? {
                        return Ok(());
                    }
                    read_at = None;
                }
            }
            if !self.push_live(out, queue) {
                return Ok(());
            }
            if read_at.is_none() && self.merger.is_log_needed() {
                read_at = Some(Instant::now() + self.read_pause);
            }
        }
        Ok(())
    }

    /// Goes on in another cell if the session was moved. A move takes a moment, in which no cell has the session.
    async fn follow_moved(&mut self) -> Result<(), ApiError> {
        let mut checks = 0;
        loop {
            match self.api.cell_of(&self.session).await {
                Ok(cell) => {
                    self.cell = cell;
                    return Ok(());
                }
                Err(error) if error.code == ErrorCode::SessionMoved && checks < MOVE_CHECKS_MAX => {
                    tokio::time::sleep(START_CHECK_BACKOFF.pause(checks)).await;
                    checks += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the log to its end, as fast as the client takes it; `false` if the client has disconnected.
    async fn catch_up(&mut self, queue: &ClientQueue) -> Result<bool, ApiError> {
        let before = self.merger.next_seq();
        loop {
            let page = self.slot / SLOTS_PER_PAGE;
            let bus = &self.cell.bus;
            let head = self.cell.load_head(self.session.key()).await?;
            let is_finished = head.is_some_and(|head| head.slot / SLOTS_PER_PAGE > page);
            let range =
                if is_finished { log_range::load_finished_page(bus, self.session.key(), page).await? } else { None };
            let is_last = range.is_none();
            let range = match range {
                Some(range) => range,
                None => log_range::load_from_page(bus, self.session.key(), page).await?,
            };
            if !self.push_log(&range, queue).await? {
                return Ok(false);
            }
            self.slot = if is_last { range.last_slot.unwrap_or(self.slot) } else { (page + 1) * SLOTS_PER_PAGE };
            if is_last {
                break;
            }
        }
        if self.merger.next_seq() > before {
            self.read_pause = READ_BACKOFF.pause(0);
        } else {
            self.read_pause = READ_BACKOFF.after(self.read_pause);
        }
        Ok(true)
    }

    async fn push_log(&mut self, range: &LogRange, queue: &ClientQueue) -> Result<bool, ApiError> {
        let mut out = Vec::new();
        let merged = self.merger.merge_log(&range.events, &mut out);
        for event in out {
            if !queue.push_when_free(QueueItem::Event(event)).await {
                return Ok(false);
            }
        }
        merged.map_err(|gap| self.resync_error(gap))?;
        // A log may go on without what the archive had of its beginning, and have no event since.
        let wanted = self.merger.next_seq();
        if wanted < range.first_seq {
            return Err(self.resync_error(LogGap { wanted, found: range.first_seq }));
        }
        Ok(true)
    }

    fn resync_error(&self, gap: LogGap) -> ApiError {
        let message = format!(
            "session {} has no seq {} any more, its log goes on at {}: begin again from there",
            self.session.id(),
            gap.wanted,
            gap.found
        );
        ApiError::new(ErrorCode::Resync, message).with_seq(gap.found)
    }

    /// Requests the reply that is being streamed, as far as it has come; chunks wait for it. Without an answer the
    /// viewer gets the rest of the chunks, and the whole reply at its end.
    fn request_snapshot(&self) -> BoxFuture<'static, Option<Arc<ViewerEvent>>> {
        if !self.has_chunks || self.events.is_none() || self.merger.is_ended() {
            return std::future::ready(None).boxed();
        }
        let (bus, key) = (self.cell.bus.clone(), self.session.key().clone());
        async move {
            let snapshot = bus.view(&key).await.unwrap_or_default()?;
            ViewerEvent::from_reply_snapshot(&key, clock::now(), snapshot).map(Arc::new)
        }
        .boxed()
    }

    /// Pushes live events without waiting; `false` if the queue has ended.
    fn push_live(&self, out: Vec<Arc<ViewerEvent>>, queue: &ClientQueue) -> bool {
        let is_wanted = |event: &Arc<ViewerEvent>| self.has_chunks || !event.is_droppable();
        out.into_iter().filter(is_wanted).all(|event| queue.push(QueueItem::Event(event)))
    }
}

async fn wait_for_snapshot<T>(request: &mut Option<BoxFuture<'static, T>>) -> T {
    match request {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
