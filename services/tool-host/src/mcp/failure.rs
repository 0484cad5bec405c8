//! What went wrong between us and an MCP server, in words without a secret, and whether a call took effect all the same.

use std::error::Error;
use std::time::Duration;

use ailoop_tool::{Effect, ToolError};
use rmcp::ServiceError;
use rmcp::model::ErrorCode;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

use super::name::ServerName;
use contract::tool::UNKNOWN_OUTCOME_TEXT;

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server says so.
    Refused(String),
    /// It says that it failed in the middle, or its answer cannot be read.
    Failed(String),
    /// It never got the call.
    NotSent(String),
    /// It had the call, or may have had it.
    Lost(String),
    /// It does not answer, though the connection stands.
    Silent(Duration),
}

impl Failure {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
    pub(super) fn of(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) if error.code == ErrorCode::INTERNAL_ERROR => {
                Self::Failed(format!("{} ({})", error.message, error.code.0))
            }
            ServiceError::McpError(error) => Self::Refused(format!("{} ({})", error.message, error.code.0)),
            ServiceError::TransportSend(error) if never_arrived(error) => Self::NotSent(cause(error)),
            ServiceError::TransportSend(error) => Self::Lost(cause(error)),
            ServiceError::TransportClosed => Self::Lost("its connection ended".to_owned()),
            ServiceError::Timeout { timeout } => Self::Silent(*timeout),
            other => Self::Lost(other.to_string()),
        }
    }

    /// Whether it speaks against the connection: two in a row end it.
    pub(super) fn is_of_the_transport(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Failed(_) => false,
            Self::NotSent(_) | Self::Lost(_) | Self::Silent(_) => true,
        }
    }

    /// Whether it may only be busy.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            Self::Refused(_) | Self::Failed(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }

    /// What the model reads. A call that may have taken effect is not said to have failed.
    pub(super) fn told(self, server: &ServerName, effect: Effect) -> ToolError {
        match self {
            Self::Refused(text) => ToolError::new(text),
            Self::Failed(text) => doubt(effect, &text),
            Self::NotSent(text) => down(server, &text),
            Self::Lost(text) => lost(server, effect, &text),
            Self::Silent(patience) => silent(server, effect, patience),
        }
    }
}

/// Nobody is there who could be called.
pub(super) fn down(server: &ServerName, why: &str) -> ToolError {
    ToolError::new(format!("the MCP server {server} cannot be reached ({why}); the tool was not called"))
}

/// The server went away, or fell silent, while the call ran.
pub(super) fn lost(server: &ServerName, effect: Effect, why: &str) -> ToolError {
    let what = format!("the MCP server {server} was lost while the call ran ({why})");
    doubt(effect, &what)
}

/// Whether it took effect is not known, and a model that calls again makes another call. Only of what changes nothing it can
/// be said that it may.
pub(super) fn doubt(effect: Effect, what: &str) -> ToolError {
    match effect {
        Effect::Pure => ToolError::new(format!("{what}; it may be called again")),
        Effect::Idempotent | Effect::AtMostOnce | Effect::Reconcilable => {
            ToolError::unknown(format!("{what}; {UNKNOWN_OUTCOME_TEXT}"))
        }
    }
}

/// No answer in time. The call was called off; it may have taken effect all the same.
pub(super) fn silent(server: &ServerName, effect: Effect, patience: Duration) -> ToolError {
    lost(server, effect, &format!("no answer within {} seconds", patience.as_secs()))
}

/// Why a server could not be connected to.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
pub(super) fn of_start(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => cause(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => of_start(fallback),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it said what it is".to_owned(),
        other => brief(&other.to_string()),
    }
}

/// A connection was never made, or the answer was one of HTTP's refusals. With 408 and 499 a proxy says that it gave up.
fn never_arrived(error: &(dyn Error + 'static)) -> bool {
    let refusal = |status: u16| (400..500).contains(&status) && ![408, 499].contains(&status);
    chain(error).any(|error| {
        let refused = error.downcast_ref::<HttpStatusError>().is_some_and(|error| refusal(error.status));
        refused
            || error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
            || error.is::<AuthRequiredError>()
            || error.is::<InsufficientScopeError>()
    })
}

/// The innermost error. Those around it may show the address, and an address may hold a key.
fn cause(error: &(dyn Error + 'static)) -> String {
    match chain(error).last() {
        Some(last) => brief(&last.to_string()),
        None => String::new(),
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| inner(*error))
}

/// What an error is about. The library's own one does not say of all that it carries.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => Some(error),
        Some(StreamableHttpError::HttpStatus(error)) => Some(error),
        _ => error.source(),
    }
}

/// The first line, and no address.
fn brief(text: &str) -> String {
    /// Bytes of it.
    const MAX: usize = 300;
    let line = text.lines().next().unwrap_or_default();
    let line = &line[..line.floor_char_boundary(MAX)];
    if line.contains("://") { "the request failed".to_owned() } else { line.to_owned() }
}
