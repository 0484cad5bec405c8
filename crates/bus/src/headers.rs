//! Headers that many messages have.

use contract::tool::header::{AGAIN, TRACEPARENT};
use contract::trace::TraceContext;

use crate::Headers;
use crate::transport::header;

/// The headers of a message in a stream: the current trace, where there is one.
pub(crate) fn trace_headers() -> Headers {
    telemetry::trace::current().map(|at| (TRACEPARENT.to_owned(), at.to_string())).into_iter().collect()
}

/// The position in a trace that a message names.
pub(crate) fn trace_context(headers: &Headers) -> Option<TraceContext> {
    header(headers, TRACEPARENT)?.parse().ok()
}

/// Adds the mark of an item that may have been handled before: [`crate::Delivery::may_have_been_held`].
pub(crate) fn marked_again(mut headers: Headers) -> Headers {
    if header(&headers, AGAIN).is_none() {
        headers.push((AGAIN.to_owned(), "1".to_owned()));
    }
    headers
}
