//! Client of the edge's gRPC API. Its failures are made for people to read.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use contract::{ErrorCode, SessionId};
use proto::sessions_client::SessionsClient;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::failure::CommandFailure;
use crate::instance::Home;

/// How long calls and streams wait for a fleet that cannot be reached.
pub(crate) const OUTAGE_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts to reach the fleet.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a response; the edge itself waits up to 30 s for a command to be handled.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);
/// Bytes of one response: enough for a whole reply of a model as escaped JSON.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// The generated client, with the token of each call.
pub(crate) type SessionsApi = SessionsClient<InterceptedService<Channel, BearerToken>>;

/// The address of an edge, and how it is reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct EdgeTarget {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    /// The PEM file of the authority of its certificate, if no public one signed it.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether the token may go over http:// to another machine.
    pub(crate) plaintext: bool,
}

impl EdgeTarget {
    /// Checks that a text is an address of an edge.
    pub(crate) fn check_url(url: &str) -> Result<(), CommandFailure> {
        Self { url: url.to_owned(), ..Self::default() }.endpoint().map(drop)
    }

    fn endpoint(&self) -> Result<Endpoint, CommandFailure> {
        let Self { url, token, ca_file, plaintext } = self;
        let wrong =
            |why: String| CommandFailure::usage(ErrorCode::BadRequest, format!("{url:?} is not an address: {why}"));
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|error| wrong(error.to_string()))?;
        let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
        match endpoint.uri().scheme_str() {
            Some("https") => {}
            Some("http") => {
                let host = endpoint.uri().host().unwrap_or_default();
                if token.is_some() && !plaintext && !is_this_machine(host) {
                    let message = format!("the token is not sent over http:// to {host}, where others could read it");
                    return Err(CommandFailure::usage(ErrorCode::Unauthorized, message)
                        .help("use an https:// address, or pass --plaintext in a network that you trust"));
                }
                return Ok(endpoint);
            }
            _ => return Err(wrong("it must begin with http:// or https://".to_owned())),
        }
        let mut tls = ClientTlsConfig::new().with_enabled_roots();
        if let Some(path) = ca_file {
            let unreadable = |error: std::io::Error| {
                CommandFailure::usage(
                    ErrorCode::BadConfig,
                    format!("the file {} cannot be read: {error}", path.display()),
                )
            };
            tls = tls.ca_certificate(Certificate::from_pem(std::fs::read(path).map_err(unreadable)?));
        }
        endpoint.tls_config(tls).map_err(|error| {
            CommandFailure::usage(ErrorCode::BadConfig, format!("TLS cannot be used: {}", root_cause(&error)))
        })
    }
}

/// Whether a host of an address is this machine itself.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A connection to the edge.
#[derive(Debug, Clone)]
pub(crate) struct EdgeClient {
    target: EdgeTarget,
    /// Directory in which the fleet writes its address; none if `--url` gave the address.
    home: Option<Home>,
    sessions: SessionsApi,
}

impl EdgeClient {
    pub(crate) async fn connect(target: EdgeTarget) -> Result<Self, CommandFailure> {
        let has_scheme = target.url.contains("://");
        let url = if has_scheme { target.url } else { format!("http://{}", target.url) };
        let target = EdgeTarget { url, ..target };
        let (endpoint, token) = (target.endpoint()?, BearerToken::new(target.token.as_deref())?);
        let channel = endpoint.connect().await.map_err(|error| {
            CommandFailure::new(ErrorCode::Unavailable, format!("the fleet cannot be reached ({})", root_cause(&error)))
                .at(&target.url)
        })?;
        let sessions = SessionsClient::with_interceptor(channel, token);
        let sessions = sessions.max_decoding_message_size(RESPONSE_BYTES_MAX);
        Ok(Self { target, home: None, sessions })
    }

    /// Makes the client look for its fleet in this directory when the connection breaks.
    #[must_use]
    pub(crate) fn with_home(self, home: Home) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Connects again if the fleet of the directory has another address by now.
    pub(crate) async fn reconnect_if_moved(&mut self) -> Result<(), CommandFailure> {
        let Some(home) = self.home.clone() else { return Ok(()) };
        let Some(run) = home.running().filter(|run| run.grpc != self.target.url) else { return Ok(()) };
        let target = EdgeTarget { url: run.grpc, ..self.target.clone() };
        *self = Self::connect(target).await?.with_home(home);
        Ok(())
    }

    /// Makes a call, with retries while the connection is broken; by its command id the fleet handles it once. The
    /// first failed attempt is passed to `report`.
    pub(crate) async fn call<T>(
        &mut self,
        report: impl Fn(&str),
        call: impl AsyncFn(SessionsApi) -> Result<T, Status>,
    ) -> Result<T, CommandFailure> {
        let began = Instant::now();
        let mut is_reported = false;
        loop {
            let status = match call(self.sessions()).await {
                Ok(reply) => return Ok(reply),
                Err(status) => status,
            };
            if is_broken(&status) && !std::mem::replace(&mut is_reported, true) {
                report(self.failure(&status).message());
            }
            self.wait_for_retry(&status, began).await?;
        }
    }

    /// Waits until a failed call may be tried again; fails if that would not help, or after [`OUTAGE_MAX`].
    pub(crate) async fn wait_for_retry(&mut self, status: &Status, began: Instant) -> Result<(), CommandFailure> {
        if !is_broken(status) || began.elapsed() > OUTAGE_MAX {
            return Err(self.failure(status));
        }
        sleep(RETRY_PAUSE).await;
        // If the fleet is still down, the next call fails.
        let _down = self.reconnect_if_moved().await;
        Ok(())
    }

    pub(crate) fn url(&self) -> &str {
        &self.target.url
    }

    /// Returns the generated client; clones share the connection.
    pub(crate) fn sessions(&self) -> SessionsApi {
        self.sessions.clone()
    }

    /// Makes a failure that people can read from the status of a call.
    pub(crate) fn failure(&self, status: &Status) -> CommandFailure {
        CommandFailure::new(error_code(status), describe(status)).at(&self.target.url)
    }
}

/// Makes a request with a timeout.
pub(crate) fn bounded<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.set_timeout(RESPONSE_TIMEOUT);
    request
}

/// Reads an answer of the edge that is JSON.
pub(crate) fn read_answer<T: DeserializeOwned>(json: &str) -> Result<T, CommandFailure> {
    serde_json::from_str(json).map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("the answer: {error}")))
}

/// Makes a new command id.
pub(crate) fn command_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Checks a session id before anything is sent.
pub(crate) fn session_id(text: &str) -> Result<String, CommandFailure> {
    let id = SessionId::new(text).map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, error.to_string()))?;
    Ok(id.as_str().to_owned())
}

/// Returns the stable error code of a failed call.
pub(crate) fn error_code(status: &Status) -> ErrorCode {
    if let Some(code) = status.metadata().get(proto::ERROR_CODE).and_then(|value| value.to_str().ok()) {
        return ErrorCode::from(code.to_owned());
    }
    if is_broken(status) {
        return ErrorCode::Unavailable;
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => ErrorCode::Unavailable,
        Code::Unauthenticated | Code::PermissionDenied => ErrorCode::Unauthorized,
        Code::InvalidArgument => ErrorCode::BadRequest,
        Code::ResourceExhausted => ErrorCode::Overloaded,
        Code::Unimplemented => ErrorCode::UnknownMethod,
        Code::Ok
        | Code::Unknown
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::DataLoss => ErrorCode::Internal,
    }
}

/// Whether the connection broke, so that the outcome of the call is unknown. Such a status was made in this process and
/// has the error of HTTP/2 or TCP as its source; a status from the edge has no source.
fn is_broken(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn describe(status: &Status) -> String {
    if let Some(cause) = std::error::Error::source(status) {
        return format!("the connection to the fleet broke ({})", root_cause(cause));
    }
    if status.message().is_empty() { format!("{:?}", status.code()) } else { status.message().to_owned() }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Adds the token of the edge to each call, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct BearerToken(Option<MetadataValue<Ascii>>);

impl BearerToken {
    fn new(token: Option<&str>) -> Result<Self, CommandFailure> {
        let value = token.map(|token| format!("Bearer {token}").parse()).transpose();
        let mut value: Option<MetadataValue<Ascii>> = value.map_err(|_| {
            CommandFailure::usage(ErrorCode::Unauthorized, "the token has characters that are not allowed in a header")
        })?;
        if let Some(value) = &mut value {
            value.set_sensitive(true);
        }
        Ok(Self(value))
    }
}

impl tonic::service::Interceptor for BearerToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_of_metadata_precedes_grpc_code() {
        let mut status = Status::not_found("no such session");
        assert_eq!(error_code(&status), ErrorCode::Internal);
        status.metadata_mut().insert(proto::ERROR_CODE, "unknown_session".parse().unwrap());
        assert_eq!(error_code(&status), ErrorCode::UnknownSession);
        assert_eq!(error_code(&Status::unavailable("")), ErrorCode::Unavailable);
    }

    #[test]
    fn broken_connection_is_unavailable_not_internal() {
        let broken = Status::from_error(Box::new(std::io::Error::other("h2 protocol error: broken pipe")));
        assert_eq!(error_code(&broken), ErrorCode::Unavailable);
        assert_eq!(describe(&broken), "the connection to the fleet broke (h2 protocol error: broken pipe)");
        assert_eq!(error_code(&Status::internal("our own mistake")), ErrorCode::Internal);
    }

    #[test]
    fn token_is_sent_in_clear_to_this_machine_only() {
        let endpoint = |url: &str, token: Option<&str>, plaintext: bool| {
            let (url, token) = (url.to_owned(), token.map(str::to_owned));
            EdgeTarget { url, token, ca_file: None, plaintext }.endpoint().map(drop)
        };
        for url in ["http://127.0.0.1:7071", "http://localhost:7071", "http://[::1]:7071", "http://127.8.9.10"] {
            assert_eq!(endpoint(url, Some("t"), false), Ok(()), "{url}");
        }
        for url in [
            "http://ailoop.example.com",
            "http://10.0.0.1:7071",
            "http://localhost.example.com",
            "http://[2001:db8::1]",
        ] {
            let refused = endpoint(url, Some("t"), false).unwrap_err();
            assert_eq!((refused.code(), refused.exit().code()), (&ErrorCode::Unauthorized, 2), "{url}");
            assert_eq!(endpoint(url, Some("t"), true), Ok(()), "{url}");
            assert_eq!(endpoint(url, None, false), Ok(()), "{url}: there is nothing to hide");
        }
        for url in ["ftp://ailoop.example.com", "ailoop", "http://", "https://a b"] {
            assert_eq!(endpoint(url, None, false).unwrap_err().exit().code(), 2, "{url}");
        }
    }

    #[tokio::test]
    async fn connect_no_listener_failure_names_address() {
        let target = EdgeTarget { url: "127.0.0.1:1".to_owned(), ..EdgeTarget::default() };
        let failure = EdgeClient::connect(target).await.unwrap_err();
        assert_eq!(failure.exit().code(), 3);
        assert!(failure.to_string().contains("http://127.0.0.1:1"), "{failure}");
    }
}
