//! One fetch: from hop to hop, then as much of the body as may be read.

use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::ToolError;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use reqwest::{Client, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{Judged, Names};
use super::policy::{Policy, host};
use super::{BODY_BYTES_MAX, FetchConfig, TIMEOUT_MAX, html, text};
use crate::fit::ROOM;
use crate::{HostError, http, kept};

/// Redirects of one fetch.
const REDIRECTS_MAX: usize = 5;
/// Characters of text that are given where nothing is said.
const CHARS_DEFAULT: usize = 20_000;
/// Bytes of JSON that a text may take; addresses and the title stand beside it.
const TEXT_ROOM: usize = ROOM - (24 << 10);
/// What is asked for, in this order.
const ACCEPTED: &str = "text/html, text/plain, text/markdown, application/json;q=0.9, */*;q=0.5";

/// How a page is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Method {
    /// With its content.
    #[default]
    #[serde(rename = "GET")]
    Get,
    /// Without.
    #[serde(rename = "HEAD")]
    Head,
}

/// The arguments of `http_fetch`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The address.
    pub url: String,
    /// GET where nothing is said.
    #[serde(default)]
    pub method: Method,
    /// The first character of the text that is wanted, from 0.
    #[serde(default)]
    pub offset: usize,
    /// Characters of the text that are wanted at most.
    #[serde(default)]
    pub max_chars: Option<usize>,
}

/// Fetches for sessions, within what is allowed.
pub struct Fetcher {
    policy: Arc<Policy>,
    client: Client,
    max_bytes: usize,
    timeout: Duration,
}

impl Fetcher {
    /// Reads the configuration; names are asked of `names`.
    pub fn new(config: &FetchConfig, names: Arc<dyn Names>) -> Result<Self, HostError> {
        let bad = |field: &str, message: String| HostError::Setting { field: format!("fetch.{field}"), message };
        if !(1..=TIMEOUT_MAX).contains(&config.timeout) {
            return Err(bad("timeout", format!("it is 1 to {TIMEOUT_MAX} seconds")));
        }
        if !(1..=BODY_BYTES_MAX).contains(&config.max_bytes) {
            return Err(bad("max_bytes", format!("it is 1 to {BODY_BYTES_MAX}")));
        }
        let policy = Arc::new(Policy::new(config)?);
        let client = http::builder()
            .user_agent(config.user_agent.as_deref().unwrap_or(http::USER_AGENT))
            .dns_resolver(Arc::new(Judged { policy: policy.clone(), names }))
            .build()
            .map_err(|error| bad("user_agent", http::root(&error)))?;
        let timeout = Duration::from_secs(config.timeout);
        Ok(Self { policy, client, max_bytes: config.max_bytes, timeout })
    }

    /// How long one fetch may take, redirects and body together.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Fetches; errors are for the model.
    pub async fn fetch(&self, arguments: &Arguments) -> Result<Value, ToolError> {
        let late = |_| {
            let seconds = self.timeout.as_secs();
            ToolError::new(format!("{:?} did not answer whole within {seconds} seconds: try later", arguments.url))
        };
        tokio::time::timeout(self.timeout, self.answer(arguments)).await.map_err(late)?
    }

    async fn answer(&self, arguments: &Arguments) -> Result<Value, ToolError> {
        let mut url = self.policy.address(&arguments.url)?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.ask(&url, arguments.method).await?;
            let leads = response.status().is_redirection().then(|| header(&response, LOCATION)).flatten();
            let Some(location) = leads else { return self.read(url, response, arguments).await };
            url = self.policy.redirect(&url, &location)?;
        }
        Err(ToolError::new(format!("{:?} redirects over {REDIRECTS_MAX} times", arguments.url)))
    }

    async fn ask(&self, url: &Url, method: Method) -> Result<Response, ToolError> {
        let request = match method {
            Method::Get => self.client.get(url.clone()),
            Method::Head => self.client.head(url.clone()),
        };
        let failed = |error| ToolError::new(format!("{} could not be fetched: {}", host(url), http::root(&error)));
        request.header(ACCEPT, ACCEPTED).send().await.map_err(failed)
    }

    async fn read(&self, url: Url, mut response: Response, arguments: &Arguments) -> Result<Value, ToolError> {
        let content_type = header(&response, CONTENT_TYPE).unwrap_or_default();
        let packed = header(&response, CONTENT_ENCODING).is_some_and(|how| !how.eq_ignore_ascii_case("identity"));
        let length = header(&response, CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let mut result = json!({"url": url.as_str(), "status": response.status().as_u16(), "text": "", "truncated": false,
            "content_type": text::essence(&content_type)});
        let kind = if packed { text::Kind::Binary } else { text::kind(&content_type) };
        if arguments.method == Method::Head || kind == text::Kind::Binary {
            result["bytes"] = json!(length);
            if arguments.method == Method::Get {
                result["binary"] = json!(true);
            }
            return Ok(result);
        }
        let mut body = Vec::new();
        let mut cut = false;
        // Decoded bytes are counted, so that what is packed small cannot grow large.
        while let Some(piece) = response.chunk().await.map_err(|error| broke(&url, &error))? {
            let room = self.max_bytes - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                cut = true;
                break;
            }
        }
        drop(response);
        let (offset, max) = (arguments.offset, arguments.max_chars.unwrap_or(CHARS_DEFAULT));
        let reading = move || {
            read(&mut result, &Body { url, bytes: body, cut, content_type, kind }, offset, max);
            result
        };
        Ok(tokio::task::spawn_blocking(reading).await?)
    }
}

/// What was read of an answer.
struct Body {
    url: Url,
    bytes: Vec<u8>,
    /// Whether there was more of it.
    cut: bool,
    content_type: String,
    kind: text::Kind,
}

/// Writes the part of the text that is wanted into the result.
fn read(result: &mut Value, body: &Body, offset: usize, max: usize) {
    let Some(text) = text::decode(&body.bytes, &body.content_type, body.kind, body.cut) else {
        (result["bytes"], result["binary"]) = (json!(body.bytes.len()), json!(true));
        result["truncated"] = json!(body.cut);
        return;
    };
    let (text, cut) = if body.kind == text::Kind::Html {
        let page = html::read(&text, &body.url);
        result["title"] = json!(page.title);
        (page.text, body.cut || page.cut)
    } else {
        (text, body.cut)
    };
    let start = text.char_indices().nth(offset).map_or(text.len(), |(at, _)| at);
    let wanted = &text[start..];
    let end = wanted.char_indices().nth(max).map_or(wanted.len(), |(at, _)| at);
    let shown = kept::first(&wanted[..end], TEXT_ROOM);
    let more = shown.len() < wanted.len();
    if more {
        result["next_offset"] = json!(offset + shown.chars().count());
    }
    if cut {
        result["note"] =
            json!(format!("only the first {} bytes were read; what follows them cannot be had", body.bytes.len()));
    }
    (result["text"], result["truncated"]) = (json!(shown), json!(more || cut));
}

fn broke(url: &Url, error: &reqwest::Error) -> ToolError {
    ToolError::new(format!("the answer of {} broke off: {}; try again", host(url), http::root(error)))
}

fn header(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
