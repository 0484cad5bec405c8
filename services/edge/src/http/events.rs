//! A session as server-sent events.

use axum::response::Response;
use axum::response::sse::Event;
use contract::ErrorCode;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::feed::viewer_event::ViewerEvent;
use edge_core::http_error::{to_problem, to_response};
use edge_core::watch::WATCH_FAILED;
use edge_core::{invoke, params, request_trace, sse};
use futures::StreamExt;
use session_api::{Method, WatchParams};

use super::request::ClientRequest;

/// Answers with the events of a session, or with the error of the watch.
pub(super) async fn respond(api: &SessionApi, request: ClientRequest) -> Response {
    let ClientRequest { caller, params, trace } = request;
    let session = params.get("session_id").and_then(serde_json::Value::as_str).map(str::to_owned);
    let opened = request_trace::run(Method::WatchSession.name(), session.as_deref(), trace, async {
        let reached = api.authorize(&caller, Method::WatchSession, session.as_deref()).await?;
        let watch: WatchParams = params::parse_object(params)?;
        api.open_stream(&caller, &invoke::named(reached)?, &watch).await
    })
    .await;
    match opened {
        Ok(events) => sse::respond(events.into_stream().map(|event| match event {
            Ok(event) => to_event(&event),
            Err(error) => to_error_event(&error),
        })),
        Err(error) => to_response(&error),
    }
}

/// Makes the frame of an event. A chunk has no `seq`, and so no `id`: a client goes on after the last event of the log.
fn to_event(event: &ViewerEvent) -> Event {
    let frame = Event::default().event(event.topic.as_str()).data(event.params_json());
    match event.envelope.seq {
        Some(seq) => frame.id(seq.to_string()),
        None => frame,
    }
}

/// Makes the last frame of a stream that failed. A client of a draining edge connects again at once.
fn to_error_event(error: &ApiError) -> Event {
    let body = serde_json::to_string(&to_problem(error)).unwrap_or_default();
    let frame = Event::default().event(WATCH_FAILED).data(body);
    match error.retry_after {
        Some(after) if error.code == ErrorCode::Draining => frame.retry(after),
        Some(_) | None => frame,
    }
}
