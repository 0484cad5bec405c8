//! The `telemetry` section of the configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How logs are written and where traces go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "telemetry")]
pub struct TelemetryConfig {
    /// How a line of log looks.
    pub log: LogFormat,
    /// Which lines: directives of `tracing_subscriber::EnvFilter`, such as `info,bus=debug`.
    pub filter: String,
    /// The collector that takes traces and metrics by OTLP over gRPC; nothing is sent where none is given.
    pub otlp_endpoint: Option<String>,
    /// The share of traces that is sent, 0 to 1; a trace that came in is kept or left as its sender decided.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: LogFormat::Text,
            filter: "info,async_nats=warn,h2=warn,hyper=warn,tonic=warn,opentelemetry=warn,rmcp=off".to_owned(),
            otlp_endpoint: None,
            sample_ratio: 0.1,
        }
    }
}

/// How a line of log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people; in colours on a terminal.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}
