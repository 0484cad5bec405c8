//! Failures of calls to an MCP server, described without secrets, and whether the call may have taken effect.

use std::error::Error;
use std::time::Duration;

use ailoop_tool::{Effect, ToolError};
use rmcp::ServiceError;
use rmcp::model::ErrorCode;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

use crate::server_name::ServerName;
use contract::tool::UNKNOWN_OUTCOME_TEXT;

/// Reason why a call has no result.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The server refused the call.
    Refused(String),
    /// The server failed during the call, or its answer cannot be parsed.
    Failed(String),
    /// The server did not get the call.
    NotSent(String),
    /// The server got the call, or may have got it.
    Lost(String),
    /// The server does not answer over an open connection.
    TimedOut(Duration),
}

impl CallFailure {
    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
    pub(super) fn from_error(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) if error.code == ErrorCode::INTERNAL_ERROR => {
                Self::Failed(format!("{} ({})", error.message, error.code.0))
            }
            ServiceError::McpError(error) => Self::Refused(format!("{} ({})", error.message, error.code.0)),
            ServiceError::TransportSend(error) if is_undelivered(error) => Self::NotSent(root_cause(error)),
            ServiceError::TransportSend(error) => Self::Lost(root_cause(error)),
            ServiceError::TransportClosed => Self::Lost("its connection ended".to_owned()),
            ServiceError::Timeout { timeout } => Self::TimedOut(*timeout),
            other => Self::Lost(other.to_string()),
        }
    }

    /// Whether the connection may be broken: two such failures in a row close it.
    pub(super) fn is_transport_failure(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::Lost(_) | Self::TimedOut(_))
    }

    /// Whether the server may only be busy.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// Converts the failure to what the model reads. A call that may have taken effect is not reported as failed.
    pub(super) fn into_tool_error(self, server: &ServerName, effect: Effect) -> ToolError {
        match self {
            Self::Refused(text) => ToolError::new(text),
            Self::Failed(text) => unknown_outcome_error(effect, &text),
            Self::NotSent(text) => unreachable_error(server, &text),
            Self::Lost(text) => connection_lost_error(server, effect, &text),
            Self::TimedOut(timeout) => timeout_error(server, effect, timeout),
        }
    }
}

/// The server cannot be reached, so the call was not sent.
pub(super) fn unreachable_error(server: &ServerName, why: &str) -> ToolError {
    ToolError::new(format!("the MCP server {server} cannot be reached ({why}); the tool was not called"))
}

/// The server was lost, or stopped answering, while the call ran.
pub(super) fn connection_lost_error(server: &ServerName, effect: Effect, why: &str) -> ToolError {
    let what = format!("the MCP server {server} was lost while the call ran ({why})");
    unknown_outcome_error(effect, &what)
}

/// The outcome is unknown, and a model that repeats the call makes another call. Only a pure call may be repeated.
pub(super) fn unknown_outcome_error(effect: Effect, what: &str) -> ToolError {
    match effect {
        Effect::Pure => ToolError::new(format!("{what}; it may be called again")),
        Effect::Idempotent | Effect::AtMostOnce | Effect::Reconcilable => {
            ToolError::unknown(format!("{what}; {UNKNOWN_OUTCOME_TEXT}"))
        }
    }
}

/// The server did not answer in time. The call was cancelled, and may have taken effect.
pub(super) fn timeout_error(server: &ServerName, effect: Effect, timeout: Duration) -> ToolError {
    connection_lost_error(server, effect, &format!("no answer within {} seconds", timeout.as_secs()))
}

/// Describes why a connection could not be made.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
pub(super) fn describe_start_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => root_cause(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => describe_start_error(fallback),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection before it said what it is".to_owned(),
        other => first_line(&other.to_string()),
    }
}

/// Whether the request did not reach the server: no connection was made, or HTTP refused it. With 408 and 499 a proxy
/// reports that it gave up, so they prove nothing.
fn is_undelivered(error: &(dyn Error + 'static)) -> bool {
    let refusal = |status: u16| (400..500).contains(&status) && ![408, 499].contains(&status);
    error_chain(error).any(|error| {
        let refused = error.downcast_ref::<HttpStatusError>().is_some_and(|error| refusal(error.status));
        refused
            || error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
            || error.is::<AuthRequiredError>()
            || error.is::<InsufficientScopeError>()
    })
}

/// Returns the innermost error. The outer ones may contain the URL, and a URL may contain a key.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    if let Some(refusal) = error_chain(error).find_map(describe_login_refusal) {
        return refusal.to_owned();
    }
    error_chain(error).last().map(|last| first_line(&last.to_string())).unwrap_or_default()
}

/// Says what to do where HTTP refused the login of this side, or that there is none.
fn describe_login_refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const NO_LOGIN: &str = "HTTP 401: it wants a login: set headers_from";
    const TOO_LITTLE: &str = "HTTP 403: its login may not do this: see headers_from";
    let status = error.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status);
    let status = status.map(|status| status.as_u16());
    // Without a challenge, the library keeps the status in its text only.
    let is_401 = matches!(error.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
        Some(StreamableHttpError::UnexpectedServerResponse(text)) if text.starts_with("HTTP 401"));
    if is_401 || error.is::<AuthRequiredError>() || status == Some(401) {
        return Some(NO_LOGIN);
    }
    (error.is::<InsufficientScopeError>() || status == Some(403)).then_some(TOO_LITTLE)
}

fn error_chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| source_of(*error))
}

/// Returns the source of an error, also for errors of the library that do not report theirs.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
fn source_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => Some(error),
        Some(StreamableHttpError::HttpStatus(error)) => Some(error),
        _ => error.source(),
    }
}

/// Returns the first line, without URLs.
fn first_line(text: &str) -> String {
    /// Bytes of that line.
    const MAX: usize = 300;
    let line = cut_urls(text.lines().next().unwrap_or_default());
    line[..line.floor_char_boundary(MAX)].to_owned()
}

/// Replaces each URL with `<url>`: a URL may contain a key.
fn cut_urls(line: &str) -> String {
    let (mut cut, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(at) = rest.find("://") {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let scheme = rest[..at].trim_end_matches(is_scheme).len();
        cut.push_str(&rest[..scheme]);
        cut.push_str("<url>");
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}');
        let url = &rest[at..];
        rest = &url[url.find(is_end).unwrap_or(url.len())..];
    }
    cut.push_str(rest);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_keeps_its_words_and_loses_its_urls() {
        let rows = [
            ("no such host", "no such host"),
            ("error for url (https://u:key@mcp.example/x?key=1): timed out", "error for url (<url>): timed out"),
            (r#"see "http://a/b" and ws://c, or d"#, r#"see "<url>" and <url> or d"#),
            ("https://a/key\nsecond", "<url>"),
            ("://", "<url>"),
        ];
        for (text, expect) in rows {
            assert_eq!(first_line(text), expect, "{text}");
        }
    }
}
