//! The events of a run as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;

use super::events::UiEvent;
use super::reply::RunReply;
use crate::turn::TurnStream;

/// Pause between comments that reset the time-outs of clients.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A run with the turn that it follows.
struct RunStream {
    reply: RunReply,
    turn: TurnStream,
    /// Events that have not gone out.
    events: VecDeque<UiEvent>,
}

impl RunStream {
    async fn next(&mut self) -> Option<UiEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.reply.is_over() {
                return None;
            }
            let events = match self.turn.next().await {
                Ok(part) => self.reply.push(part),
                Err(error) => self.reply.fail(&error),
            };
            self.events.extend(events);
        }
    }
}

/// Streams a run, whose first events are made, until its end, or until its client goes away.
pub(super) fn follow(reply: RunReply, first: Vec<UiEvent>, turn: TurnStream) -> Response {
    let run = Box::new(RunStream { reply, turn, events: first.into() });
    let frames = stream::unfold(run, async |mut run| {
        let event = run.next().await?;
        Some((Ok::<_, Infallible>(to_frame(&event)), run))
    });
    Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Streams events that are there already.
pub(super) fn send(events: Vec<UiEvent>) -> Response {
    let frames = events.into_iter().map(|event| Ok::<_, Infallible>(to_frame(&event)));
    Sse::new(stream::iter(frames)).into_response()
}

fn to_frame(event: &UiEvent) -> Event {
    Event::default().data(serde_json::to_string(event).unwrap_or_default())
}
