//! Turns notifications of a session into text for a person. Pure.

mod call_failures;
mod live_reply;
mod shorten;
mod tool_lines;
mod turn_summary;

use contract::Timestamp;
use contract::event::{
    AiFullReceived, ClientCallOpened, Configured, ContextPruned, EndReason, ErrorEvent, Event, GateClosed, GateKind,
    GateOpened, SessionEnded, SessionStarted,
};
use serde_json::Value;
use terminal::failure::CommandFailure;
use terminal::format;
use terminal::printable::reveal_invisible;
use terminal::{Layout, Output, Style, StyledLine};

pub use self::call_failures::CallFailures;
use self::live_reply::LiveReply;
use self::shorten::shorten;
use self::tool_lines::ToolLines;
use self::turn_summary::TurnSummary;
use crate::notification::{NotificationContent, ParsedNotification};
use crate::tool_summary::to_line;

/// Turns the notifications of one session into text.
#[derive(Debug)]
pub struct SessionRenderer {
    session: String,
    echoes_user: bool,
    shows_gates: bool,
    is_child: bool,
    /// None where a status line shows the failures of a model call that is tried again.
    failures: Option<CallFailures>,
    max_iterations: Option<u32>,
    /// A step that is not printed yet, since the limit of steps is unknown. If a session is followed from its middle,
    /// the next event has the limit.
    pending_step: Option<StepLine>,
    model: String,
    reply: LiveReply,
    tools: ToolLines,
    turn: TurnSummary,
}

impl SessionRenderer {
    /// Makes the renderer of a session.
    pub fn new(session: &str, layout: Layout) -> Self {
        Self {
            session: session.to_owned(),
            echoes_user: false,
            shows_gates: true,
            is_child: false,
            failures: Some(CallFailures::default()),
            max_iterations: None,
            pending_step: None,
            model: String::new(),
            reply: LiveReply::new(layout),
            tools: ToolLines::new(layout.columns),
            turn: TurnSummary::default(),
        }
    }

    /// Shows the messages of the user, too.
    #[must_use]
    pub fn with_user_messages(self) -> Self {
        Self { echoes_user: true, ..self }
    }

    /// Leaves open gates out: they are asked elsewhere.
    #[must_use]
    pub fn without_gates(self) -> Self {
        Self { shows_gates: false, ..self }
    }

    /// Leaves out failures of a model call that is tried again: a status line shows the last one.
    #[must_use]
    pub fn without_retries(self) -> Self {
        Self { failures: None, ..self }
    }

    /// Leaves out how the session begins and what its steps cost: the session that delegates to it says so.
    #[must_use]
    pub fn for_child(self) -> Self {
        Self { is_child: true, ..self }
    }

    /// Shows where the trace of a turn is. The address has `{trace_id}` in it.
    #[must_use]
    pub fn with_trace_url(mut self, trace_url: Option<String>) -> Self {
        self.turn.trace_url = trace_url;
        self
    }

    /// Sets the layout of what is rendered from now on, after the size of the terminal changed.
    pub fn set_layout(&mut self, layout: Layout) {
        self.reply.set_layout(layout);
        self.tools.set_columns(layout.columns);
    }

    /// Returns the lines of the reply that are held back until their block is complete.
    pub fn preview(&self) -> Vec<StyledLine> {
        self.reply.preview()
    }

    /// Renders a notification as outputs for the terminal.
    pub fn render(&mut self, notification: &ParsedNotification) -> Vec<Output> {
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
                (Event::Error(error), None) if error.retryable => match &mut self.failures {
                    Some(failures) => note(Style::Warn, &format!("  {}", failures.record(error))),
                    None => Vec::new(),
                },
                (event, _) => self.render_event(event, notification.time),
            },
            NotificationContent::Chunk(chunk) => self.reply.append_chunk(chunk),
            NotificationContent::Progress(progress) => {
                let line = self.tools.render_progress(progress);
                note(Style::Faint, &line)
            }
            NotificationContent::Other => Vec::new(),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    fn render_event(&mut self, event: &Event, time: Option<Timestamp>) -> Vec<Output> {
        match event {
            Event::SessionStarted(started) => self.render_start(started),
            Event::SessionEnded(ended) => {
                let mut outputs = self.reply.flush();
                outputs.extend(render_end(ended));
                outputs
            }
            Event::UserProcessed(message) => {
                let text = message.content.text();
                if self.echoes_user {
                    vec![Output::Note(Style::Plain, format!("> {}", text.trim_end()))]
                } else {
                    Vec::new()
                }
            }
            Event::AiFullReceived(full) => self.render_reply(full),
            Event::ToolCallResult(result) => {
                self.turn.record_result(result);
                vec![self.tools.render_result(result)]
            }
            Event::ToolCallIdentified(call) => {
                self.tools.record_call(call);
                Vec::new()
            }
            Event::ClientCallOpened(ClientCallOpened { call, tool, deadline, .. }) => {
                note(Style::Warn, &format!("waits for the client: call {call} of tool {tool} until {deadline}"))
            }
            Event::StatusPaused(status) => {
                let reason = format_reason(status.reason.as_deref());
                note(Style::Warn, &format!("paused{reason}: no new call starts until it is resumed"))
            }
            Event::StatusResumed(status) => {
                let reason = format_reason(status.reason.as_deref());
                note(Style::Plain, &format!("resumed{reason}"))
            }
            Event::TurnCompleted(turn) => {
                let mut outputs = self.reply.end_turn(&turn.final_response);
                let summary = self.turn.finish(turn, time);
                outputs.extend((!self.is_child).then_some(summary));
                outputs
            }
            Event::GateOpened(gate) => self.render_gate(gate),
            Event::GateClosed(gate) => render_answer(gate),
            Event::ContextCleared(cleared) => {
                let text = format!("{} forgotten", format::plural(cleared.turns.into(), "turn"));
                note(Style::Plain, &append_reason(&text, cleared.reason.as_deref()))
            }
            Event::ContextPruned(pruned) => render_pruning(pruned),
            Event::Configured(configured) => self.render_configuration(configured),
            Event::Error(error) => render_error(error),
            // What came of it was shown as it came.
            _ => Vec::new(),
        }
    }

    fn render_start(&mut self, started: &SessionStarted) -> Vec<Output> {
        self.max_iterations = Some(started.agent.continuation.max_iterations);
        self.model.clone_from(&started.model.id);
        if self.is_child {
            return Vec::new();
        }
        let line = format!("session {}  agent {}  model {}", self.session, started.agent.name, started.model.id);
        note(Style::Faint, &line)
    }

    fn render_configuration(&mut self, configured: &Configured) -> Vec<Output> {
        let steps = configured.agent.continuation.max_iterations;
        self.max_iterations = Some(steps);
        self.model.clone_from(&configured.model.id);
        note(Style::Plain, &format!("configured: model {}, {steps} steps a turn", configured.model.id))
    }

    fn render_reply(&mut self, full: &AiFullReceived) -> Vec<Output> {
        let mut outputs = self.reply.complete(full);
        outputs.extend(warn_of_written_call(full));
        if self.is_child {
            return outputs;
        }
        let step = self.make_step_line(full);
        if self.max_iterations.is_some() {
            outputs.push(step.render(self.max_iterations));
        } else {
            self.pending_step = Some(step);
        }
        outputs
    }

    fn make_step_line(&self, full: &AiFullReceived) -> StepLine {
        let model = if full.model.is_empty() { &self.model } else { &full.model };
        let tokens = format::plural(full.spent.usage.total(), "token");
        let time = format::duration(std::time::Duration::from_millis(full.latency_ms));
        StepLine { step: full.step, figures: format!("{model}  {tokens}  {time}") }
    }

    fn render_gate(&mut self, gate: &GateOpened) -> Vec<Output> {
        if !self.shows_gates {
            return Vec::new();
        }
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
                return note(Style::Warn, &text);
            }
            GateKind::Limit(limit) => {
                format!("the turn is at its limit ({}) and asks for as much again", limit.as_str())
            }
            GateKind::Error(kind) => format!("the model call failed ({}); it can be tried again", kind.code()),
        };
        let until = gate.expires;
        let line = format!("  {question} until {until}; to answer:\n    ailoop approvals approve|deny {session} {id}");
        note(Style::Warn, &line)
    }
}

/// Warns if a reply without a tool call is the text of one: the model or its server does not know tool calls.
fn warn_of_written_call(full: &AiFullReceived) -> Option<Output> {
    let is_call = full.tool_calls.is_empty() && is_written_call(&full.text);
    is_call.then(|| {
        let model = to_line(&full.model);
        let text = format!(
            "  the reply is a tool call written as text, so no tool runs: the model or its server may not know tool calls. \
             To see what it can do:\n    ailoop probe-model {model}"
        );
        Output::Note(Style::Warn, text)
    })
}

/// Whether a text is a JSON object with the fields of a tool call, alone or in a block of code.
fn is_written_call(text: &str) -> bool {
    let text = text.trim();
    let text = text.strip_prefix("<tool_call>").and_then(|text| text.strip_suffix("</tool_call>")).unwrap_or(text);
    let text = text.strip_prefix("```json").or_else(|| text.strip_prefix("```")).unwrap_or(text);
    let text = text.strip_suffix("```").unwrap_or(text);
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return false };
    let function = fields.get("function").and_then(Value::as_object).unwrap_or(&fields);
    function.contains_key("name") && ["arguments", "parameters"].iter().any(|name| function.contains_key(*name))
}

/// Renders a whole text of a model.
pub fn render_text(layout: Layout, text: &str) -> Vec<Output> {
    LiveReply::new(layout).end_turn(text)
}

fn render_error(error: &ErrorEvent) -> Vec<Output> {
    let failure = CommandFailure::new(error.code.clone(), &error.message);
    let failure = if error.during.is_empty() { failure } else { failure.at(&error.during) };
    note(Style::Bad, &failure.to_string())
}

fn note(style: Style, text: &str) -> Vec<Output> {
    vec![Output::Note(style, text.to_owned())]
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

/// Renders the answer to a gate, or that nobody answered it.
fn render_answer(gate: &GateClosed) -> Vec<Output> {
    let by = gate.by.as_deref().map_or_else(|| "nobody answered".to_owned(), |by| format!("by {by}"));
    let changed = gate.arguments.as_ref().map(|arguments| reveal_invisible(&shorten(arguments.get())));
    let changed = changed.map_or_else(String::new, |to| format!(", with {to}"));
    note(Style::Plain, &format!("  {}  {}  {by}{changed}", gate.gate, decision_word(gate.decision)))
}

fn render_pruning(pruned: &ContextPruned) -> Vec<Output> {
    let how = if pruned.summary.is_some() { "summed up" } else { "left out" };
    let line = format!(
        "context {how} to fit the model: {} to {} tokens, as far as known",
        pruned.tokens_before, pruned.tokens_after
    );
    note(Style::Faint, &line)
}

/// Appends the reason that the client gave, if any.
fn append_reason(text: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| text.to_owned(), |reason| format!("{text}: {reason}"))
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
