//! One endpoint: sends a request for each call, and interprets its answer.

use std::time::Duration;

use ailoop_tool::ToolError;
use ailoop_tool::wire::header;
use contract::ToolName;
use contract::limits::TOOL_OUTPUT_BYTES_MAX;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};

use super::config::{WebhookConfig, setting};
use super::secrets::{HeaderSecrets, RedactingBuffer};
use crate::error::HostError;
use crate::head_tail_buffer::HeadTailBuffer;
use crate::http;
use contract::tool::UNKNOWN_OUTCOME_TEXT;

/// Bytes of an answer that are read; the model reads fewer of them.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes of an error's text that the model reads.
const ERROR_BYTES_MAX: usize = 4 << 10;
/// Usual HTTP header for an idempotency key.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Headers that the configuration must not set.
const RESERVED_HEADERS: &[&str] = &[
    header::CALL,
    header::SESSION,
    header::AGENT,
    header::ATTEMPT,
    header::DEADLINE,
    header::TRACEPARENT,
    IDEMPOTENCY_KEY,
    "Content-Type",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Host",
];

/// One call as the endpoint gets it; empty fields are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookRequest {
    /// Idempotency key of the call.
    pub call: String,
    /// Id of the calling session.
    pub session: String,
    /// Id of the calling agent.
    pub agent: String,
    /// Number of the try, as `<attempt>.<delivery>`.
    pub attempt: String,
    /// Deadline of the call in RFC 3339.
    pub deadline: String,
    /// W3C trace context of the caller.
    pub traceparent: String,
    /// The arguments object as JSON.
    pub body: Vec<u8>,
}

/// An HTTP endpoint, ready for calls.
pub struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: HeaderSecrets,
    timeout: Duration,
    /// Whether an interrupted call may have changed something.
    has_effect: bool,
}

impl Endpoint {
    /// Reads the configuration of the tool `name`, and the variables that it names.
    pub fn new(name: &ToolName, config: &WebhookConfig) -> Result<Self, HostError> {
        let bad = |field: &str, message: String| setting(name, field, message);
        let url = Url::parse(&config.url).map_err(|error| bad("url", error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("url", "it begins with http:// or https://".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("url", "put credentials into headers".to_owned()));
        }
        let (mut headers, mut values) = (HeaderMap::new(), Vec::new());
        let given = config.headers.iter().map(|(name, value)| (name, Ok(value.expose().to_owned())));
        let found = config.headers_from.iter().map(|(name, variable)| {
            let value = configuration::env(variable).filter(|value| !value.is_empty());
            (name, value.ok_or_else(|| format!("the variable {variable} is not set")))
        });
        for (key, value) in given.chain(found) {
            let field = format!("headers.{key}");
            let value = value.map_err(|message| bad(&format!("headers_from.{key}"), message))?;
            let header =
                HeaderName::from_bytes(key.as_bytes()).map_err(|_| bad(&field, "it is no header".to_owned()))?;
            if RESERVED_HEADERS.iter().any(|reserved| header.as_str().eq_ignore_ascii_case(reserved)) {
                return Err(bad(&field, "the tool-host sets this header itself".to_owned()));
            }
            let mut sent =
                HeaderValue::from_str(&value).map_err(|_| bad(&field, "it holds control characters".to_owned()))?;
            sent.set_sensitive(true);
            headers.insert(header, sent);
            values.push(value);
        }
        let secrets = HeaderSecrets::from_headers(values.iter().map(String::as_str)).map_err(|error| {
            bad("headers", format!("their values are too long to keep them out of answers ({error})"))
        })?;
        let client = http::client_builder()
            .user_agent(http::USER_AGENT)
            .build()
            .map_err(|error| bad("url", http::root_cause(&error)))?;
        let (timeout, has_effect) = (Duration::from_secs(config.timeout), config.effect.takes_effect());
        Ok(Self { client, url, headers, secrets, timeout, has_effect })
    }

    /// Posts a call; errors are for the model. Dropping the future closes the connection.
    pub async fn send(&self, request: WebhookRequest) -> Result<String, ToolError> {
        let mut sent =
            self.client.post(self.url.clone()).headers(self.headers.clone()).header(CONTENT_TYPE, "application/json");
        for (name, value) in [
            (header::CALL, &request.call),
            (IDEMPOTENCY_KEY, &request.call),
            (header::SESSION, &request.session),
            (header::AGENT, &request.agent),
            (header::ATTEMPT, &request.attempt),
            (header::DEADLINE, &request.deadline),
            (header::TRACEPARENT, &request.traceparent),
        ] {
            // A value that no header can carry is left out.
            let value = HeaderValue::from_bytes(value.as_bytes()).ok().filter(|value| !value.is_empty());
            sent = value.into_iter().fold(sent, |sent, value| sent.header(name, value));
        }
        let seconds = self.timeout.as_secs();
        let answered = tokio::time::timeout(self.timeout, async {
            let response = sent.body(request.body).send().await.map_err(|error| self.send_error(&error))?;
            self.read_response(response).await
        });
        answered.await.unwrap_or_else(|_| {
            Err(self.unknown_outcome_error(&format!("the endpoint did not answer within {seconds} seconds")))
        })
    }

    /// Describes a failed request: either nothing was sent, or the outcome is unknown.
    fn send_error(&self, error: &reqwest::Error) -> ToolError {
        let cause = http::root_cause(error);
        if error.is_connect() || error.is_builder() {
            return ToolError::new(format!("the endpoint could not be reached ({cause}); nothing was sent to it"));
        }
        self.unknown_outcome_error(&format!("the connection to the endpoint was lost before it answered ({cause})"))
    }

    async fn read_response(&self, mut response: Response) -> Result<String, ToolError> {
        let status = response.status();
        let max = if status.is_success() { TOOL_OUTPUT_BYTES_MAX } else { ERROR_BYTES_MAX };
        let (mut body, mut read) = (RedactingBuffer::new(&self.secrets, HeadTailBuffer::new(max)), 0);
        let lost = loop {
            match response.chunk().await {
                Ok(Some(piece)) => {
                    read += piece.len();
                    body.add(&piece);
                }
                Ok(None) => break None,
                Err(error) => break Some(http::root_cause(&error)),
            }
            if read > BODY_BYTES_MAX {
                break None;
            }
        };
        let body = body.finish(lost.is_none() && read <= BODY_BYTES_MAX);
        let text = body.text(usize::MAX).0;
        match (status, lost) {
            (status, None) if status.is_success() && read == 0 => {
                Ok(format!("done (HTTP {}, no content)", status.as_u16()))
            }
            (status, None) if status.is_success() => Ok(text),
            (status, Some(cause)) if status.is_success() => Err(self.unknown_outcome_error(&format!(
                "the endpoint said HTTP {}, and its answer broke off ({cause})",
                status.as_u16()
            ))),
            (status, _) if is_doubtful(status) => Err(self.unknown_outcome_error(&format!(
                "the endpoint, or a proxy before it, answered HTTP {}: {text}",
                status.as_u16()
            ))),
            (status, _) if status.is_redirection() => {
                let to = response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
                let to = self.secrets.redact(&to.unwrap_or_default());
                let why = format!("the endpoint redirects to {to:?} (HTTP {}), which is not followed", status.as_u16());
                // HTTP guarantees for these two that nothing was done; the others can also follow a completed request.
                if [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT].contains(&status) {
                    Err(ToolError::new(format!("{why}: the operator of the tool-host must correct its url")))
                } else {
                    Err(self.unknown_outcome_error(&why))
                }
            }
            (status, _) => {
                Err(ToolError::new(format!("the endpoint refused the call with HTTP {}: {text}", status.as_u16())))
            }
        }
    }

    /// The outcome is unknown, and a model that repeats the call makes another call with another key. Only a pure call
    /// may be repeated.
    fn unknown_outcome_error(&self, why: &str) -> ToolError {
        if self.has_effect {
            ToolError::unknown(format!("{why}; {UNKNOWN_OUTCOME_TEXT}"))
        } else {
            ToolError::new(format!("{why}; the call may be made again"))
        }
    }
}

/// Whether an HTTP status leaves the outcome open: a server can fail at any point of its work, and a proxy can give up
/// on one that continues. The other statuses from 400 refuse the call.
fn is_doubtful(status: StatusCode) -> bool {
    /// Some proxies log it, and some send it, for a client that disconnected.
    const CLIENT_CLOSED: u16 = 499;
    status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT || status.as_u16() == CLIENT_CLOSED
}
