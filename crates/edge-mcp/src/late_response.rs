//! Begins the response of a call that takes long, so that no proxy between counts the connection as idle.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use contract::limits::FRAME_BYTES_MAX;
use futures::{Stream, StreamExt, stream};

/// Time after which a response begins, and pause between comments until its first message.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A comment, which clients skip.
const COMMENT: &str = ":\n\n";

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A response that has begun.
enum LateResponse {
    /// Its handler works. Dropping it cancels the call.
    Working(ResponseFuture),
    Streaming(BodyDataStream),
    /// The rest of the response is one message.
    Last(Body),
    Over,
}

/// Returns a response as it is if it comes soon, or a stream with its messages.
pub(super) async fn begin_in_time(response: impl Future<Output = Response> + Send + 'static) -> Response {
    let mut response: ResponseFuture = Box::pin(response);
    if let Ok(response) = tokio::time::timeout(SILENCE_MAX, &mut response).await {
        return response;
    }
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(to_stream(response))).into_response()
}

fn to_stream(response: ResponseFuture) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let begun = stream::iter([Ok(Bytes::from_static(COMMENT.as_bytes()))]);
    begun.chain(stream::unfold(LateResponse::Working(response), async |mut state| {
        loop {
            state = match state {
                LateResponse::Working(mut response) => match tokio::time::timeout(SILENCE_MAX, &mut response).await {
                    Ok(response) => from_response(response),
                    Err(_) => {
                        return Some((Ok(Bytes::from_static(COMMENT.as_bytes())), LateResponse::Working(response)));
                    }
                },
                LateResponse::Streaming(mut frames) => {
                    let frame = frames.next().await?.ok()?;
                    return Some((Ok(frame), LateResponse::Streaming(frames)));
                }
                LateResponse::Last(body) => {
                    let message = axum::body::to_bytes(body, FRAME_BYTES_MAX).await.ok()?;
                    let event = [b"data: ", message.as_ref(), b"\n\n"].concat();
                    return Some((Ok(Bytes::from(event)), LateResponse::Over));
                }
                LateResponse::Over => return None,
            };
        }
    }))
}

fn from_response(response: Response) -> LateResponse {
    let kind = response.headers().get(header::CONTENT_TYPE).map(axum::http::HeaderValue::as_bytes);
    let is_stream = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
    let body = response.into_body();
    if is_stream { LateResponse::Streaming(body.into_data_stream()) } else { LateResponse::Last(body) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(response: Response) -> (String, String) {
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn answer(after: u64, kind: &'static str, body: &'static str) -> Response {
        tokio::time::sleep(Duration::from_secs(after)).await;
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_is_late_begins_as_a_stream_with_its_messages() {
        let rows = [
            (10, "application/json", "{}", "application/json", "{}"),
            (40, "application/json", "{}", "text/event-stream", ":\n\n:\n\ndata: {}\n\n"),
            (20, "text/event-stream", "data: 1\n\n", "text/event-stream", ":\n\ndata: 1\n\n"),
        ];
        for (after, kind, body, wanted_kind, wanted) in rows {
            let found = read(begin_in_time(answer(after, kind, body)).await).await;
            assert_eq!(found, (wanted_kind.to_owned(), wanted.to_owned()), "{after} {kind}");
        }
    }
}
