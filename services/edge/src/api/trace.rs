//! The spans of a session's turns, made from its log.

use contract::SessionId;
use serde::Serialize;
use serde_json::{Map, Value};
use session_trace::{TurnSpans, session_spans};
use telemetry::trace::FinishedSpan;

use super::SessionApi;
use super::reach::ReachedSession;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::config::TRACE_ID_PLACE;
use crate::fair_queue::RequestCost;

/// The answer to `session.trace`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SessionTrace {
    pub(crate) session_id: SessionId,
    pub(crate) turns: Vec<TurnTrace>,
}

/// A turn in the answer to `session.trace`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TurnTrace {
    pub(crate) turn: u32,
    pub(crate) trace_id: String,
    pub(crate) has_ended: bool,
    /// Whether a collector gets these spans, where there is one.
    pub(crate) is_sampled: bool,
    /// Address of the trace for people; absent if none is configured, or if no collector gets the spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// The span of the turn comes first.
    pub(crate) spans: Vec<TraceSpan>,
}

/// A span in the answer to `session.trace`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TraceSpan {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
    /// Whether it has not ended; then `end_ms` is the time of the last commit.
    pub(crate) is_open: bool,
    pub(crate) attributes: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl SessionApi {
    /// Makes the spans of each turn of a session.
    pub(crate) async fn trace_session(
        &self,
        caller: &ApiCaller,
        reached: &ReachedSession,
    ) -> Result<SessionTrace, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let key = reached.key();
        let commits = self.cell_of(reached).await?.bus.history(key, 0).await?;
        if commits.is_empty() {
            return Err(Self::unknown_session(key));
        }
        let url = self.trace_url();
        let turns = session_spans(key, &commits, false).into_iter().map(|(turn, spans)| turn_trace(turn, spans, url));
        Ok(SessionTrace { turns: turns.collect(), session_id: reached.id().clone() })
    }
}

fn turn_trace(turn: u32, turn_spans: TurnSpans, url: Option<&str>) -> TurnTrace {
    let TurnSpans { context, has_ended, spans, open_from } = turn_spans;
    let trace_id = context.trace_id_hex();
    // The span of the turn is the first one.
    let is_open = |index: usize| !has_ended && (index == 0 || index >= open_from);
    let spans = spans.into_iter().enumerate().map(|(index, span)| trace_span(span, is_open(index)));
    TurnTrace {
        turn,
        has_ended,
        is_sampled: context.is_sampled,
        url: url.filter(|_| context.is_sampled).map(|url| url.replace(TRACE_ID_PLACE, &trace_id)),
        trace_id,
        spans: spans.collect(),
    }
}

fn trace_span(span: FinishedSpan, is_open: bool) -> TraceSpan {
    let attribute =
        |(name, value): (&str, telemetry::trace::Value)| Some((name.to_owned(), serde_json::to_value(value).ok()?));
    TraceSpan {
        id: span.context.span_id_hex(),
        parent: span.parent.map(|parent| parent.span_id_hex()),
        name: span.name,
        start_ms: span.times.0,
        end_ms: span.times.1,
        is_open,
        attributes: span.attributes.into_iter().filter_map(attribute).collect(),
        error: span.error,
    }
}
