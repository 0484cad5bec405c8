//! Child sessions, reduced to what the simulated parent can observe: they start, pause, end, and report.

use std::collections::BTreeMap;

use contract::CallId;
use contract::command::Verb;
use contract::event::Spent;
use contract::model::{ResultMeta, Usage};
use contract::tool::{ChildUsage, Outcome, ToolResult};

/// Cost of a child, in millionths of a dollar.
pub const COST_MICROS: u64 = 500_000;

/// The phase of a child that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Working,
    Paused,
    Ended,
}

#[derive(Debug)]
struct Child {
    phase: Option<Phase>,
    /// Number and verb of the last command of the parent.
    last_command: Option<(u64, Verb)>,
    slot: u64,
}

/// All children, by the call that each one performs.
#[derive(Debug, Default)]
pub struct Children(BTreeMap<CallId, Child>);

impl Children {
    fn child(&mut self, call: &CallId) -> &mut Child {
        self.0.entry(call.clone()).or_insert(Child { phase: None, last_command: None, slot: 0 })
    }

    /// Handles a `start`. Returns a result if the child ends at once, since a stop came first.
    pub fn start(&mut self, call: &CallId, slot: u64) -> Option<ToolResult> {
        let child = self.child(call);
        if child.phase.is_some() {
            return None;
        }
        child.slot = slot;
        match child.last_command {
            Some((_, Verb::Stop)) => {
                child.phase = Some(Phase::Ended);
                Some(result(call, slot, Outcome::Error, None))
            }
            Some((_, Verb::Pause)) => {
                child.phase = Some(Phase::Paused);
                None
            }
            Some(_) | None => {
                child.phase = Some(Phase::Working);
                None
            }
        }
    }

    /// Handles a command of the parent. Returns a result if it ends the child.
    pub fn command(&mut self, call: &CallId, number: u64, verb: Verb) -> Option<ToolResult> {
        let child = self.child(call);
        if child.last_command.is_some_and(|(last, _)| last >= number) {
            return None;
        }
        child.last_command = Some((number, verb));
        match (child.phase?, verb) {
            (Phase::Ended, _) => None,
            (_, Verb::Stop) => {
                child.phase = Some(Phase::Ended);
                Some(result(call, child.slot, Outcome::Cancelled, Some(COST_MICROS)))
            }
            (_, Verb::Pause) => {
                child.phase = Some(Phase::Paused);
                None
            }
            _ => {
                child.phase = Some(Phase::Working);
                None
            }
        }
    }

    /// Ends a child whose work is done. Returns no result if it has ended before or is paused.
    pub fn end(&mut self, call: &CallId, outcome: Outcome) -> Option<ToolResult> {
        let child = self.child(call);
        let works = child.phase == Some(Phase::Working);
        works.then(|| {
            child.phase = Some(Phase::Ended);
            result(call, child.slot, outcome, Some(COST_MICROS))
        })
    }

    /// The call of a child that has not ended.
    pub fn find_running(&self) -> Option<&CallId> {
        let alive = |child: &Child| matches!(child.phase, Some(Phase::Working | Phase::Paused));
        self.0.iter().find(|(_, child)| alive(child)).map(|(call, _)| call)
    }
}

#[allow(clippy::cast_precision_loss, reason = "costs of the world are small")]
fn result(call: &CallId, slot: u64, outcome: Outcome, cost: Option<u64>) -> ToolResult {
    let spent = Spent { usage: Usage { input: 2, ..Usage::default() }, cost_usd: cost.unwrap_or(0) as f64 / 1e6 };
    ToolResult {
        whole: None,
        meta: ResultMeta { v: 1, slot, call: call.clone(), attempt: 1, opened_by: String::new() },
        outcome,
        content: "{\"status\":\"completed\"}".to_owned(),
        code: None,
        duration_ms: 5,
        used: Some(ChildUsage { spent, tool_calls: 1 }),
    }
}
