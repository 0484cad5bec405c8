//! Asks a provider over HTTP, whatever protocol it speaks.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use contract::model::{FailureKind, Streaming};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response as HttpResponse, Url, redirect};
use serde_json::{Map, Value};
use service::Secret;
use service::models::ProviderEntry;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::adapter::frame::Answer;
use crate::adapter::gemini::request::segments;
use crate::adapter::{Family, Outgoing, Target, classify, parameters};
use crate::failure::Failure;
use crate::mask::{Mask, Secrets};
use crate::provider::{self, Request};
use crate::recording::{Answered, Piece, Recorder, Tape};
use crate::reply::Delta;
use crate::resolve::{self, PublicOnly};
use service::clock::Clock;

/// Bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long usage is awaited after the content is complete.
const TAIL_MAX: Duration = Duration::from_secs(2);
/// Seconds to connect where no session says anything.
const CONNECT: u64 = 5;
/// How long a provider may take to describe a model, and in how many bytes.
const DESCRIBE_MAX: Duration = Duration::from_secs(10);
const DESCRIPTION_BYTES_MAX: usize = 8 << 20;
/// Seconds to connect, whatever a session asks for.
const CONNECT_RANGE: std::ops::RangeInclusive<u64> = 1..=60;

/// Seconds of silence, whatever a session asks for: what is shorter would make every model look ill.
const PATIENCE_RANGE: std::ops::RangeInclusive<u64> = 1..=600;

/// A provider's address and key. The key is read for each call, so that a file with it may be replaced.
#[derive(Debug)]
pub struct Client {
    family: Family,
    entry: ProviderEntry,
    /// What is answered in the provider's place.
    tape: Option<Result<Tape, String>>,
    /// One per time-out of the connection, which is a property of a client; a lock since it is held for a look only.
    http: Mutex<BTreeMap<u64, reqwest::Client>>,
}

impl Client {
    /// A client of this provider. Nothing is connected yet.
    pub fn new(family: Family, entry: ProviderEntry) -> Self {
        let tape = entry.replay.as_deref().map(Tape::read);
        Self { family, entry, tape, http: Mutex::default() }
    }

    /// The protocol that it speaks.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Runs one call; `Ok` only when the reply is complete. Dropping the future drops the connection.
    pub async fn call(
        &self,
        request: &Request<'_>,
        deltas: &mpsc::Sender<Vec<Delta>>,
        clock: &dyn Clock,
    ) -> Result<(), Failure> {
        // Who answers from a recording asks nobody.
        let key = if self.tape.is_some() { None } else { self.key()? };
        // A provider that repeats a secret in its message must not make us repeat it.
        let secrets = Secrets::new(key.as_ref(), &self.entry);
        let parameters = parameters::checked(self.family, &self.entry, &request.item.parameters)?;
        let voice = provider::voice(request.provider, request.upstream);
        let target = Target {
            model: request.upstream,
            voice: &voice,
            reasoning: request.settings.reasoning,
            max_output: request.settings.max_output,
            quirks: &self.entry.quirks,
            parameters: &parameters,
        };
        let outgoing = self.family.request(request.item, &target)?;
        let mut recorder = self.entry.record.as_ref().map(|_| {
            Recorder::new(clock.now(), self.entry.kind, &outgoing.path, &outgoing.body, secrets.all().to_vec())
        });
        let source = match &self.tape {
            Some(Ok(tape)) => Source::Tape(tape.next()?, 0),
            Some(Err(error)) => return Err(Failure::new(FailureKind::BadRequest, error)),
            None => Source::Request(self.signed(self.prepare(request, outgoing)?, key.as_ref())?),
        };
        let address = self.address();
        let patience = Patience::of(&request.item.streaming, &address);
        let mut out = Masked { deltas, mask: Mask::new(&secrets) };
        let ended = exchange(source, self.family.answer(), &patience, &mut out, clock, recorder.as_mut()).await;
        let ended = ended.map_err(|failure| secrets.hide(failure).at(&address));
        if let (Some(recorder), Some(dir)) = (recorder, &self.entry.record) {
            recorder.write(dir, request.upstream, ended.as_ref().err()).await;
        }
        ended
    }

    /// What the provider itself says of a model, where it says anything.
    pub async fn describe(&self, upstream: &str) -> Result<Option<Value>, Failure> {
        let key = self.key()?;
        let own = segments(upstream).ok().map(|name| format!("/models/{name}"));
        for path in own.into_iter().chain(["/models".to_owned()]) {
            let http = self.signed(self.plain(self.http(CONNECT)?.get(self.url(&path)?)), key.as_ref())?;
            let answer = timeout_at(Instant::now() + DESCRIBE_MAX, http.send()).await;
            let Ok(Ok(mut answer)) = answer else { return Ok(None) };
            let mut body = Vec::new();
            while let Ok(Some(piece)) = answer.chunk().await {
                body.extend_from_slice(&piece);
                if body.len() > DESCRIPTION_BYTES_MAX {
                    return Ok(None);
                }
            }
            let found: Value = serde_json::from_slice(&body).unwrap_or_default();
            if !answer.status().is_success() {
                continue;
            }
            let list = ["data", "models"].iter().find_map(|name| found[*name].as_array().cloned());
            let Some(list) = list else { return Ok(Some(found)) };
            let names = |model: &Value| ["id", "name", "model"].iter().any(|name| model[*name] == *upstream);
            // A server of one model may call it as it likes.
            let only = if list.len() == 1 { list.first() } else { None };
            return Ok(list.iter().find(|model| names(model)).or(only).cloned());
        }
        Ok(None)
    }

    /// Tokens that a reply may have where a session asks for so many, or else where the operator does.
    pub fn output_max(&self, session: &Map<String, Value>) -> Option<u64> {
        parameters::output_max(session).or_else(|| parameters::output_max(&self.entry.parameters))
    }

    /// Where the provider is, for people: `host`, or `host:port`; no credentials, path or query.
    fn address(&self) -> String {
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let url = Url::parse(base).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or("the recording");
        url.as_ref().and_then(Url::port).map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    fn key(&self) -> Result<Option<Secret>, Failure> {
        self.entry.api_key().map_err(|error| Failure::new(FailureKind::Auth, error.to_string()))
    }

    fn signed(&self, http: RequestBuilder, key: Option<&Secret>) -> Result<RequestBuilder, Failure> {
        let Some(key) = key else { return Ok(http) };
        let (name, before) = self.family.key_header();
        let (name, before) = self.entry.key_header.as_deref().map_or((name, before), |name| (name, ""));
        let mut value = HeaderValue::try_from(format!("{before}{}", key.expose()))
            .map_err(|_| Failure::new(FailureKind::Auth, "the provider's key is no value of a header"))?;
        value.set_sensitive(true);
        Ok(http.header(name, value))
    }

    fn url(&self, path: &str) -> Result<Url, Failure> {
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let mut url = Url::parse(&format!("{base}{path}"))
            .map_err(|error| Failure::new(FailureKind::BadRequest, format!("base_url is no address: {error}")))?;
        for (name, value) in &self.entry.query {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }

    /// With the operator's headers.
    fn plain(&self, mut http: RequestBuilder) -> RequestBuilder {
        for (name, value) in &self.entry.headers {
            http = http.header(name, value.expose());
        }
        http
    }

    fn prepare(&self, request: &Request<'_>, outgoing: Outgoing) -> Result<RequestBuilder, Failure> {
        let accept = if request.item.streaming.enabled { "text/event-stream" } else { "application/json" };
        let mut http = self.http(request.item.streaming.connect)?.post(self.url(&outgoing.path)?);
        for (name, value) in outgoing.headers {
            http = http.header(name, value);
        }
        http = self.plain(http);
        if let Some(traceparent) = &request.traceparent {
            http = http.header("traceparent", traceparent);
        }
        Ok(http.header(CONTENT_TYPE, "application/json").header(ACCEPT, accept).body(outgoing.body))
    }

    fn http(&self, connect: u64) -> Result<reqwest::Client, Failure> {
        let connect = connect.clamp(*CONNECT_RANGE.start(), *CONNECT_RANGE.end());
        let mut clients = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect) {
            return Ok(client.clone());
        }
        let base = self.entry.base_url.as_deref().unwrap_or_default();
        let private = self.entry.private_network || resolve::says_so(base);
        let client = build(Duration::from_secs(connect), private)
            .map_err(|error| Failure::new(FailureKind::BadRequest, format!("no HTTP client: {}", root(&error))))?;
        clients.insert(connect, client.clone());
        Ok(client)
    }
}

/// Traffic goes where the operator said: neither to a proxy of the environment nor after a redirect, which would take
/// the transcript and the key along.
fn build(connect: Duration, private: bool) -> Result<reqwest::Client, reqwest::Error> {
    // It fails where the process has a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder();
    let builder = if private { builder } else { builder.dns_resolver(Arc::new(PublicOnly)) };
    builder
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(connect)
        .tcp_nodelay(true)
        .user_agent(concat!("ailoop/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// When silence is too long. A whole reply has only the call's own deadline: nothing comes before all of it is there.
struct Patience<'a> {
    address: &'a str,
    connect: Wait,
    first_byte: Option<Wait>,
    idle: Option<Wait>,
}

/// The longest silence.
#[derive(Clone, Copy)]
struct Wait {
    seconds: u64,
    /// It is shorter than what is usual: a provider that fails it need not be ill.
    is_hasty: bool,
}

impl Wait {
    fn of(seconds: u64, range: &std::ops::RangeInclusive<u64>, usual: u64) -> Self {
        let seconds = seconds.clamp(*range.start(), *range.end());
        Self { seconds, is_hasty: seconds < usual }
    }

    fn deadline(self) -> Instant {
        Instant::now() + Duration::from_secs(self.seconds)
    }

    fn failure(self, what: &str) -> Failure {
        let failure = Failure::new(FailureKind::TimedOut, format!("{what} within {} s", self.seconds));
        Failure { is_impatience: self.is_hasty, ..failure }
    }
}

impl<'a> Patience<'a> {
    fn of(streaming: &Streaming, address: &'a str) -> Self {
        let usual = Streaming::default();
        let streamed = |seconds, usual| streaming.enabled.then(|| Wait::of(seconds, &PATIENCE_RANGE, usual));
        Self {
            address,
            connect: Wait::of(streaming.connect, &CONNECT_RANGE, usual.connect),
            first_byte: streamed(streaming.first_byte, usual.first_byte),
            idle: streamed(streaming.idle, usual.idle),
        }
    }

    fn hung(&self, is_first: bool) -> Failure {
        let (what, wait) =
            if is_first { ("no first byte", self.first_byte) } else { ("the stream fell silent", self.idle) };
        wait.map_or_else(|| Failure::new(FailureKind::TimedOut, what), |wait| wait.failure(what))
    }

    fn not_sent(&self, error: &reqwest::Error) -> Failure {
        let address = self.address;
        if error.is_connect() && error.is_timeout() {
            return self.connect.failure(&format!("no connection to {address}"));
        }
        if error.is_builder() {
            return Failure::new(FailureKind::BadRequest, format!("the request cannot be built: {}", root(error)));
        }
        let what = if error.is_connect() {
            format!("no connection to {address}")
        } else {
            format!("the connection to {address} broke before the reply")
        };
        Failure::new(FailureKind::Unreachable, format!("{what}: {}", root(error)))
    }

    fn broke_off(&self, error: &reqwest::Error) -> Failure {
        let message = format!("the connection to {} broke within the reply: {}", self.address, root(error));
        Failure::new(FailureKind::Truncated, message)
    }
}

/// Where a reply goes, without the provider's key.
struct Masked<'a> {
    deltas: &'a mpsc::Sender<Vec<Delta>>,
    mask: Mask<'a>,
}

impl Masked<'_> {
    /// Whether anybody wants more of the reply.
    async fn send(&mut self, more: Vec<Delta>) -> bool {
        let shown = self.shown(more);
        shown.is_empty() || self.deltas.send(shown).await.is_ok()
    }

    fn shown(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        self.mask.push(deltas).into_iter().map(Delta::tidied).collect()
    }

    async fn finish(&mut self, rest: Vec<Delta>) {
        let mut shown = self.shown(rest);
        shown.extend(self.mask.finish());
        if !shown.is_empty() {
            // No receiver, no wish.
            let _ = self.deltas.send(shown).await;
        }
    }
}

/// Where an answer comes from.
enum Source<'a> {
    /// A provider that is still to be asked.
    Request(RequestBuilder),
    /// A provider that answers.
    Http(HttpResponse),
    /// A recording, from this piece on.
    Tape(&'a Answered, usize),
}

impl Source<'_> {
    /// Asks; returns when the answer's head is there.
    async fn ask(self) -> Result<Self, reqwest::Error> {
        match self {
            Self::Request(request) => request.send().await.map(Self::Http),
            Self::Http(_) | Self::Tape(..) => Ok(self),
        }
    }

    fn status(&self) -> u16 {
        match self {
            Self::Request(_) => 0,
            Self::Http(answer) => answer.status().as_u16(),
            Self::Tape(answer, _) => answer.status,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        match self {
            Self::Request(_) => None,
            Self::Http(answer) => answer.headers().get(name)?.to_str().ok(),
            Self::Tape(answer, _) => answer.headers.get(name).map(String::as_str),
        }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        match self {
            Self::Request(_) => Ok(None),
            Self::Http(answer) => answer.chunk().await,
            Self::Tape(answer, at) => {
                *at += 1;
                Ok(answer.pieces.get(*at - 1).map(Piece::bytes))
            }
        }
    }
}

async fn exchange(
    source: Source<'_>,
    mut response: Answer,
    patience: &Patience<'_>,
    out: &mut Masked<'_>,
    clock: &dyn Clock,
    mut recorder: Option<&mut Recorder>,
) -> Result<(), Failure> {
    let until = patience.first_byte.map(Wait::deadline);
    let sent = within(until, source.ask()).await;
    let mut answer = sent.ok_or_else(|| patience.hung(true))?.map_err(|error| patience.not_sent(&error))?;
    if let Some(recorder) = &mut recorder {
        recorder.head(answer.status(), |name| answer.header(name));
    }
    if !(200..300).contains(&answer.status()) {
        return Err(refusal(answer, clock, recorder).await);
    }
    let mut until = until;
    let mut first = true;
    loop {
        let Some(piece) = within(until, answer.chunk()).await else {
            if response.is_finished() {
                break;
            }
            return Err(patience.hung(first));
        };
        let piece = match piece {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(_) if response.is_finished() => break,
            Err(error) => return Err(patience.broke_off(&error)),
        };
        first = false;
        if let Some(recorder) = &mut recorder {
            recorder.piece(&piece);
        }
        let more = response.push(&piece)?;
        if !out.send(more).await {
            return Ok(()); // Nobody wants the reply any more.
        }
        if response.is_done() {
            break;
        }
        until =
            if response.is_finished() { Some(Instant::now() + TAIL_MAX) } else { patience.idle.map(Wait::deadline) };
    }
    let rest = response.finish()?;
    out.finish(rest).await;
    Ok(())
}

async fn within<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}

async fn refusal(mut answer: Source<'_>, clock: &dyn Clock, mut recorder: Option<&mut Recorder>) -> Failure {
    let status = answer.status();
    if (300..400).contains(&status) {
        let to = answer.header(LOCATION.as_str()).unwrap_or("nowhere");
        return Failure::new(
            FailureKind::BadRequest,
            format!("the provider redirects to {to}: set base_url to where it really is"),
        );
    }
    let retry_after = classify::retry_after(|name| answer.header(name), clock.now().as_millis());
    let mut body = Vec::new();
    let until = Instant::now() + TAIL_MAX;
    while let Ok(Ok(Some(piece))) = timeout_at(until, answer.chunk()).await {
        if let Some(recorder) = &mut recorder {
            recorder.piece(&piece);
        }
        body.extend_from_slice(&piece);
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    classify::status(status, retry_after, &String::from_utf8_lossy(&body))
}

/// The innermost cause: what happened, without the address that every layer around it repeats.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    // Without a cause of its own, the error would print the whole address.
    if error.source().is_none() { "the HTTP client gives no reason".to_owned() } else { cause.to_string() }
}
