//! The notifications of one session, over reconnects.

use std::time::Duration;

use contract::ErrorCode;
use contract::backoff::Backoff;
use proto::{Notification, SessionRequest, WatchRequest};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, Streaming};

use crate::client::{self, EdgeClient, OUTAGE_MAX, RETRY_PAUSE};
use crate::failure::CommandFailure;

/// Silence after which the fleet is probed. It doubles with each answered probe, since a probe costs a read of the
/// session.
const PROBE_AFTER: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(20));
/// Longest wait for the response to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stream of the notifications of one session from a `seq` on; each event comes once.
#[derive(Debug)]
pub(crate) struct SessionStream {
    client: EdgeClient,
    session: String,
    next_seq: u64,
    with_chunks: bool,
    open: Option<Streaming<Notification>>,
    outage: Option<Outage>,
    /// Silence after which the next probe is sent.
    probe_after: Duration,
    /// Event that the next call returns.
    pending: Option<StreamEvent>,
}

/// An item of a [`SessionStream`].
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A notification of the session.
    Notification(Box<Notification>),
    /// The connection to the fleet broke, or the fleet cannot reach what it needs. The stream retries.
    Lost {
        /// The failure, for people.
        reason: String,
    },
    /// The fleet answers again, after [`StreamEvent::Lost`].
    Restored,
}

/// A time in which the fleet cannot be reached.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// Whether [`StreamEvent::Lost`] was returned for it.
    is_reported: bool,
    reason: String,
}

impl SessionStream {
    /// Makes a stream, which connects at the first [`Self::next`].
    pub(crate) fn new(client: EdgeClient, session: String, from_seq: u64, with_chunks: bool) -> Self {
        Self {
            client,
            session,
            next_seq: from_seq.max(1),
            with_chunks,
            open: None,
            outage: None,
            probe_after: PROBE_AFTER.pause(0),
            pending: None,
        }
    }

    /// Returns the next event, or none after the end of the session. It is safe to drop the future: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<StreamEvent>, CommandFailure> {
        loop {
            if let Some(event) = self.pending.take() {
                return Ok(Some(event));
            }
            if let Some(outage) = &mut self.outage
                && !std::mem::replace(&mut outage.is_reported, true)
            {
                return Ok(Some(StreamEvent::Lost { reason: outage.reason.clone() }));
            }
            let Some(open) = &mut self.open else {
                self.open().await?;
                continue;
            };
            match timeout(self.probe_after, open.message()).await {
                Err(_silence) => self.probe().await?,
                Ok(Ok(Some(notification))) => {
                    self.probe_after = PROBE_AFTER.pause(0);
                    self.restore();
                    if self.is_new(&notification) {
                        let event = StreamEvent::Notification(Box::new(notification));
                        // `Restored` comes before the notification that shows it.
                        let Some(restored) = self.pending.replace(event) else { continue };
                        return Ok(Some(restored));
                    }
                }
                Ok(Ok(None)) => {
                    if self.has_ended().await? {
                        return Ok(None);
                    }
                    self.disconnect(&Status::unavailable("the edge has ended the stream"))?;
                }
                Ok(Err(status)) => self.disconnect(&status)?,
            }
        }
    }

    fn is_new(&mut self, notification: &Notification) -> bool {
        match notification.seq {
            None => true,
            Some(seq) if seq < self.next_seq => false,
            Some(seq) => {
                self.next_seq = seq + 1;
                true
            }
        }
    }

    async fn open(&mut self) -> Result<(), CommandFailure> {
        if self.outage.is_some() {
            sleep(RETRY_PAUSE).await;
            // A restarted fleet may have another address.
            if let Err(failure) = self.client.reconnect_if_moved().await {
                return self.drop_connection(&failure.code().clone(), failure);
            }
        }
        let request =
            WatchRequest { session_id: self.session.clone(), from_seq: self.next_seq, no_chunks: !self.with_chunks };
        match self.client.sessions().watch(request).await {
            Ok(open) => {
                self.open = Some(open.into_inner());
                self.restore();
                Ok(())
            }
            Err(status) => self.disconnect(&status),
        }
    }

    async fn has_ended(&mut self) -> Result<bool, CommandFailure> {
        match self.fetch_phase().await {
            Ok(phase) => Ok(phase == "ended"),
            Err(status) => self.disconnect(&status).map(|()| false),
        }
    }

    /// Checks that a silent fleet still works: it may have lost NATS while its edge is up.
    async fn probe(&mut self) -> Result<(), CommandFailure> {
        match timeout(PROBE_TIMEOUT, self.fetch_phase()).await {
            Ok(Ok(_phase)) => {
                self.probe_after = PROBE_AFTER.after(self.probe_after);
                self.restore();
                Ok(())
            }
            Ok(Err(status)) => self.record_outage(&client::error_code(&status), self.client.failure(&status)),
            Err(_) => {
                let failure = CommandFailure::new(ErrorCode::Unavailable, "the fleet does not answer");
                self.record_outage(&ErrorCode::Unavailable, failure.at(self.client.url()))
            }
        }
    }

    async fn fetch_phase(&self) -> Result<String, Status> {
        let mut request = tonic::Request::new(SessionRequest { session_id: self.session.clone() });
        request.set_timeout(PROBE_TIMEOUT);
        self.client.sessions().get(request).await.map(|info| info.into_inner().phase)
    }

    fn restore(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.is_reported) {
            self.pending = Some(StreamEvent::Restored);
        }
    }

    /// Drops a broken stream, to open it again; fails if that would not help.
    fn disconnect(&mut self, status: &Status) -> Result<(), CommandFailure> {
        let failure = self.client.failure(status);
        self.drop_connection(&client::error_code(status), failure)
    }

    fn drop_connection(&mut self, code: &ErrorCode, failure: CommandFailure) -> Result<(), CommandFailure> {
        self.open = None;
        self.record_outage(code, failure)
    }

    /// Records that the fleet cannot be reached; fails if a retry would not help, or after [`OUTAGE_MAX`].
    fn record_outage(&mut self, code: &ErrorCode, failure: CommandFailure) -> Result<(), CommandFailure> {
        let is_temporary = matches!(
            code,
            ErrorCode::Unavailable
                | ErrorCode::Draining
                | ErrorCode::SlowClient
                | ErrorCode::Overloaded
                | ErrorCode::NatsUnreachable
        );
        let reason = failure.message().to_owned();
        let outage = self.outage.get_or_insert_with(|| Outage { since: Instant::now(), is_reported: false, reason });
        if !is_temporary || outage.since.elapsed() > OUTAGE_MAX {
            return Err(failure);
        }
        Ok(())
    }
}
