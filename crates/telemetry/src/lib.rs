//! Logs, traces and metrics: how they are set up, and every name in them.
//!
//! Logs go to stderr. Spans are made only where somebody wants them: an OTLP collector, or a log filter that lets
//! `ailoop=debug` through; otherwise making one costs a comparison. Metrics can always be read as Prometheus text.

pub mod build;
mod config;
mod error;
mod exporter;
mod init;
pub mod metric;
pub mod names;
pub mod span;
pub mod trace;

pub use config::{LogFormat, OtlpProtocol, TelemetryConfig};
pub use error::TelemetryError;
pub use init::{Telemetry, init};
