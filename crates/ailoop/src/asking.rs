//! A person at the keyboard is asked what a session asks for. Pure; [`lines`] alone reads.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::{Duration, Instant};

use contract::event::{Event, GateKind, GateOpened};
use proto::AnswerRequest;
use tokio::sync::mpsc;

use crate::heard::{Heard, What};
use crate::printable::reveal_invisible;
use crate::render::is_shown_whole;

/// Lines that wait to be used.
const LINES_MAX: usize = 64;
/// Characters of a call's arguments that a prompt repeats.
const SUMMARY_CHARS_MAX: usize = 80;
/// How long a prompt stands before an answer without a number counts for it, where several are open: an answer that was
/// meant for the prompt before it must not go to one that came up while it was typed.
const ANSWER_AFTER: Duration = Duration::from_secs(1);

/// A line that a person typed.
#[derive(Debug)]
pub struct Line {
    /// Without its end.
    pub text: String,
    /// When it was read, which is when it was ended.
    pub at: Instant,
}

/// The open gates, ordered by when their prompts were shown, the newest last.
#[derive(Debug, Default)]
pub struct Asking {
    open: Vec<Question>,
    /// How many gates were ever opened here: the number of the newest.
    count: u32,
}

#[derive(Debug)]
struct Question {
    number: u32,
    gate: GateOpened,
    /// Whether the person could see all of what is approved.
    seen: bool,
    /// When its prompt was shown last. A line that was typed before is no answer to it.
    shown: Instant,
}

/// What a line comes to.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// Nothing was asked.
    Nothing,
    /// It is no answer; what would be one.
    Hint(String),
    /// All of the arguments are wanted, and the prompt that follows them.
    Show(String, String),
    /// This is answered; the session and the command's id are the caller's.
    Answer(Box<AnswerRequest>),
}

impl Asking {
    /// Nothing is asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of what is asked and of what is answered by whomever; returns what to ask the person now.
    pub fn on(&mut self, heard: &Heard, now: Instant) -> Option<String> {
        let What::Event(event) = &heard.what else { return None };
        if let Event::GateOpened(gate) = &**event {
            let whole = gate.arguments.as_ref().is_none_or(|arguments| is_shown_whole(arguments.get()));
            let seen = whole || gate.kind != GateKind::Approval;
            self.count += 1;
            self.open.push(Question { number: self.count, gate: gate.clone(), seen, shown: now });
        } else if let Event::GateClosed(closed) = &**event {
            let before = self.open.len();
            self.open.retain(|open| open.gate.gate != closed.gate);
            if self.open.len() == before {
                return None;
            }
        } else {
            return None;
        }
        let last = self.open.len().checked_sub(1)?;
        Some(self.prompt(last, now))
    }

    /// What a line of the person means. An answer that begins with a number goes to the prompt of that number, another
    /// one to the prompt that was shown last.
    pub fn said(&mut self, line: &Line, now: Instant) -> Said {
        let Some(last) = self.open.len().checked_sub(1) else { return Said::Nothing };
        let text = line.text.trim();
        let (index, text, is_numbered) = match self.numbered(text) {
            Some((index, rest)) => (index, rest, true),
            None => (last, text, false),
        };
        let Some(asked) = self.open.get(index) else { return Said::Nothing };
        let settled = if self.open.len() > 1 && !is_numbered { asked.shown + ANSWER_AFTER } else { asked.shown };
        if text.is_empty() || line.at < settled {
            return Said::Hint(self.prompt(index, now));
        }
        let gate = &asked.gate;
        let (decision, content) = match (gate.kind, text.to_lowercase().as_str()) {
            (GateKind::Question, _) => ("answer", Some(text.to_owned())),
            (GateKind::Approval, "s" | "show") => {
                let all = gate.arguments.as_ref().map(|all| reveal_invisible(all.get())).unwrap_or_default();
                if let Some(asked) = self.open.get_mut(index) {
                    asked.seen = true;
                }
                // What was typed before all of it stood there says nothing of it.
                return Said::Show(all, self.prompt(index, now));
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "y" | "yes") if asked.seen => {
                ("approve", None)
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "n" | "no") => ("deny", None),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), _) => {
                return Said::Hint(self.prompt(index, now));
            }
        };
        Said::Answer(Box::new(answer(gate, decision, content)))
    }

    /// The open prompt whose number a line begins with, and the rest of the line. A line of one open prompt is never
    /// read so, since an answer to a question may begin with a number.
    fn numbered<'a>(&self, text: &'a str) -> Option<(usize, &'a str)> {
        if self.open.len() < 2 {
            return None;
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let number: u32 = first.trim_start_matches('#').parse().ok()?;
        let index = self.open.iter().position(|open| open.number == number)?;
        Some((index, rest.trim()))
    }

    /// Shows a prompt, which is the newest from now on.
    fn prompt(&mut self, index: usize, now: Instant) -> String {
        let mut asked = self.open.remove(index);
        asked.shown = now;
        let mut text = asked.ask();
        if let Some(other) = self.open.last() {
            let count = self.open.len();
            let others = if count == 1 { "1 other is".to_owned() } else { format!("{count} others are") };
            let number = other.number;
            let _ = write!(text, " ({others} open: begin with its number to answer it, such as {number} y)");
        }
        self.open.push(asked);
        text
    }
}

impl Question {
    fn ask(&self) -> String {
        let Self { number, gate, seen, .. } = self;
        match gate.kind {
            GateKind::Question => format!("[{number}] {} Type your answer:", summary(gate)),
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "the call".to_owned(), ToString::to_string);
                if *seen {
                    let arguments = summary(gate);
                    let space = if arguments.is_empty() { "" } else { " " };
                    format!("[{number}] run {tool}{space}{arguments}? Type y for yes, n for no:")
                } else {
                    format!(
                        "[{number}] run {tool}? Its arguments are longer than this: type s to see all of them, then y \
                         for yes; n for no:"
                    )
                }
            }
            GateKind::Limit(limit) => {
                let limit = limit.as_str();
                format!(
                    "[{number}] go on for as much again (the turn is at its limit: {limit})? Type y for yes, n for no:"
                )
            }
            GateKind::Error(kind) => {
                let code = kind.code();
                format!("[{number}] try the model call again, which failed ({code})? Type y for yes, n for no:")
            }
        }
    }
}

/// An answer to a gate, without session and command.
pub fn answer(gate: &GateOpened, decision: &str, content: Option<String>) -> AnswerRequest {
    AnswerRequest {
        gate: gate.gate.to_string(),
        arguments_sha256: gate.arguments_sha256.clone(),
        decision: decision.to_owned(),
        content,
        ..AnswerRequest::default()
    }
}

/// The beginning of a gate's arguments, on one line.
fn summary(gate: &GateOpened) -> String {
    let arguments = gate.arguments.as_ref().map(contract::Json::get).unwrap_or_default();
    let line = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SUMMARY_CHARS_MAX {
        return reveal_invisible(&line);
    }
    let cut: String = line.chars().take(SUMMARY_CHARS_MAX - 1).chain(['…']).collect();
    reveal_invisible(&cut)
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
            tool: Some(contract::ToolName::new("write_file").unwrap()),
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

    /// What a line comes to, read a second after it was typed.
    fn said(asking: &mut Asking, text: &str, second: u64) -> Said {
        asking.said(&typed(text, second), at(second + 1))
    }

    /// What a line means, read a second after it was typed.
    fn hint(asking: &mut Asking, text: &str, second: u64) -> String {
        match said(asking, text, second) {
            Said::Hint(hint) => hint,
            other @ (Said::Nothing | Said::Show(..) | Said::Answer(_)) => panic!("{other:?}"),
        }
    }

    fn approval(gate: &str, path: &str) -> Heard {
        let arguments = Json::parse(&format!(r#"{{"path":"{path}"}}"#)).unwrap();
        with(gate, GateKind::Approval, Some(arguments))
    }

    #[test]
    fn approval_prompt_names_tool_and_arguments() {
        let mut asking = Asking::new();
        let prompt = asking.on(&approval("a", "one"), at(2)).unwrap();
        assert_eq!(prompt, r#"[1] run write_file {"path":"one"}? Type y for yes, n for no:"#);
        assert_eq!(hint(&mut asking, "perhaps", 4), prompt);
        assert_eq!(decided(said(&mut asking, " Yes ", 9)), ("a".to_owned(), "approve".to_owned(), None));
        assert_eq!(decided(said(&mut asking, "n", 9)), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(asking.on(&closed("a"), at(10)), None);
        assert_eq!(said(&mut asking, "y", 11), Said::Nothing);
    }

    #[test]
    fn two_approvals_answer_goes_to_the_one_shown_last() {
        let mut asking = Asking::new();
        asking.on(&approval("a", "one"), at(1));
        let second = asking.on(&approval("b", "two"), at(2)).unwrap();
        assert!(second.starts_with(r#"[2] run write_file {"path":"two"}?"#), "{second}");
        assert!(second.ends_with("(1 other is open: begin with its number to answer it, such as 1 y)"), "{second}");
        assert_eq!(decided(said(&mut asking, "y", 5)).0, "b");
        let first = asking.on(&closed("b"), at(6)).unwrap();
        assert_eq!(first, r#"[1] run write_file {"path":"one"}? Type y for yes, n for no:"#);
        assert_eq!(decided(said(&mut asking, "y", 8)).0, "a");
    }

    #[test]
    fn two_approvals_numbered_answer_goes_to_its_number() {
        let mut asking = Asking::new();
        asking.on(&approval("a", "one"), at(1));
        asking.on(&approval("b", "two"), at(2));
        assert_eq!(decided(said(&mut asking, "1 n", 5)), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(decided(said(&mut asking, "#1 y", 5)).0, "a");
        assert_eq!(decided(said(&mut asking, "2 y", 5)).0, "b");
        // A number alone shows that prompt again, which is the newest then.
        assert!(hint(&mut asking, "1", 6).starts_with("[1] "));
        assert_eq!(decided(said(&mut asking, "y", 9)).0, "a");
        assert!(hint(&mut asking, "7 y", 10).starts_with("[1] "), "there is no 7");
    }

    #[test]
    fn answer_typed_while_a_second_prompt_came_up_is_not_taken_for_it() {
        let mut asking = Asking::new();
        asking.on(&approval("a", "one"), at(1));
        asking.on(&approval("b", "two"), at(5));
        assert!(hint(&mut asking, "y", 5).starts_with("[2] "), "less than a second after it was shown");
        assert_eq!(decided(said(&mut asking, "y", 9)).0, "b");
    }

    #[test]
    fn question_answer_may_begin_with_a_number() {
        let mut asking = Asking::new();
        let asked = Json::parse(r#"{"question":"How many?"}"#).unwrap();
        let prompt = asking.on(&with("a", GateKind::Question, Some(asked)), at(1)).unwrap();
        assert_eq!(prompt, r#"[1] {"question":"How many?"} Type your answer:"#);
        assert_eq!(decided(said(&mut asking, "1 or 2", 3)).2.unwrap(), "1 or 2");
    }

    #[test]
    fn gate_answered_elsewhere_is_asked_no_more() {
        let mut asking = Asking::new();
        asking.on(&opened("a", GateKind::Approval), at(1));
        asking.on(&opened("b", GateKind::Approval), at(1));
        assert!(asking.on(&closed("b"), at(2)).unwrap().starts_with("[1] "));
        assert_eq!(decided(said(&mut asking, "y", 3)).0, "a");
        assert_eq!(asking.on(&closed("a"), at(4)), None);
        assert_eq!(asking.on(&closed("a"), at(4)), None);
    }

    #[test]
    fn line_typed_before_its_prompt_is_no_answer() {
        let mut asking = Asking::new();
        asking.on(&opened("a", GateKind::Approval), at(2));
        assert!(hint(&mut asking, "y", 1).starts_with("[1] "));
        // The prompt was shown again with the hint, a second after the line.
        assert_eq!(decided(said(&mut asking, "y", 4)).0, "a");
    }

    #[test]
    fn approval_of_unseen_arguments_is_refused() {
        let long = format!(r#"{{"command":"true {}; rm -rf /"}}"#, "x".repeat(1_000));
        let mut asking = Asking::new();
        let heard = with("a", GateKind::Approval, Some(Json::parse(&long).unwrap()));
        let hint_to_show = asking.on(&heard, at(1)).unwrap();
        assert!(hint_to_show.contains("type s to see all"), "{hint_to_show}");
        assert_eq!(hint(&mut asking, "y", 2), hint_to_show);
        let Said::Show(all, _) = said(&mut asking, "s", 3) else { panic!("not shown") };
        assert_eq!(all, long);
        // Typed with the `s`, and read after it.
        assert!(hint(&mut asking, "y", 3).contains("Type y for yes"));
        assert_eq!(decided(said(&mut asking, "y", 5)).1, "approve");
        assert_eq!(decided(said(&mut asking, "n", 5)).1, "deny");
        // White space in a text is shown as less than it is.
        let spaced = with("b", GateKind::Approval, Some(Json::parse(r#"{"text":"a  b"}"#).unwrap()));
        asking.on(&closed("a"), at(6));
        assert!(asking.on(&spaced, at(7)).unwrap().contains("type s to see all"));
    }

    #[test]
    fn approval_prompt_shows_invisible_characters() {
        let mut asking = Asking::new();
        let prompt = asking.on(&approval("a", "in\u{200b}visible\u{202e}").clone(), at(1)).unwrap();
        assert!(prompt.contains("in<U+200B>visible<U+202E>"), "{prompt}");
    }
}
