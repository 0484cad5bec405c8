//! Prompts at the keyboard for the open gates of a session. Only [`read_lines`] does IO.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::{Duration, Instant};

use contract::event::{Event, GateKind, GateOpened};
use proto::AnswerRequest;
use tokio::sync::mpsc;

use crate::notification::{NotificationContent, ParsedNotification};
use crate::printable::reveal_invisible;
use crate::render::is_shown_whole;

/// Typed lines that are buffered.
const LINES_MAX: usize = 64;
/// Characters of a call's arguments that a prompt repeats.
const SUMMARY_CHARS_MAX: usize = 80;
/// Age of a prompt from which it accepts an answer without a number while several are open. A person may be typing the
/// answer to the older prompt when a newer one appears, and that answer must not go to the newer one.
const UNNUMBERED_ANSWER_DELAY: Duration = Duration::from_secs(1);

/// A line that a person typed.
#[derive(Debug)]
pub(crate) struct TypedLine {
    /// The text without its line end.
    pub(crate) text: String,
    /// When the person ended the line.
    pub(crate) at: Instant,
}

/// The open gates, ordered by when their prompts were shown, the newest last.
#[derive(Debug, Default)]
pub(crate) struct GatePrompts {
    open: Vec<OpenPrompt>,
    /// Number of the newest gate, counted from 1.
    count: u32,
}

/// A gate that waits for its answer.
#[derive(Debug)]
struct OpenPrompt {
    number: u32,
    gate: GateOpened,
    /// Whether the person could read all of the arguments; only then may they approve.
    is_readable: bool,
    /// When the prompt was last shown. A line that was typed earlier is no answer to it.
    shown_at: Instant,
}

/// What a typed line means.
#[derive(Debug, PartialEq)]
pub(crate) enum LineMeaning {
    /// No gate is open.
    Ignored,
    /// The line is no answer; the text says what would be one.
    Hint(String),
    /// The person wants to see all of the arguments; the prompt to show after them.
    ShowArguments { arguments: String, prompt: String },
    /// An answer, in which the caller sets the session and the command id.
    Answer(Box<AnswerRequest>),
}

impl GatePrompts {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Applies a notification; returns the prompt to show now, if it changed.
    pub(crate) fn update(&mut self, notification: &ParsedNotification, now: Instant) -> Option<String> {
        let NotificationContent::Event(event) = &notification.content else { return None };
        match &**event {
            Event::GateOpened(gate) => {
                let is_whole = gate.arguments.as_ref().is_none_or(|arguments| is_shown_whole(arguments.get()));
                let is_readable = is_whole || gate.kind != GateKind::Approval;
                self.count += 1;
                self.open.push(OpenPrompt { number: self.count, gate: gate.clone(), is_readable, shown_at: now });
            }
            Event::GateClosed(closed) => {
                let before = self.open.len();
                self.open.retain(|open| open.gate.gate != closed.gate);
                if self.open.len() == before {
                    return None;
                }
            }
            Event::SessionStarted(_)
            | Event::SessionEnded(_)
            | Event::UserProcessed(_)
            | Event::AiFullReceived(_)
            | Event::ToolCallResult(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::TurnCompleted(_)
            | Event::ContextCleared(_)
            | Event::ContextPruned(_)
            | Event::Configured(_)
            | Event::Error(_)
            | Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::TurnStarted(_)
            | Event::ToolsResolved(_)
            | Event::ModelCallOpened(_)
            | Event::ContinuationProgress(_)
            | Event::ModelCallFailed(_)
            | Event::CallCancelled(_)
            | Event::ModelCallInterrupted(_)
            | Event::ToolCallIdentified(_)
            | Event::ToolCallOpened(_)
            | Event::ClientCallOpened(_)
            | Event::ToolCallExtended(_)
            | Event::ModelFellBack(_)
            | Event::LimitReached(_)
            | Event::SummaryOpened(_)
            | Event::JudgeOpened(_)
            | Event::ChildCommanded(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::Unknown => return None,
        }
        let last = self.open.len().checked_sub(1)?;
        Some(self.show_prompt(last, now))
    }

    /// Interprets a typed line. An answer that begins with a number goes to the prompt of that number, any other answer
    /// to the prompt that was shown last.
    pub(crate) fn interpret(&mut self, line: &TypedLine, now: Instant) -> LineMeaning {
        let Some(last) = self.open.len().checked_sub(1) else { return LineMeaning::Ignored };
        let text = line.text.trim();
        let (index, text, is_numbered) = match self.find_numbered(text) {
            Some((index, rest)) => (index, rest, true),
            None => (last, text, false),
        };
        let Some(open) = self.open.get(index) else { return LineMeaning::Ignored };
        let is_ambiguous = self.open.len() > 1 && !is_numbered;
        let accepts_from = if is_ambiguous { open.shown_at + UNNUMBERED_ANSWER_DELAY } else { open.shown_at };
        if text.is_empty() || line.at < accepts_from {
            return LineMeaning::Hint(self.show_prompt(index, now));
        }
        let gate = &open.gate;
        let (decision, content) = match (gate.kind, text.to_lowercase().as_str()) {
            (GateKind::Question, _) => ("answer", Some(text.to_owned())),
            (GateKind::Approval, "s" | "show") => {
                let arguments = gate.arguments.as_ref().map(|all| reveal_invisible(all.get())).unwrap_or_default();
                if let Some(open) = self.open.get_mut(index) {
                    open.is_readable = true;
                }
                // The prompt is shown again, so that lines typed before the arguments were visible do not approve them.
                let prompt = self.show_prompt(index, now);
                return LineMeaning::ShowArguments { arguments, prompt };
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "y" | "yes") if open.is_readable => {
                ("approve", None)
            }
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), "n" | "no") => ("deny", None),
            (GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_), _) => {
                return LineMeaning::Hint(self.show_prompt(index, now));
            }
        };
        LineMeaning::Answer(Box::new(answer_request(gate, decision, content)))
    }

    /// Finds the open prompt whose number a line begins with; returns its index and the rest of the line. With one open
    /// prompt a number is part of the answer, since an answer to a question may begin with one.
    fn find_numbered<'a>(&self, text: &'a str) -> Option<(usize, &'a str)> {
        if self.open.len() < 2 {
            return None;
        }
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let number: u32 = first.trim_start_matches('#').parse().ok()?;
        let index = self.open.iter().position(|open| open.number == number)?;
        Some((index, rest.trim()))
    }

    /// Returns the text of a prompt, which becomes the one that was shown last.
    fn show_prompt(&mut self, index: usize, now: Instant) -> String {
        let mut prompt = self.open.remove(index);
        prompt.shown_at = now;
        let mut text = prompt.format();
        if let Some(other) = self.open.last() {
            let count = self.open.len();
            let others = if count == 1 { "1 other is".to_owned() } else { format!("{count} others are") };
            let number = other.number;
            let _ = write!(text, " ({others} open: begin with its number to answer it, such as {number} y)");
        }
        self.open.push(prompt);
        text
    }
}

impl OpenPrompt {
    fn format(&self) -> String {
        let Self { number, gate, is_readable, .. } = self;
        match gate.kind {
            GateKind::Question => format!("[{number}] {} Type your answer:", summarize_arguments(gate)),
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "the call".to_owned(), ToString::to_string);
                if *is_readable {
                    let arguments = summarize_arguments(gate);
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

/// Makes an answer to a gate; the caller sets the session and the command id.
pub(crate) fn answer_request(gate: &GateOpened, decision: &str, content: Option<String>) -> AnswerRequest {
    AnswerRequest {
        gate: gate.gate.to_string(),
        arguments_sha256: gate.arguments_sha256.clone(),
        decision: decision.to_owned(),
        content,
        ..AnswerRequest::default()
    }
}

/// Returns the beginning of a gate's arguments on one line.
fn summarize_arguments(gate: &GateOpened) -> String {
    let arguments = gate.arguments.as_ref().map(contract::Json::get).unwrap_or_default();
    let line = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= SUMMARY_CHARS_MAX {
        return reveal_invisible(&line);
    }
    let cut: String = line.chars().take(SUMMARY_CHARS_MAX - 1).chain(['…']).collect();
    reveal_invisible(&cut)
}

/// Reads typed lines in the background; returns none if stdin is no terminal.
pub(crate) fn read_lines() -> Option<mpsc::Receiver<TypedLine>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{CallId, Json};
    use std::sync::LazyLock;
    use std::time::Duration;

    fn notify(event: Event) -> ParsedNotification {
        ParsedNotification {
            seq: Some(1),
            time: None,
            trace_id: String::new(),
            content: NotificationContent::Event(Box::new(event)),
        }
    }

    fn open_gate(gate: &str, kind: GateKind) -> ParsedNotification {
        open_gate_with(gate, kind, None)
    }

    fn open_gate_with(gate: &str, kind: GateKind, arguments: Option<Json>) -> ParsedNotification {
        notify(Event::GateOpened(GateOpened {
            gate: CallId::new(gate).unwrap(),
            kind,
            arguments_sha256: format!("hash of {gate}"),
            expires: contract::Timestamp::default(),
            tool: Some(contract::ToolName::new("write_file").unwrap()),
            arguments,
            on_expiry: contract::settings::OnExpiry::Deny,
        }))
    }

    fn close_gate(gate: &str) -> ParsedNotification {
        let data = format!(r#"{{"type":"gate.closed","data":{{"gate":"{gate}","decision":"deny"}}}}"#);
        notify(serde_json::from_str(&data).unwrap())
    }

    fn expect_answer(meaning: LineMeaning) -> (String, String, Option<String>) {
        let LineMeaning::Answer(answer) = meaning else { panic!("{meaning:?}") };
        assert_eq!(answer.arguments_sha256, format!("hash of {}", answer.gate));
        (answer.gate, answer.decision, answer.content)
    }

    /// A line that is typed at this second of the test.
    fn type_line(text: &str, second: u64) -> TypedLine {
        TypedLine { text: text.to_owned(), at: at(second) }
    }

    fn at(second: u64) -> Instant {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        *BEGIN + Duration::from_secs(second)
    }

    /// Interprets a line a second after it was typed.
    fn interpret(prompts: &mut GatePrompts, text: &str, second: u64) -> LineMeaning {
        prompts.interpret(&type_line(text, second), at(second + 1))
    }

    fn expect_hint(prompts: &mut GatePrompts, text: &str, second: u64) -> String {
        match interpret(prompts, text, second) {
            LineMeaning::Hint(hint) => hint,
            other @ (LineMeaning::Ignored | LineMeaning::ShowArguments { .. } | LineMeaning::Answer(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn open_approval(gate: &str, path: &str) -> ParsedNotification {
        let arguments = Json::parse(&format!(r#"{{"path":"{path}"}}"#)).unwrap();
        open_gate_with(gate, GateKind::Approval, Some(arguments))
    }

    #[test]
    fn approval_prompt_names_tool_and_arguments() {
        let mut prompts = GatePrompts::new();
        let prompt = prompts.update(&open_approval("a", "one"), at(2)).unwrap();
        assert_eq!(prompt, r#"[1] run write_file {"path":"one"}? Type y for yes, n for no:"#);
        assert_eq!(expect_hint(&mut prompts, "perhaps", 4), prompt);
        assert_eq!(expect_answer(interpret(&mut prompts, " Yes ", 9)), ("a".to_owned(), "approve".to_owned(), None));
        assert_eq!(expect_answer(interpret(&mut prompts, "n", 9)), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(prompts.update(&close_gate("a"), at(10)), None);
        assert_eq!(interpret(&mut prompts, "y", 11), LineMeaning::Ignored);
    }

    #[test]
    fn two_approvals_answer_goes_to_the_one_shown_last() {
        let mut prompts = GatePrompts::new();
        prompts.update(&open_approval("a", "one"), at(1));
        let second = prompts.update(&open_approval("b", "two"), at(2)).unwrap();
        assert!(second.starts_with(r#"[2] run write_file {"path":"two"}?"#), "{second}");
        assert!(second.ends_with("(1 other is open: begin with its number to answer it, such as 1 y)"), "{second}");
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 5)).0, "b");
        let first = prompts.update(&close_gate("b"), at(6)).unwrap();
        assert_eq!(first, r#"[1] run write_file {"path":"one"}? Type y for yes, n for no:"#);
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 8)).0, "a");
    }

    #[test]
    fn two_approvals_numbered_answer_goes_to_its_number() {
        let mut prompts = GatePrompts::new();
        prompts.update(&open_approval("a", "one"), at(1));
        prompts.update(&open_approval("b", "two"), at(2));
        assert_eq!(expect_answer(interpret(&mut prompts, "1 n", 5)), ("a".to_owned(), "deny".to_owned(), None));
        assert_eq!(expect_answer(interpret(&mut prompts, "#1 y", 5)).0, "a");
        assert_eq!(expect_answer(interpret(&mut prompts, "2 y", 5)).0, "b");
        // A number alone shows that prompt again, which makes it the one that was shown last.
        assert!(expect_hint(&mut prompts, "1", 6).starts_with("[1] "));
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 9)).0, "a");
        assert!(expect_hint(&mut prompts, "7 y", 10).starts_with("[1] "), "there is no 7");
    }

    #[test]
    fn answer_typed_while_second_prompt_appears_does_not_answer_it() {
        let mut prompts = GatePrompts::new();
        prompts.update(&open_approval("a", "one"), at(1));
        prompts.update(&open_approval("b", "two"), at(5));
        assert!(expect_hint(&mut prompts, "y", 5).starts_with("[2] "), "less than a second after it was shown");
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 9)).0, "b");
    }

    #[test]
    fn question_answer_may_begin_with_a_number() {
        let mut prompts = GatePrompts::new();
        let question = Json::parse(r#"{"question":"How many?"}"#).unwrap();
        let prompt = prompts.update(&open_gate_with("a", GateKind::Question, Some(question)), at(1)).unwrap();
        assert_eq!(prompt, r#"[1] {"question":"How many?"} Type your answer:"#);
        assert_eq!(expect_answer(interpret(&mut prompts, "1 or 2", 3)).2.unwrap(), "1 or 2");
    }

    #[test]
    fn gate_answered_elsewhere_is_prompted_no_more() {
        let mut prompts = GatePrompts::new();
        prompts.update(&open_gate("a", GateKind::Approval), at(1));
        prompts.update(&open_gate("b", GateKind::Approval), at(1));
        assert!(prompts.update(&close_gate("b"), at(2)).unwrap().starts_with("[1] "));
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 3)).0, "a");
        assert_eq!(prompts.update(&close_gate("a"), at(4)), None);
        assert_eq!(prompts.update(&close_gate("a"), at(4)), None);
    }

    #[test]
    fn line_typed_before_its_prompt_is_no_answer() {
        let mut prompts = GatePrompts::new();
        prompts.update(&open_gate("a", GateKind::Approval), at(2));
        assert!(expect_hint(&mut prompts, "y", 1).starts_with("[1] "));
        // The prompt was shown again with the hint, a second after the line.
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 4)).0, "a");
    }

    #[test]
    fn approval_of_unseen_arguments_is_refused() {
        let long = format!(r#"{{"command":"true {}; rm -rf /"}}"#, "x".repeat(1_000));
        let mut prompts = GatePrompts::new();
        let notification = open_gate_with("a", GateKind::Approval, Some(Json::parse(&long).unwrap()));
        let hint_to_show = prompts.update(&notification, at(1)).unwrap();
        assert!(hint_to_show.contains("type s to see all"), "{hint_to_show}");
        assert_eq!(expect_hint(&mut prompts, "y", 2), hint_to_show);
        let LineMeaning::ShowArguments { arguments, .. } = interpret(&mut prompts, "s", 3) else { panic!("not shown") };
        assert_eq!(arguments, long);
        // The person typed this together with the `s`.
        assert!(expect_hint(&mut prompts, "y", 3).contains("Type y for yes"));
        assert_eq!(expect_answer(interpret(&mut prompts, "y", 5)).1, "approve");
        assert_eq!(expect_answer(interpret(&mut prompts, "n", 5)).1, "deny");
        // A prompt shows repeated spaces as one.
        let spaced = open_gate_with("b", GateKind::Approval, Some(Json::parse(r#"{"text":"a  b"}"#).unwrap()));
        prompts.update(&close_gate("a"), at(6));
        assert!(prompts.update(&spaced, at(7)).unwrap().contains("type s to see all"));
    }

    #[test]
    fn approval_prompt_shows_invisible_characters() {
        let mut prompts = GatePrompts::new();
        let prompt = prompts.update(&open_approval("a", "in\u{200b}visible\u{202e}"), at(1)).unwrap();
        assert!(prompt.contains("in<U+200B>visible<U+202E>"), "{prompt}");
    }
}
