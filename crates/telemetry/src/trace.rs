//! The position in a trace of the work at hand, and spans that are sent when they have ended.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use contract::trace::TraceContext;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind as ExportedKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanLinks, SpanProcessor};
use serde::Serialize;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::config::TelemetryConfig;
use crate::names::attr;

/// Set where spans are exported.
static EXPORT: OnceLock<Export> = OnceLock::new();

/// Longest wait of [`flushed`].
const FLUSH_MAX: Duration = Duration::from_secs(10);
/// Time after a failed flush in which no caller waits for one: a collector that is away must not hold up the work.
const AWAY_PAUSE: Duration = Duration::from_secs(30);
/// Time for which a flush collects the callers that wait for one.
const FLUSH_GATHER: Duration = Duration::from_millis(50);
/// Most callers that wait for a flush; any more do not wait.
const FLUSH_WAITERS_MAX: usize = 10_000;

tokio::task_local! {
    static SCOPE: Option<TraceContext>;
}

/// The position in a trace of the current task: that of its [`scope`], else that of its span. None where nothing is
/// traced.
pub fn current() -> Option<TraceContext> {
    scoped().or_else(|| of(&Span::current()))
}

/// The position in a trace of the current task's [`scope`]; none outside of one.
pub(crate) fn scoped() -> Option<TraceContext> {
    SCOPE.try_with(|scope| *scope).ok().flatten()
}

/// The position of a span; none where nothing is traced.
pub fn of(span: &Span) -> Option<TraceContext> {
    if span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let at = span.span_context();
    at.is_valid().then(|| TraceContext {
        trace_id: u128::from_be_bytes(at.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(at.span_id().to_bytes()),
        is_sampled: at.is_sampled(),
    })
}

/// Runs `future` at a position in a trace: its messages carry this position, whichever span is open.
pub async fn scope<F: Future>(context: Option<TraceContext>, future: F) -> F::Output {
    SCOPE.scope(context.or_else(scoped), future).await
}

/// Begins a trace, which is sampled by `telemetry.sample_ratio`. Without a collector it is not sampled.
pub fn begin(trace_id: u128) -> TraceContext {
    let share = EXPORT.get().map_or(0.0, |export| export.sample_ratio);
    TraceContext::beginning(trace_id, is_within(trace_id, share))
}

/// Whether a trace is among the share of traces that is exported: the same for each process that asks.
#[allow(clippy::cast_precision_loss, reason = "a share of traces need not be exact")]
fn is_within(trace_id: u128, share: f64) -> bool {
    // The middle of a UUID has fixed bits; the lowest 48 bits are random in versions 4 and 7.
    let random = (trace_id & 0xffff_ffff_ffff) as f64;
    random < share * (1_u64 << 48) as f64
}

/// Makes the span a child of a span elsewhere. To be called before the span is entered.
pub fn set_parent(span: &Span, parent: TraceContext) {
    if !span.is_disabled() {
        // It fails only where no collector listens: then there is no parent to have.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote(parent)));
    }
}

/// Links the span to another one, of whichever trace.
pub fn link(span: &Span, other: TraceContext) {
    if !span.is_disabled() {
        span.add_link(remote(other));
    }
}

/// The value of an attribute; as JSON it is a text, a number, true or false, or a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// One text, such as a name.
    Text(String),
    /// A whole number, such as a count of tokens.
    Integer(i64),
    /// A number with a fraction, such as a cost.
    Number(f64),
    /// Whether something holds or not.
    Flag(bool),
    /// A list of texts.
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Whether a span calls something outside of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside of the fleet.
    Internal,
    /// A request to a server outside of it.
    Client,
}

/// A span that has ended, with an id that its maker chose.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSpan {
    /// Its own position in the trace.
    pub context: TraceContext,
    /// Its parent; none where it begins the trace.
    pub parent: Option<TraceContext>,
    /// Its name, such as `chat gpt-5`.
    pub name: String,
    /// Whether it is a call to the outside.
    pub kind: SpanKind,
    /// Times at which it began and ended, in milliseconds since 1970.
    pub times: (u64, u64),
    /// Names, from [`crate::names::attr`], and values.
    pub attributes: Vec<(&'static str, Value)>,
    /// Related spans, of whichever trace.
    pub links: Vec<TraceContext>,
    /// A stable code of what went wrong.
    pub error: Option<String>,
}

/// Sends spans that have ended to the collector, if there is one and their trace is sampled. A span that is sent twice
/// has the same id, so a backend may drop the second one.
pub fn send(spans: Vec<FinishedSpan>) {
    let Some(export) = EXPORT.get() else { return };
    for span in spans.into_iter().filter(|span| span.context.is_sampled) {
        export.processor.on_end(export.data(span));
    }
}

/// Whether this process exports spans.
pub fn is_exporting() -> bool {
    EXPORT.get().is_some()
}

/// Whether spans carry messages, arguments and results (`telemetry.content`).
pub fn carries_content() -> bool {
    EXPORT.get().is_some_and(|export| export.carries_content)
}

/// Returns when the collector has the spans that were sent until now, or after 10 s. A process that acknowledges its work
/// after that leaves the work, and so the spans, to another process if it is killed before. After a failure it returns
/// at once for 30 s.
pub async fn flushed() {
    let Some(export) = EXPORT.get() else { return };
    if export.is_collector_away() {
        return;
    }
    let (done, flushed) = tokio::sync::oneshot::channel();
    if export.waiters.try_send(done).is_ok() && !matches!(tokio::time::timeout(FLUSH_MAX, flushed).await, Ok(Ok(true)))
    {
        export.note_failure();
    }
}

/// The processor that exports spans, and what it needs.
struct Export {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
    sample_ratio: f64,
    carries_content: bool,
    waiters: mpsc::SyncSender<Waiter>,
    /// Time until which no caller waits for a flush, since the last one failed.
    away_until: Mutex<Option<Instant>>,
}

/// Gets whether the flush succeeded.
type Waiter = tokio::sync::oneshot::Sender<bool>;

impl Export {
    fn is_collector_away(&self) -> bool {
        self.away_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    fn note_failure(&self) {
        let until = Instant::now() + AWAY_PAUSE;
        let before = self.away_until.lock().unwrap_or_else(PoisonError::into_inner).replace(until);
        if before.is_none_or(|before| before + AWAY_PAUSE < until) {
            tracing::warn!("the collector takes no spans: those of a process that is killed now are lost");
        }
    }

    fn data(&self, span: FinishedSpan) -> SpanData {
        let FinishedSpan { context, parent, name, kind, times, attributes, links, error } = span;
        let time = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
        let mut attributes: Vec<KeyValue> = attributes.into_iter().map(|(name, value)| pair(name, value)).collect();
        attributes.extend(error.clone().map(|code| KeyValue::new(attr::ERROR, code)));
        let mut all = SpanLinks::default();
        all.links = links.into_iter().map(|other| Link::with_context(remote(other))).collect();
        SpanData {
            span_context: with(context, false),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id.to_be_bytes())),
            parent_span_is_remote: parent.is_some(),
            span_kind: match kind {
                SpanKind::Internal => ExportedKind::Internal,
                SpanKind::Client => ExportedKind::Client,
            },
            name: name.into(),
            start_time: time(times.0),
            end_time: time(times.1.max(times.0)),
            attributes,
            dropped_attributes_count: 0,
            events: opentelemetry_sdk::trace::SpanEvents::default(),
            links: all,
            status: error.map_or(Status::Unset, |code| Status::Error { description: code.into() }),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn pair(name: &'static str, value: Value) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Integer(number) => KeyValue::new(name, number),
        Value::Number(number) => KeyValue::new(name, number),
        Value::Flag(flag) => KeyValue::new(name, flag),
        Value::Texts(texts) => {
            let texts = texts.into_iter().map(StringValue::from).collect();
            KeyValue::new(name, opentelemetry::Value::Array(Array::String(texts)))
        }
    }
}

/// Keeps where spans go, and starts the thread that flushes for those who wait.
pub(crate) fn install(processor: Arc<BatchSpanProcessor>, scope: InstrumentationScope, config: &TelemetryConfig) {
    let (sample_ratio, carries_content) = (config.sample_ratio, config.content);
    let (waiters, waiting) = mpsc::sync_channel(FLUSH_WAITERS_MAX);
    let flushing = processor.clone();
    // A second set-up in one process is refused elsewhere.
    if EXPORT
        .set(Export { processor, scope, sample_ratio, carries_content, waiters, away_until: Mutex::new(None) })
        .is_ok()
    {
        // A thread of its own, since a flush blocks until the export has ended.
        std::thread::spawn(move || flush_for(&waiting, &flushing));
    }
}

fn flush_for(waiting: &mpsc::Receiver<Waiter>, processor: &BatchSpanProcessor) {
    while let Ok(first) = waiting.recv() {
        std::thread::sleep(FLUSH_GATHER);
        let all: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
        let flushed = processor.force_flush();
        if let Err(error) = &flushed {
            tracing::debug!(%error, "spans were not flushed");
        }
        for waiter in all {
            let _ = waiter.send(flushed.is_ok());
        }
    }
}

/// A processor that several hold: the provider of live spans, and [`send`].
#[derive(Debug)]
pub(crate) struct Shared(pub(crate) Arc<BatchSpanProcessor>);

impl SpanProcessor for Shared {
    fn on_start(&self, span: &mut opentelemetry_sdk::trace::Span, context: &opentelemetry::Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }
}

fn remote(context: TraceContext) -> SpanContext {
    with(context, true)
}

fn with(context: TraceContext, is_remote: bool) -> SpanContext {
    let TraceContext { trace_id, span_id, is_sampled } = context;
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from_bytes(trace_id.to_be_bytes()), SpanId::from_bytes(span_id.to_be_bytes()));
    SpanContext::new(trace, span, flags, is_remote, TraceState::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_traces_is_about_the_ratio() {
        let sampled = |share: f64| {
            // A fixed sequence that spreads over the low bits.
            let ids = (1..=10_000_u128).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            ids.filter(|id| is_within(*id, share)).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((800..1_200).contains(&sampled(0.1)), "{}", sampled(0.1));
    }

    #[tokio::test]
    async fn scope_names_the_position_for_its_future_only() {
        let inside = TraceContext::beginning(5, true);
        assert_eq!(scope(Some(inside), async { current() }).await, Some(inside));
        assert_eq!(current(), None);
        assert_eq!(scope(Some(inside), scope(None, async { current() })).await, Some(inside));
    }
}
