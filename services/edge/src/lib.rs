//! The client door: sessions over WebSocket JSON-RPC and gRPC, the same calls through the same code.

mod admission;
mod board;
mod clock;
mod commands;
pub mod config;
mod dead;
mod failure;
mod fair_queue;
mod grpc;
mod guard;
mod jsonrpc;
mod mail;
mod params;
mod queue;
mod request_body;
mod session_index;
mod sessions;
mod stats;
mod watch;
mod ws;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use contract::limits::FRAME_BYTES_MAX;
use proto::sessions_server::SessionsServer;
use service::connections::Connections;
use service::health::Readiness;
use service::http::{Protocol, Server};
use service::tasks::Tasks;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;

pub use config::{Config, StartError};
use grpc::{Admission, Door};
use guard::Guard;
use sessions::Sessions;

/// Pause between looks whether the bus answers, for readiness.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Calls and watches of one gRPC connection.
const STREAMS_MAX: u32 = 512;

/// How long feeds and notices may take to end when no client is left.
const GROUND_MAX: Duration = Duration::from_secs(1);

/// Where an edge listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// WebSocket JSON-RPC (`/ws`) and plain HTTP.
    pub ws: SocketAddr,
    /// gRPC.
    pub grpc: SocketAddr,
}

/// A running edge.
#[derive(Debug)]
pub struct Edge {
    sessions: Sessions,
    addresses: Addresses,
    readiness: Readiness,
    /// Listeners, connections, viewers.
    clients: Tasks,
    /// What they all rely on; it ends after them.
    ground: Tasks,
}

impl Edge {
    /// Opens the door. Fails before anything is served when the configuration or a port cannot be used.
    pub async fn start(config: Config, bus: Bus) -> Result<Self, StartError> {
        config.check()?;
        let (ws, ws_address) = bind("edge.ws.listen", config.ws.listen).await?;
        let (grpc, grpc_address) = bind("edge.grpc.listen", config.grpc.listen).await?;
        let addresses = Addresses { ws: ws_address, grpc: grpc_address };
        let (clients, ground, readiness) = (Tasks::new(), Tasks::new(), Readiness::new("edge"));
        let connections = Connections::new(config.connections);
        let sessions =
            Sessions::open(&config, bus.clone(), connections.budget().clone(), clients.clone(), &ground).await?;
        serve_ws(&sessions, ws, Guard::new(&config, addresses.ws), connections.clone());
        serve_grpc(&sessions, grpc, Guard::new(&config, addresses.grpc), connections)?;
        watch_bus(&sessions, &ground, bus, readiness.clone());
        readiness.set(true);
        tracing::info!(ws = %addresses.ws, grpc = %addresses.grpc, edge = %sessions.me(), "edge listens");
        Ok(Self { sessions, addresses, readiness, clients, ground })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// How many sessions are watched here.
    pub fn watched(&self) -> usize {
        self.sessions.feeds().count()
    }

    /// Whether clients may be sent here.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Tells clients to go elsewhere, takes in nothing more, and ends. The bus stays open.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.sessions.draining().cancel();
        if !self.clients.end(timeout).await {
            tracing::warn!("clients were cut off");
        }
        self.ground.end(GROUND_MAX).await;
    }
}

async fn bind(field: &'static str, listen: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source: std::io::Error| {
        if source.kind() == std::io::ErrorKind::AddrInUse {
            StartError::PortInUse { field, listen }
        } else {
            StartError::Listen { field, listen, source }
        }
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn serve_ws(sessions: &Sessions, listener: TcpListener, guard: Guard, connections: Connections) {
    let server = Server {
        name: "ws",
        protocol: Protocol::Http1,
        router: ws::routes(sessions.clone(), guard),
        connections,
        tasks: sessions.tasks().clone(),
        ending: sessions.draining().clone(),
    };
    sessions.tasks().spawn("ws", server.run(listener));
}

fn serve_grpc(
    sessions: &Sessions,
    listener: TcpListener,
    guard: Guard,
    connections: Connections,
) -> Result<(), StartError> {
    let internal = |error: &dyn std::fmt::Display| StartError::Internal(error.to_string());
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(proto::DESCRIPTORS);
    // Most clients still ask for v1alpha, Python's among them.
    let v1 = reflection().build_v1().map_err(|error| internal(&error))?;
    let v1alpha = reflection().build_v1alpha().map_err(|error| internal(&error))?;
    let admission = Admission(Arc::new(guard));
    let service = SessionsServer::new(Door::new(sessions.clone())).max_decoding_message_size(FRAME_BYTES_MAX);
    let (reporter, health) = tonic_health::server::health_reporter();
    let routes = Routes::new(health)
        .add_service(InterceptedService::new(v1, admission.clone()))
        .add_service(InterceptedService::new(v1alpha, admission.clone()))
        .add_service(InterceptedService::new(service, admission));
    let draining = sessions.draining().clone();
    let server = Server {
        name: "grpc",
        protocol: Protocol::Http2 { streams_max: STREAMS_MAX },
        router: routes
            .prepare()
            .into_axum_router()
            .layer(axum::middleware::map_response(grpc::add_code))
            .layer(axum::middleware::map_request_with_state(connections.budget().clone(), request_body::bound)),
        connections,
        tasks: sessions.tasks().clone(),
        ending: draining.clone(),
    };
    sessions.tasks().spawn("grpc", async move {
        reporter.set_serving::<SessionsServer<Door>>().await;
        let ended = async {
            draining.cancelled().await;
            reporter.set_not_serving::<SessionsServer<Door>>().await;
        };
        tokio::join!(server.run(listener), ended);
    });
    Ok(())
}

/// Tells whether the bus answers, as long as the edge is not going down.
fn watch_bus(sessions: &Sessions, ground: &Tasks, bus: Bus, readiness: Readiness) {
    let draining = sessions.draining().clone();
    ground.spawn("readiness", async move {
        while draining.run_until_cancelled(tokio::time::sleep(PING_EVERY)).await.is_some() {
            let answers = bus.ping().await.is_ok();
            readiness.set(answers && !draining.is_cancelled());
        }
    });
}
