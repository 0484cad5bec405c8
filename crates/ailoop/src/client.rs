//! The edge's gRPC API, with failures as people read them.

use std::time::Duration;

use contract::{CallId, ErrorCode, SessionId};
use proto::sessions_client::SessionsClient;
use tokio::time::{Instant, sleep};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::failure::Failure;
use crate::instance::Home;
use crate::stream::{AWAY_MAX, RETRY_EVERY};

const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for an answer; the edge itself waits up to 30 s for a command to be handled.
const ANSWER_MAX: Duration = Duration::from_secs(35);
/// Bytes of one answer: a whole reply of a model, JSON-escaped, fits.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The calls of the client API.
pub type Sessions = SessionsClient<InterceptedService<Channel, Token>>;

/// A connection to the edge.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    token: Token,
    /// Where the fleet writes its address; none where the address was given.
    home: Option<Home>,
    sessions: Sessions,
}

impl Client {
    /// Connects; the error says that nobody answers there.
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Self, Failure> {
        Self::connect_as(url, Token::new(token)?).await
    }

    /// The same client, which looks for its fleet in this directory when the connection breaks.
    #[must_use]
    pub fn following(self, home: Home) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Connects anew where the fleet of the directory listens elsewhere by now.
    pub async fn find_again(&mut self) -> Result<(), Failure> {
        let Some(home) = self.home.clone() else { return Ok(()) };
        let Some(run) = home.running().filter(|run| run.grpc != self.url) else { return Ok(()) };
        *self = Self::connect_as(&run.grpc, self.token.clone()).await?.following(home);
        Ok(())
    }

    /// Makes a call, and makes it again while the connection breaks: with a command id, the fleet handles it once. What
    /// is waited for is passed to `report`.
    pub async fn call<T>(
        &mut self,
        report: impl Fn(&str),
        call: impl AsyncFn(Sessions) -> Result<T, Status>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        let mut is_reported = false;
        loop {
            let status = match call(self.sessions()).await {
                Ok(reply) => return Ok(reply),
                Err(status) => status,
            };
            let failure = self.failure(&status);
            if !is_broken(&status) || began.elapsed() > AWAY_MAX {
                return Err(failure);
            }
            if !std::mem::replace(&mut is_reported, true) {
                report(failure.message());
            }
            sleep(RETRY_EVERY).await;
            // While it is not there, the call itself says so.
            let _absent = self.find_again().await;
        }
    }

    async fn connect_as(url: &str, token: Token) -> Result<Self, Failure> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Failure::usage(ErrorCode::BadRequest, format!("{url:?} is not an address: {error}")))?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(|error| {
            Failure::new(ErrorCode::Unavailable, format!("the fleet cannot be reached ({})", root_cause(&error)))
                .at(&url)
        })?;
        let sessions = SessionsClient::with_interceptor(channel, token.clone());
        let sessions = sessions.max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Self { url, token, home: None, sessions })
    }

    /// Where it is connected to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The calls; a clone shares the connection.
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// A failed call, as people read it.
    pub fn failure(&self, status: &Status) -> Failure {
        Failure::new(code(status), message(status)).at(&self.url)
    }
}

/// A request whose answer is awaited for a bounded time.
pub fn bounded<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.set_timeout(ANSWER_MAX);
    request
}

/// A new command id.
pub fn command_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Checks a session id before anything is sent.
pub fn session_id(text: &str) -> Result<String, Failure> {
    let id = SessionId::new(text).map_err(|error| Failure::usage(ErrorCode::BadRequest, error.to_string()))?;
    Ok(id.as_str().to_owned())
}

/// Checks a call id before anything is sent.
pub fn call_id(text: &str) -> Result<String, Failure> {
    let id = CallId::new(text).map_err(|error| Failure::usage(ErrorCode::BadRequest, error.to_string()))?;
    Ok(id.as_str().to_owned())
}

/// The stable code of a failed call.
pub fn code(status: &Status) -> ErrorCode {
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

/// Whether the connection broke, so that nobody knows what became of the call: such a status was made here, out of an
/// error of HTTP/2 or TCP, and bears that error; what the edge answers bears none.
fn is_broken(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn message(status: &Status) -> String {
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

/// Adds the edge's token to each call, where there is one.
#[derive(Debug, Clone)]
pub struct Token(Option<MetadataValue<Ascii>>);

impl Token {
    fn new(token: Option<&str>) -> Result<Self, Failure> {
        let value = token.map(|token| format!("Bearer {token}").parse()).transpose();
        let mut value: Option<MetadataValue<Ascii>> = value
            .map_err(|_| Failure::usage(ErrorCode::Unauthorized, "the token holds characters that no token has"))?;
        if let Some(value) = &mut value {
            value.set_sensitive(true);
        }
        Ok(Self(value))
    }
}

impl tonic::service::Interceptor for Token {
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
    fn the_stable_code_wins() {
        let mut status = Status::not_found("no such session");
        assert_eq!(code(&status), ErrorCode::Internal);
        status.metadata_mut().insert(proto::ERROR_CODE, "unknown_session".parse().unwrap());
        assert_eq!(code(&status), ErrorCode::UnknownSession);
        assert_eq!(code(&Status::unavailable("")), ErrorCode::Unavailable);
    }

    #[test]
    fn broken_connection_is_unavailable_not_internal() {
        let broken = Status::from_error(Box::new(std::io::Error::other("h2 protocol error: broken pipe")));
        assert_eq!(code(&broken), ErrorCode::Unavailable);
        assert_eq!(message(&broken), "the connection to the fleet broke (h2 protocol error: broken pipe)");
        assert_eq!(code(&Status::internal("our own mistake")), ErrorCode::Internal);
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_the_address() {
        let failure = Client::connect("127.0.0.1:1", None).await.unwrap_err();
        assert_eq!(failure.exit().code(), 3);
        assert!(failure.to_string().contains("http://127.0.0.1:1"), "{failure}");
    }
}
