//! Server-sent events, as every protocol over HTTP sends them.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};

/// Pause between comments, which reset the time-outs of clients and keep an idle stream open through proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sends the events of a stream.
pub fn respond(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Sends some events, and then those that `next` makes of a state, again and again, until it returns none.
pub fn unfold<S, F>(first: Vec<Event>, state: S, next: impl FnMut(S) -> F + Send + 'static) -> Response
where
    S: Send + 'static,
    F: Future<Output = Option<(Vec<Event>, S)>> + Send + 'static,
{
    respond(stream::iter(first).chain(stream::unfold(state, next).flat_map(stream::iter)))
}
