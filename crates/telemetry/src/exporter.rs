//! Exporters to a collector, by the protocol of the configuration.

use std::time::Duration;

use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithTonicConfig};

use crate::config::{OtlpProtocol, TelemetryConfig};
use crate::error::TelemetryError;

/// Timeout of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// The exporter of spans to `endpoint`.
pub(crate) fn spans(endpoint: &str, config: &TelemetryConfig) -> Result<SpanExporter, TelemetryError> {
    let builder = SpanExporter::builder();
    match config.otlp_protocol {
        OtlpProtocol::Grpc => over_grpc(builder.with_tonic(), endpoint, config)?.build(),
        OtlpProtocol::Http => over_http(builder.with_http(), endpoint, "v1/traces").build(),
    }
    .map_err(|error| unusable(endpoint, &error))
}

/// The exporter of metrics to `endpoint`.
pub(crate) fn metrics(endpoint: &str, config: &TelemetryConfig) -> Result<MetricExporter, TelemetryError> {
    let builder = MetricExporter::builder();
    match config.otlp_protocol {
        OtlpProtocol::Grpc => over_grpc(builder.with_tonic(), endpoint, config)?.build(),
        OtlpProtocol::Http => over_http(builder.with_http(), endpoint, "v1/metrics").build(),
    }
    .map_err(|error| unusable(endpoint, &error))
}

fn over_grpc<B: WithExportConfig + WithTonicConfig>(
    builder: B,
    endpoint: &str,
    config: &TelemetryConfig,
) -> Result<B, TelemetryError> {
    let builder = builder.with_endpoint(endpoint).with_timeout(EXPORT_MAX);
    Ok(match tls(endpoint, config)? {
        Some(tls) => builder.with_tls_config(tls),
        None => builder,
    })
}

/// OTLP over HTTP has an address for each signal.
fn over_http<B: WithExportConfig>(builder: B, endpoint: &str, path: &str) -> B {
    builder.with_endpoint(format!("{}/{path}", endpoint.trim_end_matches('/'))).with_timeout(EXPORT_MAX)
}

/// TLS to a collector at `https://`: the public authorities, and the one of `telemetry.otlp_ca_file`.
fn tls(endpoint: &str, config: &TelemetryConfig) -> Result<Option<ClientTlsConfig>, TelemetryError> {
    if !endpoint.starts_with("https://") {
        return Ok(None);
    }
    let mut tls = ClientTlsConfig::new().with_enabled_roots();
    if let Some(path) = &config.otlp_ca_file {
        let text = std::fs::read(path)
            .map_err(|error| TelemetryError::CaFile { path: path.display().to_string(), reason: error.to_string() })?;
        tls = tls.ca_certificate(Certificate::from_pem(text));
    }
    Ok(Some(tls))
}

fn unusable(endpoint: &str, error: &ExporterBuildError) -> TelemetryError {
    TelemetryError::Endpoint { endpoint: endpoint.to_owned(), reason: error.to_string() }
}
