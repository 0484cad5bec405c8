//! A collector for tests: receives spans by OTLP over gRPC and keeps them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Exported;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A running collector on a free port; dropping the value ends it.
#[derive(Debug)]
pub struct Collector {
    address: std::net::SocketAddr,
    spans: Spans,
    _task: JoinSet<()>,
}

/// A span, as far as tests look at it; ids in hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The process's service name.
    pub service: String,
    /// Name of the span, such as `invoke_agent e`.
    pub name: String,
    /// Id of the trace, in hex.
    pub trace: String,
    /// Id of the span, in hex.
    pub id: String,
    /// Id of the parent span; empty for the root.
    pub parent: String,
    /// Attributes that are texts.
    pub texts: BTreeMap<String, String>,
    /// Attributes that are whole numbers.
    pub integers: BTreeMap<String, i64>,
    /// Attributes that are lists, by their number of texts.
    pub lists: BTreeMap<String, usize>,
    /// Ids of the spans that it links to.
    pub links: Vec<String>,
    /// Whether its status is an error.
    pub is_error: bool,
    /// Start and end, in nanoseconds since 1970.
    pub time: (u64, u64),
}

#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Starts the collector on a free port.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, spans) = (listener.local_addr()?, Spans::default());
        let server = Server::builder().add_service(TraceServiceServer::new(spans.clone()));
        let mut task = JoinSet::new();
        task.spawn(async move {
            // It ends with the task; a failure shows as spans that are missing.
            let _ = server.serve_with_incoming(TcpIncoming::from(listener)).await;
        });
        Ok(Self { address, spans, _task: task })
    }

    /// Environment variables that make a process export every span here, every 100 ms.
    pub fn environment(&self) -> [(String, String); 3] {
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{}", self.address)),
            ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "100".to_owned()),
            ("AILOOP__TELEMETRY__SAMPLE_RATIO".to_owned(), "1".to_owned()),
        ]
    }

    /// All spans of a session so far, of any trace.
    pub fn session(&self, id: &str) -> Vec<Span> {
        let all = self.spans.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_session = |span: &&Span| span.texts.get("gen_ai.conversation.id").is_some_and(|session| session == id);
        all.iter().filter(of_session).cloned().collect()
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All spans of a trace so far.
    pub fn trace(&self, id: &str) -> Vec<Span> {
        let all = self.spans.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|span| span.trace == id).cloned().collect()
    }
}

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
            let service = attributes.get("service.name").cloned().unwrap_or_default();
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            all.extend(spans.map(|span| read(&service, span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn read(service: &str, span: Exported) -> Span {
    Span {
        service: service.to_owned(),
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        texts: texts(&span.attributes),
        integers: values(&span.attributes, |value| {
            let Value::IntValue(number) = value else { return None };
            Some(*number)
        }),
        lists: values(&span.attributes, |value| {
            let Value::ArrayValue(list) = value else { return None };
            Some(list.values.len())
        }),
        links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
        is_error: span.status.is_some_and(|status| status.code == StatusCode::Error as i32),
        time: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    values(attributes, |value| {
        let Value::StringValue(text) = value else { return None };
        Some(text.clone())
    })
}

fn values<T>(attributes: &[KeyValue], read: impl Fn(&Value) -> Option<T>) -> BTreeMap<String, T> {
    let one = |pair: &KeyValue| Some((pair.key.clone(), read(pair.value.as_ref()?.value.as_ref()?)?));
    attributes.iter().filter_map(one).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
