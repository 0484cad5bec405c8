//! A session's notifications, followed over broken connections.

use std::time::Duration;

use contract::ErrorCode;
use contract::backoff::Backoff;
use proto::{Notification, SessionRequest, WatchRequest};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, Streaming};

use crate::client::{self, Client};
use crate::failure::Failure;

/// How long the fleet may be away.
pub const AWAY_MAX: Duration = Duration::from_secs(30);
/// Pause between two tries to reach it.
pub const RETRY_EVERY: Duration = Duration::from_millis(300);
/// After so long without a notification the fleet is asked whether it is still there; each time that it is, the next
/// question waits twice as long: it costs the fleet a read of the session.
const SILENCE: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(20));
/// Longest wait for the answer to that question.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// The notifications of one session from a `seq` on, each event once.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    session: String,
    next_seq: u64,
    chunks: bool,
    open: Option<Streaming<Notification>>,
    outage: Option<Outage>,
    /// How long nothing may come until the fleet is asked.
    silence: Duration,
    /// Returned by the next call.
    pending: Option<StreamEvent>,
}

/// What a stream brings.
#[derive(Debug)]
pub enum StreamEvent {
    /// Something happened in the session.
    Notification(Box<Notification>),
    /// The connection to the fleet broke, or the fleet cannot reach what it needs. The stream goes on trying.
    Lost {
        /// Why, for people.
        reason: String,
    },
    /// The fleet answers again, after [`StreamEvent::Lost`].
    Restored,
}

/// A time without an answer.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// Whether [`StreamEvent::Lost`] was returned for it.
    is_reported: bool,
    reason: String,
}

impl Stream {
    /// Follows a session; nothing is asked before the first [`Self::next`].
    pub fn new(client: Client, session: String, from_seq: u64, chunks: bool) -> Self {
        Self {
            client,
            session,
            next_seq: from_seq.max(1),
            chunks,
            open: None,
            outage: None,
            silence: SILENCE.pause(0),
            pending: None,
        }
    }

    /// The next event; none after the session's end. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, Failure> {
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
            match timeout(self.silence, open.message()).await {
                Err(_silence) => self.probe().await?,
                Ok(Ok(Some(notification))) => {
                    self.silence = SILENCE.pause(0);
                    self.restore();
                    if self.is_new(&notification) {
                        let event = StreamEvent::Notification(Box::new(notification));
                        // That the fleet is back is told before what it says.
                        let Some(restored) = self.pending.replace(event) else { continue };
                        return Ok(Some(restored));
                    }
                }
                Ok(Ok(None)) => {
                    if self.has_ended().await? {
                        return Ok(None);
                    }
                    self.lose(&Status::unavailable("the edge has ended the stream"))?;
                }
                Ok(Err(status)) => self.lose(&status)?,
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

    async fn open(&mut self) -> Result<(), Failure> {
        if self.outage.is_some() {
            sleep(RETRY_EVERY).await;
            // A fleet that was started again may listen elsewhere.
            if let Err(failure) = self.client.find_again().await {
                return self.miss(&failure.code().clone(), failure);
            }
        }
        let request =
            WatchRequest { session_id: self.session.clone(), from_seq: self.next_seq, no_chunks: !self.chunks };
        match self.client.sessions().watch(request).await {
            Ok(open) => {
                self.open = Some(open.into_inner());
                self.restore();
                Ok(())
            }
            Err(status) => self.lose(&status),
        }
    }

    async fn has_ended(&mut self) -> Result<bool, Failure> {
        match self.ask().await {
            Ok(phase) => Ok(phase == "ended"),
            Err(status) => self.lose(&status).map(|()| false),
        }
    }

    /// Asks a fleet that says nothing whether it still can: it may have lost its NATS, while its edge stands.
    async fn probe(&mut self) -> Result<(), Failure> {
        match timeout(PROBE_MAX, self.ask()).await {
            Ok(Ok(_phase)) => {
                self.silence = SILENCE.after(self.silence);
                self.restore();
                Ok(())
            }
            Ok(Err(status)) => self.note(&client::code(&status), self.client.failure(&status)),
            Err(_) => {
                let failure = Failure::new(ErrorCode::Unavailable, "the fleet does not answer");
                self.note(&ErrorCode::Unavailable, failure.at(self.client.url()))
            }
        }
    }

    async fn ask(&self) -> Result<String, Status> {
        let mut request = tonic::Request::new(SessionRequest { session_id: self.session.clone() });
        request.set_timeout(PROBE_MAX);
        self.client.sessions().get(request).await.map(|info| info.into_inner().phase)
    }

    fn restore(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.is_reported) {
            self.pending = Some(StreamEvent::Restored);
        }
    }

    /// The stream is gone; it is opened again, unless that would not help.
    fn lose(&mut self, status: &Status) -> Result<(), Failure> {
        let failure = self.client.failure(status);
        self.miss(&client::code(status), failure)
    }

    fn miss(&mut self, code: &ErrorCode, failure: Failure) -> Result<(), Failure> {
        self.open = None;
        self.note(code, failure)
    }

    /// Fails when waiting would not help, or has lasted for too long.
    fn note(&mut self, code: &ErrorCode, failure: Failure) -> Result<(), Failure> {
        let passes = matches!(
            code,
            ErrorCode::Unavailable
                | ErrorCode::Draining
                | ErrorCode::SlowClient
                | ErrorCode::Overloaded
                | ErrorCode::NatsUnreachable
        );
        let reason = failure.message().to_owned();
        let outage = self.outage.get_or_insert_with(|| Outage { since: Instant::now(), is_reported: false, reason });
        if !passes || outage.since.elapsed() > AWAY_MAX {
            return Err(failure);
        }
        Ok(())
    }
}
