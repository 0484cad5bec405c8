//! One fetch: follows redirects, then reads as much of the body as is permitted.

use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::ToolError;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use reqwest::{Client, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{BODY_BYTES_MAX, FetchConfig, TIMEOUT_MAX};
use super::policy::{FetchPolicy, normalize_host};
use super::resolver::{FilteringResolver, HostResolver};
use super::{html, text};
use crate::error::HostError;
use crate::truncate::RESULT_BYTES_MAX;
use crate::{head_tail_buffer, http};

const REDIRECTS_MAX: usize = 5;
/// Default of the argument `max_chars`.
const CHARS_DEFAULT: usize = 20_000;
/// Bytes of JSON for the text; URLs and the title need the rest.
const TEXT_BYTES_MAX: usize = RESULT_BYTES_MAX - (24 << 10);
/// Value of the header `Accept`.
const ACCEPT_VALUE: &str = "text/html, text/plain, text/markdown, application/json;q=0.9, */*;q=0.5";

/// Method of the HTTP request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum FetchMethod {
    /// Reads status and content.
    #[default]
    #[serde(rename = "GET")]
    Get,
    /// Reads status, type and size only.
    #[serde(rename = "HEAD")]
    Head,
}

/// The arguments of `http_fetch`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchArguments {
    /// URL of the page.
    pub url: String,
    /// Method of the request; default: GET.
    #[serde(default)]
    pub method: FetchMethod,
    /// Index of the first character to return, from 0.
    #[serde(default)]
    pub offset: usize,
    /// Greatest number of characters to return.
    pub max_chars: Option<usize>,
}

/// Fetches permitted pages for sessions.
pub struct Fetcher {
    policy: Arc<FetchPolicy>,
    client: Client,
    max_bytes: usize,
    /// Timeout of one fetch, with redirects and body.
    timeout: Duration,
}

impl Fetcher {
    /// Checks the configuration; `resolver` resolves host names.
    pub fn new(config: &FetchConfig, resolver: Arc<dyn HostResolver>) -> Result<Self, HostError> {
        let bad = |field: &str, message: String| HostError::Setting { field: format!("fetch.{field}"), message };
        if !(1..=TIMEOUT_MAX).contains(&config.timeout) {
            return Err(bad("timeout", format!("it is 1 to {TIMEOUT_MAX} seconds")));
        }
        if !(1..=BODY_BYTES_MAX).contains(&config.max_bytes) {
            return Err(bad("max_bytes", format!("it is 1 to {BODY_BYTES_MAX}")));
        }
        let policy = Arc::new(FetchPolicy::new(config)?);
        let client = http::client_builder()
            .user_agent(config.user_agent.as_deref().unwrap_or(http::USER_AGENT))
            .dns_resolver(Arc::new(FilteringResolver { policy: policy.clone(), resolver }))
            .build()
            .map_err(|error| bad("user_agent", http::root_cause(&error)))?;
        let timeout = Duration::from_secs(config.timeout);
        Ok(Self { policy, client, max_bytes: config.max_bytes, timeout })
    }

    /// Fetches a page; errors are for the model.
    pub async fn fetch(&self, arguments: &FetchArguments) -> Result<Value, ToolError> {
        let late = |_| {
            let seconds = self.timeout.as_secs();
            ToolError::new(format!("{:?} did not answer whole within {seconds} seconds: try later", arguments.url))
        };
        tokio::time::timeout(self.timeout, self.follow_redirects(arguments)).await.map_err(late)?
    }

    async fn follow_redirects(&self, arguments: &FetchArguments) -> Result<Value, ToolError> {
        let mut url = self.policy.check_address(&arguments.url)?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&url, arguments.method).await?;
            let location = response.status().is_redirection().then(|| read_header(&response, LOCATION)).flatten();
            let Some(location) = location else { return self.read_response(url, response, arguments).await };
            url = self.policy.check_redirect(&url, &location)?;
        }
        Err(ToolError::new(format!("{:?} redirects over {REDIRECTS_MAX} times", arguments.url)))
    }

    async fn send(&self, url: &Url, method: FetchMethod) -> Result<Response, ToolError> {
        let request = match method {
            FetchMethod::Get => self.client.get(url.clone()),
            FetchMethod::Head => self.client.head(url.clone()),
        };
        let failed = |error| {
            ToolError::new(format!("{} could not be fetched: {}", normalize_host(url), http::root_cause(&error)))
        };
        request.header(ACCEPT, ACCEPT_VALUE).send().await.map_err(failed)
    }

    async fn read_response(
        &self,
        url: Url,
        mut response: Response,
        arguments: &FetchArguments,
    ) -> Result<Value, ToolError> {
        let content_type = read_header(&response, CONTENT_TYPE).unwrap_or_default();
        let is_compressed =
            read_header(&response, CONTENT_ENCODING).is_some_and(|how| !how.eq_ignore_ascii_case("identity"));
        let length = read_header(&response, CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let mut result = json!({"url": url.as_str(), "status": response.status().as_u16(), "text": "", "truncated": false,
            "content_type": text::media_type(&content_type)});
        let kind = if is_compressed { text::ContentKind::Binary } else { text::classify(&content_type) };
        if arguments.method == FetchMethod::Head || kind == text::ContentKind::Binary {
            result["bytes"] = json!(length);
            if arguments.method == FetchMethod::Get {
                result["binary"] = json!(true);
            }
            return Ok(result);
        }
        let mut body = Vec::new();
        let mut is_truncated = false;
        // Decoded bytes are counted, so that a small compressed body cannot become a large text.
        while let Some(piece) = response.chunk().await.map_err(|error| broken_body_error(&url, &error))? {
            let room = self.max_bytes - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                is_truncated = true;
                break;
            }
        }
        drop(response);
        let (offset, max) = (arguments.offset, arguments.max_chars.unwrap_or(CHARS_DEFAULT));
        let read = move || {
            write_text(&mut result, &ResponseBody { url, bytes: body, is_truncated, content_type, kind }, offset, max);
            result
        };
        Ok(tokio::task::spawn_blocking(read).await?)
    }
}

/// The part of a body that was read.
struct ResponseBody {
    url: Url,
    bytes: Vec<u8>,
    /// Whether the body had more bytes.
    is_truncated: bool,
    content_type: String,
    kind: text::ContentKind,
}

/// Writes the requested part of the text into the result.
fn write_text(result: &mut Value, body: &ResponseBody, offset: usize, max: usize) {
    let Some(text) = text::decode(&body.bytes, &body.content_type, body.kind, body.is_truncated) else {
        (result["bytes"], result["binary"]) = (json!(body.bytes.len()), json!(true));
        result["truncated"] = json!(body.is_truncated);
        return;
    };
    let (text, is_truncated) = if body.kind == text::ContentKind::Html {
        let page = html::extract_text(&text, &body.url);
        result["title"] = json!(page.title);
        (page.text, body.is_truncated || page.is_truncated)
    } else {
        (text, body.is_truncated)
    };
    let start = text.char_indices().nth(offset).map_or(text.len(), |(at, _)| at);
    let wanted = &text[start..];
    let end = wanted.char_indices().nth(max).map_or(wanted.len(), |(at, _)| at);
    let part = head_tail_buffer::take_head(&wanted[..end], TEXT_BYTES_MAX);
    let has_more = part.len() < wanted.len();
    if has_more {
        result["next_offset"] = json!(offset + part.chars().count());
    }
    if is_truncated {
        result["note"] =
            json!(format!("only the first {} bytes were read; what follows them cannot be had", body.bytes.len()));
    }
    (result["text"], result["truncated"]) = (json!(part), json!(has_more || is_truncated));
}

fn broken_body_error(url: &Url, error: &reqwest::Error) -> ToolError {
    ToolError::new(format!("the answer of {} broke off: {}; try again", normalize_host(url), http::root_cause(error)))
}

fn read_header(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
