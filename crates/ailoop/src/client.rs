//! The edge's gRPC API, with failures as people read them.

use std::time::Duration;

use contract::{CallId, ErrorCode, SessionId};
use proto::sessions_client::SessionsClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::failure::Failure;

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
    sessions: Sessions,
}

impl Client {
    /// Connects; the error says that nobody answers there.
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Self, Failure> {
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Failure::usage(ErrorCode::BadRequest, format!("{url:?} is not an address: {error}")))?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(|error| {
            Failure::new(ErrorCode::Unavailable, format!("the fleet cannot be reached ({})", root_cause(&error)))
                .at(&url)
        })?;
        let token = Token::new(token)?;
        let sessions = SessionsClient::with_interceptor(channel, token).max_decoding_message_size(ANSWER_BYTES_MAX);
        Ok(Self { url, sessions })
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

fn message(status: &Status) -> String {
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

    #[tokio::test]
    async fn nobody_there_is_said_with_the_address() {
        let failure = Client::connect("127.0.0.1:1", None).await.unwrap_err();
        assert_eq!(failure.exit().code(), 3);
        assert!(failure.to_string().contains("http://127.0.0.1:1"), "{failure}");
    }
}
