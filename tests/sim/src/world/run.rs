//! One simulated run: performs the due actions in the order of virtual time, then checks the end.

use std::time::Duration;

use contract::command::Verb;
use contract::event::{InputKind, InputRef};
use contract::limits::HANDLED_IDS_MAX;
use contract::tool::{ExtendToolCall, Outcome};
use contract::{CommandId, Timestamp};
use session::{Body, Input, Session};

use crate::ensure::ensure;
use crate::planted_bug::PlantedBug;
use crate::world::replica::fold;
use crate::world::state::{Action, Item, World, key};
use crate::world::stats::RunStats;

/// Runs of a session that has forgotten inputs, in hundredths.
const FORGETS_PERCENT: u64 = 30;
/// Number of the first timer before the run: no timer of the run has it.
const EARLIER_TIMERS: usize = 1_000_000;

/// Simulates one session; the error names the broken rule and lists the last commits before it.
pub fn simulate(seed: u64, bug: PlantedBug) -> Result<RunStats, String> {
    let mut world = World::new(seed, bug);
    let result = world.run();
    let figures = world.figures;
    result.map(|()| figures).map_err(|why| {
        let lines: Vec<&str> = world.trace.iter().rev().take(40).rev().map(String::as_str).collect();
        format!("seed {seed}, bug {bug:?}, after {} inputs: {why}\n  {}", figures.inputs, lines.join("\n  "))
    })
}

impl World {
    fn run(&mut self) -> Result<(), String> {
        if self.rng.chance(FORGETS_PERCENT) {
            self.forget_inputs()?;
        }
        self.script();
        let begin = self.now;
        while let Some(((at, _), action)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            ensure!(self.figures.inputs < 5_000, "the session has not ended after 5000 inputs");
            self.act(action)?;
        }
        self.figures.duration = Duration::from_millis(self.now - begin);
        self.check_end()
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Deliver(index) => self.deliver(index),
            Action::Repeat(index) => {
                self.repeat(index);
                Ok(())
            }
            Action::Start(item) => self.start_call(item),
            Action::Park(Item { call, number, .. }) => {
                let name = call.to_string();
                if self.stored_items.get(&name) == Some(&number) {
                    self.stored_items.remove(&name);
                }
                Ok(())
            }
            Action::EndModel { call, slot } => {
                self.end_model(&call, slot, false);
                Ok(())
            }
            Action::EndTool { call, slot, outcome } => {
                self.end_tool(&call, slot, outcome);
                Ok(())
            }
            Action::Progress { call, slot } => {
                if self.running.contains(&call.to_string()) {
                    let meta = self.result_meta(&call, slot);
                    let deadline = Timestamp::from_millis(self.now + self.rng.below(300_000));
                    let id = format!("x{}", self.inputs.len());
                    let body = Body::Extend(ExtendToolCall { meta, deadline });
                    let index = self.input(InputKind::Control(Verb::ExtendToolCall), &id, None, body);
                    self.report(index);
                }
                Ok(())
            }
            Action::StartChild { call, slot } => {
                let result = self.children.start(&call, slot);
                let slowest = if self.fault(5) { 400_000 } else { 2_000 };
                let delay = 1 + self.rng.below(slowest);
                self.at(delay, Action::EndChild { call });
                self.child_ended(result);
                Ok(())
            }
            Action::CommandChild { call, number, verb } => {
                let result = self.children.command(&call, number, verb);
                self.child_ended(result);
                if verb == Verb::Resume {
                    let delay = 1 + self.rng.below(2_000);
                    self.at(delay, Action::EndChild { call });
                }
                Ok(())
            }
            Action::EndChild { call } => {
                let outcome = *self.rng.pick(&[Outcome::Ok, Outcome::Ok, Outcome::Error]);
                let result = self.children.end(&call, outcome);
                self.child_ended(result);
                Ok(())
            }
            Action::Timer(number) => {
                if self.timer == Some(number) || self.fault(30) {
                    let index = self.input(InputKind::Timer, &number.to_string(), None, Body::Timer);
                    return self.deliver(index);
                }
                Ok(())
            }
        }
    }

    /// Fills the memory for ids of inputs, so that each further input makes the session forget one, and its mark of
    /// handled commands counts.
    fn forget_inputs(&mut self) -> Result<(), String> {
        let timer = |number: usize| {
            let id = CommandId::new(&number.to_string()).unwrap_or_else(|_| unreachable!("a valid id"));
            self.new_input(InputRef { kind: InputKind::Timer, id }, None, Body::Timer)
        };
        let inputs: Vec<Input> = (EARLIER_TIMERS..EARLIER_TIMERS + HANDLED_IDS_MAX).map(timer).collect();
        let decision = self.truth.decide(Timestamp::from_millis(self.now), &inputs);
        self.commit(0, decision.at, &decision.events)
    }

    /// Checks the end state, when no action is due any more.
    fn check_end(&mut self) -> Result<(), String> {
        if let Some(call) = self.children.find_running() {
            return Err(format!("the child of {call} has not ended"));
        }
        ensure!(!self.oracle.is_alive(), "I4: no action is due and the session has not ended");
        for input in &self.inputs {
            let is_handled = self.truth.handled(&input.reference).is_some();
            ensure!(is_handled, "{:?} was lost", input.reference);
        }
        ensure!(
            self.oracle.spent_micros() == self.cost_micros,
            "replies cost {} micro-dollars, the log has {}",
            self.cost_micros,
            self.oracle.spent_micros()
        );
        self.oracle.check_summary(&self.truth.summary())?;
        let texts: Vec<String> = self.truth.messages().iter().map(|message| message.get().to_owned()).collect();
        for index in 0..self.inputs.len() {
            let text = format!("\"message {index}\"");
            let times = texts.iter().filter(|message| message.contains(&text)).count();
            ensure!(times <= 1, "message {index} is {times} times in the transcript");
        }
        let mut replayed = Session::new(key());
        for (slot, (at, events)) in self.log.iter().enumerate() {
            fold(&mut replayed, slot as u64, *at, events);
            if slot.is_multiple_of(7) {
                let snapshot = replayed.snapshot();
                replayed = serde_json::from_str(snapshot.get()).map_err(|error| error.to_string())?;
            }
        }
        ensure!(replayed.snapshot() == self.truth.snapshot(), "the replayed state differs from the live state");
        Ok(())
    }
}
