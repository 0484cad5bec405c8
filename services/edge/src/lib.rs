//! The edge serves the client API over HTTP, WebSocket JSON-RPC and gRPC, with the same code for all of them.
//!
//! # Layout
//!
//! - `http`, `ws` and `grpc` serve the session API of `edge-core`.
//! - `ws` also routes to the crates of other protocols: `edge-openai`, `edge-mcp`, `edge-a2a` and `edge-ag-ui`.
//! - `console` serves the files of the web console.

mod console;
mod grpc;
mod http;
mod ws;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, NatsConfig};
use configuration::Settings;
use contract::CommandId;
use edge_core::access::{Authenticator, Grants, RefusalLog};
pub use edge_core::access::{KeyEntry, KeysFile};
use edge_core::api::SessionApi;
pub use edge_core::cells::CellConnection;
use edge_core::cells::{CellOpener, Cells};
pub use edge_core::config;
pub use edge_core::config::{CellConfig, CellTable, EdgeConfig, EdgeStartError, IssuerConfig, SignatureAlgorithm};
use edge_core::params;
use proto::json::SERVICE;
use service::connections::Connections;
use service::health::Readiness;
use service::http::{HttpVersion, Server};
use service::process::Running;
use service::tasks::Tasks;
use service::tls::Tls;
pub use session_api::Scope;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic_health::ServingStatus;

/// Open requests and watches of one gRPC connection.
const STREAMS_MAX: u32 = 512;

/// Longest time that the tasks shared by clients may take to end after the last client.
const SHARED_TASKS_END_MAX: Duration = Duration::from_secs(1);

/// The addresses of the listeners of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Listener of WebSocket JSON-RPC (`/ws`) and plain HTTP.
    pub ws: SocketAddr,
    /// Listener of the gRPC service.
    pub grpc: SocketAddr,
}

/// Connections to the sessions that an edge serves: one bus, or one for each cell.
enum BusSource {
    One(Bus),
    Cells(Vec<CellConnection>),
}

/// Runs the service until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    // The table says whose connections these are: without one, that of the section `nats`, as in every service.
    let config: EdgeConfig = Settings::read(None)?.section("edge")?;
    if !config.cells.is_empty() {
        return run_with_cells().await;
    }
    service::process::run("edge", "edge", async |config: EdgeConfig, bus| {
        let started = Edge::start(config, bus).await?;
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

async fn run_with_cells() -> anyhow::Result<()> {
    service::process::run_without_bus("edge", "edge", async |config: EdgeConfig, _nats| {
        let started = Edge::start_cells(config).await?;
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

/// A running edge, which [`Edge::drain`] ends.
#[derive(Debug)]
pub struct Edge {
    api: SessionApi,
    addresses: Addresses,
    readiness: Readiness,
    /// Warnings about files and keys that could not be read again.
    warnings: Readiness,
    client_tasks: Tasks,
    /// Feeds, acknowledgements and the session index, which end after the clients.
    shared_tasks: Tasks,
}

impl Edge {
    /// Starts the listeners, for sessions on one bus. It fails before it serves anything if the configuration or a port
    /// cannot be used.
    pub async fn start(config: EdgeConfig, bus: Bus) -> Result<Self, EdgeStartError> {
        if !config.cells.is_empty() {
            let message = "edge.cells: this process has streams of its own: run the edge alone (`ailoop edge`)";
            return Err(EdgeStartError::BadConfig(message.to_owned()));
        }
        Self::start_on(config, BusSource::One(bus)).await
    }

    /// As [`Edge::start`], for the sessions of all cells of the table, `edge.cells`.
    pub async fn start_cells(config: EdgeConfig) -> Result<Self, EdgeStartError> {
        let connection = |cell: &CellConfig| {
            CellConnection::nats(cell.name.clone(), NatsConfig { name: "edge".to_owned(), ..cell.nats.clone() })
        };
        let connections = config.cells.iter().map(connection).collect();
        Self::start_in(config, connections).await
    }

    /// As [`Edge::start_cells`], with connections that the caller chooses: one for each cell of the table.
    pub async fn start_in(config: EdgeConfig, connections: Vec<CellConnection>) -> Result<Self, EdgeStartError> {
        Self::start_on(config, BusSource::Cells(connections)).await
    }

    async fn start_on(config: EdgeConfig, source: BusSource) -> Result<Self, EdgeStartError> {
        config.check()?;
        let grants = Grants::new(&config)?;
        let tls = config.tls.as_ref().map(|files| Tls::load("edge.tls", files)).transpose();
        let tls = tls.map_err(EdgeStartError::BadConfig)?;
        for (field, listen) in config.clear_listeners() {
            tracing::warn!(
                field, %listen,
                "credentials of clients travel in clear: set edge.tls, unless a proxy in front of the edge ends TLS"
            );
        }
        let (ws, ws_address) = bind("edge.ws.listen", config.ws.listen).await?;
        let (grpc, grpc_address) = bind("edge.grpc.listen", config.grpc.listen).await?;
        let addresses = Addresses { ws: ws_address, grpc: grpc_address };
        let (client_tasks, shared_tasks, readiness) = (Tasks::new(), Tasks::new(), Readiness::new("edge"));
        let connections = Connections::new(config.connections);
        let replica_id: CommandId = params::generate_id().map_err(|error| EdgeStartError::Internal(error.message))?;
        let reached = Readiness::new("cells");
        let opener = CellOpener {
            replica_id: replica_id.clone(),
            own: config.tenant.clone(),
            limits: config.admission_limits(),
            tasks: shared_tasks.clone(),
            readiness: Readiness::all([readiness.clone(), reached.clone()]),
            reached: reached.clone(),
        };
        let (cells, reached) = match source {
            BusSource::One(bus) => (Cells::single(opener.open(bus).await?), None),
            BusSource::Cells(connections) => {
                (Cells::connect(config.cell_table()?, connections, &opener).await?, Some(reached))
            }
        };
        let budget = connections.budget().clone();
        let api = SessionApi::new(&config, cells, replica_id, budget, client_tasks.clone(), &shared_tasks);
        shared_tasks.spawn_until_end("credentials", grants.clone().follow(readiness.clone()));
        let warnings = follow_issuers_and_tls(&shared_tasks, &grants, tls.as_ref());
        let refusals = RefusalLog::default();
        shared_tasks.spawn_until_end("refusals", refusals.clone().follow());
        let http_authenticator = Authenticator::new(&config, grants.clone(), refusals.clone(), addresses.ws)?;
        let grpc_authenticator = Authenticator::new(&config, grants, refusals, addresses.grpc)?;
        serve_ws(&api, ws, tls.clone(), http_authenticator, connections.clone(), config.console);
        serve_grpc(&api, grpc, tls, grpc_authenticator, connections)?;
        readiness.set(true);
        tracing::info!(ws = %addresses.ws, grpc = %addresses.grpc, edge = %api.replica_id(), "edge listens");
        let readiness = Readiness::all([Some(readiness), reached].into_iter().flatten());
        Ok(Self { api, addresses, readiness, warnings, client_tasks, shared_tasks })
    }

    /// Returns the addresses of the listeners.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the number of sessions that clients of this replica watch.
    pub fn watched_session_count(&self) -> usize {
        self.api.watched_session_count()
    }

    /// Returns whether this replica accepts clients. The owner of the bus watches whether the bus answers:
    /// [`service::process::ReadinessWatch`].
    pub fn readiness(&self) -> Readiness {
        Readiness::all([self.readiness.clone(), self.warnings.clone()])
    }

    /// Tells clients to reconnect elsewhere, accepts nothing more, and ends. A bus that the edge did not connect stays
    /// open.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.api.draining().cancel();
        if !self.client_tasks.end(timeout).await {
            tracing::warn!("clients were cut off");
        }
        self.shared_tasks.end(SHARED_TASKS_END_MAX).await;
        self.api.cells().close().await;
    }
}

/// Follows the keys of issuers and the certificate; returns a readiness that is for warnings only.
fn follow_issuers_and_tls(tasks: &Tasks, grants: &Grants, tls: Option<&Tls>) -> Readiness {
    let issuers = grants.issuers().clone();
    let mut warnings = issuers.readiness();
    tasks.spawn_until_end("issuers", issuers.follow(warnings.clone()));
    if let Some(tls) = tls {
        let readiness = Readiness::new("tls");
        readiness.set(true);
        let part = readiness.clone();
        tasks.spawn_until_end("tls", tls.clone().follow(move |reason| part.warn(reason)));
        warnings.push(readiness);
    }
    Readiness::all(warnings)
}

async fn bind(field: &'static str, listen: SocketAddr) -> Result<(TcpListener, SocketAddr), EdgeStartError> {
    let failed = |source: std::io::Error| {
        if source.kind() == std::io::ErrorKind::AddrInUse {
            EdgeStartError::PortInUse { field, listen }
        } else {
            EdgeStartError::Listen { field, listen, source }
        }
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn serve_ws(
    api: &SessionApi,
    listener: TcpListener,
    tls: Option<Tls>,
    authenticator: Authenticator,
    connections: Connections,
    has_console: bool,
) {
    let server = Server {
        name: "websocket",
        protocol: HttpVersion::Http1,
        router: ws::routes(api.clone(), authenticator, tls.is_some(), has_console),
        tls,
        connections,
        tasks: api.tasks().clone(),
        ending: api.draining().clone(),
    };
    api.tasks().spawn("ws", server.run(listener));
}

fn serve_grpc(
    api: &SessionApi,
    listener: TcpListener,
    tls: Option<Tls>,
    authenticator: Authenticator,
    connections: Connections,
) -> Result<(), EdgeStartError> {
    let internal = |error: &dyn std::fmt::Display| EdgeStartError::Internal(error.to_string());
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(proto::DESCRIPTORS);
    // Most clients, such as those in Python, still use v1alpha.
    let v1 = reflection().build_v1().map_err(|error| internal(&error))?;
    let v1alpha = reflection().build_v1alpha().map_err(|error| internal(&error))?;
    let (reporter, health) = tonic_health::server::health_reporter();
    let routes = Routes::new(health).add_service(v1).add_service(v1alpha);
    let methods = axum::Router::new()
        .route(&format!("/{SERVICE}/{{method}}"), axum::routing::post(grpc::serve))
        .with_state(api.clone());
    let draining = api.draining().clone();
    let server = Server {
        name: "grpc",
        protocol: HttpVersion::Http2 { streams_max: STREAMS_MAX },
        router: routes
            .prepare()
            .into_axum_router()
            .merge(methods)
            .layer(axum::middleware::map_request_with_state(connections.budget().clone(), grpc::limit_body))
            .layer(axum::middleware::from_fn_with_state(Arc::new(authenticator), grpc::authenticate))
            .layer(axum::middleware::map_response(grpc::add_error_code)),
        tls,
        connections,
        tasks: api.tasks().clone(),
        ending: draining.clone(),
    };
    api.tasks().spawn("grpc", async move {
        reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
        let not_serving = async {
            draining.cancelled().await;
            reporter.set_service_status(SERVICE, ServingStatus::NotServing).await;
        };
        tokio::join!(server.run(listener), not_serving);
    });
    Ok(())
}
