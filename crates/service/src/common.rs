//! The settings that every process reads.

use std::time::Duration;

use bus::NatsConfig;
use configuration::{ConfigError, Settings, env};
use serde::Deserialize;
use telemetry::{OtlpProtocol, TelemetryConfig};

use crate::health::HealthConfig;

/// Time to drain where `drain_timeout` says nothing.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

const OTLP_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// The settings that every process reads.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonSettings {
    /// Settings of the connection to NATS.
    pub nats: NatsConfig,
    /// Export of logs, traces and metrics.
    pub telemetry: TelemetryConfig,
    /// Listener of the health server.
    pub health: HealthConfig,
    /// Time in which a service must hand back its work when it ends; 10 s unless set.
    pub drain_timeout: Duration,
}

impl CommonSettings {
    /// Reads them. `RUST_LOG` replaces the filter; `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_PROTOCOL` are
    /// used if `telemetry.otlp_endpoint` is absent.
    pub fn read(settings: &Settings) -> Result<Self, ConfigError> {
        let mut telemetry: TelemetryConfig = settings.section("telemetry")?;
        if telemetry.otlp_endpoint.is_none() {
            telemetry.otlp_endpoint = given("OTEL_EXPORTER_OTLP_ENDPOINT");
            if let Some(protocol) = given(OTLP_PROTOCOL) {
                telemetry.otlp_protocol = otlp_protocol(protocol)?;
            }
        }
        if let Some(filter) = given("RUST_LOG") {
            telemetry.filter = filter;
        }
        let Seconds(drain_timeout) = settings.section("drain_timeout")?;
        let (nats, health) = (settings.section("nats")?, settings.section("health")?);
        Ok(Self { nats, telemetry, health, drain_timeout })
    }
}

/// An empty variable counts as absent, as OpenTelemetry says.
fn given(variable: &str) -> Option<String> {
    env(variable).filter(|value| !value.is_empty())
}

fn otlp_protocol(value: String) -> Result<OtlpProtocol, ConfigError> {
    match value.as_str() {
        "grpc" => Ok(OtlpProtocol::Grpc),
        "http/protobuf" => Ok(OtlpProtocol::Http),
        _ => Err(ConfigError::Variable { name: OTLP_PROTOCOL, value, allowed: "grpc or http/protobuf" }),
    }
}

/// A number of seconds as a field of its own.
#[derive(Deserialize)]
#[serde(from = "u64")]
struct Seconds(Duration);

impl From<u64> for Seconds {
    fn from(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl Default for Seconds {
    fn default() -> Self {
        Self(DRAIN_TIMEOUT)
    }
}
