//! The parts of a turn, read from a watch of its session.

use std::collections::VecDeque;

use contract::ErrorCode;
use contract::SessionId;

use super::follower::{TurnFollower, TurnPart};
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::params::WatchParams;
use crate::session_api::SessionApi;
use crate::watch::event_stream::EventStream;

/// The parts of one turn, as they come.
#[derive(Debug)]
pub(crate) struct TurnStream {
    events: EventStream,
    follower: TurnFollower,
    waiting: VecDeque<TurnPart>,
}

impl TurnStream {
    /// Follows the turn that begins after an event of the session.
    pub(crate) async fn open(
        api: &SessionApi,
        caller: &ApiCaller,
        session_id: SessionId,
        after_seq: u64,
        has_chunks: bool,
    ) -> Result<Self, ApiError> {
        let watch = WatchParams { session_id, from_seq: after_seq + 1, no_chunks: !has_chunks };
        let (_, events) = api.open_stream(caller, &watch).await?;
        Ok(Self { events, follower: TurnFollower::default(), waiting: VecDeque::new() })
    }

    /// Waits for the next part; the last one is [`TurnPart::End`].
    pub(crate) async fn next(&mut self) -> Result<TurnPart, ApiError> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Ok(part);
            }
            match self.events.next().await {
                Ok(event) => {
                    let mut parts = Vec::new();
                    self.follower.push(&event, &mut parts);
                    self.waiting.extend(parts);
                }
                Err(end) => {
                    let gone = || ApiError::new(ErrorCode::Unavailable, "the session cannot be followed any more");
                    return Err(end.error().unwrap_or_else(gone));
                }
            }
        }
    }
}
