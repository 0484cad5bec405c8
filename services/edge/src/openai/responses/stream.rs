//! A response as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;

use super::builder::ResponseBuilder;
use crate::openai::chat_reply::KEEP_ALIVE;
use crate::turn::TurnStream;

/// A stream in its progress.
struct Progress {
    builder: ResponseBuilder,
    /// The turn; `None` once nothing follows.
    turn: Option<TurnStream>,
    frames: VecDeque<Event>,
}

/// Streams a response until it ends.
pub(super) fn respond(mut builder: ResponseBuilder, turn: TurnStream) -> Response {
    let frames = to_frames(builder.take_ready());
    let progress = Progress { builder, turn: Some(turn), frames };
    let frames = stream::unfold(progress, async |mut progress| {
        loop {
            if let Some(frame) = progress.frames.pop_front() {
                return Some((Ok::<_, Infallible>(frame), progress));
            }
            let events = match progress.turn.as_mut()?.next().await {
                Ok(part) => {
                    if progress.builder.push(part) {
                        progress.turn = None;
                    }
                    progress.builder.take_ready()
                }
                Err(error) => {
                    progress.turn = None;
                    progress.builder.fail_stream(error.code.as_str(), &error.message)
                }
            };
            progress.frames = to_frames(events);
            if progress.turn.is_none() {
                progress.frames.push_back(Event::default().data("[DONE]"));
            }
        }
    });
    Sse::new(frames).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn to_frames(events: Vec<Value>) -> VecDeque<Event> {
    let frame = |event: Value| {
        let name = event["type"].as_str().unwrap_or("error").to_owned();
        Event::default().event(name).data(event.to_string())
    };
    events.into_iter().map(frame).collect()
}
