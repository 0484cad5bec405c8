//! The `telemetry` section of the configuration.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Format of logs, and export of traces and metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "telemetry")]
pub struct TelemetryConfig {
    /// Format of a log line.
    pub log: LogFormat,
    /// Filter of log lines: directives of `tracing_subscriber::EnvFilter`, such as `info,bus=debug`.
    pub filter: String,
    /// The collector that takes traces and metrics by OTLP; nothing is sent where none is given.
    pub otlp_endpoint: Option<String>,
    /// The protocol of the collector.
    pub otlp_protocol: OtlpProtocol,
    /// A PEM file with the authority that signed the collector's certificate, where it is no public one; for gRPC.
    pub otlp_ca_file: Option<PathBuf>,
    /// The share of traces that is sent, 0 to 1; a trace that came in is kept or left as its sender decided.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
    /// Whether spans contain messages, arguments of tools and their results, each up to 32 KiB.
    pub content: bool,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: LogFormat::Text,
            filter: "info,async_nats=warn,h2=warn,hyper=warn,tonic=warn,opentelemetry=warn,rmcp=off".to_owned(),
            otlp_endpoint: None,
            otlp_protocol: OtlpProtocol::Grpc,
            otlp_ca_file: None,
            sample_ratio: 0.1,
            content: false,
        }
    }
}

/// Protocol by which spans and metrics reach the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// Over gRPC, usually port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP, usually port 4318; the paths `/v1/traces` and `/v1/metrics` are added to the endpoint.
    Http,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people; in colours on a terminal.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}
