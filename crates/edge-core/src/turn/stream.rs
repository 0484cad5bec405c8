//! The parts of a turn, read from a watch of its session.

use std::collections::VecDeque;
use std::time::Duration;

use contract::limits::SLOTS_PER_PAGE;
use contract::{CommandId, ErrorCode, Timestamp};
use session_api::WatchParams;

use super::begin::{BegunTurn, TurnStart};
use super::follower::{TurnFollower, TurnPart};
use crate::access::ApiCaller;
use crate::api::{ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::feed::viewer_event::{EventRole, ViewerEvent};
use crate::watch::event_stream::ViewerStream;

/// Maximum number of reads of the log for the beginning of a turn, and the pause between them: a replica may lag behind
/// the events.
const LOG_READS_MAX: u32 = 20;
const LOG_READ_PAUSE: Duration = Duration::from_millis(100);

/// The parts of one turn, as they come.
#[derive(Debug)]
pub struct TurnStream {
    events: ViewerStream,
    follower: TurnFollower,
    parts: VecDeque<TurnPart>,
    /// Time of the event of the last part.
    time: Timestamp,
    /// Set until the turn of a message that waits has begun.
    waiting: Option<WaitingMessage>,
}

/// A message that no turn has read yet.
#[derive(Debug)]
struct WaitingMessage {
    api: SessionApi,
    session: ReachedSession,
    message: CommandId,
    /// The slot of its commit.
    slot: u64,
    /// The last turn that does not read it.
    earlier_turn: u32,
}

impl TurnStream {
    /// Follows a turn from its beginning, or from where the client has continued it.
    pub async fn open(
        api: &SessionApi,
        caller: &ApiCaller,
        begun: &BegunTurn,
        has_chunks: bool,
    ) -> Result<Self, ApiError> {
        let BegunTurn { session_id, seq, start, .. } = begun.clone();
        let session = api.reach(caller, &session_id).await?;
        let watch = WatchParams { session_id, from_seq: seq + 1, no_chunks: !has_chunks };
        let events = api.open_begun_stream(caller, &session, &watch).await?;
        let waiting = match start {
            TurnStart::Running => None,
            TurnStart::Waiting { message, slot } => {
                Some(WaitingMessage { api: api.clone(), session, message, slot, earlier_turn: 0 })
            }
        };
        let (follower, parts, time) = (TurnFollower::default(), VecDeque::new(), Timestamp::default());
        Ok(Self { events, follower, parts, time, waiting })
    }

    /// Returns the time of the event that the last part came from.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Waits for the next part; the last one is [`TurnPart::End`].
    pub async fn next(&mut self) -> Result<TurnPart, ApiError> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Ok(part);
            }
            let event = match self.events.next().await {
                Ok(event) => event,
                Err(end) => {
                    let gone = || ApiError::new(ErrorCode::Unavailable, "the session cannot be followed any more");
                    return Err(end.error().unwrap_or_else(gone));
                }
            };
            if let Some(waiting) = &mut self.waiting {
                if !waiting.is_read_by(&event).await? {
                    continue;
                }
                self.waiting = None;
            }
            let mut parts = Vec::new();
            self.time = event.envelope.time;
            self.follower.push(&event, &mut parts);
            self.parts.extend(parts);
        }
    }
}

impl WaitingMessage {
    /// Whether an event belongs to the turn that reads the message, or ends the session.
    async fn is_read_by(&mut self, event: &ViewerEvent) -> Result<bool, ApiError> {
        let turn = match event.role {
            EventRole::ReplyEnd(turn, _) | EventRole::TurnOutcome(turn) => turn,
            EventRole::Chunk(position) => position.turn,
            EventRole::SessionEnd => return Ok(true),
            // What has no turn comes after the first reply of its turn.
            EventRole::Plain | EventRole::Transient => return Ok(false),
        };
        if turn <= self.earlier_turn {
            return Ok(false);
        }
        // The turn of the event has begun for the leader. What still waits then is for a later turn.
        if self.api.load_session(&self.session).await?.is_message_waiting(&self.message) {
            self.earlier_turn = turn;
            return Ok(false);
        }
        let found = self.find_turn().await?;
        self.earlier_turn = found - 1;
        Ok(turn >= found)
    }

    /// Finds the turn of the message in the log. A replica of the log may lag behind the leader.
    async fn find_turn(&self) -> Result<u32, ApiError> {
        for _ in 0..LOG_READS_MAX {
            let cell = self.api.cell_of(&self.session).await?;
            let commits = cell.bus.history(self.session.key(), self.slot / SLOTS_PER_PAGE).await?;
            if let Some(turn) = commits.iter().find_map(|(_, commit)| commit.turn_of(&self.message)) {
                return Ok(turn);
            }
            tokio::time::sleep(LOG_READ_PAUSE).await;
        }
        Err(ApiError::new(
            ErrorCode::Unavailable,
            format!("the turn of the message {} is not in the log", self.message),
        ))
    }
}
