//! Connects to an MCP server, over the pipes of a process or over HTTP.

use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use service::tasks::Tasks;
use tokio::time::timeout;

use super::config::{ServerAddress, Transport};
use super::failure;
use super::notifications::NotificationHandler;
use super::observed_client::{ObservedClient, StreamObserver};
use super::oversize::{MESSAGE_BYTES_MAX, OversizeFilter};
use super::server_process::ServerProcess;
use crate::http;
use crate::server_name::ServerName;

/// Time of a server to complete the handshake: some download their program first.
const START_MAX: Duration = Duration::from_mins(1);

/// The client of the library.
pub(super) type ClientService = RunningService<RoleClient, NotificationHandler>;

/// Reason why a connection could not be made.
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
    let not_made = |reason| OpenError { reason, stderr: Vec::new() };
    let mode = if legacy {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None }
    };
    match transport {
        Transport::Stdio(program) => {
            let started = ServerProcess::start(server, program, tasks);
            let (process, stdin, stdout) =
                started.map_err(|error| not_made(format!("{:?} cannot be started: {error}", program.command)))?;
            let output = OversizeFilter::new(stdout, MESSAGE_BYTES_MAX, observer.clone());
            let connection = AsyncRwTransport::new_client(output, stdin).with_max_line_length(MESSAGE_BYTES_MAX);
            match initialize(listener.clone().serve_with_lifecycle(connection, mode)).await {
                Ok(service) => Ok((service, Some(process))),
                Err(reason) => Err(OpenError { reason, stderr: process.stop().await }),
            }
        }
        Transport::Http(address) => {
            let connection = http_transport(address, observer).map_err(not_made)?;
            let service = initialize(listener.clone().serve_with_lifecycle(connection, mode)).await;
            service.map(|service| (service, None)).map_err(not_made)
        }
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

/// Connects only where the operator said: a redirect would receive headers with keys.
fn http_transport(
    address: &ServerAddress,
    observer: &StreamObserver,
) -> Result<StreamableHttpClientTransport<ObservedClient>, String> {
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(address.url.as_str()).custom_headers(address.headers()?);
    config.max_sse_event_size = MESSAGE_BYTES_MAX;
    config.max_json_response_size = MESSAGE_BYTES_MAX;
    let built = http::client_builder().user_agent(http::USER_AGENT).build();
    let client = built.map_err(|error| format!("no HTTP client: {error}"))?;
    let client = ObservedClient { client, observer: observer.clone() };
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
