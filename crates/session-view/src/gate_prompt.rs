//! Answers to gates, and the lines that a person types.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Instant;

use contract::event::GateOpened;
use proto::AnswerGateRequest;
use tokio::sync::mpsc;

/// Typed lines that are buffered.
const LINES_MAX: usize = 64;
/// Note for the model when a person gives no answer.
pub const DECLINED: &str = "the person declines to answer: go on without an answer, and say what you assumed";

/// A line that a person typed.
#[derive(Debug)]
pub struct TypedLine {
    /// The text without its line end.
    pub text: String,
    /// Time at which the person ended the line.
    pub at: Instant,
}

/// Makes an answer to a gate; the caller sets the session and the command id.
pub fn answer_request(gate: &GateOpened, decision: &str, content: Option<String>) -> AnswerGateRequest {
    AnswerGateRequest {
        gate: gate.gate.to_string(),
        arguments_sha256: gate.arguments_sha256.clone(),
        decision: decision.to_owned(),
        content,
        ..AnswerGateRequest::default()
    }
}

/// Reads typed lines in the background; returns none if stdin is no terminal.
pub fn read_lines() -> Option<mpsc::Receiver<TypedLine>> {
    std::io::stdin().is_terminal().then(spawn_reader)
}

/// Reads the lines of stdin in the background.
pub(crate) fn spawn_reader() -> mpsc::Receiver<TypedLine> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // A blocking read of a terminal cannot be cancelled, so a thread does it, which ends with the process or the
    // receiver.
    std::thread::spawn(move || {
        for text in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(TypedLine { text, at: Instant::now() }).is_err() {
                return;
            }
        }
    });
    receiver
}
