//! Limits of the body of a request over gRPC or HTTP: it must be complete in time, its bytes are taken from the budget until then,
//! and they count for the pace of the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use hyper::body::Frame;
use service::connections::ByteBudget;
use service::pace::Pace;
use tokio::time::Sleep;

use crate::api_error::ApiError;

/// Time from the headers of a request to the end of its message.
pub(crate) const REQUEST_MAX: Duration = Duration::from_mins(1);
/// Retry delay for a client whose message does not fit into the byte budget now.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A body with a deadline and a budget of bytes.
struct LimitedBody {
    inner: Body,
    pace: Arc<Pace>,
    budget: ByteBudget,
    booked: usize,
    deadline: Pin<Box<Sleep>>,
    /// The error in the form that the reader of the body expects.
    to_error: fn(ApiError) -> axum::Error,
}

/// Applies the limits to a body, whose reader gets the errors as `to_error` makes them.
pub fn limit(body: Body, pace: Arc<Pace>, budget: ByteBudget, to_error: fn(ApiError) -> axum::Error) -> Body {
    let deadline = Box::pin(tokio::time::sleep(REQUEST_MAX));
    Body::new(LimitedBody { inner: body, pace, budget, booked: 0, deadline, to_error })
}

/// Reads the error of a body over HTTP that was not read to its end.
pub(crate) fn to_api_error(error: &axum::Error) -> ApiError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(known) = current.downcast_ref::<ApiError>() {
            return known.clone();
        }
        if current.is::<http_body_util::LengthLimitError>() {
            let message = format!("the body has more than {FRAME_BYTES_MAX} bytes");
            return ApiError::new(ErrorCode::TooLarge, message);
        }
        source = current.source();
    }
    ApiError::bad_request(format!("the body cannot be read: {error}"))
}

impl hyper::body::Body for LimitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        let error = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                // The pause delays the next request of the client. The bytes of this one are limited by the budget.
                let _ = self.pace.count(0, bytes);
                if self.budget.take(bytes) {
                    self.booked += bytes;
                    return polled;
                }
                let message =
                    "waiting requests take all bytes that the edge has for them: send less at once, or try again";
                ApiError::new(ErrorCode::Overloaded, message).with_retry_after(RETRY_AFTER)
            }
            Poll::Ready(Some(Err(_)) | None) => return polled,
            Poll::Pending => match self.deadline.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => {
                    let seconds = REQUEST_MAX.as_secs();
                    ApiError::bad_request(format!("the message of the request was not complete after {seconds} s"))
                }
            },
        };
        Poll::Ready(Some(Err((self.to_error)(error))))
    }
}

impl Drop for LimitedBody {
    fn drop(&mut self) {
        self.budget.give_back(self.booked);
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use service::connections::ConnectionLimits;

    use super::*;

    fn pace() -> Arc<Pace> {
        ConnectionLimits::default().new_pace()
    }

    fn body(chunks: Vec<Bytes>, budget: &ByteBudget) -> Body {
        body_of(chunks, budget, pace())
    }

    fn body_of(chunks: Vec<Bytes>, budget: &ByteBudget, pace: Arc<Pace>) -> Body {
        let chunks = stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)).chain(stream::pending());
        limit(Body::from_stream(chunks), pace, budget.clone(), axum::Error::new)
    }

    #[tokio::test(start_paused = true)]
    async fn large_messages_delay_next_request_of_client() {
        let pace = pace();
        assert_eq!(pace.count(0, 0), Duration::ZERO);
        let chunks = vec![Bytes::from(vec![b'x'; 1 << 20]); 16];
        let mut read = body_of(chunks, &ByteBudget::new(64 << 20), pace.clone()).into_data_stream();
        for _ in 0..16 {
            read.next().await.unwrap().unwrap();
        }
        // 16 MiB count as 256 requests, of which 100 are read at once and the others at 200 a second.
        assert_eq!(pace.count(0, 0), Duration::from_millis(780));
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_message_is_refused_and_returns_its_bytes() {
        let budget = ByteBudget::new(100);
        let mut stream = body(vec![Bytes::from_static(&[0; 60])], &budget).into_data_stream();
        assert_eq!(stream.next().await.unwrap().unwrap().len(), 60);
        assert_eq!(budget.used(), 60);
        let refused = stream.next().await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("not complete"), "{refused}");
        drop(stream);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn message_over_byte_budget_is_refused() {
        let budget = ByteBudget::new(100);
        let mut stream = body(vec![Bytes::from_static(&[0; 60]); 2], &budget).into_data_stream();
        assert!(stream.next().await.unwrap().is_ok());
        let refused = stream.next().await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("bytes"), "{refused}");
    }
}
