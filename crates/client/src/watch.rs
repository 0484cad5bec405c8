//! The notifications of one session, over reconnects.

use std::collections::VecDeque;
use std::time::Duration;

use proto::{GetSessionRequest, Notification, SessionSummary, WatchSessionRequest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
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
    /// Request to the fleet that is in flight. It goes on when the future of [`Watch::next`] is dropped.
    asking: JoinSet<Answer>,
    retries: Retries,
    outage: Option<Outage>,
    gaps: u32,
    has_ended: bool,
    /// Time of the last sign of life: the stream opened, a notification came, or a probe ended.
    silent_since: Instant,
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
    /// Time at which the next try is made.
    retry_at: Instant,
}

/// An answer of the fleet.
enum Answer {
    /// Answer to a request for the stream.
    Opened(Result<Streaming<Notification>, ClientError>),
    /// Answer to a request for the session while the stream is silent.
    Probed(Result<SessionSummary, ClientError>),
    /// Answer to a request for the session after the stream ended.
    Ended(Result<SessionSummary, ClientError>),
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
            asking: JoinSet::new(),
            outage: None,
            gaps: 0,
            has_ended: false,
            silent_since: Instant::now(),
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

    /// Returns the next item, or none after the end of the session. It is safe to drop the future: nothing is lost, and
    /// what it waits for goes on.
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
            if self.open.is_none() && self.asking.is_empty() {
                self.ask_to_open();
            }
            let probe_at = self.silent_since + self.probe_after;
            tokio::select! {
                biased;
                Some(answer) = self.asking.join_next() => match answer {
                    Ok(Answer::Opened(opened)) => self.take_stream(opened)?,
                    Ok(Answer::Probed(probed)) => self.take_probe(probed)?,
                    Ok(Answer::Ended(probed)) => self.handle_end(probed)?,
                    Err(error) => return Err(ClientError::internal(error.to_string())),
                },
                message = next_message(&mut self.open) => match message {
                    Ok(Some(notification)) => self.take(notification)?,
                    Ok(None) => {
                        self.open = None;
                        self.ask_for_session(Answer::Ended);
                    }
                    Err(status) => self.disconnect(status.into())?,
                },
                () = sleep_until(probe_at), if self.open.is_some() && self.asking.is_empty() => {
                    if self.probes {
                        self.ask_for_session(Answer::Probed);
                    } else {
                        self.silent_since = Instant::now();
                        self.retries.reset();
                    }
                }
            }
        }
    }

    /// Takes a notification, unless it came before.
    fn take(&mut self, notification: Notification) -> Result<(), ClientError> {
        (self.silent_since, self.probe_after) = (Instant::now(), PROBE_AFTER);
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

    /// Asks for the stream, after the pause of an outage.
    fn ask_to_open(&mut self) {
        let retry_at = self.outage.as_ref().map(|outage| outage.retry_at);
        let connection = self.connection.clone();
        let (session_id, from_seq, no_chunks) = (self.session.clone(), self.next_seq, !self.with_chunks);
        self.asking.spawn(async move {
            let open = async {
                if let Some(retry_at) = retry_at {
                    sleep_until(retry_at).await;
                    // A restarted fleet may have another address.
                    connection.reconnect_if_moved().await?;
                }
                let request = WatchSessionRequest { session_id, from_seq: Some(from_seq), no_chunks: Some(no_chunks) };
                match timeout(OPEN_TIMEOUT, connection.api().watch_session(request)).await {
                    Ok(answer) => Ok(answer?.into_inner()),
                    Err(_) => Err(no_answer()),
                }
            };
            Answer::Opened(open.await)
        });
    }

    /// Asks for the session: a silent fleet may not work, and a stream may have ended with its session.
    fn ask_for_session(&mut self, answer: fn(Result<SessionSummary, ClientError>) -> Answer) {
        let (connection, session_id) = (self.connection.clone(), self.session.clone());
        self.asking.spawn(async move {
            let mut api = connection.api();
            let got = timeout(PROBE_TIMEOUT, api.get_session(GetSessionRequest { session_id })).await;
            answer(match got {
                Ok(got) => got.map(tonic::Response::into_inner).map_err(ClientError::from),
                Err(_) => Err(no_answer()),
            })
        });
    }

    fn take_stream(&mut self, opened: Result<Streaming<Notification>, ClientError>) -> Result<(), ClientError> {
        match opened {
            Ok(open) => {
                (self.open, self.silent_since) = (Some(open), Instant::now());
                self.restore();
                Ok(())
            }
            Err(error) => self.disconnect(error),
        }
    }

    fn take_probe(&mut self, probed: Result<SessionSummary, ClientError>) -> Result<(), ClientError> {
        self.silent_since = Instant::now();
        if let Err(error) = probed {
            return self.record_outage(error);
        }
        self.probe_after = (self.probe_after * 2).min(PROBE_AFTER_MAX);
        self.retries.reset();
        self.restore();
        Ok(())
    }

    /// Handles the end of a stream, because the session ended or the edge shuts down.
    fn handle_end(&mut self, probed: Result<SessionSummary, ClientError>) -> Result<(), ClientError> {
        match probed {
            Ok(info) if info.phase == "ended" && info.seq < self.next_seq => self.has_ended = true,
            Ok(_) => self.disconnect(Status::unavailable("the edge has ended the stream").into())?,
            Err(error) => self.disconnect(error)?,
        }
        Ok(())
    }

    fn restore(&mut self) {
        if self.outage.take().is_some_and(|outage| outage.is_reported) {
            self.pending.push_back(WatchItem::Restored);
        }
    }

    /// Drops a broken stream, to open it again; fails if that would not help.
    fn disconnect(&mut self, error: ClientError) -> Result<(), ClientError> {
        (self.open, self.asking) = (None, JoinSet::new());
        self.record_outage(error)
    }

    fn record_outage(&mut self, error: ClientError) -> Result<(), ClientError> {
        let retry_at = Instant::now() + self.retries.next_pause(&error)?;
        match &mut self.outage {
            Some(outage) => outage.retry_at = retry_at,
            None => self.outage = Some(Outage { error, is_reported: false, retry_at }),
        }
        Ok(())
    }
}

/// The next message of an open stream; never where none is open.
async fn next_message(open: &mut Option<Streaming<Notification>>) -> Result<Option<Notification>, Status> {
    match open {
        Some(open) => open.message().await,
        None => std::future::pending().await,
    }
}

fn no_answer() -> ClientError {
    Status::unavailable("the fleet does not answer").into()
}
