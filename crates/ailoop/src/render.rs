//! Turns notifications of a session into text for a person. Pure.

mod live_reply;
mod turn_summary;

use contract::Timestamp;
use contract::event::{
    AiFullReceived, ClientCallOpened, EndReason, ErrorEvent, Event, GateKind, GateOpened, SessionEnded, SessionStarted,
    ToolCallResult,
};
use contract::tool::Outcome;

use self::live_reply::LiveReply;
use self::turn_summary::TurnSummary;
use crate::failure::CommandFailure;
use crate::format;
use crate::notification::{NotificationContent, ParsedNotification};
use crate::printable::reveal_invisible;
use crate::terminal::{Output, Style};

/// Characters of a call's arguments that are shown at a gate.
const ARGUMENTS_CHARS_MAX: usize = 400;
/// Characters of a progress text that are shown.
const PROGRESS_CHARS_MAX: usize = 120;

/// Turns the notifications of one session into text.
#[derive(Debug)]
pub(crate) struct SessionRenderer {
    session: String,
    echoes_user: bool,
    max_iterations: Option<u32>,
    /// A step that is not printed yet, since the limit of steps is unknown. If a session is followed from its middle,
    /// the next event has the limit.
    pending_step: Option<StepLine>,
    model: String,
    reply: LiveReply,
    turn: TurnSummary,
}

impl SessionRenderer {
    /// Makes a renderer. If `is_live`, replies are shown while they are streamed, else when they are complete. If
    /// `echoes_user`, messages of the user are shown too.
    pub(crate) fn new(session: &str, is_live: bool, echoes_user: bool) -> Self {
        Self {
            session: session.to_owned(),
            echoes_user,
            max_iterations: None,
            pending_step: None,
            model: String::new(),
            reply: LiveReply::new(is_live),
            turn: TurnSummary::default(),
        }
    }

    /// Renders a notification as outputs for the terminal.
    pub(crate) fn render(&mut self, notification: &ParsedNotification) -> Vec<Output> {
        self.turn.record_notification(notification.time, &notification.trace_id);
        if let NotificationContent::Event(event) = &notification.content
            && let Event::ContinuationProgress(progress) = &**event
        {
            self.max_iterations = Some(progress.max_iterations);
        }
        let mut outputs: Vec<Output> =
            self.pending_step.take().map(|step| step.render(self.max_iterations)).into_iter().collect();
        outputs.extend(self.render_content(notification));
        outputs
    }

    fn render_content(&mut self, notification: &ParsedNotification) -> Vec<Output> {
        match &notification.content {
            NotificationContent::Event(event) => match (&**event, notification.seq) {
                // An error without `seq` is a notice about an attempt; the model call goes on.
                (Event::Error(error), None) if error.retryable => {
                    self.note(Style::Warn, &format!("  {}", error.message))
                }
                (event, _) => self.render_event(event, notification.time),
            },
            NotificationContent::Chunk(chunk) => self.reply.append_chunk(chunk),
            NotificationContent::Progress(progress) => {
                let line = progress.text.lines().next().unwrap_or_default();
                let line: String = line.chars().take(PROGRESS_CHARS_MAX).collect();
                self.note(Style::Faint, &format!("  tool {}  … {line}", progress.tool))
            }
            NotificationContent::Other => Vec::new(),
        }
    }

    fn render_event(&mut self, event: &Event, time: Option<Timestamp>) -> Vec<Output> {
        match event {
            Event::SessionStarted(started) => self.render_start(started),
            Event::SessionEnded(ended) => render_end(ended),
            Event::UserProcessed(message) => {
                let text = message.content.text();
                if self.echoes_user {
                    vec![Output::Note(Style::Plain, format!("> {}", text.trim_end()))]
                } else {
                    Vec::new()
                }
            }
            Event::AiFullReceived(full) => {
                let mut outputs = self.reply.complete(full);
                let step = self.make_step_line(full);
                if self.max_iterations.is_some() {
                    outputs.push(step.render(self.max_iterations));
                } else {
                    self.pending_step = Some(step);
                }
                outputs
            }
            Event::ToolCallResult(result) => {
                self.turn.tools += 1;
                vec![render_tool_result(result)]
            }
            Event::ClientCallOpened(ClientCallOpened { call, tool, deadline, .. }) => {
                self.note(Style::Warn, &format!("waits for the client: call {call} of tool {tool} until {deadline}"))
            }
            Event::StatusPaused(status) => {
                let reason = format_reason(status.reason.as_deref());
                self.note(Style::Warn, &format!("paused{reason}: no new call starts until it is resumed"))
            }
            Event::StatusResumed(status) => {
                let reason = format_reason(status.reason.as_deref());
                self.note(Style::Plain, &format!("resumed{reason}"))
            }
            Event::TurnCompleted(turn) => {
                let mut outputs = self.reply.end_turn(&turn.final_response);
                outputs.push(self.turn.finish(turn, time));
                outputs
            }
            Event::GateOpened(gate) => self.render_gate(gate),
            Event::GateClosed(gate) => {
                let by = gate.by.as_deref().map_or_else(|| "nobody answered".to_owned(), |by| format!("by {by}"));
                let changed = gate.arguments.as_ref().map(|arguments| reveal_invisible(&shorten(arguments.get())));
                let changed = changed.map_or_else(String::new, |to| format!(", with {to}"));
                self.note(Style::Plain, &format!("  {}  {}  {by}{changed}", gate.gate, decision_word(gate.decision)))
            }
            Event::ContextCleared(cleared) => {
                let text = format!("{} forgotten", format::plural(cleared.turns.into(), "turn"));
                self.note(Style::Plain, &append_reason(&text, cleared.reason.as_deref()))
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
            Event::Error(error) => self.render_error(error),
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

    fn render_start(&mut self, started: &SessionStarted) -> Vec<Output> {
        self.max_iterations = Some(started.agent.continuation.max_iterations);
        self.model.clone_from(&started.model.id);
        let line = format!("session {}  agent {}  model {}", self.session, started.agent.name, started.model.id);
        self.note(Style::Faint, &line)
    }

    fn make_step_line(&self, full: &AiFullReceived) -> StepLine {
        let model = if full.model.is_empty() { &self.model } else { &full.model };
        let tokens = format::plural(full.spent.usage.total(), "token");
        let time = format::duration(std::time::Duration::from_millis(full.latency_ms));
        StepLine { step: full.step, figures: format!("{model}  {tokens}  {time}") }
    }

    fn render_gate(&mut self, gate: &GateOpened) -> Vec<Output> {
        let (session, id) = (&self.session, &gate.gate);
        // A person must see all of the arguments before approving them, also invisible characters.
        let arguments = gate.arguments.as_ref().map(|arguments| shorten(arguments.get())).unwrap_or_default();
        let arguments = reveal_invisible(&arguments);
        let question = match gate.kind {
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "a call".to_owned(), ToString::to_string);
                format!("tool {tool} {arguments} waits for approval")
            }
            GateKind::Question => {
                let text =
                    format!("  the model asks: {arguments}\n    ailoop approvals answer {session} {id} --text \"…\"");
                return self.note(Style::Warn, &text);
            }
            GateKind::Limit(limit) => {
                format!("the turn is at its limit ({}) and asks for as much again", limit.as_str())
            }
            GateKind::Error(kind) => format!("the model call failed ({}); it can be tried again", kind.code()),
        };
        let until = gate.expires;
        let line = format!("  {question} until {until}; to answer:\n    ailoop approvals approve|deny {session} {id}");
        self.note(Style::Warn, &line)
    }

    fn render_error(&mut self, error: &ErrorEvent) -> Vec<Output> {
        let failure = CommandFailure::new(error.code.clone(), &error.message);
        let failure = if error.during.is_empty() { failure } else { failure.at(&error.during) };
        self.note(Style::Bad, &failure.to_string())
    }

    /// Makes a note, after a line break if stdout is in the middle of a line.
    fn note(&mut self, style: Style, text: &str) -> Vec<Output> {
        let mut outputs: Vec<Output> = self.reply.break_line().into_iter().collect();
        outputs.push(Output::Note(style, text.to_owned()));
        outputs
    }
}

/// Tokens and time of one step.
#[derive(Debug)]
struct StepLine {
    step: u32,
    figures: String,
}

impl StepLine {
    fn render(self, steps_max: Option<u32>) -> Output {
        let of = steps_max.map_or_else(String::new, |max| format!("/{max}"));
        Output::Note(Style::Faint, format!("  step {}{of}  {}", self.step, self.figures))
    }
}

/// Formats an optional reason in brackets.
fn format_reason(reason: Option<&str>) -> String {
    let reason = reason.map(shorten).unwrap_or_default();
    if reason.is_empty() { reason } else { format!(" ({reason})") }
}

fn render_end(ended: &SessionEnded) -> Vec<Output> {
    let (style, text) = match ended.reason {
        EndReason::Completed => return Vec::new(),
        EndReason::Stopped => (Style::Warn, "session stopped"),
        EndReason::Error => (Style::Bad, "session ended with an error"),
        EndReason::Expired => (Style::Warn, "session expired: no client used it"),
    };
    vec![Output::Note(style, append_reason(text, ended.note.as_deref()))]
}

/// Appends the reason that the client gave, if any.
fn append_reason(text: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| text.to_owned(), |reason| format!("{text}: {reason}"))
}

fn render_tool_result(result: &ToolCallResult) -> Output {
    let (style, outcome) = match result.outcome {
        Outcome::Ok => (Style::Faint, "ok"),
        Outcome::Error => (Style::Warn, "error"),
        Outcome::Denied => (Style::Warn, "denied"),
        Outcome::Timeout => (Style::Warn, "timeout"),
        Outcome::Cancelled => (Style::Warn, "cancelled"),
        Outcome::Unknown => (Style::Warn, "unknown"),
    };
    let code = result.code.as_ref().map_or_else(String::new, |code| format!("[{code}]"));
    let time = format::duration(std::time::Duration::from_millis(result.duration_ms));
    // The content says more than the code of a failure.
    let detail = if result.outcome == Outcome::Ok { String::new() } else { shorten(&result.content) };
    let detail = if detail.is_empty() { detail } else { format!("  {detail}") };
    Output::Note(style, format!("  tool {}  {outcome}{code}  {time}{detail}", result.tool))
}

/// Whether a prompt shows all of these arguments unchanged.
pub(crate) fn is_shown_whole(arguments: &str) -> bool {
    shorten(arguments) == arguments
}

/// Formats a text on one line of at most [`ARGUMENTS_CHARS_MAX`] characters.
fn shorten(arguments: &str) -> String {
    let line = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= ARGUMENTS_CHARS_MAX {
        return line;
    }
    line.chars().take(ARGUMENTS_CHARS_MAX - 1).chain(['…']).collect()
}

fn decision_word(decision: contract::command::AnswerDecision) -> &'static str {
    match decision {
        contract::command::AnswerDecision::Approve => "approved",
        contract::command::AnswerDecision::Deny => "denied",
        contract::command::AnswerDecision::Answer => "answered",
    }
}

#[cfg(test)]
mod tests;
