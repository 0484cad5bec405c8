//! Sessions that perform a call of the simulated one, as far as it can tell: they begin, stand still, end, and report.

use std::collections::BTreeMap;

use contract::CallId;
use contract::command::Verb;
use contract::event::Spent;
use contract::model::{ResultMeta, Usage};
use contract::tool::{ChildUsage, Outcome, ToolResult};

/// What a child costs, in millionths of a dollar.
pub const COST_MICROS: u64 = 500_000;

/// What a child is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Working,
    Paused,
    Ended,
}

#[derive(Debug)]
struct Child {
    doing: Option<Doing>,
    /// The last word of the parent.
    heard: Option<(u64, Verb)>,
    slot: u64,
}

/// Every child, by the call that it performs.
#[derive(Debug, Default)]
pub struct Children(BTreeMap<CallId, Child>);

impl Children {
    fn child(&mut self, call: &CallId) -> &mut Child {
        self.0.entry(call.clone()).or_insert(Child { doing: None, heard: None, slot: 0 })
    }

    /// A `start` comes. The result, where that is the end of it already.
    pub fn start(&mut self, call: &CallId, slot: u64) -> Option<ToolResult> {
        let child = self.child(call);
        if child.doing.is_some() {
            return None;
        }
        child.slot = slot;
        match child.heard {
            Some((_, Verb::Stop)) => {
                child.doing = Some(Doing::Ended);
                Some(result(call, slot, Outcome::Error, None))
            }
            Some((_, Verb::Pause)) => {
                child.doing = Some(Doing::Paused);
                None
            }
            Some(_) | None => {
                child.doing = Some(Doing::Working);
                None
            }
        }
    }

    /// A word of the parent comes. The result, where it ends the child.
    pub fn hear(&mut self, call: &CallId, number: u64, verb: Verb) -> Option<ToolResult> {
        let child = self.child(call);
        if child.heard.is_some_and(|(last, _)| last >= number) {
            return None;
        }
        child.heard = Some((number, verb));
        match (child.doing?, verb) {
            (Doing::Ended, _) => None,
            (_, Verb::Stop) => {
                child.doing = Some(Doing::Ended);
                Some(result(call, child.slot, Outcome::Cancelled, Some(COST_MICROS)))
            }
            (_, Verb::Pause) => {
                child.doing = Some(Doing::Paused);
                None
            }
            _ => {
                child.doing = Some(Doing::Working);
                None
            }
        }
    }

    /// Its work is done; nothing where it had ended before, or stands still.
    pub fn end(&mut self, call: &CallId, outcome: Outcome) -> Option<ToolResult> {
        let child = self.child(call);
        let works = child.doing == Some(Doing::Working);
        works.then(|| {
            child.doing = Some(Doing::Ended);
            result(call, child.slot, outcome, Some(COST_MICROS))
        })
    }

    /// The call of a child that has not ended.
    pub fn left_over(&self) -> Option<&CallId> {
        let alive = |child: &Child| matches!(child.doing, Some(Doing::Working | Doing::Paused));
        self.0.iter().find(|(_, child)| alive(child)).map(|(call, _)| call)
    }
}

#[allow(clippy::cast_precision_loss, reason = "costs of the world are small")]
fn result(call: &CallId, slot: u64, outcome: Outcome, cost: Option<u64>) -> ToolResult {
    let spent = Spent { usage: Usage { input: 2, ..Usage::default() }, cost_usd: cost.unwrap_or(0) as f64 / 1e6 };
    ToolResult {
        whole: None,
        meta: ResultMeta { v: 1, slot, call: call.clone(), attempt: 1 },
        outcome,
        content: "{\"status\":\"completed\"}".to_owned(),
        code: None,
        duration_ms: 5,
        used: Some(ChildUsage { spent, tool_calls: 1 }),
    }
}
