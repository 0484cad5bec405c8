//! Builds a decision: which handler takes an input, and what every input leads to.

use contract::command::{Parent, Refusal};
use contract::event::{Event, InputHandled, InputIgnored, Spent, TimerSet};
use contract::limits::COMMAND_AGE_MAX;
use contract::tool::Outcome;
use contract::{AgentId, CallId, ErrorCode, Timestamp};

use crate::state::{Lifecycle, State};
use crate::transcript::Transcript;
use crate::{Body, Decision, Input, check, effect};

/// Stands for the id of the commit that is being decided. No commit has it.
const UNCOMMITTED: &str = "-";

/// Decides about inputs that become one commit. Each input sees the effects of those before it.
pub(crate) fn decide(state: &State, transcript: &Transcript, now: Timestamp, inputs: &[Input]) -> Decision {
    let mut state = state.clone();
    let mut at = now.max(state.updated);
    state.begin_commit(state.next_slot(), at);
    let mut events = Vec::new();
    for input in inputs {
        let mut builder = DecisionBuilder { state, transcript, at, now, events, input };
        match builder.refuse_if_moved().and_then(|()| builder.handle()) {
            Ok(()) => builder.advance(),
            Err(ignored) => builder.ignore(ignored),
        }
        builder.set_timer();
        DecisionBuilder { state, at, events, .. } = builder;
        // No worker has a call that this commit opens: a result that names a commit is of another one.
        state.link(state.slot(), UNCOMMITTED);
    }
    let effects = effect::of_all(&state, &events);
    Decision { at, events, effects }
}

/// Builds a decision on a copy of the state, to which each event is applied as it is emitted.
pub(super) struct DecisionBuilder<'a> {
    pub(super) state: State,
    /// The transcript before the first input.
    pub(super) transcript: &'a Transcript,
    pub(super) at: Timestamp,
    /// Time by the caller's clock. `at` is later if the clock of an earlier commit was ahead.
    pub(super) now: Timestamp,
    pub(super) events: Vec<Event>,
    pub(super) input: &'a Input,
}

/// Refusal of an input, with the data of the input that the commit records.
pub(super) struct Rejection {
    pub(super) refusal: Refusal,
    pub(super) late: Option<Box<LateResult>>,
    pub(super) parent: Option<Box<Parent>>,
}

/// Notes of a result that changes nothing.
pub(super) struct LateResult {
    call: CallId,
    spent: Option<Spent>,
    outcome: Option<Outcome>,
}

impl Rejection {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::from(Refusal { code, message: message.into() })
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, late: None, parent: None }
    }
}

impl DecisionBuilder<'_> {
    pub(super) fn emit(&mut self, event: Event) {
        self.state.apply(self.at, &event);
        self.events.push(event);
    }

    /// Refuses everything where another cell has the session. The sender is told, so that it looks there.
    fn refuse_if_moved(&self) -> Result<(), Rejection> {
        let Some(cell) = &self.state.moved else { return Ok(()) };
        let message = format!("session {} was moved to cell {cell}: send it again", self.state.session());
        Err(Rejection::new(ErrorCode::SessionMoved, message))
    }

    pub(super) fn handled(&mut self) {
        let input = self.input.reference.clone();
        let Input { control_seq, control_at, parent_command_number, .. } = *self.input;
        self.emit(Event::InputHandled(InputHandled { input, control_seq, control_at, parent_command_number }));
    }

    fn ignore(&mut self, ignored: Rejection) {
        let Rejection { refusal, late, parent } = ignored;
        let (call, usage, late) = match late.map(|late| *late) {
            Some(LateResult { call, spent, outcome }) => (Some(call), spent, outcome),
            None => (None, None, None),
        };
        let input = self.input.reference.clone();
        let Input { control_seq, control_at, parent_command_number, .. } = *self.input;
        self.emit(Event::InputIgnored(InputIgnored {
            input,
            control_seq,
            control_at,
            parent_command_number,
            refusal,
            usage,
            call,
            late,
            parent,
        }));
        self.keep_timer();
    }

    /// Sets the current timer again under its number: an older timer may have reached the server late and replaced it.
    fn keep_timer(&mut self) {
        if let (Body::Timer, Some(timer)) = (&self.input.body, self.state.timer.clone()) {
            self.emit(Event::TimerSet(timer));
        }
    }

    /// Handles the input. A handler checks first and then emits, so that a refusal has emitted nothing.
    fn handle(&mut self) -> Result<(), Rejection> {
        self.check_session_agent()?;
        self.check_lifecycle()?;
        self.check_history()?;
        self.check_command()?;
        match &self.input.body {
            Body::Start(start) => self.start(start),
            Body::Send(message) => self.send(message),
            Body::Pause(control_reason) => self.pause(control_reason),
            Body::Resume(control_reason) => self.resume(control_reason),
            Body::Stop(control_reason) => {
                self.stop(control_reason);
                Ok(())
            }
            Body::CancelTurn(control_reason) => self.cancel_turn(control_reason),
            Body::Answer(answer) => self.answer(answer),
            Body::AnswerToolCall(answer) => self.answer_tool_call(answer),
            Body::Clear(control_reason) => self.clear(control_reason),
            Body::Configure(configure) => self.configure(configure),
            Body::ToolResult(result) => self.tool_result(result),
            Body::Extend(extension) => self.extend(extension),
            Body::ModelFinished(finished) => self.model_finished(finished),
            Body::ModelFailed(failed) => self.model_failed(failed),
            Body::Timer => self.timer(),
        }
    }

    /// Refuses a command to a session of an agent that its sender may not use. A start is checked once its agent is
    /// known.
    fn check_session_agent(&self) -> Result<(), Rejection> {
        match &self.state.setup {
            Some(setup) if !matches!(self.input.body, Body::Start(_)) => self.check_agent(&setup.agent.id),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses an agent that the sender of the input may not use.
    pub(super) fn check_agent(&self, agent: &AgentId) -> Result<(), Rejection> {
        match &self.input.agents {
            Some(agents) if !agents.contains(agent) => {
                let message = format!("the sender may not use the agent {agent}: its credential names others");
                Err(Rejection::new(ErrorCode::Forbidden, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_lifecycle(&self) -> Result<(), Rejection> {
        if let Some(sent) = self.input.sent
            && self.now.since(sent) > COMMAND_AGE_MAX
        {
            let hours = COMMAND_AGE_MAX.as_secs() / 3_600;
            let message = format!("the command is older than {hours} hours; send it again under a new id");
            return Err(Rejection::new(ErrorCode::StaleCommand, message));
        }
        if let (Some(number), Some(last)) = (self.input.parent_command_number, &self.state.last_parent_command)
            && number <= last.number
        {
            return Err(Rejection::new(ErrorCode::NotNow, "the parent said something else since"));
        }
        let starts = matches!(self.input.body, Body::Start(_));
        match (self.state.life, starts) {
            (Lifecycle::Alive, false) | (Lifecycle::NotStarted, true) => Ok(()),
            // The last timer archives the session.
            (Lifecycle::Ended, false) if matches!(self.input.body, Body::Timer) => Ok(()),
            (Lifecycle::Ended, false) if self.brings_cut_reply() => Ok(()),
            (Lifecycle::Alive, true) => Err(Rejection::new(ErrorCode::SessionExists, "the session is running already")),
            (Lifecycle::Ended, _) => Err(self.late(ErrorCode::SessionEnded, "the session has ended")),
            (Lifecycle::NotStarted, false) => Err(self.late(ErrorCode::UnknownSession, "no such session")),
        }
    }

    /// Whether the input has what came of a reply that was called off: it is kept after the end of its session, too.
    fn brings_cut_reply(&self) -> bool {
        self.input.body.report().is_some_and(|report| self.cut_call(report).is_some())
    }

    /// Ignores a result of a call that a lost history opened: the call that has its id now may have other arguments.
    fn check_history(&self) -> Result<(), Rejection> {
        match self.input.body.report() {
            Some(report) if self.state.is_of_lost_history(report) => {
                Err(self.late(ErrorCode::NotNow, "another call had this id, in a history that the log has lost"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks commands like the edge does, since other senders may skip it.
    fn check_command(&self) -> Result<(), Rejection> {
        let checked = match &self.input.body {
            // The parent gets a result if its child cannot start.
            Body::Start(input) => {
                let parent = || input.start.parent.clone().map(Box::new);
                return check::start(&input.start)
                    .map_err(|refusal| Rejection { parent: parent(), ..Rejection::from(refusal) });
            }
            Body::Send(message) => check::message(message),
            Body::Pause(control_reason)
            | Body::Resume(control_reason)
            | Body::Stop(control_reason)
            | Body::CancelTurn(control_reason)
            | Body::Clear(control_reason) => check::reason(control_reason),
            Body::Answer(answer) => check::answer(answer),
            Body::AnswerToolCall(answer) => check::answer_tool_call(answer),
            Body::Configure(input) => check::configure(&input.configure),
            Body::ToolResult(_) | Body::Extend(_) | Body::ModelFinished(_) | Body::ModelFailed(_) | Body::Timer => {
                Ok(())
            }
        };
        checked.map_err(Rejection::from)
    }

    /// Ignores a result, but counts its costs. What a child used counts while its answer is awaited: its report may come
    /// again after its id was forgotten.
    pub(super) fn late(&self, code: ErrorCode, message: &str) -> Rejection {
        let late = if let Body::ModelFinished(finished) = &self.input.body {
            let spent = Spent { usage: finished.usage, cost_usd: finished.cost_usd };
            Some(LateResult { call: finished.meta.call.clone(), spent: Some(spent), outcome: None })
        } else if let Body::ModelFailed(failed) = &self.input.body {
            let spent = Spent { usage: failed.usage, cost_usd: failed.cost_usd };
            Some(LateResult { call: failed.meta.call.clone(), spent: Some(spent), outcome: None })
        } else if let Body::ToolResult(result) = &self.input.body {
            let is_awaited = self.state.children.contains_key(&result.meta.call);
            let spent = result.used.filter(|_| is_awaited).map(|used| used.spent);
            Some(LateResult { call: result.meta.call.clone(), spent, outcome: Some(result.outcome) })
        } else {
            None
        };
        Rejection { late: late.map(Box::new), ..Rejection::new(code, message) }
    }

    /// Sets the timer if a deadline is earlier. A timer that fires too early is then set again.
    fn set_timer(&mut self) {
        let Some(deadline) = self.state.next_deadline() else { return };
        let compaction = self.state.compaction_due(self.state.slots, self.input.compact_after);
        let at = compaction.map_or(deadline, |due| due.min(deadline));
        if self.state.timer.as_ref().is_none_or(|timer| timer.at > at) {
            let number = self.state.timers + 1;
            self.emit(Event::TimerSet(TimerSet { number, at }));
        }
    }
}
