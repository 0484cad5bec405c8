//! Connecting to an MCP server, over the pipes of a process or over HTTP.

use std::time::Duration;

use reqwest::redirect;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use service::tasks::Tasks;
use tokio::time::timeout;

use super::child::Child;
use super::config::{Address, Program, Way};
use super::failure;
use super::listener::Listener;
use super::name::ServerName;
use super::oversize::{MESSAGE_BYTES_MAX, Measured};
use super::watched::{Watch, WatchedClient};

/// How long a server may take until it has said what it is: some fetch their own program first.
const START_MAX: Duration = Duration::from_mins(1);
/// How long a connection over TCP may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The library's side of a connection.
pub(super) type Service = RunningService<RoleClient, Listener>;

/// Why there is no connection.
pub(super) struct NoServer {
    pub(super) reason: String,
    /// What its process said last.
    pub(super) stderr: Vec<String>,
}

/// Starts or calls a server and greets it. `legacy`: with the handshake that servers knew before 2026, for one to which
/// the newer question is too much.
pub(super) async fn open(
    way: &Way,
    listener: &Listener,
    server: &ServerName,
    tasks: &Tasks,
    legacy: bool,
    watch: &Watch,
) -> Result<(Service, Option<Child>), NoServer> {
    match way {
        Way::Stdio(program) => stdio(program, listener, server, tasks, legacy, watch).await,
        Way::Http(address) => {
            let transport = http(address, watch).map_err(|reason| NoServer { reason, stderr: Vec::new() })?;
            let service = greet(listener.clone().serve_with_lifecycle(transport, mode(legacy))).await;
            service.map(|service| (service, None)).map_err(|reason| NoServer { reason, stderr: Vec::new() })
        }
    }
}

async fn stdio(
    program: &Program,
    listener: &Listener,
    server: &ServerName,
    tasks: &Tasks,
    legacy: bool,
    watch: &Watch,
) -> Result<(Service, Option<Child>), NoServer> {
    let (child, pipes) = Child::start(server, program, tasks).map_err(|error| NoServer {
        reason: format!("{:?} cannot be started: {error}", program.command),
        stderr: Vec::new(),
    })?;
    let output = Measured::new(pipes.stdout, MESSAGE_BYTES_MAX, watch.clone());
    let transport = AsyncRwTransport::new_client(output, pipes.stdin).with_max_line_length(MESSAGE_BYTES_MAX);
    match greet(listener.clone().serve_with_lifecycle(transport, mode(legacy))).await {
        Ok(service) => Ok((service, Some(child))),
        Err(reason) => Err(NoServer { reason, stderr: child.end().await }),
    }
}

async fn greet(greeting: impl Future<Output = Result<Service, ClientInitializeError>>) -> Result<Service, String> {
    match timeout(START_MAX, greeting).await {
        Ok(greeted) => greeted.map_err(|error| failure::of_start(&error)),
        Err(_) => Err(format!("it did not say what it is within {} seconds", START_MAX.as_secs())),
    }
}

fn mode(legacy: bool) -> ClientLifecycleMode {
    if legacy {
        return ClientLifecycleMode::Initialize;
    }
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::LATEST], legacy_version: None }
}

fn http(address: &Address, watch: &Watch) -> Result<StreamableHttpClientTransport<WatchedClient>, String> {
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(address.url.as_str()).custom_headers(address.headers()?);
    config.max_sse_event_size = MESSAGE_BYTES_MAX;
    config.max_json_response_size = MESSAGE_BYTES_MAX;
    let client = client().map_err(|error| format!("no HTTP client: {error}"))?;
    let client = WatchedClient { client, watch: watch.clone() };
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Traffic goes where the operator said: neither to a proxy of the environment nor after a redirect, which would take
/// headers with keys along. No connection is used again after a pause: of one that the server closes at that moment
/// nobody knows whether the call arrived.
fn client() -> Result<reqwest::Client, reqwest::Error> {
    // It fails where the process has a provider already, which is as good.
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
