//! Exporters to a collector, by the protocol of the configuration.

use std::time::Duration;

use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithTonicConfig};

use crate::config::{OtlpProtocol, TelemetryConfig};
use crate::error::TelemetryError;

/// How long one export may take.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// The exporter of spans to `endpoint`.
pub(crate) fn spans(endpoint: &str, config: &TelemetryConfig) -> Result<SpanExporter, TelemetryError> {
    let builder = SpanExporter::builder();
    let built = match config.otlp_protocol {
        OtlpProtocol::Grpc => {
            let mut builder = builder.with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_MAX);
            if let Some(tls) = tls(endpoint, config)? {
                builder = builder.with_tls_config(tls);
            }
            builder.build()
        }
        OtlpProtocol::Http => {
            builder.with_http().with_endpoint(path_of(endpoint, "v1/traces")).with_timeout(EXPORT_MAX).build()
        }
    };
    built.map_err(|error| unusable(endpoint, &error))
}

/// The exporter of metrics to `endpoint`.
pub(crate) fn metrics(endpoint: &str, config: &TelemetryConfig) -> Result<MetricExporter, TelemetryError> {
    let builder = MetricExporter::builder();
    let built = match config.otlp_protocol {
        OtlpProtocol::Grpc => {
            let mut builder = builder.with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_MAX);
            if let Some(tls) = tls(endpoint, config)? {
                builder = builder.with_tls_config(tls);
            }
            builder.build()
        }
        OtlpProtocol::Http => {
            builder.with_http().with_endpoint(path_of(endpoint, "v1/metrics")).with_timeout(EXPORT_MAX).build()
        }
    };
    built.map_err(|error| unusable(endpoint, &error))
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

/// The address of one signal: OTLP over HTTP has a path for each.
fn path_of(endpoint: &str, path: &str) -> String {
    format!("{}/{path}", endpoint.trim_end_matches('/'))
}

fn unusable(endpoint: &str, error: &ExporterBuildError) -> TelemetryError {
    TelemetryError::Endpoint { endpoint: endpoint.to_owned(), reason: error.to_string() }
}
