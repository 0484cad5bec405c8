//! Workers: they start the calls that the log lists as open, and report results.

use contract::command::Verb;
use contract::commit::Phase;
use contract::event::InputKind;
use contract::ids::CallAttempt;
use contract::model::{FinishReason, ResultMeta};
use contract::tool::{EffectClass, Outcome, ToolResult};
use session::Body;

use crate::children::COST_MICROS;
use crate::ensure::ensure;
use crate::planted_bug::PlantedBug;
use crate::replies;
use crate::world::state::{Action, Item, World};

impl World {
    /// A worker takes an item; it starts only a call that the log lists as open.
    pub(super) fn start_call(&mut self, item: Item) -> Result<(), String> {
        let Item { call, slot, number, delivery } = item.clone();
        let is_tool = call.call.as_str().starts_with('c');
        let effect = is_tool.then(|| self.effects.get(call.call.as_str()).copied().unwrap_or_default());
        let name = call.to_string();
        if self.stored_items.get(&name) != Some(&number) {
            return Ok(());
        }
        let again = |delivery| Action::Start(Item { delivery, ..item.clone() });
        let (open, phase) = self.read_head();
        if !open.contains(&name) {
            self.stored_items.remove(&name);
            return Ok(());
        }
        if phase == Phase::Paused {
            // A second delivery says nothing about the worker that runs the call already.
            if self.truth.phase() == Phase::Paused && !self.running.contains(&name) {
                self.not_started.insert(name);
            }
            let slowest = if self.fault(50) { 60_000 } else { 20 };
            let delay = self.rng.below(slowest);
            self.at(delay, Action::Park(item));
            return Ok(());
        }
        if delivery > 1 && self.running.contains(&name) {
            // The worker that runs the call takes the delivery over.
            return Ok(());
        }
        let is_open = self.heads.last().is_some_and(|(open, phase)| open.contains(&name) && *phase != Phase::Paused);
        ensure!(is_open, "I5: {name} started although the log does not list it as open");
        self.not_started.remove(&name);
        if effect == Some(EffectClass::AtMostOnce) && !self.claims.insert(name.clone()) {
            self.running.insert(name);
            self.at(1, Action::EndTool { call, slot, outcome: Outcome::Unknown });
            return Ok(());
        }
        if effect.is_some() {
            let times = self.runs.entry(call.call.to_string()).or_insert(0);
            *times += 1;
            let times = *times;
            ensure!(effect != Some(EffectClass::AtMostOnce) || times == 1, "{name} ran {times} times");
        }
        if self.fault(6) {
            self.at(5_000, again(delivery + 1));
            return Ok(());
        }
        self.running.insert(name);
        let slowest = if self.fault(4) { 400_000 } else { 400 };
        let delay = 1 + self.rng.below(slowest);
        let outcome = *self.rng.pick(&[Outcome::Ok, Outcome::Ok, Outcome::Ok, Outcome::Error, Outcome::Timeout]);
        if self.fault(3) {
            self.at(delay / 2, again(delivery + 1));
        }
        if effect.is_none() {
            self.at(delay, Action::EndModel { call, slot });
            return Ok(());
        }
        if self.rng.chance(20) {
            self.at(delay / 2, Action::Progress { call: call.clone(), slot });
        }
        self.at(delay, Action::EndTool { call, slot, outcome });
        Ok(())
    }

    /// The head of the log as a worker reads it: from the leader, or stale with [`PlantedBug::TrustStaleRead`].
    pub(super) fn read_head(&mut self) -> (Vec<String>, Phase) {
        let behind = if self.bug == PlantedBug::TrustStaleRead { self.rng.below(4) } else { 0 };
        let last = self.heads.len().saturating_sub(1);
        let at = last.saturating_sub(usize::try_from(behind).unwrap_or(0));
        self.heads.get(at).cloned().unwrap_or((Vec::new(), Phase::Ended))
    }

    pub(super) fn result_meta(&self, call: &CallAttempt, slot: u64) -> ResultMeta {
        let opened_by = self.openers.get(call.call.as_str()).cloned().unwrap_or_default();
        ResultMeta { v: 1, slot, call: call.call.clone(), attempt: call.attempt, opened_by }
    }

    pub(super) fn end_model(&mut self, call: &CallAttempt, slot: u64, cancelled: bool) {
        if !self.running.remove(&call.to_string()) {
            return;
        }
        let meta = self.result_meta(call, slot);
        // Each run of an attempt is a separate input; of a second run only the cost is recorded.
        let id = format!("{}-{}-{}", call.call, call.attempt, self.inputs.len());
        let (kind, body) = if cancelled {
            let mut partial = replies::blank(meta);
            partial.finish_reason = FinishReason::Cancelled;
            partial.text = if self.rng.chance(70) { "So far".to_owned() } else { String::new() };
            if !partial.text.is_empty() {
                self.oracle.record_partial(id.clone(), &partial.text);
            }
            (Verb::ModelFinished, Body::ModelFinished(Box::new(partial)))
        } else {
            let is_judge = meta.call.as_str().starts_with('j');
            let answer = if is_judge { replies::judgement } else { replies::answer };
            match answer(&mut self.rng, meta) {
                replies::ModelAnswer::Finished(finished) => (Verb::ModelFinished, Body::ModelFinished(finished)),
                replies::ModelAnswer::Failed(failed) => (Verb::ModelFailed, Body::ModelFailed(failed)),
            }
        };
        let new = self.inputs.len();
        let index = self.input(InputKind::Control(kind), &id, None, body);
        if index == new && kind == Verb::ModelFinished {
            self.cost_micros += 250_000;
        }
        self.report(index);
        if !self.fault(4) {
            self.stored_items.remove(&call.to_string());
        } else if !cancelled {
            let delay = 5_000;
            if let Some(number) = self.stored_items.get(&call.to_string()).copied() {
                self.at(delay, Action::Start(Item { call: call.clone(), slot, number, delivery: 2 }));
            }
        }
    }

    pub(super) fn end_tool(&mut self, call: &CallAttempt, slot: u64, outcome: Outcome) {
        if !self.running.remove(&call.to_string()) {
            return;
        }
        let meta = self.result_meta(call, slot);
        let content =
            if self.rng.chance(15) { format!("{{\"text\":\"{}\"}}", "x".repeat(4_000)) } else { "{}".to_owned() };
        let result = ToolResult { whole: None, used: None, meta, outcome, content, code: None, duration_ms: 3 };
        let id = format!("{}-{}", call.call, call.attempt);
        let index = self.input(InputKind::Control(Verb::ProvideToolResult), &id, None, Body::ToolResult(result));
        self.report(index);
        self.stored_items.remove(&call.to_string());
    }

    pub(super) fn child_ended(&mut self, result: Option<ToolResult>) {
        let Some(result) = result else { return };
        if result.outcome != Outcome::Error || result.used.is_some_and(|used| used.spent.cost_usd > 0.0) {
            self.cost_micros += COST_MICROS;
        }
        let id = format!("{}-1", result.meta.call);
        let index = self.input(InputKind::Control(Verb::ProvideToolResult), &id, None, Body::ToolResult(result));
        self.report(index);
    }

    pub(super) fn report(&mut self, index: usize) {
        let delay = self.rng.below(30);
        self.at(delay, Action::Deliver(index));
        if self.fault(5) {
            let delay = self.rng.below(20_000);
            self.at(delay, Action::Deliver(index));
        }
    }
}
