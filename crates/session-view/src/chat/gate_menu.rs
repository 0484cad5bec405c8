//! The open gates of a session as numbered choices. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use contract::event::{Event, GateKind, GateOpened};
use contract::tool::GateQuestion;
use proto::AnswerGateRequest;
use serde_json::Value;
use terminal::Style;
use terminal::printable::reveal_invisible;

use super::gate_view::{ViewLine, view_call};
use crate::gate_prompt::{DECLINED, answer_request};
use crate::notification::{NotificationContent, ParsedNotification};

/// Time in which a choice is not accepted after it was shown: the person may be typing something else.
const SETTLE_TIME: Duration = Duration::from_millis(700);

/// Purpose of the next typed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MenuMode {
    Choice,
    DenyNote,
    EditArguments,
}

/// The gates that wait; the first one is asked.
#[derive(Debug)]
pub struct GateMenu {
    open: VecDeque<GateOpened>,
    mode: MenuMode,
    shown_at: Option<Instant>,
    /// Whether all arguments of the first gate were shown.
    is_readable: bool,
    /// Scope in which later calls of a tool can be approved, such as `chat`.
    scope: &'static str,
    /// Tools whose calls are approved without a question, in this scope.
    always: BTreeSet<String>,
    /// Gates that were answered and are not closed yet.
    answered: BTreeSet<String>,
}

/// Result of a notification or a typed text.
#[derive(Debug, Default, PartialEq)]
pub struct MenuStep {
    /// Lines to print above the region.
    pub lines: Vec<ViewLine>,
    /// An answer, in which the caller sets the session and the command id.
    pub answer: Option<Box<AnswerGateRequest>>,
    /// A text to edit.
    pub prefill: Option<String>,
}

impl GateMenu {
    /// Makes a menu without gates.
    pub fn new(scope: &'static str) -> Self {
        Self {
            scope,
            open: VecDeque::new(),
            mode: MenuMode::Choice,
            shown_at: None,
            is_readable: false,
            always: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    /// Whether a gate waits for the person.
    pub fn is_asking(&self) -> bool {
        self.first().is_some()
    }

    /// Returns the label of the input, such as `choice`.
    pub fn label(&self) -> &'static str {
        match (self.mode, self.first().map(|gate| gate.kind)) {
            (MenuMode::DenyNote, _) => "why not: ",
            (MenuMode::EditArguments, _) => "arguments: ",
            (MenuMode::Choice, Some(GateKind::Question)) => "answer: ",
            (MenuMode::Choice, _) => "choice: ",
        }
    }

    /// Follows which gates open and close; asks the next one.
    pub fn update(&mut self, notification: &ParsedNotification, now: Instant) -> MenuStep {
        let NotificationContent::Event(event) = &notification.content else { return MenuStep::default() };
        if let Event::GateOpened(gate) = &**event {
            let was_asking = self.is_asking();
            self.open.push_back(gate.clone());
            if let Some(step) = self.approve_always(gate) {
                return step;
            }
            return if was_asking { MenuStep::default() } else { self.ask(now) };
        }
        if let Event::GateClosed(closed) = &**event {
            let was_first = self.first().is_some_and(|gate| gate.gate == closed.gate);
            self.open.retain(|gate| gate.gate != closed.gate);
            self.answered.remove(closed.gate.as_str());
            return if was_first { self.ask(now) } else { MenuStep::default() };
        }
        // The end of a session closes its gates.
        if let Event::SessionEnded(_) = &**event {
            self.open.clear();
        }
        MenuStep::default()
    }

    /// Asks again after an answer was refused.
    pub fn reopen(&mut self, gate: &str, now: Instant) -> MenuStep {
        if self.answered.remove(gate) { self.ask(now) } else { MenuStep::default() }
    }

    /// Makes the question for the first gate.
    pub(crate) fn ask(&mut self, now: Instant) -> MenuStep {
        self.mode = MenuMode::Choice;
        self.shown_at = Some(now);
        let Some(gate) = self.first() else { return MenuStep::default() };
        let mut lines = Vec::new();
        let mut is_readable = true;
        match gate.kind {
            GateKind::Approval => {
                lines.push((Style::Warn, format!("The agent wants to run {}:", tool_name(gate))));
                let view = view_call(gate, false);
                lines.extend(view.lines.into_iter().map(|(style, line)| (style, format!("  {line}"))));
                if view.hidden > 0 {
                    is_readable = false;
                    lines.push((Style::Warn, format!("  … {} more lines: type s to see all of them", view.hidden)));
                }
                lines.extend(choices(&[
                    "yes",
                    &format!("yes, and every later call of {} in this {}", tool_name(gate), self.scope),
                    "yes, with other arguments",
                    "no",
                    "no, and tell the model why",
                ]));
            }
            GateKind::Question => {
                let GateQuestion { question, choices: offered } = asked_question(gate);
                lines.push((Style::Warn, "The agent asks:".to_owned()));
                let shown = question.lines().map(|line| (Style::Plain, format!("  {}", reveal_invisible(line))));
                lines.extend(shown);
                let answers: Vec<String> = offered.iter().map(|answer| reveal_invisible(answer)).collect();
                lines.extend(choices(&answers.iter().map(String::as_str).collect::<Vec<_>>()));
                lines.push((Style::Plain, "  0  give no answer".to_owned()));
            }
            GateKind::Limit(limit) => {
                lines.push((Style::Warn, format!("The turn is at its limit of {}:", limit.as_str())));
                lines.extend(choices(&["go on for as much again", "end the turn"]));
            }
            GateKind::Error(kind) => {
                lines.push((Style::Warn, format!("The model call failed ({}):", kind.code())));
                lines.extend(choices(&["try again", "end the turn"]));
            }
        }
        self.is_readable = is_readable;
        MenuStep { lines, ..MenuStep::default() }
    }

    /// Interprets a text that was typed at this time.
    pub fn interpret(&mut self, text: &str, typed_at: Instant) -> MenuStep {
        let Some(gate) = self.first().cloned() else { return MenuStep::default() };
        if self.shown_at.is_some_and(|shown| typed_at < shown + SETTLE_TIME) {
            return hint("that was typed before the question was readable; please answer now");
        }
        let text = text.trim();
        match self.mode {
            MenuMode::DenyNote => {
                let denied = AnswerGateRequest { note: Some(text.to_owned()), ..answer_request(&gate, "deny", None) };
                self.answer(denied, typed_at)
            }
            MenuMode::EditArguments => self.answer_with_arguments(&gate, text, typed_at),
            MenuMode::Choice => match gate.kind {
                GateKind::Approval => self.choose_for_approval(&gate, &text.to_lowercase(), typed_at),
                GateKind::Question => self.answer_question(&gate, text, typed_at),
                GateKind::Limit(_) | GateKind::Error(_) => match text.to_lowercase().as_str() {
                    "1" | "y" | "yes" => self.answer(answer_request(&gate, "approve", None), typed_at),
                    "2" | "n" | "no" => self.answer(answer_request(&gate, "deny", None), typed_at),
                    _ => hint("type 1 or 2"),
                },
            },
        }
    }

    fn choose_for_approval(&mut self, gate: &GateOpened, text: &str, now: Instant) -> MenuStep {
        match text {
            "s" | "show" => {
                let view = view_call(gate, true);
                // The choices are accepted from now on, not from before the arguments were visible.
                self.shown_at = Some(now);
                self.is_readable = true;
                let lines = view.lines.into_iter().map(|(style, line)| (style, format!("  {line}")));
                let mut step = hint(&format!(
                    "1 yes · 2 yes, always in this {} · 3 other arguments · 4 no · 5 no, with a reason",
                    self.scope
                ));
                step.lines.splice(0..0, lines);
                step
            }
            "4" | "n" | "no" => self.answer(answer_request(gate, "deny", None), now),
            "5" => {
                self.mode = MenuMode::DenyNote;
                hint("type the reason, which the model reads")
            }
            "1" | "2" | "3" | "y" | "yes" if !self.is_readable => hint("type s to see all of the arguments first"),
            "1" | "y" | "yes" => self.answer(answer_request(gate, "approve", None), now),
            "2" => {
                self.always.insert(tool_name(gate));
                self.answer(answer_request(gate, "approve", None), now)
            }
            "3" => {
                self.mode = MenuMode::EditArguments;
                let arguments = gate.arguments.as_ref().map_or("{}", contract::Json::get);
                let mut step = hint("change the arguments, then press Enter; an empty text goes back");
                step.prefill = Some(arguments.to_owned());
                step
            }
            _ => hint("type a number from 1 to 5"),
        }
    }

    fn answer_with_arguments(&mut self, gate: &GateOpened, text: &str, now: Instant) -> MenuStep {
        if text.is_empty() {
            return self.ask(now);
        }
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(_)) => {
                let changed = AnswerGateRequest {
                    arguments_json: Some(text.to_owned()),
                    ..answer_request(gate, "approve", None)
                };
                self.answer(changed, now)
            }
            Ok(_) => MenuStep { prefill: Some(text.to_owned()), ..hint("the arguments must be a JSON object") },
            Err(error) => {
                MenuStep { prefill: Some(text.to_owned()), ..hint(&format!("the arguments are no JSON: {error}")) }
            }
        }
    }

    fn answer_question(&mut self, gate: &GateOpened, text: &str, now: Instant) -> MenuStep {
        let answers = asked_question(gate).choices;
        if text.is_empty() {
            return hint("type an answer, or 0 to give none");
        }
        if text == "0" {
            let declined = AnswerGateRequest { note: Some(DECLINED.to_owned()), ..answer_request(gate, "deny", None) };
            return self.answer(declined, now);
        }
        let chosen = text.parse::<usize>().ok().and_then(|number| answers.get(number.checked_sub(1)?));
        let content = chosen.map_or_else(|| text.to_owned(), Clone::clone);
        self.answer(answer_request(gate, "answer", Some(content)), now)
    }

    /// Answers the first gate, and asks the next one.
    fn answer(&mut self, answer: AnswerGateRequest, now: Instant) -> MenuStep {
        self.answered.insert(answer.gate.clone());
        MenuStep { answer: Some(Box::new(answer)), ..self.ask(now) }
    }

    fn approve_always(&mut self, gate: &GateOpened) -> Option<MenuStep> {
        let is_approved = gate.kind == GateKind::Approval && self.always.contains(&tool_name(gate));
        is_approved.then(|| {
            let line = format!("  {} runs: its calls are approved in this {}", tool_name(gate), self.scope);
            self.answered.insert(gate.gate.to_string());
            let answer = Some(Box::new(answer_request(gate, "approve", None)));
            MenuStep { lines: vec![(Style::Plain, line)], answer, prefill: None }
        })
    }

    /// The gate that is asked: the first one without an answer.
    fn first(&self) -> Option<&GateOpened> {
        self.open.iter().find(|gate| !self.answered.contains(gate.gate.as_str()))
    }
}

fn tool_name(gate: &GateOpened) -> String {
    gate.tool.as_ref().map_or_else(|| "a call".to_owned(), ToString::to_string)
}

fn hint(text: &str) -> MenuStep {
    MenuStep { lines: vec![(Style::Warn, format!("  {text}"))], ..MenuStep::default() }
}

fn choices(texts: &[&str]) -> Vec<ViewLine> {
    texts.iter().enumerate().map(|(index, text)| (Style::Plain, format!("  {}  {text}", index + 1))).collect()
}

/// Returns the question of a model, and the answers that it offers.
fn asked_question(gate: &GateOpened) -> GateQuestion {
    GateQuestion::parse(gate.arguments.as_ref().map(contract::Json::get).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::gate_view::tests::gate;
    use super::*;

    fn notify(event: Event) -> ParsedNotification {
        let content = NotificationContent::Event(Box::new(event));
        ParsedNotification { seq: Some(1), time: None, trace_id: String::new(), content }
    }

    fn open(menu: &mut GateMenu, id: &str, kind: GateKind, arguments: &Value, now: Instant) -> MenuStep {
        menu.update(&notify(Event::GateOpened(gate(id, kind, arguments))), now)
    }

    fn close(menu: &mut GateMenu, id: &str, now: Instant) -> MenuStep {
        let closed = json!({"type": "gate.closed", "data": {"gate": id, "decision": "deny"}});
        menu.update(&notify(serde_json::from_value(closed).unwrap()), now)
    }

    /// Types texts, each long after the one before; returns the last step.
    fn type_texts(menu: &mut GateMenu, texts: &[&str], begin: Instant) -> MenuStep {
        let mut step = MenuStep::default();
        for (index, text) in (1_u32..).zip(texts) {
            step = menu.interpret(text, begin + index * Duration::from_secs(5));
        }
        step
    }

    fn answer_of(step: MenuStep) -> (String, String, String, Option<String>) {
        let answer = step.answer.expect("an answer");
        assert_eq!(answer.arguments_sha256, format!("hash of {}", answer.gate));
        (answer.decision, answer.note.unwrap_or_default(), answer.arguments_json.unwrap_or_default(), answer.content)
    }

    #[test]
    fn approval_choices_become_answers() {
        let now = Instant::now();
        let arguments = json!({"path": "x"});
        let none = String::new;
        for (texts, expect) in [
            (&["1"][..], ("approve".to_owned(), none(), none(), None)),
            (&["Y"], ("approve".to_owned(), none(), none(), None)),
            (&["4"], ("deny".to_owned(), none(), none(), None)),
            (&["5", "too much"], ("deny".to_owned(), "too much".to_owned(), none(), None)),
            (&["3", "{\"path\":\"y\"}"], ("approve".to_owned(), none(), "{\"path\":\"y\"}".to_owned(), None)),
            (&["3", "no json", "{}"], ("approve".to_owned(), none(), "{}".to_owned(), None)),
            (&["perhaps", "3", "", "2"], ("approve".to_owned(), none(), none(), None)),
        ] {
            let mut menu = GateMenu::new("chat");
            open(&mut menu, "c1", GateKind::Approval, &arguments, now);
            assert_eq!(answer_of(type_texts(&mut menu, texts, now)), expect, "{texts:?}");
            assert!(!menu.is_asking());
        }
    }

    #[test]
    fn always_approves_later_calls_of_the_tool() {
        let now = Instant::now();
        let mut menu = GateMenu::new("chat");
        open(&mut menu, "c1", GateKind::Approval, &json!({}), now);
        type_texts(&mut menu, &["2"], now);
        close(&mut menu, "c1", now);
        let step = open(&mut menu, "c2", GateKind::Approval, &json!({}), now);
        assert_eq!(answer_of(step).0, "approve");
        assert!(!menu.is_asking());
        // A limit is never granted by it.
        open(&mut menu, "c3", GateKind::Error(contract::model::FailureKind::Unreachable), &json!({}), now);
        assert!(menu.is_asking());
    }

    #[test]
    fn call_that_is_not_shown_whole_cannot_be_approved() {
        let now = Instant::now();
        let mut menu = GateMenu::new("chat");
        open(&mut menu, "c1", GateKind::Approval, &json!({"content": "x\n".repeat(100)}), now);
        assert_eq!(type_texts(&mut menu, &["1"], now).answer, None);
        let all = menu.interpret("s", now + Duration::from_mins(1));
        assert!(all.lines.len() > 100);
        assert_eq!(menu.interpret("1", now + Duration::from_mins(1)).answer, None, "too early");
        assert!(menu.interpret("1", now + Duration::from_mins(2)).answer.is_some());
    }

    #[test]
    fn text_typed_before_the_question_is_no_answer() {
        let now = Instant::now();
        let mut menu = GateMenu::new("chat");
        open(&mut menu, "c1", GateKind::Approval, &json!({}), now);
        assert_eq!(menu.interpret("y", now + Duration::from_millis(100)).answer, None);
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let now = Instant::now();
        let mut menu = GateMenu::new("chat");
        let question = json!({"question": "Which?\u{1b}[2J", "choices": ["red", "blue"]});
        let step = open(&mut menu, "c1", GateKind::Question, &question, now);
        let shown: Vec<&str> = step.lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(shown, ["The agent asks:", "  Which?<U+001B>[2J", "  1  red", "  2  blue", "  0  give no answer"]);
        assert_eq!(open(&mut menu, "c2", GateKind::Question, &json!({"question": "Why?"}), now), MenuStep::default());
        assert_eq!(answer_of(type_texts(&mut menu, &["2"], now)).3, Some("blue".to_owned()));
        assert!(menu.is_asking(), "the second one");
        assert_eq!(close(&mut menu, "c1", now), MenuStep::default());
        let now = now + Duration::from_mins(1);
        assert_eq!(answer_of(type_texts(&mut menu, &["because"], now)).3, Some("because".to_owned()));
        let again = menu.reopen("c2", now);
        let now = now + Duration::from_mins(1);
        assert_eq!(again.lines[1].1, "  Why?");
        assert_eq!(answer_of(type_texts(&mut menu, &["0"], now)).0, "deny");
    }
}
