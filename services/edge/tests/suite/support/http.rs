//! A client of the HTTP API.

use std::fmt::Write;
use std::net::SocketAddr;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::TEST_TIMEOUT;

/// A client with an API key, or with none.
pub(crate) struct Http {
    client: Client,
    base: String,
    key: Option<String>,
}

impl Http {
    pub(crate) fn new(address: SocketAddr, key: Option<&str>) -> Self {
        // An earlier provider stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(TEST_TIMEOUT).build().unwrap();
        Self { client, base: format!("http://{address}"), key: key.map(str::to_owned) }
    }

    /// Begins a request with the key.
    pub(crate) fn request(&self, verb: &str, path: &str) -> RequestBuilder {
        let request = self.client.request(Method::from_bytes(verb.as_bytes()).unwrap(), self.base.clone() + path);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request, with a body if one is given; returns status and body.
    pub(crate) async fn send(&self, verb: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut request = self.request(verb, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        read(request.send().await.unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send("POST", path, Some(&body)).await
    }
}

/// Begins a request with a body of JSON and further headers.
pub(crate) fn post(http: &Http, path: &str, body: &Value, headers: &[(&'static str, &str)]) -> RequestBuilder {
    let request = http.request("POST", path).header("content-type", "application/json").body(body.to_string());
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// Opens a connection and sends some bytes.
pub(crate) async fn open(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Returns the bytes of a request to this address.
pub(crate) fn bytes_of(request: &reqwest::Request, address: SocketAddr) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: {address}\r\n", request.method(), request.url().path());
    for (name, value) in request.headers() {
        write!(head, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
    }
    let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    write!(head, "content-length: {}\r\n\r\n", body.len()).unwrap();
    [head.as_bytes(), body].concat()
}

/// Reads status and body of a response.
pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// A server-sent event with its fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SseEvent {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: String,
}

/// Reads server-sent events from a response, one after another.
pub(crate) struct SseReader {
    response: Response,
    buffer: String,
}

impl SseReader {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, buffer: String::new() }
    }

    /// Returns the next event; `None` at the end of the stream. Comments are left out.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let event = parse(&self.buffer[..end]);
                self.buffer.drain(..end + 2);
                if event != SseEvent::default() {
                    return Some(event);
                }
                continue;
            }
            let chunk = tokio::time::timeout(TEST_TIMEOUT, self.response.chunk()).await.expect("no event in time");
            self.buffer.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }
}

fn parse(block: &str) -> SseEvent {
    let mut event = SseEvent::default();
    for (name, value) in block.lines().filter_map(|line| line.split_once(": ")) {
        match name {
            "id" => value.clone_into(&mut event.id),
            "event" => value.clone_into(&mut event.event),
            "data" => event.data.push_str(value),
            other => assert!(other.is_empty() || other == "retry", "{block}"),
        }
    }
    event
}
