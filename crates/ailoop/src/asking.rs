//! A person at the keyboard is asked what a session asks for. Pure; [`lines`] alone reads.

use std::collections::VecDeque;
use std::io::{BufRead as _, IsTerminal as _};

use contract::CallId;
use contract::event::{Event, GateKind, GateOpened};
use proto::AnswerRequest;
use tokio::sync::mpsc;

use crate::heard::{Heard, What};

/// Lines that wait to be used.
const LINES_MAX: usize = 64;

/// What is open, in the order in which it was asked.
#[derive(Debug, Default)]
pub struct Asking {
    open: VecDeque<GateOpened>,
}

/// What a line comes to.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// Nothing was asked.
    Nothing,
    /// It is no answer; what would be one.
    Hint(&'static str),
    /// This is answered; the session and the command's id are the caller's.
    Answer(Box<AnswerRequest>),
}

impl Asking {
    /// Takes note of what is asked and of what is answered by whomever; returns what to ask the person now.
    pub fn on(&mut self, heard: &Heard) -> Option<&'static str> {
        let What::Event(event) = &heard.what else { return None };
        if let Event::GateOpened(gate) = &**event {
            self.open.push_back(gate.clone());
            return (self.open.len() == 1).then(|| self.prompt()).flatten();
        }
        if let Event::GateClosed(closed) = &**event {
            return self.close(&closed.gate);
        }
        None
    }

    /// What a line of the person means.
    pub fn said(&self, line: &str) -> Said {
        let Some(gate) = self.open.front() else { return Said::Nothing };
        let line = line.trim();
        let (decision, content) = match (gate.kind, line.to_lowercase().as_str()) {
            (_, "") => return Said::Hint(ask(gate.kind)),
            (GateKind::Question, _) => ("answer", Some(line.to_owned())),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "y" | "yes") => ("approve", None),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "n" | "no") => ("deny", None),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), _) => return Said::Hint(ask(gate.kind)),
        };
        Said::Answer(Box::new(AnswerRequest {
            gate: gate.gate.to_string(),
            arguments_sha256: gate.arguments_sha256.clone(),
            decision: decision.to_owned(),
            content,
            ..AnswerRequest::default()
        }))
    }

    fn close(&mut self, gate: &CallId) -> Option<&'static str> {
        let first = self.open.front().is_some_and(|open| open.gate == *gate);
        self.open.retain(|open| open.gate != *gate);
        if first { self.prompt() } else { None }
    }

    fn prompt(&self) -> Option<&'static str> {
        self.open.front().map(|gate| ask(gate.kind))
    }
}

fn ask(kind: GateKind) -> &'static str {
    match kind {
        GateKind::Question => "type your answer:",
        GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_) => "type y for yes, n for no:",
    }
}

/// What a person types, line by line; none where stdin is no keyboard.
pub fn lines() -> Option<mpsc::Receiver<String>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // A thread of its own, since reading a keyboard cannot be called off: it ends with the process, or with the reader.
    std::thread::spawn(move || {
        for line in stdin.lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(event: Event) -> Heard {
        Heard { seq: Some(1), time: None, trace_id: String::new(), what: What::Event(Box::new(event)) }
    }

    fn opened(gate: &str, kind: GateKind) -> Heard {
        heard(Event::GateOpened(GateOpened {
            gate: CallId::new(gate).unwrap(),
            kind,
            arguments_sha256: format!("hash of {gate}"),
            expires: contract::Timestamp::default(),
            tool: None,
            arguments: None,
            on_expiry: contract::settings::OnExpiry::Deny,
        }))
    }

    fn closed(gate: &str) -> Heard {
        let data = format!(r#"{{"type":"gate.closed","data":{{"gate":"{gate}","decision":"deny"}}}}"#);
        heard(serde_json::from_str(&data).unwrap())
    }

    fn decided(said: Said) -> (String, String, Option<String>) {
        let Said::Answer(answer) = said else { panic!("{said:?}") };
        assert_eq!(answer.arguments_sha256, format!("hash of {}", answer.gate));
        (answer.gate, answer.decision, answer.content)
    }

    #[test]
    fn one_is_asked_after_the_other_and_the_answer_is_to_the_one_that_is_asked() {
        let mut asking = Asking::default();
        assert_eq!(asking.said("y"), Said::Nothing);
        assert_eq!(asking.on(&opened("a", GateKind::Approval)), Some("type y for yes, n for no:"));
        assert_eq!(asking.on(&opened("b", GateKind::Question)), None, "one at a time");
        assert_eq!(asking.said("perhaps"), Said::Hint("type y for yes, n for no:"));
        assert_eq!(decided(asking.said(" Yes ")), ("a".to_owned(), "approve".to_owned(), None));
        assert_eq!(decided(asking.said("n")), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(asking.on(&closed("a")), Some("type your answer:"));
        assert_eq!(decided(asking.said("y")), ("b".to_owned(), "answer".to_owned(), Some("y".to_owned())));
        assert_eq!(asking.on(&closed("b")), None);
        assert_eq!(asking.said("y"), Said::Nothing);
    }

    #[test]
    fn what_somebody_else_answered_is_asked_no_more() {
        let mut asking = Asking::default();
        asking.on(&opened("a", GateKind::Approval));
        asking.on(&opened("b", GateKind::Approval));
        assert_eq!(asking.on(&closed("b")), None);
        assert_eq!(decided(asking.said("y")).0, "a");
        assert_eq!(asking.on(&closed("a")), None);
    }
}
