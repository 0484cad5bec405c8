//! From an input to events. Handlers say what happened; [`DecisionBuilder::advance`] then opens whatever may be opened.

mod advance;
mod ask;
mod child;
mod configure;
mod context;
mod control;
mod judge;
mod message;
mod model;
mod start;
mod timer;
mod tool;
mod turn;

pub use ask::ask_user_spec;
pub use child::delegate_spec;
use contract::command::{Parent, Refusal};
use contract::event::{Event, InputHandled, InputIgnored, Spent, TimerSet};
use contract::limits::COMMAND_AGE_MAX;
use contract::tool::Outcome;
use contract::{ErrorCode, Timestamp};

use crate::state::{Life, State};
use crate::transcript::Transcript;
use crate::{Body, Decision, Input, check, effect};

/// Decides about inputs that become one commit. Each sees what the ones before it did.
pub(crate) fn decide(core: &State, transcript: &Transcript, now: Timestamp, inputs: &[Input]) -> Decision {
    let mut core = core.clone();
    let mut at = now.max(core.updated);
    core.begin_commit(core.next_slot(), at);
    let mut events = Vec::new();
    for input in inputs {
        let mut draft = DecisionBuilder { core, transcript, at, now, events, input };
        match draft.handle() {
            Ok(()) => draft.advance(),
            Err(ignored) => draft.ignore(ignored),
        }
        draft.set_timer();
        DecisionBuilder { core, at, events, .. } = draft;
    }
    let effects = effect::of_all(&core, &events);
    Decision { at, events, effects }
}

/// A decision in the making: a copy of the state to which each event is applied as it is written.
struct DecisionBuilder<'a> {
    core: State,
    /// As it was before the first input.
    transcript: &'a Transcript,
    at: Timestamp,
    /// The caller's clock: `at` may be ahead of it where an earlier commit was decided by a clock that was ahead.
    now: Timestamp,
    events: Vec<Event>,
    input: &'a Input,
}

/// Why an input changes nothing.
struct Ignored {
    refusal: Refusal,
    spent: Option<Spent>,
    late: Option<Outcome>,
    parent: Option<Box<Parent>>,
}

impl Ignored {
    fn because(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { refusal: Refusal { code, message: message.into() }, spent: None, late: None, parent: None }
    }
}

impl From<Refusal> for Ignored {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, spent: None, late: None, parent: None }
    }
}

impl DecisionBuilder<'_> {
    fn emit(&mut self, event: Event) {
        self.core.apply(self.at, &event);
        self.events.push(event);
    }

    fn handled(&mut self) {
        let input = self.input.reference.clone();
        let Input { control_seq, control_at, told, .. } = *self.input;
        self.emit(Event::InputHandled(InputHandled { input, control_seq, control_at, told }));
    }

    fn ignore(&mut self, ignored: Ignored) {
        let Ignored { refusal, spent, late, parent } = ignored;
        let input = self.input.reference.clone();
        let Input { control_seq, control_at, told, .. } = *self.input;
        let ignored = InputIgnored { input, control_seq, control_at, told, refusal, usage: spent, late, parent };
        self.emit(Event::InputIgnored(ignored));
        self.keep_timer();
    }

    /// An older setting that is due may have come to the server late and have taken the place of the one that counts:
    /// that one is set again, under its own number, so that it fires once.
    fn keep_timer(&mut self) {
        if let (Body::Timer, Some(timer)) = (&self.input.body, self.core.timer.clone()) {
            self.emit(Event::TimerSet(timer));
        }
    }

    /// Checks first, then writes: a handler that refuses has written nothing.
    fn handle(&mut self) -> Result<(), Ignored> {
        self.check_life()?;
        self.check_command()?;
        match &self.input.body {
            Body::Start(start) => self.start(start),
            Body::Send(message) => self.send(message),
            Body::Pause(because) => self.pause(because),
            Body::Resume(because) => self.resume(because),
            Body::Stop(because) => {
                self.stop(because);
                Ok(())
            }
            Body::Answer(answer) => self.answer(answer),
            Body::Clear(because) => self.clear(because),
            Body::Configure(configure) => self.configure(configure),
            Body::ToolResult(result) => self.tool_result(result),
            Body::Extend(extension) => self.extend(extension),
            Body::ModelFinished(finished) => self.model_finished(finished),
            Body::ModelFailed(failed) => self.model_failed(failed),
            Body::Timer => self.timer(),
        }
    }

    fn check_life(&self) -> Result<(), Ignored> {
        if let Some(sent) = self.input.sent
            && self.now.since(sent) > COMMAND_AGE_MAX
        {
            let hours = COMMAND_AGE_MAX.as_secs() / 3_600;
            let message = format!("the command is older than {hours} hours; send it again under a new id");
            return Err(Ignored::because(ErrorCode::StaleCommand, message));
        }
        if let (Some(number), Some(heard)) = (self.input.told, &self.core.heard)
            && number <= heard.number
        {
            return Err(Ignored::because(ErrorCode::NotNow, "the parent said something else since"));
        }
        let starts = matches!(self.input.body, Body::Start(_));
        match (self.core.life, starts) {
            (Life::Alive, false) | (Life::NotStarted, true) => Ok(()),
            // Its last timer: it leaves the log.
            (Life::Ended, false) if matches!(self.input.body, Body::Timer) => Ok(()),
            (Life::Alive, true) => Err(Ignored::because(ErrorCode::SessionExists, "the session is running already")),
            (Life::Ended, _) => Err(self.late(ErrorCode::SessionEnded, "the session has ended")),
            (Life::NotStarted, false) => Err(self.late(ErrorCode::UnknownSession, "no such session")),
        }
    }

    /// Refuses what the edge refuses too: commands may come from elsewhere.
    fn check_command(&self) -> Result<(), Ignored> {
        let checked = match &self.input.body {
            // Whoever waits for a child is told when there will be none.
            Body::Start(input) => {
                let parent = || input.start.parent.clone().map(Box::new);
                return check::start(&input.start)
                    .map_err(|refusal| Ignored { parent: parent(), ..Ignored::from(refusal) });
            }
            Body::Send(message) => check::message(message),
            Body::Pause(because) | Body::Resume(because) | Body::Stop(because) | Body::Clear(because) => {
                check::reason(because)
            }
            Body::Answer(answer) => check::answer(answer),
            Body::Configure(input) => check::configure(&input.configure),
            Body::ToolResult(_) | Body::Extend(_) | Body::ModelFinished(_) | Body::ModelFailed(_) | Body::Timer => {
                Ok(())
            }
        };
        checked.map_err(Ignored::from)
    }

    /// Ignores a report, keeping what it used.
    fn late(&self, code: ErrorCode, message: &str) -> Ignored {
        let mut ignored = Ignored::because(code, message);
        if let Body::ModelFinished(finished) = &self.input.body {
            ignored.spent = Some(Spent { usage: finished.usage, cost_usd: finished.cost_usd });
        } else if let Body::ModelFailed(failed) = &self.input.body {
            ignored.spent = Some(Spent { usage: failed.usage, cost_usd: failed.cost_usd });
        } else if let Body::ToolResult(result) = &self.input.body {
            ignored.late = Some(result.outcome);
            ignored.spent = result.used.map(|used| used.spent);
        }
        ignored
    }

    /// Sets the one timer when something is due earlier than it. A timer that fires too early is set again then.
    fn set_timer(&mut self) {
        let Some(at) = self.core.wake() else { return };
        if self.core.timer.as_ref().is_none_or(|timer| timer.at > at) {
            let number = self.core.timers + 1;
            self.emit(Event::TimerSet(TimerSet { number, at }));
        }
    }
}
