//! A response as server-sent events.

use axum::response::Response;
use axum::response::sse::Event;
use edge_core::sse;
use edge_core::turn::TurnStream;
use serde_json::Value;

use super::builder::ResponseBuilder;

/// Streams a response until it ends.
pub(super) fn respond(mut builder: ResponseBuilder, turn: TurnStream) -> Response {
    let first = to_frames(builder.take_ready());
    sse::unfold(first, Some(Box::new((builder, turn))), async |state| {
        let mut state = state?;
        let (builder, turn) = &mut *state;
        let (events, is_over) = match turn.next().await {
            Ok(part) => {
                let is_over = builder.push(part);
                (builder.take_ready(), is_over)
            }
            Err(error) => (builder.fail_stream(error.code.as_str(), &error.message), true),
        };
        let mut frames = to_frames(events);
        if is_over {
            frames.push(Event::default().data("[DONE]"));
        }
        Some((frames, Some(state).filter(|_| !is_over)))
    })
}

fn to_frames(events: Vec<Value>) -> Vec<Event> {
    let frame = |event: Value| {
        let name = event["type"].as_str().unwrap_or("error").to_owned();
        Event::default().event(name).data(event.to_string())
    };
    events.into_iter().map(frame).collect()
}
