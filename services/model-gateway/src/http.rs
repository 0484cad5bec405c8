//! Sends requests to a provider over HTTP, in any protocol.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use configuration::Secret;
use configuration::models::ProviderEntry;
use contract::model::{FailureKind, Streaming};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response as HttpResponse, Url, redirect};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::adapter::gemini::request::check_model_path;
use crate::adapter::response::ResponseReader;
use crate::adapter::{ProtocolRequest, ProviderProtocol, RequestTarget, classify, parameters};
use crate::failure::CallFailure;
use crate::mask::{ProviderSecrets, ReplyMask};
use crate::provider_request::{ProviderRequest, signer_id};
use crate::recording::{ExchangeRecorder, RecordedChunk, RecordedResponse, Recording};
use crate::reply::Delta;
use crate::resolve::{self, PublicResolver};
use service::clock::Clock;

/// Maximum bytes that are read of an error response.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Longest wait for usage after the content is complete.
const TAIL_MAX: Duration = Duration::from_secs(2);
/// Connect timeout in seconds for requests of no session.
const CONNECT_DEFAULT: u64 = 5;
/// Timeout and maximum bytes of a description of a model.
const DESCRIBE_MAX: Duration = Duration::from_secs(10);
const DESCRIPTION_BYTES_MAX: usize = 8 << 20;
/// Bounds of the connect timeout that a session sets, in seconds.
const CONNECT_RANGE: std::ops::RangeInclusive<u64> = 1..=60;

/// Bounds of the silence timeouts that a session sets, in seconds. With a shorter one every model would fail.
const SILENCE_RANGE: std::ops::RangeInclusive<u64> = 1..=600;

/// Client of one provider. It reads the key for each call, so that the file with the key can be replaced.
#[derive(Debug)]
pub(crate) struct ProviderClient {
    protocol: ProviderProtocol,
    entry: ProviderEntry,
    /// Recording that replaces the provider.
    recording: Option<Result<Recording, String>>,
    /// One HTTP client for each connect timeout, which is a property of a client.
    http: Mutex<BTreeMap<u64, reqwest::Client>>,
}

impl ProviderClient {
    /// A client that is not connected yet.
    pub(crate) fn new(protocol: ProviderProtocol, entry: ProviderEntry) -> Self {
        let recording = entry.replay.as_deref().map(Recording::read);
        Self { protocol, entry, recording, http: Mutex::default() }
    }

    pub(crate) fn protocol(&self) -> ProviderProtocol {
        self.protocol
    }

    /// Sends one request, and returns `Ok` only if the reply is complete. Dropping the future drops the connection.
    pub(crate) async fn call(
        &self,
        request: &ProviderRequest<'_>,
        deltas: &mpsc::Sender<Vec<Delta>>,
        clock: &dyn Clock,
    ) -> Result<(), CallFailure> {
        // A recording needs no key.
        let key = if self.recording.is_some() { None } else { self.read_key()? };
        // A provider may repeat a secret in its message, which must not be passed on.
        let secrets = ProviderSecrets::new(key.as_ref(), &self.entry);
        let parameters = parameters::check_parameters(self.protocol, &self.entry, &request.item.parameters)?;
        let signer_id = signer_id(request.provider, request.upstream);
        let target = RequestTarget {
            model: request.upstream,
            signer_id: &signer_id,
            reasoning: request.settings.reasoning,
            max_output: request.settings.max_output,
            quirks: &self.entry.quirks,
            parameters: &parameters,
            parts: request.parts,
        };
        let protocol_request = self.protocol.build_request(request.item, &target)?;
        let mut recorder = self.entry.record.as_ref().map(|_| {
            ExchangeRecorder::new(
                clock.now(),
                self.entry.kind,
                &protocol_request.path,
                &protocol_request.body,
                secrets.all().to_vec(),
            )
        });
        let source = match &self.recording {
            Some(Ok(recording)) => ResponseSource::Recording(recording.next_response()?, 0),
            Some(Err(error)) => return Err(CallFailure::new(FailureKind::BadRequest, error)),
            None => {
                ResponseSource::Request(self.add_key(self.build_request(request, protocol_request)?, key.as_ref())?)
            }
        };
        let address = self.address();
        let timeouts = Timeouts::new(&request.item.streaming, &address);
        let mut out = MaskedSender { deltas, mask: ReplyMask::new(&secrets) };
        let ended =
            read_response(source, self.protocol.response_reader(), &timeouts, &mut out, clock, recorder.as_mut()).await;
        let ended = ended.map_err(|failure| secrets.redact(failure).with_address(&address));
        if let (Some(recorder), Some(dir)) = (recorder, &self.entry.record) {
            recorder.write(dir, request.upstream, ended.as_ref().err()).await;
        }
        ended
    }

    /// Reads the description of a model from the provider; `None` if it has none.
    pub(crate) async fn describe_model(&self, upstream: &str) -> Result<Option<Value>, CallFailure> {
        let key = self.read_key()?;
        let own = check_model_path(upstream).ok().map(|name| format!("/models/{name}"));
        for path in own.into_iter().chain(["/models".to_owned()]) {
            let http =
                self.add_key(self.add_headers(self.http_client(CONNECT_DEFAULT)?.get(self.url(&path)?)), key.as_ref())?;
            let response = timeout_at(Instant::now() + DESCRIBE_MAX, http.send()).await;
            let Ok(Ok(mut response)) = response else { return Ok(None) };
            let mut body = Vec::new();
            while let Ok(Some(chunk)) = response.chunk().await {
                body.extend_from_slice(&chunk);
                if body.len() > DESCRIPTION_BYTES_MAX {
                    return Ok(None);
                }
            }
            let description: Value = serde_json::from_slice(&body).unwrap_or_default();
            if !response.status().is_success() {
                continue;
            }
            let list = ["data", "models"].iter().find_map(|name| description[*name].as_array().cloned());
            let Some(list) = list else { return Ok(Some(description)) };
            let names = |model: &Value| ["id", "name", "model"].iter().any(|name| model[*name] == *upstream);
            // A server of one model may use any name for it.
            let only = if list.len() == 1 { list.first() } else { None };
            return Ok(list.iter().find(|model| names(model)).or(only).cloned());
        }
        Ok(None)
    }

    /// Maximum tokens of a reply that the session sets, or else the operator.
    pub(crate) fn output_max(&self, session: &Map<String, Value>) -> Option<u64> {
        parameters::output_max(session).or_else(|| parameters::output_max(&self.entry.parameters))
    }

    /// Address of the provider for people: `host` or `host:port`, without credentials, path and query.
    fn address(&self) -> String {
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let url = Url::parse(base).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or("the recording");
        url.as_ref().and_then(Url::port).map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    fn read_key(&self) -> Result<Option<Secret>, CallFailure> {
        self.entry.api_key().map_err(|error| CallFailure::new(FailureKind::Auth, error.to_string()))
    }

    fn add_key(&self, http: RequestBuilder, key: Option<&Secret>) -> Result<RequestBuilder, CallFailure> {
        let Some(key) = key else { return Ok(http) };
        let (name, before) = self.protocol.key_header();
        let (name, before) = self.entry.key_header.as_deref().map_or((name, before), |name| (name, ""));
        let mut value = HeaderValue::try_from(format!("{before}{}", key.expose())).map_err(|_| {
            CallFailure::new(FailureKind::Auth, "the provider's key has characters that an HTTP header cannot have")
        })?;
        value.set_sensitive(true);
        Ok(http.header(name, value))
    }

    fn url(&self, path: &str) -> Result<Url, CallFailure> {
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let mut url = Url::parse(&format!("{base}{path}")).map_err(|error| {
            CallFailure::new(FailureKind::BadRequest, format!("base_url is not a valid URL: {error}"))
        })?;
        for (name, value) in &self.entry.query {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }

    /// Adds the headers of the operator.
    fn add_headers(&self, mut http: RequestBuilder) -> RequestBuilder {
        for (name, value) in &self.entry.headers {
            http = http.header(name, value.expose());
        }
        http
    }

    fn build_request(
        &self,
        request: &ProviderRequest<'_>,
        protocol_request: ProtocolRequest,
    ) -> Result<RequestBuilder, CallFailure> {
        let accept = if request.item.streaming.enabled { "text/event-stream" } else { "application/json" };
        let mut http = self.http_client(request.item.streaming.connect)?.post(self.url(&protocol_request.path)?);
        for (name, value) in protocol_request.headers {
            http = http.header(name, value);
        }
        http = self.add_headers(http);
        if let Some(traceparent) = &request.traceparent {
            http = http.header("traceparent", traceparent);
        }
        Ok(http.header(CONTENT_TYPE, "application/json").header(ACCEPT, accept).body(protocol_request.body))
    }

    fn http_client(&self, connect: u64) -> Result<reqwest::Client, CallFailure> {
        let connect = connect.clamp(*CONNECT_RANGE.start(), *CONNECT_RANGE.end());
        let mut clients = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect) {
            return Ok(client.clone());
        }
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let private = self.entry.private_network || resolve::names_private_host(base);
        let client = build_http_client(Duration::from_secs(connect), private).map_err(|error| {
            CallFailure::new(FailureKind::BadRequest, format!("no HTTP client: {}", root_cause(&error)))
        })?;
        clients.insert(connect, client.clone());
        Ok(client)
    }
}

/// Connects only to the address that the operator set. A proxy of the environment or a redirect would send the
/// transcript and the key elsewhere.
fn build_http_client(connect: Duration, private: bool) -> Result<reqwest::Client, reqwest::Error> {
    // This fails if the process has a crypto provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder();
    let builder = if private { builder } else { builder.dns_resolver(Arc::new(PublicResolver)) };
    builder
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(connect)
        .tcp_nodelay(true)
        .user_agent(concat!("ailoop/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Timeouts of one request. A reply that is not streamed has only the deadline of the call, since it arrives all at
/// once.
struct Timeouts<'a> {
    address: &'a str,
    connect: Timeout,
    first_byte: Option<Timeout>,
    idle: Option<Timeout>,
}

/// Longest silence of a provider that is accepted.
#[derive(Clone, Copy)]
struct Timeout {
    seconds: u64,
    /// Whether it is shorter than the default: then a timeout does not count against the provider.
    is_below_default: bool,
}

impl Timeout {
    fn new(seconds: u64, range: &std::ops::RangeInclusive<u64>, default: u64) -> Self {
        let seconds = seconds.clamp(*range.start(), *range.end());
        Self { seconds, is_below_default: seconds < default }
    }

    fn deadline(self) -> Instant {
        Instant::now() + Duration::from_secs(self.seconds)
    }

    fn failure(self, what: &str) -> CallFailure {
        let failure = CallFailure::new(FailureKind::TimedOut, format!("{what} within {} s", self.seconds));
        CallFailure { is_session_timeout: self.is_below_default, ..failure }
    }
}

impl<'a> Timeouts<'a> {
    fn new(streaming: &Streaming, address: &'a str) -> Self {
        let default = Streaming::default();
        let streamed = |seconds, default| streaming.enabled.then(|| Timeout::new(seconds, &SILENCE_RANGE, default));
        Self {
            address,
            connect: Timeout::new(streaming.connect, &CONNECT_RANGE, default.connect),
            first_byte: streamed(streaming.first_byte, default.first_byte),
            idle: streamed(streaming.idle, default.idle),
        }
    }

    fn silence_failure(&self, is_first: bool) -> CallFailure {
        let (what, wait) =
            if is_first { ("no first byte", self.first_byte) } else { ("no data in the stream", self.idle) };
        wait.map_or_else(|| CallFailure::new(FailureKind::TimedOut, what), |wait| wait.failure(what))
    }

    fn send_failure(&self, error: &reqwest::Error) -> CallFailure {
        let address = self.address;
        if error.is_connect() && error.is_timeout() {
            return self.connect.failure(&format!("no connection to {address}"));
        }
        if error.is_builder() {
            return CallFailure::new(
                FailureKind::BadRequest,
                format!("the request cannot be built: {}", root_cause(error)),
            );
        }
        let what = if error.is_connect() {
            format!("no connection to {address}")
        } else {
            format!("the connection to {address} broke before the reply")
        };
        CallFailure::new(FailureKind::Unreachable, format!("{what}: {}", root_cause(error)))
    }

    fn read_failure(&self, error: &reqwest::Error) -> CallFailure {
        let message = format!("the connection to {} broke within the reply: {}", self.address, root_cause(error));
        CallFailure::new(FailureKind::Truncated, message)
    }
}

/// Sends the deltas of a reply with the key of the provider masked.
struct MaskedSender<'a> {
    deltas: &'a mpsc::Sender<Vec<Delta>>,
    mask: ReplyMask<'a>,
}

impl MaskedSender<'_> {
    /// Sends deltas; `false` if the receiver is gone.
    async fn send(&mut self, more: Vec<Delta>) -> bool {
        let masked = self.mask(more);
        masked.is_empty() || self.deltas.send(masked).await.is_ok()
    }

    fn mask(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        self.mask.push(deltas).into_iter().map(Delta::sanitize).collect()
    }

    async fn finish(&mut self, rest: Vec<Delta>) {
        let mut masked = self.mask(rest);
        masked.extend(self.mask.finish());
        if !masked.is_empty() {
            // The receiver may be gone, and then needs nothing.
            let _ = self.deltas.send(masked).await;
        }
    }
}

/// Source of a response.
enum ResponseSource<'a> {
    /// A request that is not sent yet.
    Request(RequestBuilder),
    /// A response of the provider.
    Http(HttpResponse),
    /// A recorded response, and the index of its next chunk.
    Recording(&'a RecordedResponse, usize),
}

impl ResponseSource<'_> {
    /// Sends the request, and returns when the status and headers arrived.
    async fn send(self) -> Result<Self, reqwest::Error> {
        match self {
            Self::Request(request) => request.send().await.map(Self::Http),
            Self::Http(_) | Self::Recording(..) => Ok(self),
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Request(_) => 0,
            Self::Http(response) => response.status().as_u16(),
            Self::Recording(response, _) => response.status,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        match self {
            Self::Request(_) => None,
            Self::Http(response) => response.headers().get(name)?.to_str().ok(),
            Self::Recording(response, _) => response.headers.get(name).map(String::as_str),
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        match self {
            Self::Request(_) => Ok(None),
            Self::Http(response) => response.chunk().await,
            Self::Recording(response, at) => {
                *at += 1;
                Ok(response.chunks.get(*at - 1).map(RecordedChunk::bytes))
            }
        }
    }
}

async fn read_response(
    source: ResponseSource<'_>,
    mut reader: ResponseReader,
    timeouts: &Timeouts<'_>,
    out: &mut MaskedSender<'_>,
    clock: &dyn Clock,
    mut recorder: Option<&mut ExchangeRecorder>,
) -> Result<(), CallFailure> {
    let until = timeouts.first_byte.map(Timeout::deadline);
    let sent = with_deadline(until, source.send()).await;
    let mut response =
        sent.ok_or_else(|| timeouts.silence_failure(true))?.map_err(|error| timeouts.send_failure(&error))?;
    if let Some(recorder) = &mut recorder {
        recorder.record_head(response.status(), |name| response.header(name));
    }
    if !(200..300).contains(&response.status()) {
        return Err(read_error(response, clock, recorder).await);
    }
    let mut until = until;
    let mut first = true;
    loop {
        let Some(chunk) = with_deadline(until, response.chunk()).await else {
            if reader.is_finished() {
                break;
            }
            return Err(timeouts.silence_failure(first));
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(_) if reader.is_finished() => break,
            Err(error) => return Err(timeouts.read_failure(&error)),
        };
        first = false;
        if let Some(recorder) = &mut recorder {
            recorder.record_chunk(&chunk);
        }
        let more = reader.push(&chunk)?;
        if !out.send(more).await {
            return Ok(()); // The receiver is gone.
        }
        if reader.is_done() {
            break;
        }
        until =
            if reader.is_finished() { Some(Instant::now() + TAIL_MAX) } else { timeouts.idle.map(Timeout::deadline) };
    }
    let rest = reader.finish()?;
    out.finish(rest).await;
    Ok(())
}

async fn with_deadline<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}

async fn read_error(
    mut response: ResponseSource<'_>,
    clock: &dyn Clock,
    mut recorder: Option<&mut ExchangeRecorder>,
) -> CallFailure {
    let status = response.status();
    if (300..400).contains(&status) {
        let to = response.header(LOCATION.as_str()).unwrap_or("an unknown address");
        return CallFailure::new(
            FailureKind::BadRequest,
            format!("the provider redirects to {to}: set base_url to the address of the provider"),
        );
    }
    let retry_after = classify::parse_retry_after(|name| response.header(name), clock.now().as_millis());
    let mut body = Vec::new();
    let until = Instant::now() + TAIL_MAX;
    while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
        if let Some(recorder) = &mut recorder {
            recorder.record_chunk(&chunk);
        }
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    classify::classify_status(status, retry_after, &String::from_utf8_lossy(&body))
}

/// The innermost cause, without the URL that each outer error repeats.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // An error without a source would print the whole URL.
    if error.source().is_none() { "the HTTP client gives no reason".to_owned() } else { cause.to_string() }
}
