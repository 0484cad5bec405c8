//! What a person sees of a session: notification in, text out. Pure.

mod closing;
mod reply;

use contract::Timestamp;
use contract::event::{
    AiFullReceived, EndReason, ErrorEvent, Event, GateKind, GateOpened, SessionEnded, SessionStarted, ToolCallResult,
};
use contract::tool::Outcome;

use crate::failure::Failure;
use crate::figures;
use crate::heard::{Heard, What};
use crate::printable::reveal_invisible;
use crate::terminal::{Output, Style};

/// Characters of a call's arguments that are shown where a person is asked.
const ARGUMENTS_CHARS_MAX: usize = 400;
/// Characters of a sign of progress that are shown.
const PROGRESS_CHARS_MAX: usize = 120;

/// Turns the notifications of one session into text.
#[derive(Debug)]
pub struct Render {
    session: String,
    echo: bool,
    max_iterations: Option<u32>,
    /// The line of a step that waits for how many the turn may have: where a session is followed from its middle, that
    /// comes right behind the reply.
    step: Option<StepLine>,
    model: String,
    reply: reply::Reply,
    turn: closing::Turn,
}

impl Render {
    /// A renderer. With `live`, a reply is shown while it comes, else once it is whole; with `echo`, what users say
    /// is shown too.
    pub fn new(session: &str, live: bool, echo: bool) -> Self {
        Self {
            session: session.to_owned(),
            echo,
            max_iterations: None,
            step: None,
            model: String::new(),
            reply: reply::Reply::new(live),
            turn: closing::Turn::default(),
        }
    }

    /// What is to be printed for a notification.
    pub fn on(&mut self, heard: &Heard) -> Vec<Output> {
        self.turn.heard(heard.time, &heard.trace_id);
        if let What::Event(event) = &heard.what
            && let Event::ContinuationProgress(progress) = &**event
        {
            self.max_iterations = Some(progress.max_iterations);
        }
        let mut outputs: Vec<Output> =
            self.step.take().map(|step| step.show(self.max_iterations)).into_iter().collect();
        outputs.extend(self.show(heard));
        outputs
    }

    fn show(&mut self, heard: &Heard) -> Vec<Output> {
        match &heard.what {
            What::Event(event) => match (&**event, heard.seq) {
                // No fact, but a notice: the model call goes on.
                (Event::Error(error), None) if error.retryable => {
                    self.note(Style::Warn, &format!("  {}", error.message))
                }
                (event, _) => self.event(event, heard.time),
            },
            What::Chunk(chunk) => self.reply.chunk(chunk),
            What::Progress(progress) => {
                let line = progress.text.lines().next().unwrap_or_default();
                let line: String = line.chars().take(PROGRESS_CHARS_MAX).collect();
                self.note(Style::Faint, &format!("  tool {}  … {line}", progress.tool))
            }
            What::Other => Vec::new(),
        }
    }

    fn event(&mut self, event: &Event, time: Option<Timestamp>) -> Vec<Output> {
        match event {
            Event::SessionStarted(started) => self.started(started),
            Event::SessionEnded(ended) => session_ended(ended),
            Event::UserProcessed(message) => {
                let text = message.content.text();
                if self.echo { vec![Output::Note(Style::Plain, format!("> {}", text.trim_end()))] } else { Vec::new() }
            }
            Event::AiFullReceived(full) => {
                let mut outputs = self.reply.whole(full);
                let step = self.step_line(full);
                if self.max_iterations.is_some() {
                    outputs.push(step.show(self.max_iterations));
                } else {
                    self.step = Some(step);
                }
                outputs
            }
            Event::ToolCallResult(result) => {
                self.turn.tools += 1;
                vec![tool(result)]
            }
            Event::StatusPaused(status) => {
                let why = why(status.reason.as_deref());
                self.note(Style::Warn, &format!("paused{why}: no new call starts until it is resumed"))
            }
            Event::StatusResumed(status) => {
                let why = why(status.reason.as_deref());
                self.note(Style::Plain, &format!("resumed{why}"))
            }
            Event::TurnCompleted(turn) => {
                let mut outputs = self.reply.end_of_turn(&turn.final_response);
                outputs.push(self.turn.close(turn, time));
                outputs
            }
            Event::GateOpened(gate) => self.gate(gate),
            Event::GateClosed(gate) => {
                let by = gate.by.as_deref().map_or_else(|| "nobody answered".to_owned(), |by| format!("by {by}"));
                let changed = gate.arguments.as_ref().map(|arguments| reveal_invisible(&shortened(arguments.get())));
                let changed = changed.map_or_else(String::new, |to| format!(", with {to}"));
                self.note(Style::Plain, &format!("  {}  {}  {by}{changed}", gate.gate, decision(gate.decision)))
            }
            Event::ContextCleared(cleared) => {
                let forgotten = format!("{} forgotten", figures::plural(cleared.turns.into(), "turn"));
                self.note(Style::Plain, &with_reason(&forgotten, cleared.reason.as_deref()))
            }
            Event::ContextPruned(pruned) => {
                let how = if pruned.summary.is_some() { "summed up" } else { "left out" };
                let line = format!(
                    "context {how} to fit the model: {} to {} tokens, as far as known",
                    pruned.tokens_before, pruned.tokens_after
                );
                self.note(Style::Faint, &line)
            }
            Event::Configured(configured) => {
                self.max_iterations = Some(configured.agent.continuation.max_iterations);
                self.model.clone_from(&configured.model.id);
                let steps = configured.agent.continuation.max_iterations;
                self.note(Style::Plain, &format!("configured: model {}, {steps} steps a turn", configured.model.id))
            }
            Event::Error(error) => self.error(error),
            Event::InputHandled(_)
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
            | Event::ToolCallExtended(_)
            | Event::ModelFellBack(_)
            | Event::LimitReached(_)
            | Event::SummaryOpened(_)
            | Event::JudgeOpened(_)
            | Event::ChildCommanded(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::Unknown => Vec::new(),
        }
    }

    fn started(&mut self, started: &SessionStarted) -> Vec<Output> {
        self.max_iterations = Some(started.agent.continuation.max_iterations);
        self.model.clone_from(&started.model.id);
        let line = format!("session {}  agent {}  model {}", self.session, started.agent.name, started.model.id);
        self.note(Style::Faint, &line)
    }

    fn step_line(&self, full: &AiFullReceived) -> StepLine {
        let model = if full.model.is_empty() { &self.model } else { &full.model };
        let tokens = figures::plural(full.spent.usage.total(), "token");
        let time = figures::duration(std::time::Duration::from_millis(full.latency_ms));
        StepLine { step: full.step, figures: format!("{model}  {tokens}  {time}") }
    }

    fn gate(&mut self, gate: &GateOpened) -> Vec<Output> {
        let (session, id) = (&self.session, &gate.gate);
        // What is approved is seen as it is, also what a font does not show.
        let arguments = gate.arguments.as_ref().map(|arguments| shortened(arguments.get())).unwrap_or_default();
        let arguments = reveal_invisible(&arguments);
        let asks = match gate.kind {
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "a call".to_owned(), ToString::to_string);
                format!("tool {tool} {arguments} waits for approval")
            }
            GateKind::Question => {
                let question =
                    format!("  the model asks: {arguments}\n    ailoop approvals answer {session} {id} --text \"…\"");
                return self.note(Style::Warn, &question);
            }
            GateKind::Limit(limit) => {
                format!("the turn is at its limit ({}) and asks for as much again", limit.as_str())
            }
            GateKind::Error(kind) => format!("the model call failed ({}); it can be tried again", kind.code()),
        };
        let until = gate.expires;
        let line = format!("  {asks} until {until}; to answer:\n    ailoop approvals approve|deny {session} {id}");
        self.note(Style::Warn, &line)
    }

    fn error(&mut self, error: &ErrorEvent) -> Vec<Output> {
        let failure = Failure::new(error.code.clone(), &error.message);
        let failure = if error.during.is_empty() { failure } else { failure.at(&error.during) };
        self.note(Style::Bad, &failure.to_string())
    }

    /// A note on a line of its own, whatever stdout is in the middle of.
    fn note(&mut self, style: Style, text: &str) -> Vec<Output> {
        let mut outputs: Vec<Output> = self.reply.break_line().into_iter().collect();
        outputs.push(Output::Note(style, text.to_owned()));
        outputs
    }
}

/// What one step took.
#[derive(Debug)]
struct StepLine {
    step: u32,
    figures: String,
}

impl StepLine {
    fn show(self, steps_max: Option<u32>) -> Output {
        let of = steps_max.map_or_else(String::new, |max| format!("/{max}"));
        Output::Note(Style::Faint, format!("  step {}{of}  {}", self.step, self.figures))
    }
}

/// The reason that somebody gave, in brackets.
fn why(reason: Option<&str>) -> String {
    let reason = reason.map(shortened).unwrap_or_default();
    if reason.is_empty() { reason } else { format!(" ({reason})") }
}

fn session_ended(ended: &SessionEnded) -> Vec<Output> {
    let (style, text) = match ended.reason {
        EndReason::Completed => return Vec::new(),
        EndReason::Stopped => (Style::Warn, "session stopped"),
        EndReason::Error => (Style::Bad, "session ended with an error"),
        EndReason::Expired => (Style::Warn, "session expired: nobody wanted anything of it"),
    };
    vec![Output::Note(style, with_reason(text, ended.note.as_deref()))]
}

/// What happened, and why, in the words of whoever asked for it.
fn with_reason(text: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| text.to_owned(), |reason| format!("{text}: {reason}"))
}

fn tool(result: &ToolCallResult) -> Output {
    let (style, outcome) = match result.outcome {
        Outcome::Ok => (Style::Faint, "ok"),
        Outcome::Error => (Style::Warn, "error"),
        Outcome::Denied => (Style::Warn, "denied"),
        Outcome::Timeout => (Style::Warn, "timeout"),
        Outcome::Cancelled => (Style::Warn, "cancelled"),
        Outcome::Unknown => (Style::Warn, "unknown"),
    };
    let code = result.code.as_ref().map_or_else(String::new, |code| format!("[{code}]"));
    let time = figures::duration(std::time::Duration::from_millis(result.duration_ms));
    // Why, where the code alone does not tell.
    let why = if result.outcome == Outcome::Ok { String::new() } else { shortened(&result.content) };
    let why = if why.is_empty() { why } else { format!("  {why}") };
    Output::Note(style, format!("  tool {}  {outcome}{code}  {time}{why}", result.tool))
}

/// Whether a question shows all of its arguments, as they are.
pub(crate) fn is_shown_whole(arguments: &str) -> bool {
    shortened(arguments) == arguments
}

/// What a call is asked for, on a line.
fn shortened(arguments: &str) -> String {
    let line = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= ARGUMENTS_CHARS_MAX {
        return line;
    }
    line.chars().take(ARGUMENTS_CHARS_MAX - 1).chain(['…']).collect()
}

fn decision(decision: contract::command::AnswerDecision) -> &'static str {
    match decision {
        contract::command::AnswerDecision::Approve => "approved",
        contract::command::AnswerDecision::Deny => "denied",
        contract::command::AnswerDecision::Answer => "answered",
    }
}

#[cfg(test)]
mod tests;
