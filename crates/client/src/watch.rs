//! The notifications of one session, over reconnects.

use std::collections::VecDeque;
use std::time::Duration;

use proto::{Notification, SessionInfo, SessionRequest, WatchRequest};
use tokio::time::{sleep, timeout};
use tonic::{Status, Streaming};

use crate::connection::EdgeConnection;
use crate::error::ClientError;
use crate::retry::Retries;

/// Silence after which the fleet is probed, and the longest one: it doubles with each answered probe, since a probe costs
/// a read of the session.
const PROBE_AFTER: Duration = Duration::from_secs(5);
const PROBE_AFTER_MAX: Duration = Duration::from_secs(20);
/// Longest wait for the response to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait until the edge begins a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(35);
/// Times in a row that the edge may leave an event out, until it is taken for lost.
const GAPS_MAX: u32 = 5;

/// The notifications of one session from a `seq` on, as the messages of the API.
///
/// It connects again by itself. Every event with a `seq` comes once and in order. Chunks of replies have no `seq` and may
/// be lost; after a new connection, one chunk has all the text of the reply so far.
#[derive(Debug)]
pub struct Watch {
    connection: EdgeConnection,
    session: String,
    next_seq: u64,
    with_chunks: bool,
    /// Whether a silent fleet is asked whether it works.
    probes: bool,
    open: Option<Streaming<Notification>>,
    retries: Retries,
    outage: Option<Outage>,
    gaps: u32,
    has_ended: bool,
    probe_after: Duration,
    /// Items that the next calls return.
    pending: VecDeque<WatchItem>,
}

/// An item of a [`Watch`].
#[derive(Debug)]
pub enum WatchItem {
    /// A notification of the session.
    Notification(Box<Notification>),
    /// The connection to the fleet broke, or the fleet cannot reach what it needs. The watch tries again.
    Lost {
        /// The failure, for people.
        reason: String,
    },
    /// The fleet answers again, after [`WatchItem::Lost`].
    Restored,
}

/// A time in which the fleet cannot be reached.
#[derive(Debug)]
struct Outage {
    error: ClientError,
    /// Whether [`WatchItem::Lost`] was returned for it.
    is_reported: bool,
    /// Pause before the next try.
    pause: Duration,
}

impl Watch {
    pub(crate) fn new(connection: EdgeConnection, session: String, from_seq: u64, with_chunks: bool) -> Self {
        Self {
            retries: Retries::new(connection.retry_for()),
            connection,
            session,
            next_seq: from_seq.max(1),
            with_chunks,
            probes: false,
            open: None,
            outage: None,
            gaps: 0,
            has_ended: false,
            probe_after: PROBE_AFTER,
            pending: VecDeque::new(),
        }
    }

    /// Asks a silent fleet whether it still works: it may have lost NATS while its edge is up. For programs that show a
    /// person why nothing happens; each probe costs a read of the session.
    #[must_use]
    pub fn with_probes(self) -> Self {
        Self { probes: true, ..self }
    }

    /// Returns the next item, or none after the end of the session. It is safe to drop the future: nothing is lost.
    ///
    /// # Errors
    ///
    /// Fails if a new connection would not help, such as with an unknown session, or after the `retry_for` of the client.
    pub async fn next(&mut self) -> Result<Option<WatchItem>, ClientError> {
        loop {
            if let Some(item) = self.pending.pop_front() {
                return Ok(Some(item));
            }
            if self.has_ended {
                return Ok(None);
            }
            if let Some(outage) = &mut self.outage
                && !std::mem::replace(&mut outage.is_reported, true)
            {
                return Ok(Some(WatchItem::Lost { reason: outage.error.message().to_owned() }));
            }
            let Some(open) = &mut self.open else {
                self.open().await?;
                continue;
            };
            match timeout(self.probe_after, open.message()).await {
                Err(_silence) if self.probes => self.probe().await?,
                Err(_silence) => self.retries.reset(),
                Ok(Ok(Some(notification))) => self.take(notification)?,
                Ok(Ok(None)) => self.handle_end().await?,
                Ok(Err(status)) => self.disconnect(status.into())?,
            }
        }
    }

    /// Takes a notification, unless it came before.
    fn take(&mut self, notification: Notification) -> Result<(), ClientError> {
        self.probe_after = PROBE_AFTER;
        match notification.seq {
            Some(seq) if seq < self.next_seq => return Ok(()),
            Some(seq) if seq > self.next_seq => {
                self.gaps += 1;
                let message =
                    format!("the event {} of session {} did not come, but {seq}", self.next_seq, self.session);
                if self.gaps > GAPS_MAX {
                    return Err(ClientError::internal(message));
                }
                return self.disconnect(Status::unavailable(message).into());
            }
            Some(seq) => {
                (self.next_seq, self.gaps) = (seq + 1, 0);
                self.has_ended = notification.topic == "session_ended";
            }
            None => {}
        }
        self.retries.reset();
        // `Restored` comes before the notification that shows it.
        self.restore();
        self.pending.push_back(WatchItem::Notification(Box::new(notification)));
        Ok(())
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        if let Some(outage) = &self.outage {
            sleep(outage.pause).await;
            // A restarted fleet may have another address.
            if let Err(error) = self.connection.reconnect_if_moved().await {
                return self.disconnect(error);
            }
        }
        let request =
            WatchRequest { session_id: self.session.clone(), from_seq: self.next_seq, no_chunks: !self.with_chunks };
        match timeout(OPEN_TIMEOUT, self.connection.api().watch(request)).await {
            Ok(Ok(open)) => {
                self.open = Some(open.into_inner());
                self.restore();
                Ok(())
            }
            Ok(Err(status)) => self.disconnect(status.into()),
            Err(_) => self.disconnect(no_answer()),
        }
    }

    /// Handles the end of a stream: that of the session, or that of an edge which shuts down.
    async fn handle_end(&mut self) -> Result<(), ClientError> {
        match self.fetch_session().await {
            Ok(info) if info.phase == "ended" && info.seq < self.next_seq => self.has_ended = true,
            Ok(_) => self.disconnect(Status::unavailable("the edge has ended the stream").into())?,
            Err(error) => self.disconnect(error)?,
        }
        Ok(())
    }

    /// Checks that a silent fleet still works.
    async fn probe(&mut self) -> Result<(), ClientError> {
        match self.fetch_session().await {
            Ok(_info) => {
                self.probe_after = (self.probe_after * 2).min(PROBE_AFTER_MAX);
                self.retries.reset();
                self.restore();
                Ok(())
            }
            Err(error) => self.record_outage(error),
        }
    }

    async fn fetch_session(&self) -> Result<SessionInfo, ClientError> {
        let mut api = self.connection.api();
        let get = api.get(SessionRequest { session_id: self.session.clone() });
        match timeout(PROBE_TIMEOUT, get).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(no_answer()),
        }
    }

    fn restore(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.is_reported) {
            self.pending.push_back(WatchItem::Restored);
        }
    }

    /// Drops a broken stream, to open it again; fails if that would not help.
    fn disconnect(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.open = None;
        self.record_outage(error)
    }

    fn record_outage(&mut self, error: ClientError) -> Result<(), ClientError> {
        let pause = self.retries.next_pause(&error)?;
        match &mut self.outage {
            Some(outage) => outage.pause = pause,
            None => self.outage = Some(Outage { error, is_reported: false, pause }),
        }
        Ok(())
    }
}

fn no_answer() -> ClientError {
    Status::unavailable("the fleet does not answer").into()
}
