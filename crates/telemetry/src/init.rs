//! Sets up logs, traces and metrics, once per process, and flushes them at its end.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanExporter, SpanProcessor,
};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{DefaultFields, JsonFields, Writer};
use tracing_subscriber::fmt::{self, FmtContext, FormatEvent, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, TelemetryConfig};
use crate::error::TelemetryError;
use crate::exporter;
use crate::names::TARGET;

/// Pause between exports of spans: what a killed process had not exported is lost, where nobody else sends it.
const SPANS_EVERY: Duration = Duration::from_secs(1);
/// Spans that wait for an export; more than that are lost, and OpenTelemetry says so in a log line.
const SPANS_MAX: usize = 16_384;
/// Pause between exports of metrics.
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Timeout of the flush at the end; a collector that hangs must not keep a process.
const SHUTDOWN_MAX: Duration = Duration::from_secs(3);

/// Providers of traces and metrics that must be flushed at the end.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: SdkMeterProvider,
}

/// Sets the process's subscriber and metrics. With an OTLP endpoint it must be called within a tokio runtime.
pub fn init(service: &str, config: &TelemetryConfig) -> Result<Telemetry, TelemetryError> {
    if !(0.0..=1.0).contains(&config.sample_ratio) {
        return Err(TelemetryError::Ratio(config.sample_ratio));
    }
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|source| TelemetryError::Filter { filter: config.filter.clone(), source })?;
    let resource = Resource::builder()
        .with_service_name(service.to_owned())
        .with_attribute(KeyValue::new("service.namespace", "ailoop"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();

    let disabled = is_disabled();
    let traces = if disabled { None } else { traces(config, &resource)? };
    let (metrics, registry) = metrics(config, resource, disabled)?;
    tracing_subscriber::registry()
        .with(logs(config.log).with_filter(filter))
        .with(traces.as_ref().map(|(provider, _)| spans(provider)))
        .try_init()
        .map_err(|_| TelemetryError::Twice)?;
    if !disabled && !crate::metric::install(&metrics, registry) {
        return Err(TelemetryError::Twice);
    }
    let traces = traces.map(|(provider, processor)| {
        crate::trace::install(processor, scope(), config);
        provider
    });
    Ok(Telemetry { traces, metrics })
}

/// Whether OpenTelemetry's own variable turns traces and metrics off. Then `/metrics` is empty.
fn is_disabled() -> bool {
    std::env::var_os("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

impl Telemetry {
    /// Sends what is left to the collector, for 3 s at most.
    pub async fn shutdown(self) {
        self.shutdown_within(SHUTDOWN_MAX).await;
    }

    async fn shutdown_within(self, timeout: Duration) {
        let (done, flushed) = tokio::sync::oneshot::channel();
        // A thread of its own, since the exporters block and need the runtime to go on meanwhile; it is left behind
        // when the collector hangs.
        std::thread::spawn(move || {
            let traces = self.traces.map_or(Ok(()), |traces| traces.shutdown_with_timeout(timeout));
            let metrics = self.metrics.shutdown_with_timeout(timeout);
            let _ = done.send(traces.and(metrics));
        });
        match tokio::time::timeout(timeout, flushed).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "telemetry was not flushed"),
            Ok(Err(_)) | Err(_) => tracing::warn!("telemetry was not flushed in time"),
        }
    }
}

fn logs<S: Subscriber + for<'a> LookupSpan<'a>>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync> {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => json_lines(lines).boxed(),
    }
}

fn json_lines<S, W>(lines: fmt::Layer<S, DefaultFields, fmt::format::Format, W>) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let json = fmt::format().json().flatten_event(true).with_current_span(true).with_span_list(false);
    lines.fmt_fields(JsonFields::new()).event_format(WithTrace(json))
}

/// A line of JSON that begins with the trace of the current task, so that a trace's backend finds the lines of a turn.
struct WithTrace(fmt::format::Format<fmt::format::Json>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for WithTrace {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let Some(at) = crate::trace::scoped() else { return self.0.format_event(context, writer, event) };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let rest = line.strip_prefix('{').ok_or(std::fmt::Error)?;
        write!(writer, "{{\"trace_id\":\"{:032x}\",\"span_id\":\"{:016x}\",{rest}", at.trace_id, at.span_id)
    }
}

/// Our spans only: no log line becomes a span event, since log lines are not sampled and may be many.
fn spans<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope()))
        .with_context_activation(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_level(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|meta| meta.is_span() && meta.target() == TARGET))
}

fn traces(config: &TelemetryConfig, resource: &Resource) -> Result<Option<Traces>, TelemetryError> {
    let Some(endpoint) = &config.otlp_endpoint else { return Ok(None) };
    let exporter = exporter::spans(endpoint, config)?;
    Ok(Some(provider(exporter, config.sample_ratio, resource.clone())))
}

/// The provider of live spans, and the processor that it shares with spans that have ended.
type Traces = (SdkTracerProvider, Arc<BatchSpanProcessor>);

fn provider(exporter: impl SpanExporter + 'static, ratio: f64, resource: Resource) -> Traces {
    let mut batches = BatchConfigBuilder::default();
    if std::env::var_os("OTEL_BSP_MAX_QUEUE_SIZE").is_none() {
        batches = batches.with_max_queue_size(SPANS_MAX);
    }
    if std::env::var_os("OTEL_BSP_SCHEDULE_DELAY").is_none() {
        batches = batches.with_scheduled_delay(SPANS_EVERY);
    }
    let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches.build()).build();
    processor.set_resource(&resource);
    let processor = Arc::new(processor);
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))))
        .with_span_processor(crate::trace::Shared(processor.clone()))
        .build();
    (provider, processor)
}

/// Instrumentation scope of our spans, with the schema that their attributes follow.
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("ailoop")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(crate::names::SCHEMA_URL)
        .build()
}

/// Whether metrics are sent to the collector, by OpenTelemetry's variable: most backends of traces take none.
fn exports_metrics() -> bool {
    std::env::var_os("OTEL_METRICS_EXPORTER").is_none_or(|exporter| exporter != "none")
}

fn metrics(
    config: &TelemetryConfig,
    resource: Resource,
    disabled: bool,
) -> Result<(SdkMeterProvider, prometheus::Registry), TelemetryError> {
    let registry = prometheus::Registry::new();
    let text = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .scope_info_enabled(false)
        .build()
        .map_err(|error| TelemetryError::Metrics(error.to_string()))?;
    let mut builder = SdkMeterProvider::builder().with_resource(resource).with_reader(text);
    let is_sent = !disabled && exports_metrics();
    if let Some(endpoint) = config.otlp_endpoint.as_ref().filter(|_| is_sent) {
        let exporter = exporter::metrics(endpoint, config)?;
        builder = builder.with_reader(PeriodicReader::builder(exporter).with_interval(METRICS_EVERY).build());
    }
    Ok((builder.build(), registry))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use contract::trace::TraceContext;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::SpanData;

    use super::*;
    use crate::{names, span, trace};

    /// Keeps what is exported, or never comes back.
    #[derive(Debug, Clone, Default)]
    struct Collector {
        spans: Arc<Mutex<Vec<SpanData>>>,
        hangs: bool,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.spans.lock().unwrap().extend(batch);
            Ok(())
        }
    }

    /// Runs `work` with logs at `info` and a collector; gives what it exported.
    fn collected(ratio: f64, work: impl FnOnce()) -> Vec<SpanData> {
        let collector = Collector::default();
        let (traces, _) = provider(collector.clone(), ratio, Resource::builder_empty().build());
        let quiet = tracing_subscriber::fmt::layer().with_writer(std::io::sink).with_filter(EnvFilter::new("info"));
        let subscriber = tracing_subscriber::registry().with(quiet).with(spans(&traces));
        listened_by(subscriber, work);
        traces.force_flush().unwrap();
        let spans = collector.spans.lock().unwrap();
        spans.clone()
    }

    fn attribute(span: &SpanData, name: &str) -> Option<opentelemetry::Value> {
        span.attributes.iter().find(|have| have.key.as_str() == name).map(|have| have.value.clone())
    }

    /// One test at a time: whether a span is wanted is remembered for the whole process, whoever wants it.
    fn listened_by(subscriber: impl Into<tracing::Dispatch>, work: impl FnOnce()) {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tracing::dispatcher::with_default(&subscriber.into(), work);
    }

    fn request() -> tracing::Span {
        span::model_request(span::ModelRequest {
            session: "s-1",
            call: "m1-2",
            attempt: 1,
            delivery: 2,
            number: 3,
            provider: "openai",
            model: "gpt",
        })
    }

    #[test]
    fn spans_go_out_with_their_parents_and_without_log_lines() {
        let parent: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
        let spans = collected(0.0, || {
            let request = request();
            trace::set_parent(&request, parent);
            request.in_scope(|| {
                assert_eq!(trace::current().unwrap().trace_id, parent.trace_id);
                tracing::info!("a line of log");
                tracing::info_span!("of somebody else").in_scope(|| {
                    let compose = span::compose("a");
                    span::composed(&compose, "f", 30, 4);
                    span::failed(&compose, "unknown_model");
                });
            });
        });
        let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names, ["compose a", "POST"]);
        let (compose, request) = (&spans[0], &spans[1]);
        assert_eq!(compose.parent_span_id, request.span_context.span_id());
        assert_eq!(request.parent_span_id.to_string(), "b7ad6b7169203331");
        assert_eq!(attribute(request, names::attr::CONVERSATION), Some("s-1".into()));
        assert_eq!(attribute(compose, names::attr::ERROR), Some("unknown_model".into()));
        for (span, name, number) in [
            (compose, names::attr::PROMPT_BYTES, 30),
            (compose, names::attr::PROMPT_COMPONENTS, 4),
            (request, names::attr::ATTEMPT, 1),
            (request, names::attr::DELIVERY, 2),
            (request, names::attr::RESEND_COUNT, 2),
        ] {
            assert_eq!(attribute(span, name), Some(opentelemetry::Value::I64(number)), "{name}");
        }
        assert!(spans.iter().all(|span| span.events.is_empty()));
        assert!(spans.iter().all(|span| span.instrumentation_scope.schema_url() == Some(names::SCHEMA_URL)));
    }

    #[test]
    fn sample_ratio_zero_exports_nothing_and_propagates_the_trace() {
        let one = || span::edge_request("m", None).in_scope(|| assert!(trace::current().is_some()));
        assert_eq!(collected(1.0, one).len(), 1);
        assert_eq!(collected(0.0, one).len(), 0);
    }

    /// Lines that a JSON layer writes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn json_line_names_the_trace_of_its_task() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = fmt::layer().with_writer(move || writer.clone());
        listened_by(tracing_subscriber::registry().with(json_lines(layer)), || {
            let turn = "00-0af7651916cd43dd8448eb211c80319c-07ad6b7169203331-01".parse().unwrap();
            let work = trace::scope(Some(turn), async { tracing::info!(session = "a/s", "within") });
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work);
            tracing::info!("without");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(lines[0]["span_id"], "07ad6b7169203331");
        assert_eq!((&lines[0]["message"], &lines[0]["session"]), (&"within".into(), &"a/s".into()));
        assert_eq!(lines[1]["message"], "without");
        assert!(lines[1].get("trace_id").is_none());
    }

    #[test]
    fn nothing_is_made_where_nobody_listens() {
        let quiet = tracing_subscriber::fmt::layer().with_writer(std::io::sink).with_filter(EnvFilter::new("info"));
        listened_by(tracing_subscriber::registry().with(quiet), || {
            let span = request();
            assert!(span.is_disabled());
            assert_eq!(span.in_scope(trace::current), None);
        });
    }

    #[tokio::test]
    async fn collector_hangs_shutdown_is_not_delayed() {
        let collector = Collector { hangs: true, ..Collector::default() };
        let (traces, _) = provider(collector, 1.0, Resource::builder_empty().build());
        opentelemetry::trace::Tracer::start(&traces.tracer("test"), "x");
        let telemetry = Telemetry { traces: Some(traces), metrics: SdkMeterProvider::builder().build() };
        // A shutdown that waited for the collector would never end.
        telemetry.shutdown_within(Duration::from_millis(100)).await;
    }
}
