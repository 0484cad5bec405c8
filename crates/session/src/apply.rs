//! The fold: what each event does to the state. It never fails and never decides.

use std::sync::Arc;

use contract::Timestamp;
use contract::client_tool::Performer;
use contract::command::{AnswerDecision, MessageMode, Verb};
use contract::event::{
    AiFullReceived, CallCancelled, Child, DecisionSource, Event, GateClosed, GateKind, GateOpened, InputIgnored,
    InputKind, ModelCallFailed, ModelCallOpened, Spent, StopReason,
};
use contract::limits::{CUT_REPLIES_MAX, LAST_WORD_MAX};
use contract::model::{FailureKind, FinishReason};
use contract::settings::OnExpiry;
use contract::tool::{ApprovalPolicy, ChildUsage, Outcome};

use crate::check;
use crate::clock::Clock;
use crate::repetition_guard::RepetitionGuard;
use crate::state::{
    Activity, CallStage, ClientToolSet, CutCall, LastStep, Lifecycle, ModelCall, ParentCommand, PendingMessage,
    Question, Report, Setup, State, ToolCallState, ToolRequest, ToolSet, TurnState,
};

impl State {
    /// Moves the mark of handled client commands. It moves to a lower sequence only for a command that the stream took
    /// later: then the stream was made anew, or put back to an older state, and counts again.
    fn advance_control(&mut self, seq: Option<u64>, at: Option<Timestamp>) {
        let Some(seq) = seq else { return };
        let is_later = match (at, self.control_at) {
            (Some(at), Some(mark)) => at > mark,
            (None, _) | (_, None) => false,
        };
        if seq > self.control_seq || is_later {
            self.control_seq = seq;
            self.control_at = at.or(self.control_at);
        }
    }

    pub(crate) fn begin_commit(&mut self, slot: u64, at: Timestamp) {
        self.slots = slot + 1;
        self.updated = at;
    }

    #[allow(clippy::too_many_lines, reason = "one arm per event, each a few lines: a table reads best whole")]
    pub(crate) fn apply(&mut self, at: Timestamp, event: &Event) {
        if event.topic().is_some() {
            self.seq += 1;
        }
        match event {
            Event::InputHandled(handled) => {
                self.advance_control(handled.control_seq, handled.control_at);
                match handled.input.kind {
                    InputKind::Timer => self.timer = None,
                    InputKind::Control(_) => (self.touched, self.active) = (at, at),
                }
                self.record_parent_command(&handled.input, handled.parent_command_number);
            }
            Event::InputIgnored(ignored) => {
                self.advance_control(ignored.control_seq, ignored.control_at);
                match ignored.input.kind {
                    InputKind::Timer => {}
                    // A late or refused input writes a commit, too.
                    InputKind::Control(_) => self.active = at,
                }
                self.spend_late(ignored);
                self.record_parent_command(&ignored.input, ignored.parent_command_number);
                if let Some(parent) = &ignored.parent {
                    let content = format!("{}: {}", ignored.refusal.code, ignored.refusal.message);
                    self.report = Some(Report {
                        parent: parent.clone(),
                        outcome: Outcome::Error,
                        content,
                        used: ChildUsage::default(),
                        duration_ms: 0,
                    });
                }
            }
            Event::SessionStarted(started) => {
                self.life = Lifecycle::Alive;
                self.started = at;
                self.setup = Some(Arc::new(Setup {
                    agent: started.agent.clone(),
                    model: started.model.clone(),
                    interactive: started.interactive,
                    parameters: started.parameters.clone(),
                    tool_choice: started.tool_choice.clone(),
                    ai_config: started.ai_config.clone(),
                    streaming: started.streaming.clone(),
                    own_streaming: started.own_streaming,
                    fallbacks: started.fallbacks.clone(),
                    features: started.features.clone(),
                    overrides: started.overrides.clone(),
                    only_tools: started.only_tools.clone(),
                    parent: started.parent.clone(),
                }));
                self.client_tools = Arc::new(ClientToolSet::new(started.client_tools.clone()));
            }
            Event::SessionEnded(ended) => {
                self.report = self.reported(at, ended);
                // It is not archived yet, and its log still begins where it was imported to.
                self.log_start = self.log_start.or(self.archived.take());
                self.last_stop = ended.stop_reason;
                self.life = Lifecycle::Ended;
                self.turn = None;
                self.timer = None;
                self.waiting.clear();
            }
            Event::UserProcessed(message) => {
                if self.title.is_empty() {
                    self.title = title(&message.content.text());
                }
                let steers = match message.mode {
                    MessageMode::Steer | MessageMode::Interrupt => true,
                    MessageMode::Queue => false,
                };
                let nudges = self.turn.is_none() && reply::is_nudge(&message.content.text());
                let bytes = message.content.bytes() + check::client_tools_bytes(message.client_tools.as_deref());
                let client_tools = message.client_tools.clone().map(|tools| Arc::new(ClientToolSet::new(tools)));
                let id = message.message_id.clone();
                self.waiting.push(PendingMessage { id, steers, nudges, bytes, client_tools });
            }
            Event::TurnStarted(started) | Event::PrivateTurnStarted(started) => {
                self.turns = started.turn;
                self.tally.premature += u32::from(started.premature);
                self.previous_traceparent = std::mem::replace(&mut self.traceparent, started.traceparent.clone());
                self.place_messages(|waiting| started.messages.contains(&waiting.id));
                self.cancels.clear();
                let limit = self.setup.as_ref().map(|s| s.agent.continuation.turn_timeout()).unwrap_or_default();
                self.turn = Some(TurnState {
                    number: started.turn,
                    step: 0,
                    clock: Clock::start(at, limit),
                    activity: Activity::Ready,
                    retries: 0,
                    spent: Spent::default(),
                    spent_own: Some(Spent::default()),
                    text: String::new(),
                    guard: RepetitionGuard::default(),
                    attempt: 0,
                    opened_by: String::new(),
                    fallback: 0,
                    summaries: 0,
                    summarised: 0,
                    squeezed: 0,
                    started: at,
                    form: None,
                    progress: None,
                    is_doubted: false,
                    last_step: None,
                });
            }
            Event::ToolsResolved(tools) => self.tools = Arc::new(ToolSet::new(tools.clone())),
            Event::ModelCallOpened(opened) => self.model_call_opened(opened),
            Event::ModelCallFailed(failed) => self.model_call_failed(failed),
            Event::CallCancelled(cancelled) => {
                self.cancels.push(cancelled.clone());
                self.await_cut_reply(cancelled);
                if let Some(turn) = &mut self.turn
                    && cancelled.tool.is_none()
                {
                    turn.activity = Activity::Ready;
                }
            }
            Event::ModelCallInterrupted(interrupted) => {
                if let Some(TurnState { activity: Activity::AwaitingModel(model), .. }) = &mut self.turn {
                    model.interrupted = Some(interrupted.until);
                }
            }
            Event::AiFullReceived(reply) => self.reply_received(reply),
            Event::AiCutReceived(cut) => {
                self.forget_cut_call(&cut.call);
                self.spend_in(Some(cut.turn), cut.spent, Spender::Session);
                self.active = at;
            }
            Event::ToolCallIdentified(identified) => {
                self.tally.tool_calls += 1;
                if let Some(turn) = &mut self.turn {
                    turn.guard.called(identified.tool.as_str(), identified.arguments.get());
                }
                let request = Box::new(ToolRequest {
                    tool: identified.tool.clone(),
                    arguments: identified.arguments.clone(),
                    effect: identified.effect,
                    timeout_ms: identified.timeout_ms,
                    max_output: identified.max_output,
                });
                // Until its gate opens, a call that needs approval must not be dispatched: it stays announced.
                let stage = match identified.approval {
                    ApprovalPolicy::Never => CallStage::Pending(request),
                    ApprovalPolicy::Always => CallStage::Gated {
                        request,
                        expires: Timestamp::from_millis(u64::MAX),
                        on_expiry: OnExpiry::Deny,
                    },
                };
                self.set_stage(&identified.call, |_| stage);
                if let Some(state) = self.turn.as_mut().and_then(|turn| turn.call_mut(&identified.call)) {
                    state.performer = identified.performer;
                }
            }
            Event::ToolCallOpened(opened) => {
                let child = opened.child.clone().map(Box::new);
                self.call_opened(at, &opened.call, opened.attempt, opened.deadline, child);
            }
            // Nobody takes it from a queue, so there is no second attempt.
            Event::ClientCallOpened(opened) => self.call_opened(at, &opened.call, 1, opened.deadline, None),
            Event::ToolCallExtended(extended) => self.set_stage(&extended.call, |stage| {
                let CallStage::Open { request, attempt, slot, child, since, .. } = stage else { return stage };
                CallStage::Open { request, attempt, slot, deadline: extended.deadline, child, since }
            }),
            Event::ToolCallResult(result) => {
                if let Some(used) = result.used {
                    self.spend(used.spent, Spender::Child);
                    self.tally.tool_calls += used.tool_calls;
                    if let Some(turn) = &mut self.turn {
                        turn.guard.used(used.tool_calls);
                    }
                }
                if let Some(turn) = &mut self.turn {
                    turn.guard.learned(&result.content);
                }
                self.set_stage(&result.call, |_| CallStage::Done(result.outcome));
                if let Some(turn) = &mut self.turn
                    && matches!(&turn.activity, Activity::RunningTools(calls) if calls.iter().all(ToolCallState::is_done))
                {
                    turn.activity = Activity::Ready;
                }
            }
            Event::StatusPaused(_) => {
                self.paused = true;
                self.paused_at = Some(at);
            }
            Event::StatusResumed(_) => {
                self.paused = false;
                self.resumed_in = Some(self.slot());
                let stood = self.paused_at.take().map(|since| at.since(since)).unwrap_or_default();
                self.shift_deadlines(at, stood);
            }
            Event::ContinuationProgress(progress) => {
                self.spend(progress.spent, Spender::Session);
                let source = progress.source.to_string();
                let source = source.split_once(':').map_or(source.as_str(), |(kind, _)| kind).to_owned();
                *self.tally.decisions.entry(source).or_default() += 1;
                if let Some(turn) = &mut self.turn {
                    if progress.progress.is_known() {
                        turn.progress = Some(progress.progress.clone());
                    }
                    turn.is_doubted |= progress.source == DecisionSource::Confidence;
                    if matches!(turn.activity, Activity::Deciding | Activity::Judging { .. }) {
                        turn.activity = if progress.continues { Activity::Ready } else { Activity::Deciding };
                    }
                }
            }
            Event::TurnCompleted(completed) => {
                self.turn = None;
                self.active = at;
                self.last_stop = Some(completed.stop_reason);
                *self.tally.turns.entry(completed.stop_reason.as_str().to_owned()).or_default() += 1;
                self.tally.iterations += completed.iterations;
            }
            Event::GateOpened(opened) => self.gate_opened(opened),
            Event::GateClosed(closed) => self.gate_closed(at, closed),
            Event::Configured(configured) => self.configured(configured),
            Event::ModelFellBack(fallen) => {
                if let Some(turn) = &mut self.turn {
                    turn.fallback = fallen.number;
                    turn.retries = 0;
                    if let Activity::Backoff { empties, .. } = &mut turn.activity {
                        *empties = 0;
                    }
                }
            }
            Event::LimitReached(reached) => {
                if let Some(turn) = &mut self.turn {
                    turn.last_step = Some(LastStep { limit: reached.limit, opened: false });
                    if reached.limit == StopReason::Timeout {
                        turn.clock.allow(at, LAST_WORD_MAX);
                    }
                    // A reply that the limit of time cuts is awaited first, as far as it came.
                    if !matches!(turn.activity, Activity::AwaitingModel(_)) {
                        turn.activity = Activity::Ready;
                    }
                }
            }
            Event::SummaryOpened(opened) => {
                let slot = self.slot();
                if let Some(turn) = &mut self.turn {
                    turn.summaries += 1;
                    turn.summarised = turn.step + 1;
                    let model = ModelCall::once(opened.call.clone(), slot, opened.deadline);
                    turn.activity = Activity::Summarising { model, before: opened.before };
                }
            }
            Event::JudgeOpened(opened) => {
                let slot = self.slot();
                if let Some(turn) = &mut self.turn {
                    let judge = ModelCall::once(opened.call.clone(), slot, opened.deadline);
                    turn.activity = Activity::Judging { judge, model: opened.model.clone() };
                }
            }
            Event::ContextPruned(pruned) => {
                self.spend(pruned.spent, Spender::Session);
                if let Some(turn) = &mut self.turn {
                    if matches!(turn.activity, Activity::Summarising { .. }) {
                        turn.activity = Activity::Ready;
                    } else if matches!(turn.activity, Activity::Backoff { .. }) {
                        turn.squeezed = turn.step;
                    }
                }
            }
            Event::ChildCommanded(command) => {
                self.child_commands = command.number;
                self.children
                    .insert(command.call.clone(), ParentCommand { number: command.number, verb: command.verb });
            }
            Event::ContextCleared(_) | Event::Error(_) | Event::Unknown => {}
            Event::TimerSet(timer) => {
                self.timers = timer.number;
                self.timer = Some(timer.clone());
            }
            Event::SessionArchived(archived) => {
                self.archived = Some(archived.slots);
                self.drop_tools();
            }
            Event::LogCompacted(compacted) => self.log_start = Some(compacted.slots),
            Event::SessionMoved(moved) => {
                (self.life, self.archived, self.moved) = (Lifecycle::Ended, Some(moved.slots), Some(moved.to.clone()));
                self.drop_tools();
            }
            Event::SessionImported(imported) => {
                self.archived = Some(imported.slots);
                self.log_start = Some(imported.slots);
                // Those of another control stream say nothing here.
                (self.control_seq, self.control_at) = (0, None);
                self.touched = at;
            }
        }
        self.run_clock(at);
    }

    fn run_clock(&mut self, at: Timestamp) {
        let paused = self.paused;
        if let Some(turn) = &mut self.turn {
            let asking = matches!(turn.activity, Activity::AwaitingUser { .. });
            let gated = asking || turn.calls().iter().any(ToolCallState::is_gated);
            // The time of a turn is for the work of the fleet: a client that is alone with the turn has its own.
            let calls = turn.calls();
            let at_client =
                calls.iter().any(ToolCallState::waits_for_client) && !calls.iter().any(ToolCallState::runs_in_fleet);
            turn.clock.run(at, !paused && !gated && !at_client);
        }
    }

    fn gate_opened(&mut self, opened: &GateOpened) {
        match opened.kind {
            GateKind::Approval | GateKind::Question => self.set_stage(&opened.gate, |stage| {
                let CallStage::Gated { request, .. } = stage else { return stage };
                CallStage::Gated { request, expires: opened.expires, on_expiry: opened.on_expiry }
            }),
            GateKind::Limit(limit) => self.ask(opened, Question::Limit(limit)),
            GateKind::Error(kind) => self.ask(opened, Question::Failed { kind }),
        }
    }

    fn ask(&mut self, opened: &GateOpened, question: Question) {
        if let Some(turn) = &mut self.turn {
            turn.activity = Activity::AwaitingUser { gate: opened.gate.clone(), question, expires: opened.expires };
        }
    }

    fn gate_closed(&mut self, at: Timestamp, closed: &GateClosed) {
        if let Some(turn) = &mut self.turn
            && let Activity::AwaitingUser { question, .. } = turn.activity
        {
            turn.activity = match (closed.decision, question) {
                (AnswerDecision::Approve, Question::Limit(limit)) => {
                    turn.guard.grant(limit);
                    if limit == StopReason::Timeout {
                        turn.clock.extend();
                    }
                    Activity::Ready
                }
                (AnswerDecision::Approve, Question::Failed { .. }) => {
                    turn.guard.grant(StopReason::Error);
                    turn.retries = 0;
                    let call = contract::CallId::model(turn.number, turn.step);
                    Activity::Backoff { call, attempt: turn.attempt + 1, empties: 0, retry_at: at }
                }
                (AnswerDecision::Deny | AnswerDecision::Answer, _) => Activity::Deciding,
            };
            return;
        }
        if let Some(state) = self.turn.as_mut().and_then(|turn| turn.call_mut(&closed.gate)) {
            state.changed.clone_from(&closed.arguments);
        }
        self.set_stage(&closed.gate, |stage| {
            let CallStage::Gated { mut request, .. } = stage else { return stage };
            if let Some(arguments) = &closed.arguments {
                request.arguments = arguments.clone();
            }
            CallStage::Pending(request)
        });
    }

    /// Counts what a call of the running turn used.
    fn spend(&mut self, spent: Spent, spender: Spender) {
        self.spend_in(self.turn.as_ref().map(|turn| turn.number), spent, spender);
    }

    /// Counts what a call of a turn used: for the session, and for that turn while it runs.
    fn spend_in(&mut self, turn: Option<u32>, spent: Spent, spender: Spender) {
        spender.add(spent, &mut self.spent, &mut self.spent_own);
        if let Some(running) = self.turn.as_mut().filter(|running| Some(running.number) == turn) {
            spender.add(spent, &mut running.spent, &mut running.spent_own);
        }
    }

    /// Counts what a late result used: no part of it is the running turn's, unless that turn made the call.
    fn spend_late(&mut self, ignored: &InputIgnored) {
        let Some(spent) = ignored.usage else { return };
        let spender = match ignored.input.kind {
            InputKind::Control(Verb::ProvideToolResult) => Spender::Child,
            InputKind::Control(_) | InputKind::Timer => Spender::Session,
        };
        match &ignored.call {
            Some(call) => self.spend_in(call.turn(), spent, spender),
            // An older version named no call, and counted it for the turn that ran.
            None => self.spend(spent, spender),
        }
    }

    /// Notes that the text of a called-off step is to be kept, if it comes.
    fn await_cut_reply(&mut self, cancelled: &CallCancelled) {
        let form = self.signal_form();
        let Some(TurnState { number, step, activity: Activity::AwaitingModel(model), opened_by, .. }) = &self.turn
        else {
            return;
        };
        if model.call != cancelled.call || model.attempt != cancelled.attempt {
            return;
        }
        let CallCancelled { call, attempt, tool: _ } = cancelled.clone();
        let opened_by = opened_by.clone();
        self.cut_calls.push(CutCall { call, attempt, turn: *number, step: *step, form, opened_by });
        let too_many = self.cut_calls.len().saturating_sub(CUT_REPLIES_MAX);
        self.cut_calls.drain(..too_many);
    }

    /// The reply of a call has come, or another attempt replaces it.
    fn forget_cut_call(&mut self, call: &contract::CallId) {
        self.cut_calls.retain(|cut| cut.call != *call);
    }

    fn model_call_opened(&mut self, opened: &ModelCallOpened) {
        self.forget_cut_call(&opened.call);
        // What the user says in the last step is for the next turn.
        if opened.attempt == 1 && self.turn.as_ref().is_some_and(|turn| turn.last_step.is_none()) {
            self.place_messages(|waiting| waiting.steers);
        }
        let (slot, form) = (self.slot(), self.next_signal_form());
        let Some(turn) = &mut self.turn else { return };
        turn.form = Some(form);
        let empties = if let Activity::Backoff { empties, .. } = &turn.activity { *empties } else { 0 };
        turn.step = opened.step;
        turn.attempt = opened.attempt;
        turn.activity = Activity::AwaitingModel(ModelCall {
            call: opened.call.clone(),
            attempt: opened.attempt,
            slot,
            deadline: opened.deadline,
            empties,
            interrupted: None,
        });
        if opened.attempt == 1 {
            turn.guard.step(opened.step);
            if let Some(last) = &mut turn.last_step {
                last.opened = true;
            }
        }
    }

    fn model_call_failed(&mut self, failed: &ModelCallFailed) {
        self.spend(failed.spent, Spender::Session);
        let Some(turn) = &mut self.turn else { return };
        let empty = failed.kind == FailureKind::Empty;
        let empties =
            if let Activity::AwaitingModel(model) = &turn.activity { model.empties + u32::from(empty) } else { 0 };
        if !empty {
            turn.retries += 1;
        }
        turn.activity = match failed.retry_at {
            Some(retry_at) => {
                Activity::Backoff { call: failed.call.clone(), attempt: failed.attempt + 1, empties, retry_at }
            }
            None => Activity::Deciding,
        };
    }

    fn reply_received(&mut self, reply: &AiFullReceived) {
        self.forget_cut_call(&reply.call);
        self.spend(reply.spent, Spender::Session);
        let Some(turn) = &mut self.turn else { return };
        turn.retries = 0;
        if !reply.text.is_empty() {
            turn.text.clone_from(&reply.text);
        }
        let calls: Vec<ToolCallState> = reply
            .tool_calls
            .iter()
            .filter(|call| !call.is_signal())
            .filter_map(|call| {
                let id = contract::CallId::new(&call.id).ok()?;
                let name = call.function.name.clone();
                Some(ToolCallState {
                    call: id,
                    name,
                    stage: CallStage::Announced,
                    changed: None,
                    opened_by: String::new(),
                    performer: Performer::Fleet,
                })
            })
            .collect();
        if calls.is_empty() {
            turn.guard.learned(&reply.text);
        }
        turn.activity = match (calls.is_empty(), reply.finish_reason) {
            (true, FinishReason::Cancelled) => Activity::Ready,
            (true, _) => Activity::Deciding,
            (false, _) => Activity::RunningTools(calls),
        };
    }

    fn call_opened(
        &mut self,
        at: Timestamp,
        call: &contract::CallId,
        attempt: u32,
        deadline: Timestamp,
        child: Option<Box<Child>>,
    ) {
        let slot = self.slot();
        self.set_stage(call, |stage| {
            let CallStage::Pending(request) = stage else { return stage };
            CallStage::Open { request, attempt, slot, deadline, child, since: at }
        });
    }

    fn set_stage(&mut self, call: &contract::CallId, next: impl FnOnce(CallStage) -> CallStage) {
        if let Some(state) = self.turn.as_mut().and_then(|turn| turn.call_mut(call)) {
            state.stage = next(std::mem::replace(&mut state.stage, CallStage::Announced));
        }
    }
}

/// Source of usage that is added: the session itself or a child.
#[derive(Clone, Copy)]
enum Spender {
    /// The session, by its own model calls.
    Session,
    /// A child: what it reports has what its own children used.
    Child,
}

impl Spender {
    fn add(self, spent: Spent, all: &mut Spent, own: &mut Option<Spent>) {
        *all = all.plus(spent);
        match self {
            Self::Session => *own = own.map(|own| own.plus(spent)),
            Self::Child => {}
        }
    }
}

/// The beginning of the first message, on one line.
fn title(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(80).collect()
}

/// The status word of a turn that used up its steps.
pub(crate) fn status_of(reason: StopReason) -> Option<String> {
    match reason {
        StopReason::MaxIterations => Some("MAX_ITERATIONS_REACHED".to_owned()),
        StopReason::Completed
        | StopReason::Timeout
        | StopReason::TokenLimit
        | StopReason::CostLimit
        | StopReason::ToolCallLimit
        | StopReason::Repetition
        | StopReason::NoProgress
        | StopReason::Stopped
        | StopReason::Error => None,
    }
}
