//! An OpenAI-compatible model server for tests: it sends scripted replies, records requests, and fails on demand.

mod reply;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use reply::{Gate, ScriptedReply};
use reply::{Piece, wait_until};

/// A running server on a free port; dropping it ends the server and every connection.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Index among the requests, from 0.
    pub number: usize,
    /// HTTP headers of the request.
    pub headers: HeaderMap,
    /// JSON body; `null` where the body is not JSON.
    pub body: Value,
}

/// Chooses the reply to a request.
type Respond = dyn Fn(&RecordedRequest) -> ScriptedReply + Send + Sync;

struct Shared {
    respond: Box<Respond>,
    requests: Mutex<Vec<RecordedRequest>>,
    changed: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl RecordedRequest {
    /// The messages of the request body.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The text of the last user message.
    pub fn last_user(&self) -> &str {
        let user = self.messages().iter().rev().find(|message| message["role"] == "user");
        user.and_then(|message| message["content"].as_str()).unwrap_or_default()
    }

    /// The contents of the tool results that came after the last reply.
    pub fn last_results(&self) -> Vec<&str> {
        let results = self.messages().iter().rev().take_while(|message| message["role"] != "assistant");
        let mut results: Vec<&str> = results
            .filter(|message| message["role"] == "tool")
            .filter_map(|message| message["content"].as_str())
            .collect();
        results.reverse();
        results
    }

    /// The names of the tools in the request.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }

    /// The value of an HTTP header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl ModelServer {
    /// Starts a server that answers each request by `respond`.
    pub async fn start(
        respond: impl Fn(&RecordedRequest) -> ScriptedReply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            requests: Mutex::default(),
            changed: watch::Sender::new(0),
            open: watch::Sender::new(0),
        });
        let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(shared.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            // It ends with the task; an error of the listener shows as a connection that is refused.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, _task: task })
    }

    /// Starts a server that sends these replies in turn, and then status 500.
    pub async fn with_replies(replies: Vec<ScriptedReply>) -> io::Result<Self> {
        let none = || ScriptedReply::status(500, r#"{"error":{"message":"the test has no reply left"}}"#);
        Self::start(move |request| replies.get(request.number).cloned().unwrap_or_else(none)).await
    }

    /// The `base_url` of a provider for this server.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests received so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when `count` requests were received.
    pub async fn wait_for_requests(&self, count: usize) {
        wait_until(&self.shared.changed, |received| *received >= count).await;
    }

    /// Returns when no reply is being sent: each was sent to its end, or its client disconnected.
    pub async fn wait_until_idle(&self) {
        wait_until(&self.shared.open, |open| *open == 0).await;
    }
}

/// A URL at which nothing listens.
pub async fn refusing_url() -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok(format!("http://{}/v1", listener.local_addr()?))
}

/// Counts a reply as open until it is dropped.
struct OpenReply(Arc<Shared>);

impl OpenReply {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(shared.clone())
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let open = OpenReply::new(&shared);
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = {
        let mut all = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let request = RecordedRequest { number: all.len(), headers, body };
        all.push(request.clone());
        request
    };
    shared.changed.send_modify(|count| *count += 1);
    let reply = (shared.respond)(&request);
    if let Some(gate) = &reply.before {
        gate.pass().await;
    }
    let streamed = request.body["stream"] == true;
    let kind = if streamed { "text/event-stream" } else { "application/json" };
    let body = if streamed || reply.raw {
        Body::from_stream(streaming(&reply, &request).map(move |piece| {
            let _open = &open;
            piece
        }))
    } else {
        Body::from(unstreamed(&reply, &request).await.to_string())
    };
    let mut response = (reply.status, [(header::CONTENT_TYPE, kind)], body).into_response();
    for (name, value) in &reply.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

fn streaming(reply: &ScriptedReply, request: &RecordedRequest) -> impl Stream<Item = io::Result<String>> + use<> {
    let event = |value: &Value| format!("data: {value}\n\n");
    let head = json!({"id": format!("reply-{}", request.number), "object": "chat.completion.chunk", "model": request.body["model"]});
    let choice = move |delta: &Value, finish: Value| {
        let mut value = head.clone();
        value["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        value
    };
    let mut pieces = reply.pieces.clone();
    if !reply.raw {
        let end = choice(&json!({}), json!(reply.reason()));
        let usage = json!({"choices": [], "usage": reply.usage_json()});
        pieces.push(Piece::Raw(event(&end) + &event(&usage) + "data: [DONE]\n\n"));
    }
    stream::iter(pieces)
        .then(move |piece| {
            let choice = choice.clone();
            async move {
                match piece {
                    Piece::Delta(delta) => Some(Ok(event(&choice(&delta, Value::Null)))),
                    Piece::Raw(bytes) => Some(Ok(bytes)),
                    Piece::Gate(gate) => {
                        gate.pass().await;
                        Some(Ok(String::new()))
                    }
                    Piece::Delay(delay) => {
                        tokio::time::sleep(delay).await;
                        Some(Ok(String::new()))
                    }
                    Piece::Stop { broken: false } => None,
                    Piece::Stop { broken: true } => {
                        // What came before is flushed when the body is not ready at once.
                        tokio::task::yield_now().await;
                        Some(Err(io::Error::other("the script breaks the connection here")))
                    }
                }
            }
        })
        .take_while(|piece| std::future::ready(piece.is_some()))
        .filter_map(std::future::ready)
        .filter(|piece| std::future::ready(!piece.as_ref().is_ok_and(String::is_empty)))
}

async fn unstreamed(reply: &ScriptedReply, request: &RecordedRequest) -> Value {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<Value>::new());
    for piece in &reply.pieces {
        match piece {
            Piece::Delta(delta) => {
                text += delta["content"].as_str().unwrap_or_default();
                reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
                let call = &delta["tool_calls"][0];
                if call["id"].is_string() {
                    calls.push(call.clone());
                } else if let (Some(last), Some(more)) = (calls.last_mut(), call["function"]["arguments"].as_str()) {
                    let arguments = last["function"]["arguments"].as_str().unwrap_or_default().to_owned() + more;
                    last["function"]["arguments"] = arguments.into();
                }
            }
            Piece::Gate(gate) => gate.pass().await,
            Piece::Delay(delay) => tokio::time::sleep(*delay).await,
            Piece::Raw(_) | Piece::Stop { .. } => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({"id": format!("reply-{}", request.number), "object": "chat.completion", "model": request.body["model"],
           "choices": [{"index": 0, "message": message, "finish_reason": reply.reason()}],
           "usage": reply.usage_json()})
}
