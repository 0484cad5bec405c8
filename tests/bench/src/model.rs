//! The model's part: an OpenAI-compatible server that answers at once, four times with a tool call, then with a text.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::process::announce;
use crate::tool::TOOL;

/// Steps of a session whose user names no other number: each but the last one calls the tool once.
pub(crate) const STEPS: usize = 5;

/// Bytes of the bodies of all requests.
static RECEIVED: AtomicUsize = AtomicUsize::new(0);

/// User message that asks for a call of [`SILENT`].
pub(crate) const CALL_SILENT: &str = "Call the silent tool.";
/// User message that asks for a call of [`STRICT`].
pub(crate) const CALL_STRICT: &str = "Call the strict tool.";
/// User message that asks for a reply of 64 KiB.
pub(crate) const SAY_MUCH: &str = "Say much.";
/// A tool that never answers.
pub(crate) const SILENT: &str = "silent";
/// A tool whose schema costs as much as a schema may.
pub(crate) const STRICT: &str = "strict";

#[derive(Deserialize)]
struct ChatRequest {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

/// Serves until the process is ended.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    announce(&format!("http://{}/v1", listener.local_addr()?));
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Small replies must not wait for each other; a refusal costs only that.
        let _ = stream.set_nodelay(true);
    });
    let router = Router::new().route("/v1/chat/completions", post(answer)).route("/v1/received", get(received));
    axum::serve(listener, router).await.context("the model server ended")
}

/// Bytes of all requests so far, as text.
async fn received() -> String {
    RECEIVED.load(Ordering::Relaxed).to_string()
}

async fn answer(body: Bytes) -> impl IntoResponse {
    RECEIVED.fetch_add(body.len(), Ordering::Relaxed);
    let messages = serde_json::from_slice::<ChatRequest>(&body).map_or(Vec::new(), |request| request.messages);
    let (done, steps) = turn(&messages);
    let reply = costly(&messages, done).unwrap_or_else(|| if done + 1 < steps { call(done) } else { end() });
    ([(CONTENT_TYPE, "text/event-stream")], reply)
}

/// The reply to a user who wants something that costs much: a tool that never answers, arguments that are long to
/// check, or a text that patterns are long to search in.
fn costly(messages: &[Message], done: usize) -> Option<String> {
    let user = messages.iter().rfind(|message| message.role == "user")?;
    let wanted = user.content.as_str()?;
    let arguments = match wanted {
        CALL_SILENT => json!({}),
        CALL_STRICT => json!({"values": vec!["not a number"; 4_000]}),
        SAY_MUCH => return Some(stream(&[json!({"content": "word after word ".repeat(4_096)})], "stop")),
        _ => return None,
    };
    let tool = if wanted == CALL_SILENT { SILENT } else { STRICT };
    let call = json!({"index": 0, "id": "call", "type": "function",
                      "function": {"name": tool, "arguments": arguments.to_string()}});
    Some(if done == 0 { stream(&[json!({"tool_calls": [call]})], "tool_calls") } else { end() })
}

/// Replies since the last user message, and the first number in that message.
fn turn(messages: &[Message]) -> (usize, usize) {
    let since = messages.iter().rposition(|message| message.role == "user").unwrap_or(0);
    let done = messages[since..].iter().filter(|message| message.role == "assistant").count();
    let text = messages.get(since).and_then(|message| message.content.as_str()).unwrap_or_default();
    (done, text.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(STEPS))
}

fn call(step: usize) -> String {
    let arguments = json!({"part": step, "text": "the quick brown fox jumps over the lazy dog"}).to_string();
    let call = json!({"index": 0, "id": format!("call_{step}"), "type": "function",
                      "function": {"name": TOOL, "arguments": arguments}});
    stream(&[json!({"content": format!("Part {step} comes next.")}), json!({"tool_calls": [call]})], "tool_calls")
}

fn end() -> String {
    stream(&[json!({"content": "All parts are done."})], "stop")
}

fn stream(deltas: &[Value], reason: &str) -> String {
    let event = |value: &Value| format!("data: {value}\n\n");
    let choice = |delta: &Value, finish: Value| {
        event(&json!({"id": "reply", "object": "chat.completion.chunk", "model": "bench",
                      "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let mut text: String = deltas.iter().map(|delta| choice(delta, Value::Null)).collect();
    text += &choice(&json!({}), json!(reason));
    text +=
        &event(&json!({"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930}}));
    text + "data: [DONE]\n\n"
}
