//! A session's notifications, followed over broken connections.

use std::time::Duration;

use contract::ErrorCode;
use proto::{Notification, SessionRequest, WatchRequest};
use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming};

use crate::client::{self, Client};
use crate::failure::Failure;

/// How long the fleet may be away.
const AWAY_MAX: Duration = Duration::from_secs(30);
const RETRY_EVERY: Duration = Duration::from_millis(300);

/// The notifications of one session from a `seq` on, each event once.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    session: String,
    next_seq: u64,
    chunks: bool,
    open: Option<Streaming<Notification>>,
    lost: Option<Instant>,
}

impl Stream {
    /// Follows a session; nothing is asked before the first [`Self::next`].
    pub fn new(client: Client, session: String, from_seq: u64, chunks: bool) -> Self {
        Self { client, session, next_seq: from_seq.max(1), chunks, open: None, lost: None }
    }

    /// The next notification; none after the session's end. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Notification>, Failure> {
        loop {
            let Some(open) = &mut self.open else {
                self.open().await?;
                continue;
            };
            match open.message().await {
                Ok(Some(notification)) => {
                    self.lost = None;
                    if self.is_new(&notification) {
                        return Ok(Some(notification));
                    }
                }
                Ok(None) => {
                    if self.has_ended().await? {
                        return Ok(None);
                    }
                    self.lose(&Status::unavailable("the edge has ended the stream")).await?;
                }
                Err(status) => self.lose(&status).await?,
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
        let request =
            WatchRequest { session_id: self.session.clone(), from_seq: self.next_seq, no_chunks: !self.chunks };
        match self.client.sessions().watch(request).await {
            Ok(open) => {
                self.open = Some(open.into_inner());
                Ok(())
            }
            Err(status) => self.lose(&status).await,
        }
    }

    async fn has_ended(&mut self) -> Result<bool, Failure> {
        let request = client::bounded(SessionRequest { session_id: self.session.clone() });
        match self.client.sessions().get(request).await {
            Ok(info) => Ok(info.into_inner().phase == "ended"),
            Err(status) => {
                self.lose(&status).await?;
                Ok(false)
            }
        }
    }

    /// Waits before another try; fails when it would not help, or was tried for too long.
    async fn lose(&mut self, status: &Status) -> Result<(), Failure> {
        self.open = None;
        let passes = matches!(
            client::code(status),
            ErrorCode::Unavailable | ErrorCode::Draining | ErrorCode::SlowClient | ErrorCode::Overloaded
        );
        let lost = *self.lost.get_or_insert_with(Instant::now);
        if !passes || lost.elapsed() > AWAY_MAX {
            return Err(self.client.failure(status));
        }
        sleep(RETRY_EVERY).await;
        Ok(())
    }
}
