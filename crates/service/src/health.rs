//! HTTP endpoints for operators: `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use contract::{Coded, ErrorCode};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::{ConnectionLimits, Connections};
use crate::http::{HttpVersion, Server};
use crate::tasks::Tasks;

/// Time in which open requests must finish at the end.
const END_MAX: Duration = Duration::from_secs(1);

/// Limits of its connections: nobody shows credentials here, so each connection is pending and ends with its time.
const CONNECTIONS: ConnectionLimits = ConnectionLimits {
    max: 1,
    bytes_max: 1 << 20,
    pending_max: 64,
    pending_per_address_max: 32,
    handshake_ms: 10_000,
    keep_alive_ms: 10_000,
    requests_per_s: 20,
};

/// The `health` section of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "health")]
pub struct HealthConfig {
    /// Address to listen on; no listener if absent. Port 0 takes a free one.
    pub listen: Option<SocketAddr>,
}

/// Whether one or several parts of a process can do their work. Clones share their state.
#[derive(Debug, Clone)]
pub struct Readiness {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
struct Part {
    name: &'static str,
    ready: Arc<AtomicBool>,
    /// A lock since it is held for a copy only.
    warning: Arc<Mutex<Option<String>>>,
}

impl Readiness {
    /// One part, not ready yet.
    pub fn new(name: &'static str) -> Self {
        Self { parts: vec![Part { name, ready: Arc::default(), warning: Arc::default() }] }
    }

    /// Ready when all of them are.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self { parts: parts.into_iter().flat_map(|readiness| readiness.parts).collect() }
    }

    /// Says that every part of it is ready, or that none is.
    pub fn set(&self, ready: bool) {
        for part in &self.parts {
            part.ready.store(ready, Ordering::Release);
        }
    }

    /// Says what an operator should know of every part of it, though it works; none takes it back.
    pub fn warn(&self, warning: Option<&str>) {
        for part in &self.parts {
            *part.warning.lock().unwrap_or_else(PoisonError::into_inner) = warning.map(str::to_owned);
        }
    }

    /// The warnings, each with the part that it is about.
    pub fn warnings(&self) -> impl Iterator<Item = (&'static str, String)> {
        let warning = |part: &Part| part.warning.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.parts.iter().filter_map(move |part| Some((part.name, warning(part)?)))
    }

    /// Whether every part is ready.
    pub fn is_ready(&self) -> bool {
        self.waiting().next().is_none()
    }

    /// The parts that are not ready.
    pub fn waiting(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().filter(|part| !part.ready.load(Ordering::Acquire)).map(|part| part.name)
    }
}

/// Reason why the health server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("health.listen {listen} cannot be used: {source}")]
pub struct HealthError {
    listen: SocketAddr,
    source: std::io::Error,
}

impl Coded for HealthError {
    fn code(&self) -> ErrorCode {
        let taken = self.source.kind() == std::io::ErrorKind::AddrInUse;
        if taken { ErrorCode::PortInUse } else { ErrorCode::BadConfig }
    }
}

/// A running health server, or none where none is configured.
#[derive(Debug)]
pub struct Health {
    address: Option<SocketAddr>,
    tasks: Tasks,
}

/// Serves `/healthz` (the process lives, whatever the bus does), `/readyz` (what is waited for, and warnings) and
/// `/metrics`.
pub async fn serve(config: HealthConfig, readiness: Readiness) -> Result<Health, HealthError> {
    let tasks = Tasks::new();
    let Some(listen) = config.listen else { return Ok(Health { address: None, tasks }) };
    let failed = |source| HealthError { listen, source };
    let listener = tokio::net::TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, "health server listens");

    let ending = tasks.token();
    let server = Server {
        name: "health",
        protocol: HttpVersion::Http1,
        router: routes(readiness),
        tls: None,
        connections: Connections::new(CONNECTIONS),
        tasks: tasks.clone(),
        ending,
    };
    tasks.spawn("health", server.run(listener));
    Ok(Health { address: Some(address), tasks })
}

impl Health {
    /// The address that it listens on; none where it is off.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Stops listening, and ends open connections.
    pub async fn end(self) {
        self.tasks.end(END_MAX).await;
    }
}

/// The three routes, for a server that has others too.
pub fn routes(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(async move || ready(&readiness))).route(
        "/metrics",
        get(async || ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], telemetry::metric::render())),
    )
}

/// A warning is told in either case, and changes neither.
fn ready(readiness: &Readiness) -> impl IntoResponse + use<> {
    let waiting: Vec<_> = readiness.waiting().collect();
    let (status, mut text) = if waiting.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}\n", waiting.join(", ")))
    };
    for (part, warning) in readiness.warnings() {
        text.extend(["warning: ", part, ": ", &warning, "\n"]);
    }
    (status, text)
}
