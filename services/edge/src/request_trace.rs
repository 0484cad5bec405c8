//! The trace of a client's request.

use contract::trace::TraceContext;
use tracing::Span;

/// The span of a request, and the trace under which its command is sent.
pub(crate) struct RequestTrace {
    /// The span of the request itself.
    pub(crate) span: Span,
    /// Under which a turn begins. A turn outlives the request and the edge, so the request's span is never its parent.
    pub(crate) turn: Option<TraceContext>,
}

/// Opens the trace of a request. A client's own trace goes on; otherwise a turn gets a trace of its own, to which the
/// span of the request links.
pub(crate) fn open(method: &str, session: Option<&str>, client: Option<TraceContext>) -> RequestTrace {
    let span = telemetry::span::edge_request(method, session);
    if let Some(client) = client {
        telemetry::trace::set_parent(&span, client);
        return RequestTrace { span, turn: Some(client) };
    }
    let turn = telemetry::trace::is_exporting().then(|| telemetry::trace::begin(uuid::Uuid::now_v7().as_u128()));
    if let Some(turn) = turn.filter(|turn| turn.is_sampled) {
        telemetry::trace::link(&span, turn);
    }
    RequestTrace { span, turn }
}
