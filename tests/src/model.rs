//! An OpenAI-compatible model server for tests: answers as it is told, records what it is asked, and fails on demand.

// The path is said, so that another package's test can include this file by its path.
#[path = "model/reply.rs"]
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

use reply::Piece;
pub use reply::{Gate, Reply};

/// A running server on a port of its own; dropping it ends it and every connection.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Counts the requests from 0.
    pub number: usize,
    /// The request's headers.
    pub headers: HeaderMap,
    /// Its body; `null` where that is not JSON.
    pub body: Value,
}

/// Answers requests.
type Respond = dyn Fn(&Asked) -> Reply + Send + Sync;

struct Shared {
    respond: Box<Respond>,
    asked: Mutex<Vec<Asked>>,
    changed: watch::Sender<usize>,
    open: watch::Sender<usize>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Asked {
    /// The messages.
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

    /// The names of the tools on offer.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl ModelServer {
    /// Answers each request as a function of it.
    pub async fn start(respond: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            asked: Mutex::default(),
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

    /// Answers with these replies in turn, and with status 500 when they are used up.
    pub async fn with_replies(replies: Vec<Reply>) -> io::Result<Self> {
        let none = || Reply::status(500, r#"{"error":{"message":"the test has no reply left"}}"#);
        Self::start(move |asked| replies.get(asked.number).cloned().unwrap_or_else(none)).await
    }

    /// What `base_url` of a provider is set to.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Everything that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when `count` requests have come.
    pub async fn asked_times(&self, count: usize) {
        await_that(&self.shared.changed, |asked| *asked >= count).await;
    }

    /// Returns when no reply is being sent any more: each has ended, or its client has gone.
    pub async fn is_idle(&self) {
        await_that(&self.shared.open, |open| *open == 0).await;
    }
}

/// An address where nobody listens.
pub async fn refusing_url() -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok(format!("http://{}/v1", listener.local_addr()?))
}

async fn await_that<T>(watched: &watch::Sender<T>, holds: impl FnMut(&T) -> bool) {
    // The sender is borrowed, so that the channel cannot close meanwhile.
    let _ = watched.subscribe().wait_for(holds).await;
}

/// A reply that is being sent.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(shared.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let open = Open::new(&shared);
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = {
        let mut all = shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = Asked { number: all.len(), headers, body };
        all.push(asked.clone());
        asked
    };
    shared.changed.send_modify(|count| *count += 1);
    let reply = (shared.respond)(&asked);
    if let Some(gate) = &reply.before {
        gate.pass().await;
    }
    let streamed = asked.body["stream"] == true;
    let kind = if streamed { "text/event-stream" } else { "application/json" };
    let body = if streamed || reply.raw {
        Body::from_stream(streaming(&reply, &asked).map(move |piece| {
            let _open = &open;
            piece
        }))
    } else {
        Body::from(whole(&reply, &asked).await.to_string())
    };
    let mut response = (reply.status, [(header::CONTENT_TYPE, kind)], body).into_response();
    for (name, value) in &reply.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

fn streaming(reply: &Reply, asked: &Asked) -> impl Stream<Item = io::Result<String>> + use<> {
    let event = |value: &Value| format!("data: {value}\n\n");
    let head = json!({"id": format!("reply-{}", asked.number), "object": "chat.completion.chunk", "model": asked.body["model"]});
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
                        Some(Err(io::Error::other("as the test wants")))
                    }
                }
            }
        })
        .take_while(|piece| std::future::ready(piece.is_some()))
        .filter_map(std::future::ready)
        .filter(|piece| std::future::ready(!piece.as_ref().is_ok_and(String::is_empty)))
}

async fn whole(reply: &Reply, asked: &Asked) -> Value {
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
    json!({"id": format!("reply-{}", asked.number), "object": "chat.completion", "model": asked.body["model"],
           "choices": [{"index": 0, "message": message, "finish_reason": reply.reason()}],
           "usage": reply.usage_json()})
}
