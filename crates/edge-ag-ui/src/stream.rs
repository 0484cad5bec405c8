//! The events of a run as server-sent events.

use axum::response::Response;
use axum::response::sse::Event;
use edge_core::sse;
use edge_core::turn::TurnStream;
use futures::stream;

use super::events::UiEvent;
use super::reply::RunReply;

/// Streams a run, whose first events are made, until its end, or until its client goes away.
pub(super) fn follow(reply: RunReply, first: Vec<UiEvent>, turn: TurnStream) -> Response {
    sse::unfold(to_frames(first), Box::new((reply, turn)), async |mut run| {
        let (reply, turn) = &mut *run;
        if reply.is_over() {
            return None;
        }
        let events = match turn.next().await {
            Ok(part) => reply.push(part),
            Err(error) => reply.fail(&error),
        };
        Some((to_frames(events), run))
    })
}

/// Streams events that are there already.
pub(super) fn send(events: Vec<UiEvent>) -> Response {
    sse::respond(stream::iter(to_frames(events)))
}

fn to_frames(events: Vec<UiEvent>) -> Vec<Event> {
    let frame = |event| Event::default().data(serde_json::to_string(&event).unwrap_or_default());
    events.into_iter().map(frame).collect()
}
