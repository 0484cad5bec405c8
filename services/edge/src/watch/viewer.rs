//! One viewer of one session: the log from its cursor at its own pace, then the shared feed.

use std::sync::Arc;
use std::time::Duration;

use contract::backoff::Backoff;
use contract::commit::Phase;
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{ErrorCode, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::feed::{AGAIN, Fed};
use super::merger::{Gone, Merger};
use super::notice::Notice;
use super::pages::{self, Stretch};
use crate::clock;
use crate::failure::Failure;
use crate::fair_queue::Cost;
use crate::guard::Caller;
use crate::params::Watch;
use crate::queue::{ClientQueue, Item};
use crate::sessions::Sessions;

/// What a viewer is told at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Watching {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The last `seq` that there is now.
    pub(crate) seq: u64,
    /// What the session is doing.
    pub(crate) phase: Phase,
}

/// A viewer that has joined and not begun to read.
#[derive(Debug)]
pub(crate) struct Viewer {
    sessions: Sessions,
    key: SessionKey,
    chunks: bool,
    merger: Merger,
    /// None when the session has ended: the log tells everything.
    feed: Option<broadcast::Receiver<Fed>>,
    /// The last slot that was read.
    slot: u64,
    /// The head's page as it was when the feed was joined, where all that is wanted is in it.
    page: Option<Stretch>,
    again: Duration,
}

/// The pauses between looks whether a session started.
const START_LOOKS: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

impl Sessions {
    /// As [`Sessions::watch`], but waits for the start of the session while that is stored and not handled.
    pub(crate) async fn watch_started(&self, caller: &Caller, watch: &Watch) -> Result<(Watching, Viewer), Failure> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: watch.session_id.clone() };
        let deadline = Instant::now() + self.command_wait();
        let mut tries = 0;
        loop {
            // Asked before the log is read: a start that is handled in between is seen there.
            let waits = self.start_waits(&key).await?;
            match self.watch(caller, watch).await {
                Err(failure) if failure.code == ErrorCode::UnknownSession && waits && Instant::now() < deadline => {
                    tokio::time::sleep(START_LOOKS.pause(tries)).await;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Begins to watch. A cursor beyond what there is, is refused with `resync` and the last `seq`.
    pub(crate) async fn watch(&self, caller: &Caller, watch: &Watch) -> Result<(Watching, Viewer), Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: watch.session_id.clone() };
        let head = self.head(&key).await?.ok_or_else(|| Self::unknown(&key))?;
        let read = async || pages::head_page(self.bus(), &key).await;
        let ended = if head.meta.phase == Phase::Ended { Some(read().await?) } else { None };
        // The head may be old. Before its start a session counts as ended too, and it may have started since.
        let (feed, page) = match ended {
            Some(page) if page.phase.is_none_or(|phase| phase == Phase::Ended) => {
                if page.last_seq == 0 {
                    return Err(Self::unknown(&key));
                }
                (None, page)
            }
            Some(_) | None => {
                let joined = self.feeds().join(&key).await?;
                let page = if let Some(page) = joined.page { page } else { read().await? };
                (Some(joined.feed), page)
            }
        };
        let from = watch.from_seq.max(1);
        if from > page.last_seq + 1 {
            let message = format!(
                "session {} is at seq {}, there is no seq {} to watch from: begin again from 1",
                key.session,
                page.last_seq,
                from - 1
            );
            return Err(Failure::new(ErrorCode::Resync, message).with_seq(page.last_seq));
        }
        let last_page = page.last_slot.unwrap_or(0) / SLOTS_PER_PAGE;
        let first_page = pages::page_of(self.bus(), &key, from, last_page).await?;
        let watching = Watching {
            session_id: key.session.clone(),
            seq: page.last_seq,
            phase: page.phase.unwrap_or(head.meta.phase),
        };
        let slot = first_page * SLOTS_PER_PAGE;
        let viewer = Viewer {
            sessions: self.clone(),
            key,
            chunks: !watch.no_chunks,
            merger: Merger::new(from),
            feed,
            slot,
            page: (first_page == last_page).then_some(page),
            again: AGAIN.pause(0),
        };
        Ok((watching, viewer))
    }
}

impl Viewer {
    /// The session.
    pub(crate) fn session(&self) -> &SessionId {
        &self.key.session
    }

    /// Fills a client's queue until the session or the queue ends. An error says why it cannot go on.
    pub(crate) async fn run(mut self, queue: &ClientQueue) -> Result<(), Failure> {
        let goes_on = match self.page.take() {
            Some(page) => {
                self.slot = page.last_slot.unwrap_or(self.slot);
                self.give(&page, queue).await?
            }
            None => self.catch_up(queue).await?,
        };
        if !goes_on {
            return Ok(());
        }
        // Asked for while events go on: whoever streams the reply may be at its end, and then nobody answers.
        let mut so_far = Some(self.reply_so_far());
        let mut read_at = None;
        while !self.merger.ended() {
            let Some(feed) = &mut self.feed else { return Ok(()) };
            let mut out = Vec::new();
            tokio::select! {
                _ = queue.until_end() => return Ok(()),
                reply = answered(&mut so_far) => {
                    so_far = None;
                    self.merger.view(reply, &mut out);
                }
                told = feed.recv() => match told {
                    Ok(Fed::Notice(notice)) => self.merger.live(notice, &mut out),
                    Ok(Fed::Exists(seq)) => self.merger.exists(seq),
                    // What was missed is in the log, and at least one event of it is beyond what went out.
                    Err(RecvError::Lagged(_)) => read_at = Some(Instant::now()),
                    Err(RecvError::Closed) => {
                        if !self.catch_up(queue).await? || self.merger.ended() {
                            return Ok(());
                        }
                        self.feed = Some(self.sessions.feeds().join(&self.key).await?.feed);
                        read_at = Some(Instant::now());
                    }
                },
                () = until(read_at) => {
                    if !self.catch_up(queue).await? {
                        return Ok(());
                    }
                    read_at = None;
                }
            }
            if !self.tell(out, queue) {
                return Ok(());
            }
            if read_at.is_none() && self.merger.wants_log() {
                read_at = Some(Instant::now() + self.again);
            }
        }
        Ok(())
    }

    /// Reads the log to its end, as fast as the client takes it; `false` when the client is gone.
    async fn catch_up(&mut self, queue: &ClientQueue) -> Result<bool, Failure> {
        let before = self.merger.next();
        loop {
            let page = self.slot / SLOTS_PER_PAGE;
            let bus = self.sessions.bus();
            let head = self.sessions.head(&self.key).await?;
            let is_finished = head.is_some_and(|head| head.slot / SLOTS_PER_PAGE > page);
            let stretch = if is_finished { pages::finished(bus, &self.key, page).await? } else { None };
            let last = stretch.is_none();
            let stretch = match stretch {
                Some(stretch) => stretch,
                None => pages::rest(bus, &self.key, page).await?,
            };
            if !self.give(&stretch, queue).await? {
                return Ok(false);
            }
            self.slot = if last { stretch.last_slot.unwrap_or(self.slot) } else { (page + 1) * SLOTS_PER_PAGE };
            if last {
                break;
            }
        }
        if self.merger.next() > before {
            self.again = AGAIN.pause(0);
        } else {
            self.again = AGAIN.after(self.again);
        }
        Ok(true)
    }

    async fn give(&mut self, stretch: &Stretch, queue: &ClientQueue) -> Result<bool, Failure> {
        let mut out = Vec::new();
        let merged = self.merger.log(&stretch.notices, &mut out);
        for notice in out {
            if !queue.push_patiently(Item::Notice(notice)).await {
                return Ok(false);
            }
        }
        merged.map(|()| true).map_err(|gone| self.resync(gone))
    }

    fn resync(&self, gone: Gone) -> Failure {
        let message = format!(
            "session {} has no seq {} any more, its log goes on at {}: begin again from there",
            self.key.session, gone.wanted, gone.found
        );
        Failure::new(ErrorCode::Resync, message).with_seq(gone.found)
    }

    /// The reply that is being streamed, as far as it has come; chunks wait for it. Without an answer the viewer sees
    /// the rest of the reply, and all of it at its end.
    fn reply_so_far(&self) -> BoxFuture<'static, Option<Arc<Notice>>> {
        if !self.chunks || self.feed.is_none() || self.merger.ended() {
            return std::future::ready(None).boxed();
        }
        let (bus, key) = (self.sessions.bus().clone(), self.key.clone());
        async move {
            let view = bus.view(&key).await.unwrap_or_default()?;
            Notice::of_view(&key, clock::now(), view).map(Arc::new)
        }
        .boxed()
    }

    /// Passes on what is live, without waiting.
    fn tell(&self, out: Vec<Arc<Notice>>, queue: &ClientQueue) -> bool {
        let wanted = |notice: &Arc<Notice>| self.chunks || !notice.is_chunk();
        out.into_iter().filter(wanted).all(|notice| queue.push(Item::Notice(notice)))
    }
}

async fn answered<T>(question: &mut Option<BoxFuture<'static, T>>) -> T {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
