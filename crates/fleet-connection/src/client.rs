//! Client of the edge for commands: failures are made for people to read.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ailoop_client::{Client, ClientBuilder, ClientError, ErrorKind, bounded};
use contract::{ErrorCode, SessionId};
use proto::ControlRequest;
use proto::json::{ApiMessage, from_value, to_value};
use serde::de::DeserializeOwned;
use serde_json::Value;
use terminal::failure::CommandFailure;
use tokio::time::{Instant, sleep};
use tonic::{Request, Response, Status};

use crate::instance::Home;

pub use ailoop_client::SessionsApi;

/// Longest time that calls and streams wait for a fleet that cannot be reached.
pub const OUTAGE_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts to reach the fleet.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// The address of an edge, and how it is reached.
#[derive(Debug, Clone, Default)]
pub struct EdgeTarget {
    /// The gRPC address of the edge.
    pub url: String,
    /// The token of the user, if there is one.
    pub token: Option<String>,
    /// The PEM file of the authority of its certificate, if no public one signed it.
    pub ca_file: Option<PathBuf>,
    /// Whether the token may go over http:// to another machine.
    pub plaintext: bool,
}

impl EdgeTarget {
    /// Checks that a text is an address of an edge.
    pub fn check_url(url: &str) -> Result<(), CommandFailure> {
        let has_scheme = url.contains("://");
        if !has_scheme {
            let message = format!("{url:?} is not an address: it must begin with http:// or https://");
            return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
        }
        Client::connect(url).check().map_err(|error| to_failure(&error))
    }

    fn builder(self) -> ClientBuilder {
        let Self { url, token, ca_file, plaintext } = self;
        let mut builder = Client::connect(url).retry_for(OUTAGE_MAX);
        if let Some(token) = token {
            builder = builder.api_key(token);
        }
        if let Some(path) = ca_file {
            builder = builder.ca_file(path);
        }
        if plaintext { builder.allow_plaintext_key() } else { builder }
    }
}

/// A connection to the edge. Clones share it.
#[derive(Debug, Clone)]
pub struct EdgeClient {
    client: Client,
}

impl EdgeClient {
    /// Connects to an edge at its address.
    pub async fn connect(target: EdgeTarget) -> Result<Self, CommandFailure> {
        let url = target.url.clone();
        Self::open(target.builder(), &url).await
    }

    /// Connects to the fleet of a directory. When the connection breaks, the client looks there for its fleet.
    pub async fn connect_to_home(target: EdgeTarget, home: Home) -> Result<Self, CommandFailure> {
        let url = target.url.clone();
        Self::open(target.builder().locate(move || home.running().map(|run| run.grpc)), &url).await
    }

    async fn open(builder: ClientBuilder, url: &str) -> Result<Self, CommandFailure> {
        match builder.await {
            Ok(client) => Ok(Self { client }),
            Err(error) if error.kind() == ErrorKind::ConnectionFailed => Err(to_failure(&error).at(url)),
            Err(error) => Err(to_failure(&error)),
        }
    }

    /// Connects again if the fleet of the directory has another address by now.
    pub async fn reconnect_if_moved(&self) -> Result<(), CommandFailure> {
        self.client.reconnect_if_moved().await.map_err(|error| to_failure(&error))
    }

    /// Makes a call once.
    pub async fn call<R, T>(
        &self,
        request: R,
        method: impl AsyncFnOnce(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandFailure> {
        let reply = method(&mut self.client.api(), bounded(request)).await;
        reply.map(Response::into_inner).map_err(|status| self.failure_of(&status.into()))
    }

    /// Makes a call, with retries while the connection is broken; by its command id the fleet handles it once. The
    /// first failed attempt is passed to `report`.
    pub async fn call_with_retries<R: Clone, T>(
        &self,
        request: R,
        report: impl Fn(&str),
        method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
    ) -> Result<T, CommandFailure> {
        let began = Instant::now();
        let mut is_reported = false;
        loop {
            let error = match method(&mut self.client.api(), bounded(request.clone())).await {
                Ok(reply) => return Ok(reply.into_inner()),
                Err(status) => ClientError::from(status),
            };
            // Whether the connection broke, so that the outcome of the call is unknown.
            let is_broken = error.kind() == ErrorKind::ConnectionFailed;
            if is_broken && !std::mem::replace(&mut is_reported, true) {
                report(error.message());
            }
            if !is_broken || began.elapsed() > OUTAGE_MAX {
                return Err(self.failure_of(&error));
            }
            sleep(RETRY_PAUSE).await;
            // If the fleet is still down, the next call fails.
            let _down = self.reconnect_if_moved().await;
        }
    }

    /// Returns the address of the edge.
    pub fn url(&self) -> String {
        self.client.url()
    }

    /// Returns the client of programs.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a failure that people can read from an error of the client.
    pub(crate) fn failure_of(&self, error: &ClientError) -> CommandFailure {
        to_failure(error).at(self.url())
    }
}

/// Reads an answer of the edge as a type of the JSON API.
pub fn read_answer<T: DeserializeOwned>(reply: &impl ApiMessage) -> Result<T, CommandFailure> {
    serde_json::from_value(answer_json(reply)?).map_err(|error| unreadable(&error))
}

/// Returns an answer of the edge as the JSON API has it.
pub fn answer_json(reply: &impl ApiMessage) -> Result<Value, CommandFailure> {
    to_value(reply).map_err(|error| unreadable(&error))
}

/// Makes a request of the parameters that the JSON API takes.
pub fn request_of<R: ApiMessage>(params: Value) -> Result<R, CommandFailure> {
    from_value(params).map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, error.to_string()))
}

/// Makes the request of a command that has nothing but a reason.
pub fn control_request<R: ControlRequest>(session: &str, reason: &str) -> R {
    R::of(session, Some(command_id()), reason)
}

/// Returns a parameter that a person may leave out.
pub fn chosen(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn unreadable(error: &dyn Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, format!("the answer: {error}"))
}

/// Makes a new command id.
pub fn command_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Checks a session id before anything is sent.
pub fn session_id(text: &str) -> Result<String, CommandFailure> {
    let id = SessionId::new(text).map_err(|error| CommandFailure::usage(ErrorCode::BadRequest, error.to_string()))?;
    Ok(id.as_str().to_owned())
}

/// Returns the stable error code of a failed call.
fn code_of(error: &ClientError) -> ErrorCode {
    if error.kind() == ErrorKind::ConnectionFailed {
        return ErrorCode::Unavailable;
    }
    ErrorCode::from(error.code().to_owned())
}

fn to_failure(error: &ClientError) -> CommandFailure {
    let (code, message) = (code_of(error), error.message());
    if error.kind() == ErrorKind::PlaintextKey {
        return CommandFailure::usage(code, message)
            .help("use an https:// address, or pass --plaintext in a network that you trust");
    }
    if error.kind() == ErrorKind::Configuration {
        return CommandFailure::usage(code, message);
    }
    CommandFailure::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_of_metadata_precedes_grpc_code() {
        let mut status = Status::not_found("no such session");
        assert_eq!(code_of(&status.clone().into()), ErrorCode::Internal);
        status.metadata_mut().insert(proto::ERROR_CODE, "unknown_session".parse().unwrap());
        assert_eq!(code_of(&status.into()), ErrorCode::UnknownSession);
        assert_eq!(code_of(&Status::unavailable("").into()), ErrorCode::Unavailable);
    }

    #[test]
    fn broken_connection_is_unavailable_not_internal() {
        let broken = Status::from_error(Box::new(std::io::Error::other("h2 protocol error: broken pipe")));
        assert_eq!(code_of(&broken.into()), ErrorCode::Unavailable);
        assert_eq!(code_of(&Status::internal("our own mistake").into()), ErrorCode::Internal);
    }

    #[tokio::test]
    async fn connect_target_that_cannot_be_used_is_a_usage_failure() {
        let target = |url: &str, token: Option<&str>| EdgeTarget {
            url: url.to_owned(),
            token: token.map(str::to_owned),
            ..EdgeTarget::default()
        };
        let refused = EdgeClient::connect(target("http://10.0.0.1:7071", Some("t"))).await.unwrap_err();
        assert_eq!((refused.code(), refused.exit().code()), (&ErrorCode::Unauthorized, 2));
        assert!(refused.advice().is_some_and(|advice| advice.contains("--plaintext")), "{refused}");
        for url in ["ftp://ailoop.example.com", "http://", "https://a b"] {
            assert_eq!(EdgeClient::connect(target(url, None)).await.unwrap_err().exit().code(), 2, "{url}");
        }
        assert_eq!(EdgeTarget::check_url("ailoop").unwrap_err().exit().code(), 2);
    }

    #[tokio::test]
    async fn connect_no_listener_failure_names_address() {
        let target = EdgeTarget { url: "127.0.0.1:1".to_owned(), ..EdgeTarget::default() };
        let failure = EdgeClient::connect(target).await.unwrap_err();
        assert_eq!(failure.exit().code(), 3);
        assert!(failure.to_string().contains("127.0.0.1:1"), "{failure}");
    }
}
