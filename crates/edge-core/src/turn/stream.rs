//! The parts of a turn, read from a watch of its session.

use std::collections::VecDeque;

use contract::event::{Topic, TurnStarted};
use contract::{CommandId, ErrorCode, Timestamp};
use session_api::WatchParams;

use super::begin::{BegunTurn, TurnStart};
use super::follower::{TurnFollower, TurnPart};
use crate::access::ApiCaller;
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::feed::viewer_event::{EventRole, ViewerEvent};
use crate::watch::event_stream::ViewerStream;

/// The parts of one turn, as they come.
#[derive(Debug)]
pub struct TurnStream {
    events: ViewerStream,
    follower: TurnFollower,
    parts: VecDeque<TurnPart>,
    /// Time of the event of the last part.
    time: Timestamp,
    /// The message whose turn has not begun yet: events before it are of other turns.
    waiting: Option<WaitingMessage>,
}

/// A message that no turn has read yet.
#[derive(Debug)]
struct WaitingMessage {
    message: CommandId,
    /// Whether the start of the turn that runs was seen.
    is_start_seen: bool,
    /// Turns that ended without a start that was seen. One had started before the message came.
    unseen_turns: u32,
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
            TurnStart::Waiting { message } => Some(WaitingMessage { message, is_start_seen: false, unseen_turns: 0 }),
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
            if let Some(waiting) = &mut self.waiting
                && !waiting.is_read_from(&event)?
            {
                continue;
            }
            self.waiting = None;
            self.time = event.envelope.time;
            self.parts.extend(self.follower.push(&event));
        }
    }
}

impl WaitingMessage {
    /// Whether an event begins the turn that reads the message, or ends the session.
    fn is_read_from(&mut self, event: &ViewerEvent) -> Result<bool, ApiError> {
        if event.topic == Topic::TurnStarted {
            self.is_start_seen = true;
            let reads = |started: TurnStarted| started.messages.contains(&self.message);
            return Ok(serde_json::from_str(event.envelope.data.get()).is_ok_and(reads));
        }
        if matches!(event.role, EventRole::TurnOutcome(_)) && !std::mem::take(&mut self.is_start_seen) {
            self.unseen_turns += 1;
        }
        if self.unseen_turns > 1 {
            let message = "an older orchestrator does not say which turn answers the message: session.history shows it";
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        Ok(event.role == EventRole::SessionEnd)
    }
}
