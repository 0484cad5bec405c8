//! The spans of a session's turns, made from its log.

use session_api::{SessionTrace, TraceSpan, TurnTrace};
use session_trace::{TurnSpans, session_spans};
use telemetry::trace::FinishedSpan;

use super::SessionApi;
use super::reach::ReachedSession;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::config::TRACE_ID_PLACE;
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Makes the spans of each turn of a session.
    pub async fn trace_session(&self, caller: &ApiCaller, reached: &ReachedSession) -> Result<SessionTrace, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let key = reached.key();
        let commits = self.commits_from(reached, 0).await?;
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
