//! A person at the keyboard is asked what a session asks for. Pure; [`lines`] alone reads.

use std::collections::VecDeque;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::Instant;

use contract::event::{Event, GateKind, GateOpened};
use proto::AnswerRequest;
use tokio::sync::mpsc;

use crate::heard::{Heard, What};
use crate::render::is_shown_whole;

/// Lines that wait to be used.
const LINES_MAX: usize = 64;

/// A line that a person typed.
#[derive(Debug)]
pub struct Line {
    /// Without its end.
    pub text: String,
    /// When it was read, which is when it was ended.
    pub at: Instant,
}

/// What is open, in the order in which it was asked.
#[derive(Debug)]
pub struct Asking {
    open: VecDeque<Question>,
    /// When the first of them was shown. What was typed before that is no answer to it.
    shown: Instant,
}

#[derive(Debug)]
struct Question {
    gate: GateOpened,
    /// Whether the person could see all of what is approved.
    seen: bool,
}

/// What a line comes to.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// Nothing was asked.
    Nothing,
    /// It is no answer; what would be one.
    Hint(&'static str),
    /// All of the arguments are wanted.
    Show(String),
    /// This is answered; the session and the command's id are the caller's.
    Answer(Box<AnswerRequest>),
}

impl Asking {
    /// Nothing is asked yet.
    pub fn new() -> Self {
        Self { open: VecDeque::new(), shown: Instant::now() }
    }

    /// Takes note of what is asked and of what is answered by whomever; returns what to ask the person now.
    pub fn on(&mut self, heard: &Heard, now: Instant) -> Option<&'static str> {
        let What::Event(event) = &heard.what else { return None };
        let is_new = if let Event::GateOpened(gate) = &**event {
            let whole = gate.arguments.as_ref().is_none_or(|arguments| is_shown_whole(arguments.get()));
            self.open.push_back(Question { gate: gate.clone(), seen: whole || gate.kind != GateKind::Approval });
            self.open.len() == 1
        } else if let Event::GateClosed(closed) = &**event {
            let first = self.open.front().is_some_and(|open| open.gate.gate == closed.gate);
            self.open.retain(|open| open.gate.gate != closed.gate);
            first
        } else {
            false
        };
        let asked = self.open.front().filter(|_| is_new)?;
        self.shown = now;
        Some(asked.ask())
    }

    /// What a line of the person means.
    pub fn said(&mut self, line: &Line, now: Instant) -> Said {
        let shown = self.shown;
        let Some(asked) = self.open.front_mut() else { return Said::Nothing };
        let (text, gate) = (line.text.trim(), &asked.gate);
        if text.is_empty() || line.at < shown {
            return Said::Hint(asked.ask());
        }
        let (decision, content) = match (gate.kind, text.to_lowercase().as_str()) {
            (GateKind::Question, _) => ("answer", Some(text.to_owned())),
            (GateKind::Approval, "s" | "show") => {
                asked.seen = true;
                // What was typed before all of it stood there says nothing of it.
                self.shown = now;
                return Said::Show(gate.arguments.as_ref().map(|all| all.get().to_owned()).unwrap_or_default());
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "y" | "yes") if asked.seen => {
                ("approve", None)
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "n" | "no") => ("deny", None),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), _) => return Said::Hint(asked.ask()),
        };
        Said::Answer(Box::new(AnswerRequest {
            gate: gate.gate.to_string(),
            arguments_sha256: gate.arguments_sha256.clone(),
            decision: decision.to_owned(),
            content,
            ..AnswerRequest::default()
        }))
    }
}

impl Default for Asking {
    fn default() -> Self {
        Self::new()
    }
}

impl Question {
    fn ask(&self) -> &'static str {
        match (self.gate.kind, self.seen) {
            (GateKind::Question, _) => "type your answer:",
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), true) => "type y for yes, n for no:",
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), false) => {
                "the arguments are longer than this: type s to see all of them, then y for yes; n for no:"
            }
        }
    }
}

/// What a person types, line by line; none where stdin is no keyboard.
pub fn lines() -> Option<mpsc::Receiver<Line>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    // A thread of its own, since reading a keyboard cannot be called off: it ends with the process, or with the reader.
    std::thread::spawn(move || {
        for text in stdin.lock().lines().map_while(Result::ok) {
            if sender.blocking_send(Line { text, at: Instant::now() }).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{CallId, Json};
    use std::sync::LazyLock;
    use std::time::Duration;

    fn heard(event: Event) -> Heard {
        Heard { seq: Some(1), time: None, trace_id: String::new(), what: What::Event(Box::new(event)) }
    }

    fn opened(gate: &str, kind: GateKind) -> Heard {
        with(gate, kind, None)
    }

    fn with(gate: &str, kind: GateKind, arguments: Option<Json>) -> Heard {
        heard(Event::GateOpened(GateOpened {
            gate: CallId::new(gate).unwrap(),
            kind,
            arguments_sha256: format!("hash of {gate}"),
            expires: contract::Timestamp::default(),
            tool: None,
            arguments,
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

    /// A line that is typed at a second of the story.
    fn typed(text: &str, second: u64) -> Line {
        Line { text: text.to_owned(), at: at(second) }
    }

    fn at(second: u64) -> Instant {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        *BEGIN + Duration::from_secs(second)
    }

    /// What a line means, read a second after it was typed.
    fn said(asking: &mut Asking, text: &str, second: u64) -> Said {
        asking.said(&typed(text, second), at(second + 1))
    }

    const YES_OR_NO: &str = "type y for yes, n for no:";

    #[test]
    fn one_is_asked_after_the_other_and_the_answer_is_to_the_one_that_is_asked() {
        let mut asking = Asking::default();
        assert_eq!(said(&mut asking, "y", 1), Said::Nothing);
        assert_eq!(asking.on(&opened("a", GateKind::Approval), at(2)), Some(YES_OR_NO));
        assert_eq!(asking.on(&opened("b", GateKind::Question), at(3)), None, "one at a time");
        assert_eq!(said(&mut asking, "perhaps", 4), Said::Hint(YES_OR_NO));
        assert_eq!(decided(said(&mut asking, " Yes ", 4)), ("a".to_owned(), "approve".to_owned(), None));
        assert_eq!(decided(said(&mut asking, "n", 4)), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(asking.on(&closed("a"), at(5)), Some("type your answer:"));
        assert_eq!(decided(said(&mut asking, "y", 6)), ("b".to_owned(), "answer".to_owned(), Some("y".to_owned())));
        assert_eq!(asking.on(&closed("b"), at(7)), None);
        assert_eq!(said(&mut asking, "y", 8), Said::Nothing);
    }

    #[test]
    fn what_somebody_else_answered_is_asked_no_more() {
        let mut asking = Asking::default();
        asking.on(&opened("a", GateKind::Approval), at(1));
        asking.on(&opened("b", GateKind::Approval), at(1));
        assert_eq!(asking.on(&closed("b"), at(2)), None);
        assert_eq!(decided(said(&mut asking, "y", 3)).0, "a");
        assert_eq!(asking.on(&closed("a"), at(4)), None);
    }

    #[test]
    fn what_was_typed_before_the_question_was_there_does_not_answer_it() {
        let mut asking = Asking::default();
        asking.on(&opened("a", GateKind::Approval), at(2));
        asking.on(&opened("b", GateKind::Approval), at(3));
        assert_eq!(said(&mut asking, "y", 1), Said::Hint(YES_OR_NO));
        // Twice yes to the first one is no yes to the second.
        assert_eq!(decided(said(&mut asking, "y", 4)).0, "a");
        asking.on(&closed("a"), at(6));
        assert_eq!(said(&mut asking, "y", 5), Said::Hint(YES_OR_NO));
        assert_eq!(decided(said(&mut asking, "y", 7)).0, "b");
    }

    #[test]
    fn nobody_approves_what_was_not_shown() {
        let long = format!(r#"{{"command":"true {}; rm -rf /"}}"#, "x".repeat(1_000));
        let mut asking = Asking::default();
        let heard = with("a", GateKind::Approval, Some(Json::parse(&long).unwrap()));
        let hint = asking.on(&heard, at(1)).unwrap();
        assert!(hint.contains("type s to see all"), "{hint}");
        assert_eq!(said(&mut asking, "y", 2), Said::Hint(hint));
        assert_eq!(said(&mut asking, "s", 3), Said::Show(long));
        // Typed with the `s`, and read after it.
        assert_eq!(said(&mut asking, "y", 3), Said::Hint(YES_OR_NO));
        assert_eq!(decided(said(&mut asking, "y", 5)).1, "approve");
        assert_eq!(decided(said(&mut asking, "n", 5)).1, "deny");
        // White space in a text is shown as less than it is.
        let spaced = with("b", GateKind::Approval, Some(Json::parse(r#"{"text":"a  b"}"#).unwrap()));
        asking.on(&closed("a"), at(6));
        assert!(asking.on(&spaced, at(7)).unwrap().contains("type s to see all"));
    }
}
