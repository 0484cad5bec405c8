//! Replies of the model server: pieces of text, reasoning and calls, and faults.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;

/// A reply to one request: text, reasoning and calls in pieces, or a fault.
#[derive(Debug, Clone)]
pub struct ScriptedReply {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) pieces: Vec<Piece>,
    pub(super) finish: Option<String>,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) before: Option<Gate>,
    pub(super) raw: bool,
}

/// One piece of a reply.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// Fields of a delta.
    Delta(Value),
    /// Bytes that are sent unchanged.
    Raw(String),
    /// Waits until the test opens the gate.
    Gate(Gate),
    /// Waits for a fixed time.
    Delay(Duration),
    /// Ends the body here, properly or by breaking the connection.
    Stop { broken: bool },
}

/// Holds a reply back until the test opens the gate.
#[derive(Debug, Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate that is closed until [`Gate::open`].
    pub fn new() -> Self {
        Self { open: watch::Sender::new(false), reached: watch::Sender::new(false) }
    }

    /// Releases every reply that waits at the gate.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Returns when a reply waits at the gate.
    pub async fn reached(&self) {
        wait_until(&self.reached, |reached| *reached).await;
    }

    /// Waits at the gate until it opens.
    pub async fn pass(&self) {
        self.reached.send_replace(true);
        wait_until(&self.open, |open| *open).await;
    }
}

/// Returns when a watched value fulfils a condition.
pub(super) async fn wait_until<T>(watched: &watch::Sender<T>, holds: impl FnMut(&T) -> bool) {
    // The sender is borrowed, so that the channel cannot close meanwhile.
    let _ = watched.subscribe().wait_for(holds).await;
}

impl ScriptedReply {
    fn with(pieces: Vec<Piece>) -> Self {
        Self {
            status: StatusCode::OK,
            headers: Vec::new(),
            pieces,
            finish: None,
            usage: Some((10, 5)),
            before: None,
            raw: false,
        }
    }

    /// A reply of text, streamed word by word.
    pub fn text(text: &str) -> Self {
        Self::with(Vec::new()).and_text(text)
    }

    /// A reply of tool calls by name and arguments; ids are `call_0`, `call_1` and so on.
    pub fn calls(calls: &[(&str, Value)]) -> Self {
        Self::with(Vec::new()).and_calls(calls)
    }

    /// A reply of text and a `continuation` pseudo-call of this status.
    pub fn signal(text: &str, status: &str) -> Self {
        Self::text(text).and_calls(&[("continuation", json!({"status": status, "reason": "scripted"}))])
    }

    /// An unchanged body with an HTTP status.
    pub fn status(status: u16, body: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, raw: true, ..Self::with(vec![Piece::Raw(body.to_owned())]) }
    }

    /// Bytes that are sent unchanged as an event stream.
    pub fn raw(body: &str) -> Self {
        Self { raw: true, ..Self::with(vec![Piece::Raw(body.to_owned())]) }
    }

    /// Sends no byte until the connection is dropped.
    pub fn hang() -> Self {
        Self { before: Some(Gate::new()), ..Self::with(Vec::new()) }
    }

    /// Adds text, one piece for each word.
    #[must_use]
    pub fn and_text(mut self, text: &str) -> Self {
        self.pieces.extend(text.split_inclusive(' ').map(|word| Piece::Delta(json!({"content": word}))));
        self
    }

    /// Adds reasoning in one piece.
    #[must_use]
    pub fn and_reasoning(self, text: &str) -> Self {
        self.and(Piece::Delta(json!({"reasoning_content": text})))
    }

    /// Adds tool calls; each comes in three pieces.
    #[must_use]
    pub fn and_calls(mut self, calls: &[(&str, Value)]) -> Self {
        for (index, (name, arguments)) in calls.iter().enumerate() {
            let arguments = arguments.to_string();
            let (head, tail) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
            let first = json!({"index": index, "id": format!("call_{index}"), "type": "function",
                               "function": {"name": name, "arguments": ""}});
            let more = |text: &str| json!({"index": index, "function": {"arguments": text}});
            let pieces = [first, more(head), more(tail)];
            self.pieces.extend(pieces.map(|call| Piece::Delta(json!({"tool_calls": [call]}))));
        }
        self.finish.get_or_insert_with(|| "tool_calls".to_owned());
        self
    }

    /// Waits at a gate before the next piece.
    #[must_use]
    pub fn and_gate(self, gate: &Gate) -> Self {
        self.and(Piece::Gate(gate.clone()))
    }

    /// Waits for a time before the next piece.
    #[must_use]
    pub fn and_delay(self, delay: Duration) -> Self {
        self.and(Piece::Delay(delay))
    }

    /// Sends nothing more and keeps the connection open.
    #[must_use]
    pub fn and_hang(self) -> Self {
        self.and(Piece::Gate(Gate::new()))
    }

    /// Adds bytes that are sent unchanged.
    #[must_use]
    pub fn and_raw(self, bytes: &str) -> Self {
        self.and(Piece::Raw(bytes.to_owned()))
    }

    /// Ends the body after the pieces so far, without a finish reason.
    #[must_use]
    pub fn and_stop(self) -> Self {
        self.and(Piece::Stop { broken: false })
    }

    /// Breaks the connection after the pieces so far.
    #[must_use]
    pub fn and_break(self) -> Self {
        self.and(Piece::Stop { broken: true })
    }

    /// Holds everything back, the status too, until the gate opens.
    #[must_use]
    pub fn before(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Sets the finish reason; without it, `stop` or `tool_calls`.
    #[must_use]
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.to_owned());
        self
    }

    /// Sets the token counts of request and reply; without it, 10 and 5.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some((input, output));
        self
    }

    /// Adds a header to the HTTP response.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn and(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }

    pub(super) fn reason(&self) -> &str {
        self.finish.as_deref().unwrap_or("stop")
    }

    pub(super) fn usage_json(&self) -> Value {
        self.usage.map_or(Value::Null, |(input, output)| {
            json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output)})
        })
    }
}
