//! The oracle: reads a log commit by commit, with its own model of a session, and reports violations of the rules.

use std::collections::{BTreeMap, BTreeSet};

use contract::Json;
use contract::client_tool::{AnswerToolCall, Performer};
use contract::command::{Answer, AnswerDecision, Verb};
use contract::commit::SessionSummary;
use contract::event::{Event, GateKind, InputKind, InputRef, Spent, StopReason};
use contract::model::ModelItem;
use contract::settings::{ContinuationSettings, LimitAction};
use contract::tool::{ASK_USER, Outcome, ToolItem};
use serde_json::Value;

use crate::ensure::ensure;

/// The state of a session as the oracle derives it from the log.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about the log so far")]
#[derive(Debug, Default)]
pub struct Oracle {
    started: bool,
    ended: bool,
    paused: bool,
    inputs: BTreeSet<InputRef>,
    /// Id of the input of the current commit.
    input: String,
    identified: BTreeSet<String>,
    opened: BTreeSet<String>,
    results: BTreeMap<String, Outcome>,
    turn: Option<Turn>,
    turns: u32,
    open_model: Option<(String, u32)>,
    attempts: BTreeMap<String, u32>,
    finished: BTreeSet<String>,
    gates: BTreeSet<String>,
    /// Arguments that each call may run with: those of the model, or those that a person changed them to.
    arguments: BTreeMap<String, Json>,
    /// Arguments that an answer to a gate sets, by the input of the answer.
    answers: BTreeMap<String, Option<Json>>,
    open_tools: BTreeSet<String>,
    /// Calls of tools that a client brought.
    client_calls: BTreeSet<String>,
    /// Kind of the input of the current commit.
    input_kind: Option<InputKind>,
    /// The calls that clients answer, by the input of the answer, where that is known.
    client_answers: BTreeMap<String, String>,
    /// Calls that children perform, with the last command to each child.
    children: BTreeMap<String, Option<Verb>>,
    child_commands: u64,
    messages: Vec<String>,
    max_iterations: u32,
    spent_micros: u64,
    spent: Dollars,
    /// Model calls that were called off and have no other attempt, with that attempt.
    cut: BTreeMap<String, u32>,
    /// The last model call that failed.
    failed: String,
    /// Texts that gateways sent of called-off replies, by the input that brings them.
    partials: BTreeMap<String, String>,
    /// The open model call gives what had come of it.
    interrupted: bool,
    /// A turn at a limit of time has a last step.
    answers_at_limits: bool,
}

/// Dollars that were spent, in all and by the session itself.
#[derive(Debug, Clone, Copy, Default)]
struct Dollars {
    /// Sum of what the session and its children spent.
    all: f64,
    own: f64,
}

impl Dollars {
    fn add(&mut self, usd: f64, is_own: bool) {
        self.all += usd;
        self.own += if is_own { usd } else { 0.0 };
    }

    /// Compares it with what an event names; an older version names no own part.
    fn check(self, what: &str, all: Spent, own: Option<Spent>) -> Result<(), String> {
        let is_same = |named: Spent, usd: f64| (named.cost_usd - usd).abs() < 1e-9;
        let is_right = is_same(all, self.all) && own.is_none_or(|own| is_same(own, self.own));
        ensure!(is_right, "{what} names {all:?} as spent, {own:?} of it by the session itself; it was {self:?}");
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Turn {
    number: u32,
    steps: u32,
    calls: BTreeSet<String>,
    /// The limit that an open gate is about.
    open_limit: Option<StopReason>,
    /// Number of times that a person approved `max_iterations` further steps.
    granted: u32,
    /// A person denied a gate about a limit or a failed model.
    denied: bool,
    fallbacks: u32,
    /// A model call failed for good, and a gate about it is open.
    failed: bool,
    /// The limit at which the turn ends with its next step.
    last: Option<StopReason>,
    /// The model call of that last step was opened.
    last_opened: bool,
    spent: Dollars,
}

impl Oracle {
    /// An oracle for a session whose turns may have this many steps.
    pub fn new(max_iterations: u32) -> Self {
        Self { max_iterations, ..Self::default() }
    }

    /// Whether the session has begun and not ended.
    pub fn is_alive(&self) -> bool {
        self.started && !self.ended
    }

    /// Ids of the processed user messages.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Cost that the log records, in millionths of a dollar.
    pub fn spent_micros(&self) -> u64 {
        self.spent_micros
    }

    /// Reads the events of one commit; the error names the broken rule.
    pub fn commit(&mut self, events: &[Event]) -> Result<(), String> {
        ensure!(!events.is_empty(), "a commit without events");
        let names_input = matches!(events[0], Event::InputHandled(_) | Event::InputIgnored(_));
        ensure!(names_input, "a commit that does not begin with its input");
        let by_timer = events.iter().any(|event| {
            matches!(event, Event::InputHandled(handled) if handled.input.kind == contract::event::InputKind::Timer)
        });
        let ends = events.iter().any(|event| matches!(event, Event::TurnCompleted(_)));
        let gives_up =
            events.iter().any(|event| matches!(event, Event::CallCancelled(cancelled) if cancelled.tool.is_some()));
        ensure!(!(self.paused && by_timer && gives_up && !ends), "a call timed out in a pause");
        for event in events {
            self.event(event)?;
        }
        ensure!(
            !(self.paused && self.turn.is_none() && self.open_model.is_some()),
            "a model call is open outside a turn"
        );
        let waits = self.turn.as_ref().is_some_and(|turn| turn.last.is_some() && !turn.last_opened);
        ensure!(
            !(waits && self.open_model.is_some() && !self.interrupted),
            "a turn at its last step waits for a call that goes on"
        );
        for (call, last) in &self.children {
            let wanted = matches!(last, Some(Verb::Pause)) == self.paused;
            ensure!(wanted, "the last command to the child of {call} is {last:?}, and paused is {}", self.paused);
        }
        Ok(())
    }

    #[allow(clippy::too_many_lines, reason = "one arm per event: a table reads best whole")]
    fn event(&mut self, event: &Event) -> Result<(), String> {
        let is_late = matches!(event, Event::AiCutReceived(_));
        if event.topic().is_some() {
            ensure!(!self.ended || is_late, "a public event after the end: {event:?}");
        }
        match event {
            Event::InputHandled(handled) => {
                self.input = handled.input.id.to_string();
                self.input_kind = Some(handled.input.kind);
                ensure!(self.inputs.insert(handled.input.clone()), "input {:?} was handled twice", handled.input);
            }
            Event::InputIgnored(ignored) => {
                ensure!(self.inputs.insert(ignored.input.clone()), "input {:?} was handled twice", ignored.input);
                // The id of a result names its call, and so the turn that made it.
                let id = ignored.input.id.as_str();
                let turn = id.get(1..).and_then(|rest| rest.split('-').next()).and_then(|turn| turn.parse().ok());
                let is_own = ignored.input.kind != InputKind::Control(Verb::ProvideToolResult);
                self.spend_in(turn, ignored.usage.map_or(0.0, |spent| spent.cost_usd), is_own);
                // While its turn runs, another attempt may replace it.
                let is_over = turn.is_some() && self.turn.as_ref().map(|turn| turn.number) != turn;
                let is_kept = self.partials.contains_key(id) && self.is_cut(id);
                ensure!(!(is_over && is_kept), "what {id} brings of a called-off reply is dropped");
            }
            Event::SessionStarted(started) => {
                ensure!(!self.started, "the session started twice");
                self.started = true;
                self.answers_at_limits = answers_at_limits(&started.agent.continuation);
            }
            Event::SessionEnded(ended) => {
                ensure!(self.turn.is_none(), "the session ended within a turn");
                self.spent.check("the end of the session", ended.spent, ended.spent_own)?;
                self.ended = true;
            }
            Event::UserProcessed(message) => self.messages.push(message.message_id.to_string()),
            Event::TurnStarted(turn) | Event::PrivateTurnStarted(turn) => {
                ensure!(self.turn.is_none(), "a turn began within a turn");
                ensure!(!self.paused, "a turn began in a pause");
                ensure!(turn.turn == self.turns + 1, "turn {} follows turn {}", turn.turn, self.turns);
                self.turns = turn.turn;
                self.turn = Some(Turn { number: turn.turn, ..Turn::default() });
            }
            Event::Configured(configured) => {
                let steps = configured.overrides.as_ref().and_then(|own| own.max_iterations);
                self.max_iterations = steps.unwrap_or(self.max_iterations);
                self.answers_at_limits = answers_at_limits(&configured.agent.continuation);
            }
            Event::ModelFellBack(fallen) => {
                let turn = self.turn.as_mut().ok_or("a fallback outside a turn")?;
                turn.fallbacks += 1;
                ensure!(fallen.number == turn.fallbacks, "fallback {} is the {}th", fallen.number, turn.fallbacks);
            }
            Event::LimitReached(reached) => {
                // What came of a reply that the limit of time cuts is awaited.
                let is_awaited = self.open_model.is_none() || reached.limit == StopReason::Timeout;
                let idle = is_awaited && self.open_tools.is_empty() && self.gates.is_empty();
                ensure!(idle, "a turn is at its last step while calls run");
                let turn = self.turn.as_mut().ok_or("a limit outside a turn")?;
                ensure!(turn.last.is_none(), "a turn is at its last step twice");
                turn.last = Some(reached.limit);
            }
            Event::SummaryOpened(opened) => {
                ensure!(!self.paused, "I5: a summary was asked for in a pause");
                ensure!(self.open_model.is_none() && self.open_tools.is_empty(), "a summary while calls run");
                let turn = self.turn.as_ref().ok_or("a summary outside a turn")?;
                ensure!(opened.before <= turn.number, "the running turn is to be summed up");
                ensure!(self.finished.insert(opened.call.to_string()), "two summaries under one id");
                self.open_model = Some((opened.call.to_string(), 1));
            }
            Event::JudgeOpened(opened) => {
                ensure!(!self.paused, "I5: a judge was asked in a pause");
                ensure!(self.open_model.is_none() && self.open_tools.is_empty(), "a judge is asked while calls run");
                let turn = self.turn.as_ref().ok_or("a judge outside a turn")?;
                ensure!(turn.last.is_none(), "a judge is asked about the last step of a turn");
                ensure!(self.finished.insert(opened.call.to_string()), "a judge is asked twice about one reply");
                self.open_model = Some((opened.call.to_string(), 1));
            }
            Event::ContextPruned(pruned) => {
                self.spend(pruned.spent.cost_usd);
                let turn = self.turn.as_ref().ok_or("pruned outside a turn")?;
                ensure!(pruned.before_turn <= turn.number, "the running turn's message was dropped");
                if self.open_model.as_ref().is_some_and(|(call, _)| call.starts_with('s')) {
                    self.open_model = None;
                }
            }
            Event::ChildCommanded(command) => {
                self.child_commands += 1;
                ensure!(
                    command.number == self.child_commands,
                    "child command {} is the {}th one",
                    command.number,
                    self.child_commands
                );
                let call = command.call.to_string();
                ensure!(
                    self.children.insert(call.clone(), Some(command.verb)).is_some(),
                    "{call} is not performed by a child"
                );
                if command.verb == Verb::Stop {
                    self.children.remove(&call);
                    self.open_tools.remove(&call);
                }
            }
            Event::SessionArchived(_) => self.cut.clear(),
            Event::SessionImported(_)
            | Event::LogCompacted(_)
            | Event::SessionMoved(_)
            | Event::ToolsResolved(_)
            | Event::TimerSet(_)
            | Event::ContextCleared(_)
            | Event::Error(_) => {}
            Event::Unknown => return Err("an unknown event".to_owned()),
            Event::ModelCallOpened(opened) => {
                ensure!(!self.paused, "I5: a model call opened in a pause");
                ensure!(self.open_model.is_none(), "two model calls are open");
                ensure!(self.open_tools.is_empty(), "a model call opened while tools run");
                let call = opened.call.to_string();
                ensure!(!self.finished.contains(&call), "call {call} was opened after its reply");
                let attempts = self.attempts.entry(call.clone()).or_insert(0);
                *attempts += 1;
                ensure!(opened.attempt == *attempts, "attempt {} of {call} is its {attempts}th", opened.attempt);
                let granted = self.turn.as_ref().map_or(0, |turn| turn.granted);
                let max = self.max_iterations * (1 + granted);
                let Some(turn) = &mut self.turn else { return Err("a model call outside a turn".to_owned()) };
                ensure!(opened.turn == turn.number, "a model call of another turn");
                ensure!(
                    turn.open_limit.is_none() && !turn.failed && (!turn.denied || turn.last.is_some()),
                    "I4: a call without an approval of further steps"
                );
                ensure!(!turn.last_opened, "I4: a turn at a limit opened a second last call");
                turn.last_opened = turn.last.is_some();
                if opened.attempt == 1 {
                    turn.steps += 1;
                    ensure!(opened.step == turn.steps, "step {} is the {}th", opened.step, turn.steps);
                    ensure!(turn.steps <= max || turn.last.is_some(), "I4: step {} of at most {max}", turn.steps);
                    for call in &turn.calls {
                        ensure!(
                            self.results.contains_key(call),
                            "I3: the next step began before {call} had its result"
                        );
                    }
                }
                self.cut.remove(&call);
                self.interrupted = false;
                self.open_model = Some((call, opened.attempt));
            }
            Event::ModelCallFailed(failed) => {
                self.spend(failed.spent.cost_usd);
                self.failed = failed.call.to_string();
                ensure!(!self.finished.contains(failed.call.as_str()), "{} failed after its reply", failed.call);
                self.open_model = None;
            }
            Event::CallCancelled(cancelled) => {
                if cancelled.tool.is_some() {
                    self.open_tools.remove(cancelled.call.as_str());
                } else if let Some((call, attempt)) = self.open_model.take().filter(|(call, _)| call.starts_with('m')) {
                    self.cut.insert(call, attempt);
                }
            }
            Event::ModelCallInterrupted(_) => {
                ensure!(self.open_model.is_some(), "an interrupt without an open call");
                self.interrupted = true;
            }
            Event::AiCutReceived(cut) => {
                let call = cut.call.to_string();
                let is_cut = self.is_cut(&self.input) || self.failed == call;
                ensure!(is_cut, "{call} was cut off by input {}, and goes on", self.input);
                ensure!(self.finished.insert(call.clone()), "two replies to {call}");
                ensure!(call.starts_with(&format!("m{}-{}", cut.turn, cut.step)), "{call} is of another step");
                let sent = self.partials.get(&self.input).unwrap_or(&cut.text);
                ensure!(*sent == cut.text, "of {sent:?} the log has {:?}", cut.text);
                self.cut.remove(&call);
                self.spend_in(Some(cut.turn), cut.spent.cost_usd, true);
            }
            Event::AiFullReceived(reply) => {
                self.spend(reply.spent.cost_usd);
                let call = reply.call.to_string();
                ensure!(self.attempts.contains_key(&call), "a reply to {call}, which was never opened");
                // The input's id is that of the attempt that it reports, and of its run.
                let attempt = self.input.strip_prefix(&call).and_then(|rest| rest.strip_prefix('-'));
                ensure!(attempt.is_some(), "input {} is taken for the reply to {call}", self.input);
                ensure!(self.finished.insert(call.clone()), "two replies to {call}");
                if let Some((open, _)) = &self.open_model {
                    ensure!(*open == call, "a reply to {call} while {open} is open");
                }
                self.open_model = None;
                // It takes the place of what had come of attempts that were called off.
                self.cut.remove(&call);
                let Some(turn) = &mut self.turn else { return Err("a reply outside a turn".to_owned()) };
                ensure!(turn.last.is_none() || reply.tool_calls.is_empty(), "the last step of a turn has calls");
                turn.calls.clear();
                for tool in reply.tool_calls.iter().filter(|tool| tool.function.name != "continuation") {
                    ensure!(turn.calls.insert(tool.id.clone()), "two calls {} in one reply", tool.id);
                    ensure!(!self.results.contains_key(&tool.id), "call id {} is used again", tool.id);
                }
            }
            Event::ToolCallIdentified(identified) => {
                let call = identified.call.to_string();
                ensure!(self.in_reply(&call), "{call} is in no reply");
                ensure!(self.identified.insert(call.clone()), "{call} was identified twice");
                if identified.performer == Performer::Client {
                    self.client_calls.insert(call.clone());
                }
                self.arguments.insert(call, identified.arguments.clone());
            }
            Event::ToolCallOpened(opened) => {
                let call = opened.call.to_string();
                ensure!(!self.client_calls.contains(&call), "{call} is a client's and was opened for the fleet");
                if opened.child.is_some() {
                    self.children.insert(call.clone(), None);
                }
                self.open_call(call)?;
            }
            Event::ClientCallOpened(opened) => {
                let call = opened.call.to_string();
                ensure!(self.client_calls.contains(&call), "{call} waits for a client and is not a client's");
                let approved = self.arguments.get(&call) == Some(&opened.arguments);
                ensure!(approved, "{call} waits for a client with arguments that were not approved");
                self.open_call(call)?;
            }
            Event::ToolCallExtended(extended) => {
                let call = extended.call.to_string();
                ensure!(self.open_tools.contains(&call), "{call} was extended and is not open");
            }
            Event::ToolCallResult(result) => {
                let call = result.call.to_string();
                ensure!(self.in_reply(&call), "I3: a result of {call}, which is in no reply of this step");
                let is_client = result.performer == Performer::Client;
                ensure!(
                    is_client == self.client_calls.contains(&call),
                    "{call} was performed by {:?}",
                    result.performer
                );
                let is_answer = matches!(result.outcome, Outcome::Ok | Outcome::Error);
                let by_client = self.input_kind == Some(InputKind::Control(Verb::AnswerToolCall));
                ensure!(!is_client || is_answer == by_client, "{call} has an answer that no client gave");
                let answered = self.client_answers.get(&self.input).is_none_or(|answered| *answered == call);
                ensure!(answered, "{call} has the answer that a client gave to another call");
                let running = self.turn.as_ref().map(|turn| turn.number);
                self.spend_in(running, result.used.map_or(0.0, |used| used.spent.cost_usd), false);
                let performed = self.children.remove(&call).is_some();
                let own = matches!(result.outcome, Outcome::Cancelled | Outcome::Timeout | Outcome::Unknown);
                ensure!(!performed || !own || result.used.is_some(), "{call} was cancelled and its child goes on");
                let before = self.results.insert(call.clone(), result.outcome);
                match before {
                    None => ensure!(!result.replaces, "{call}: replaces a result that is not there"),
                    Some(Outcome::Unknown | Outcome::Timeout) => {
                        ensure!(result.replaces && result.outcome == Outcome::Ok, "I3: a second result of {call}");
                    }
                    Some(Outcome::Ok | Outcome::Error | Outcome::Denied | Outcome::Cancelled) => {
                        return Err(format!("I3: a second result of {call}"));
                    }
                }
                self.open_tools.remove(&call);
            }
            Event::StatusPaused(_) => {
                ensure!(!self.paused, "paused twice");
                self.paused = true;
            }
            Event::StatusResumed(_) => {
                ensure!(self.paused, "resumed without a pause");
                self.paused = false;
            }
            Event::ContinuationProgress(progress) => {
                let turn = self.turn.as_ref().ok_or("a decision outside a turn")?;
                ensure!(turn.last.is_none(), "a decision about the last step of a turn");
                ensure!(progress.iteration == turn.steps, "a decision about step {}", progress.iteration);
                let max = self.max_iterations * (1 + turn.granted);
                let step = progress.iteration;
                ensure!(!(progress.continues && step >= max), "I4: goes on after step {step} of at most {max}");
                self.spend(progress.spent.cost_usd);
                if self.open_model.as_ref().is_some_and(|(call, _)| call.starts_with('j')) {
                    self.open_model = None;
                }
            }
            Event::TurnCompleted(completed) => {
                let turn = self.turn.take().ok_or("a turn ended that never began")?;
                ensure!(completed.turn == turn.number, "another turn ended");
                turn.spent.check("the end of the turn", completed.spent, completed.spent_own)?;
                let is_answered = turn.last.is_some() || completed.final_response.contains("without an answer");
                ensure!(
                    completed.stop_reason != StopReason::Timeout || is_answered || !self.answers_at_limits,
                    "a turn at its limit of time ended without a word"
                );
                let steps = turn.steps - u32::from(turn.last_opened);
                ensure!(completed.iterations == steps, "{steps} steps, not {}", completed.iterations);
                if let Some(limit) = turn.last {
                    let reason = completed.stop_reason;
                    ensure!(
                        reason == limit || reason == StopReason::Stopped,
                        "a turn at {limit:?} ended by {reason:?}"
                    );
                }
                ensure!(self.open_model.is_none(), "a turn ended with its model call open");
                ensure!(self.open_tools.is_empty(), "a turn ended with tools running");
                ensure!(self.gates.is_empty(), "a turn ended with a gate open");
                for call in &turn.calls {
                    ensure!(self.results.contains_key(call), "I3: the turn ended and {call} has no result");
                }
            }
            Event::GateOpened(gate) => {
                ensure!(self.gates.insert(gate.gate.to_string()), "a gate opened twice");
                if let GateKind::Error(_) = gate.kind {
                    let turn = self.turn.as_mut().ok_or("a gate about a model outside a turn")?;
                    turn.failed = true;
                }
                if let GateKind::Limit(limit) = gate.kind {
                    let idle = self.open_model.is_none() && self.open_tools.is_empty();
                    ensure!(idle, "a gate about a limit while calls run");
                    let turn = self.turn.as_mut().ok_or("a limit outside a turn")?;
                    turn.open_limit = Some(limit);
                }
            }
            Event::GateClosed(gate) => {
                ensure!(self.gates.remove(gate.gate.as_str()), "a gate closed that was not open");
                let changed = self.answers.get(&self.input).cloned().flatten();
                ensure!(gate.arguments == changed, "the arguments of {} are not those that a person set", gate.gate);
                if let Some(changed) = changed {
                    self.arguments.insert(gate.gate.to_string(), changed);
                }
                if let Some(turn) = &mut self.turn
                    && std::mem::take(&mut turn.failed)
                {
                    turn.denied = gate.decision == AnswerDecision::Deny;
                } else if let Some(turn) = &mut self.turn
                    && let Some(limit) = turn.open_limit.take()
                {
                    match gate.decision {
                        AnswerDecision::Approve => turn.granted += u32::from(limit == StopReason::MaxIterations),
                        AnswerDecision::Deny | AnswerDecision::Answer => turn.denied = true,
                    }
                }
            }
        }
        Ok(())
    }

    /// Records that an input answers a gate.
    pub fn record_answer(&mut self, input: String, answer: &Answer) {
        self.answers.insert(input, answer.arguments.clone());
    }

    /// Records the text that an input brings of a called-off reply.
    pub fn record_partial(&mut self, input: String, text: &str) {
        self.partials.insert(input, text.to_owned());
    }

    /// Whether a report is of the attempt of a call that was called off, and that no other one replaced.
    fn is_cut(&self, input: &str) -> bool {
        let is_of = |(call, attempt): (&String, &u32)| {
            let attempt = format!("{call}-{attempt}");
            input.strip_prefix(&attempt).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.cut.iter().any(is_of)
    }

    /// Records that an input answers a call that waits for a client.
    pub fn record_client_answer(&mut self, input: String, answer: &AnswerToolCall) {
        self.client_answers.insert(input, answer.call.to_string());
    }

    /// A call begins, wherever it is performed.
    fn open_call(&mut self, call: String) -> Result<(), String> {
        ensure!(!self.paused, "I5: a tool call opened in a pause");
        ensure!(self.identified.contains(&call), "{call} runs but was never identified");
        ensure!(!self.gates.contains(&call), "{call} runs without an approval");
        ensure!(!self.results.contains_key(&call), "{call} runs after its result");
        ensure!(self.opened.insert(call.clone()), "{call} was opened twice");
        self.open_tools.insert(call);
        Ok(())
    }

    /// Checks an item for the executors: its arguments were approved, and it is no question to a person.
    pub fn check_tool_item(&self, item: &ToolItem) -> Result<(), String> {
        let call = item.meta.call.as_str();
        ensure!(!self.client_calls.contains(call), "{call} waits for a client, and is sent to the executors");
        ensure!(item.tool.as_str() != ASK_USER, "{call} is a question to a person, and is sent to the executors");
        ensure!(self.arguments.get(call) == Some(&item.arguments), "{call} runs with arguments that were not approved");
        Ok(())
    }

    /// Checks an item for the gateways: it forbids tools in the last step of a turn, and only there.
    pub fn check_model_item(&self, item: &ModelItem) -> Result<(), String> {
        let is_helper = item.meta.call.as_str().starts_with(['s', 'j']);
        let last = !is_helper && self.turn.as_ref().is_some_and(|turn| turn.last.is_some());
        let forbids = item.parameters.get("tool_choice").is_some_and(|choice| choice == "none");
        let asks = item.messages.iter().any(|message| message.get().contains("Call no tool"));
        ensure!(forbids == (last && !item.tools.is_empty()), "{}: tools are forbidden: {forbids}", item.meta.call);
        ensure!(!last || asks, "{} does not ask for a final answer", item.meta.call);
        Ok(())
    }

    fn in_reply(&self, call: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.calls.contains(call))
    }

    /// The session itself spends something in the running turn.
    fn spend(&mut self, usd: f64) {
        self.spend_in(self.turn.as_ref().map(|turn| turn.number), usd, true);
    }

    /// Something is spent in a turn: it counts for that turn as long as that runs, and for no other one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "costs of the world are small")]
    fn spend_in(&mut self, number: Option<u32>, usd: f64, is_own: bool) {
        self.spent_micros += (usd * 1e6) as u64;
        self.spent.add(usd, is_own);
        if let Some(turn) = self.turn.as_mut().filter(|turn| Some(turn.number) == number) {
            turn.spent.add(usd, is_own);
        }
    }

    /// Compares what the state and the index say with what was spent.
    pub fn check_summary(&self, summary: &SessionSummary) -> Result<(), String> {
        ensure!(summary.spent_own.is_some(), "the index does not say what the session spent itself");
        self.spent.check("the index", summary.spent, summary.spent_own)
    }
}

fn answers_at_limits(settings: &ContinuationSettings) -> bool {
    settings.on_limit == LimitAction::Answer
}

/// Checks a request (I3): each call has exactly one result, in order, right after its reply.
pub fn check_request(messages: &[Json]) -> Result<(), String> {
    let mut pending: std::collections::VecDeque<String> = std::collections::VecDeque::new();
    let mut users = 0;
    for (position, message) in messages.iter().enumerate() {
        let message: Value = serde_json::from_str(message.get()).map_err(|error| error.to_string())?;
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            ensure!(
                pending.pop_front().as_deref() == Some(id),
                "I3: message {position}: the result of {id} is misplaced"
            );
            continue;
        }
        ensure!(pending.is_empty(), "I3: message {position}: results are missing: {pending:?}");
        match role {
            "system" => ensure!(position == 0, "a system prompt in the middle"),
            "user" => users += 1,
            "assistant" => pending.extend(
                message["tool_calls"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|c| Some(c["id"].as_str()?.to_owned())),
            ),
            other => return Err(format!("message {position} has the role {other:?}")),
        }
    }
    ensure!(pending.is_empty(), "I3: results are missing at the end: {pending:?}");
    ensure!(users > 0, "a request without a user message");
    Ok(())
}
