//! The trace of a client's request.

use axum::http::HeaderMap;
use contract::trace::TraceContext;
use tracing::{Instrument, Span};

use crate::api_error::ApiError;

/// The span of a request, and the trace under which its command is sent.
pub struct RequestTrace {
    /// The span of the request itself.
    pub span: Span,
    /// Under which a turn begins. A turn outlives the request and the edge, so the request's span is never its parent.
    pub turn: Option<TraceContext>,
}

/// Opens the trace of a request. A client's own trace goes on, sampled as often as others; otherwise a turn gets a
/// trace of its own, to which the span of the request links.
pub fn open(method: &str, session: Option<&str>, client: Option<TraceContext>) -> RequestTrace {
    let span = telemetry::span::edge_request(method, session);
    if let Some(client) = client {
        // A client may ask for less than the share of this edge, never for more. Its own id would let it choose.
        let may_sample = telemetry::trace::begin(uuid::Uuid::now_v7().as_u128()).is_sampled;
        let client = TraceContext { is_sampled: client.is_sampled && may_sample, ..client };
        telemetry::trace::set_parent(&span, client);
        return RequestTrace { span, turn: Some(client) };
    }
    let turn = telemetry::trace::is_exporting().then(|| telemetry::trace::begin(uuid::Uuid::now_v7().as_u128()));
    if let Some(turn) = turn.filter(|turn| turn.is_sampled) {
        telemetry::trace::link(&span, turn);
    }
    RequestTrace { span, turn }
}

/// Reads the client's own trace from the headers of a request; one that cannot be read is left out.
pub fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get("traceparent").and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Runs a request under a span of its own, and notes its outcome.
pub async fn run<T, E: AsRef<ApiError>>(
    method: &'static str,
    session: Option<&str>,
    client: Option<TraceContext>,
    request: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let RequestTrace { span, turn } = open(method, session, client);
    // On the heap, since a caller may hold several of them.
    let outcome = Box::pin(telemetry::trace::scope(turn, request.instrument(span.clone()))).await;
    record(method, &span, outcome.as_ref().err().map(AsRef::as_ref));
    outcome
}

/// Notes the outcome of a request in its span and in the metrics.
pub fn record(method: &'static str, span: &Span, error: Option<&ApiError>) {
    if let Some(error) = error {
        telemetry::span::failed(span, error.code.as_str());
    }
    telemetry::metric::request(method, error.map_or("ok", |error| error.code.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_a_client_goes_on_and_is_sampled_by_the_share_of_the_edge() {
        let client: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
        // Without a collector, the share is 0.
        let turn = open("session.start", None, Some(client)).turn.unwrap();
        assert_eq!(turn, TraceContext { is_sampled: false, ..client });
    }
}
