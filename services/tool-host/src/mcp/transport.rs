//! Connects to an MCP server, over the pipes of a process or over HTTP.

use std::time::Duration;

use reqwest::redirect;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use service::tasks::Tasks;
use tokio::time::timeout;

use super::config::{ServerAddress, ServerProgram, Transport};
use super::failure;
use super::notifications::NotificationHandler;
use super::observed_client::{ObservedClient, StreamObserver};
use super::oversize::{MESSAGE_BYTES_MAX, OversizeFilter};
use super::server_name::ServerName;
use super::server_process::ServerProcess;

/// Time of a server to complete the handshake: some download their program first.
const START_MAX: Duration = Duration::from_mins(1);
/// Timeout for a TCP connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The client of the library.
pub(super) type ClientService = RunningService<RoleClient, NotificationHandler>;

/// Why a connection could not be made.
pub(super) struct OpenError {
    pub(super) reason: String,
    /// Last lines of the stderr of its process.
    pub(super) stderr: Vec<String>,
}

/// Starts a server or connects to it, and completes the handshake. `legacy`: use the handshake of servers from before
/// 2026, for those that cannot answer the newer one.
pub(super) async fn open(
    transport: &Transport,
    listener: &NotificationHandler,
    server: &ServerName,
    tasks: &Tasks,
    legacy: bool,
    observer: &StreamObserver,
) -> Result<(ClientService, Option<ServerProcess>), OpenError> {
    match transport {
        Transport::Stdio(program) => stdio(program, listener, server, tasks, legacy, observer).await,
        Transport::Http(address) => {
            let connection =
                http_transport(address, observer).map_err(|reason| OpenError { reason, stderr: Vec::new() })?;
            let service = initialize(listener.clone().serve_with_lifecycle(connection, lifecycle_mode(legacy))).await;
            service.map(|service| (service, None)).map_err(|reason| OpenError { reason, stderr: Vec::new() })
        }
    }
}

async fn stdio(
    program: &ServerProgram,
    listener: &NotificationHandler,
    server: &ServerName,
    tasks: &Tasks,
    legacy: bool,
    observer: &StreamObserver,
) -> Result<(ClientService, Option<ServerProcess>), OpenError> {
    let (process, pipes) = ServerProcess::start(server, program, tasks).map_err(|error| OpenError {
        reason: format!("{:?} cannot be started: {error}", program.command),
        stderr: Vec::new(),
    })?;
    let output = OversizeFilter::new(pipes.stdout, MESSAGE_BYTES_MAX, observer.clone());
    let transport = AsyncRwTransport::new_client(output, pipes.stdin).with_max_line_length(MESSAGE_BYTES_MAX);
    match initialize(listener.clone().serve_with_lifecycle(transport, lifecycle_mode(legacy))).await {
        Ok(service) => Ok((service, Some(process))),
        Err(reason) => Err(OpenError { reason, stderr: process.stop().await }),
    }
}

async fn initialize(
    greeting: impl Future<Output = Result<ClientService, ClientInitializeError>>,
) -> Result<ClientService, String> {
    match timeout(START_MAX, greeting).await {
        Ok(greeted) => greeted.map_err(|error| failure::describe_start_error(&error)),
        Err(_) => Err(format!("it did not say what it is within {} seconds", START_MAX.as_secs())),
    }
}

fn lifecycle_mode(legacy: bool) -> ClientLifecycleMode {
    if legacy {
        return ClientLifecycleMode::Initialize;
    }
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None }
}

fn http_transport(
    address: &ServerAddress,
    observer: &StreamObserver,
) -> Result<StreamableHttpClientTransport<ObservedClient>, String> {
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(address.url.as_str()).custom_headers(address.headers()?);
    config.max_sse_event_size = MESSAGE_BYTES_MAX;
    config.max_json_response_size = MESSAGE_BYTES_MAX;
    let client = http_client().map_err(|error| format!("no HTTP client: {error}"))?;
    let client = ObservedClient { client, observer: observer.clone() };
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Builds a client that connects only where the operator said: it uses no proxy of the environment and follows no
/// redirect, which would receive headers with keys. It reuses no idle connection: if the server closes one at that
/// moment, it is unknown whether the call arrived.
fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    // It fails where the process has a provider already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_MAX)
        .pool_max_idle_per_host(0)
        .tcp_nodelay(true)
        .user_agent(concat!("ailoop/", env!("CARGO_PKG_VERSION")))
        .build()
}
