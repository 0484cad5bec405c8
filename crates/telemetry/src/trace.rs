//! W3C trace context: reading it from the current span, and giving it to a span as its parent.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Set where a collector listens.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The `traceparent` of the current span; none where nothing is traced.
pub fn current() -> Option<String> {
    of(&Span::current())
}

/// The `traceparent` of a span; none where nothing is traced.
pub fn of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let at = span.span_context();
    at.is_valid().then(|| format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8()))
}

/// Makes the span a child of the remote span; a text that is no `traceparent` changes nothing. To be called before the
/// span is entered.
pub fn set_parent(span: &Span, traceparent: &str) {
    let Some(parent) = parse(traceparent) else { return };
    if !span.is_disabled() {
        // It fails only where no collector listens: then there is no parent to have.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
}

/// Names another span, of whichever trace, from this one; a text that is no `traceparent` changes nothing.
pub fn link(span: &Span, traceparent: &str) {
    if let (false, Some(other)) = (span.is_disabled(), parse(traceparent)) {
        span.add_link(other);
    }
}

/// Keeps the tracer for spans that have ended when they are made.
pub(crate) fn install(tracer: SdkTracer) {
    // A second one could only be that of another set-up, which is refused.
    let _ = TRACER.set(tracer);
}

/// Sends a span that has ended, from `times.0` to `times.1` in milliseconds since 1970. Without a collector, and where
/// the parent is no `traceparent`, nothing is sent.
pub(crate) fn send(parent: &str, name: String, times: (u64, u64), attributes: Vec<KeyValue>) {
    let (Some(tracer), Some(parent)) = (TRACER.get(), parse(parent)) else { return };
    let time = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    let context = opentelemetry::Context::new().with_remote_span_context(parent);
    let span = tracer.span_builder(name).with_start_time(time(times.0)).with_attributes(attributes);
    span.start_with_context(tracer, &context).end_with_timestamp(time(times.1));
}

/// The 32 hex digits of the trace; none where the text is no `traceparent`.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    parse(traceparent).and_then(|_| traceparent.get(3..35))
}

/// `00-<32 hex>-<16 hex>-<2 hex>`; what a later version appends is left alone.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let shaped = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    if !shaped || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_traceparent_has_no_trace_id() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace_id(good), Some("0af7651916cd43dd8448eb211c80319c"));
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-äf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
        let newer = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what";
        assert_eq!(trace_id(newer), Some("0af7651916cd43dd8448eb211c80319c"));
    }
}
