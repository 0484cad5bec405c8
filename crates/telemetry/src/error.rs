//! Errors of setting up telemetry.

/// Reason why telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be read: correct `telemetry.filter`.
    #[error("telemetry.filter {filter:?} cannot be used: {source}")]
    Filter {
        /// The filter as it was configured.
        filter: String,
        /// Description of the mistake in the filter.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The collector's address cannot be used: correct `telemetry.otlp_endpoint`.
    #[error("telemetry.otlp_endpoint {endpoint:?} cannot be used: {reason}")]
    Endpoint {
        /// The endpoint as it was configured.
        endpoint: String,
        /// Reason why the endpoint cannot be used.
        reason: String,
    },
    /// The certificate of the collector's authority cannot be read: correct `telemetry.otlp_ca_file`.
    #[error("telemetry.otlp_ca_file {path:?} cannot be read: {reason}")]
    CaFile {
        /// The file as it was configured.
        path: String,
        /// Reason why the file cannot be read.
        reason: String,
    },
    /// The share is not between 0 and 1: correct `telemetry.sample_ratio`.
    #[error("telemetry.sample_ratio must be between 0 and 1, got {0}")]
    Ratio(f64),
    /// Metrics cannot be registered.
    #[error("metrics cannot be set up: {0}")]
    Metrics(String),
    /// It was set up before in this process.
    #[error("telemetry was set up before in this process")]
    Twice,
}
