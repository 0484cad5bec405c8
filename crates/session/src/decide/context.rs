//! Keeps what the model is sent within its window: large old results are cut, then the oldest turns go.

use contract::event::{ContextPruned, Event, Spent, SummaryOpened};
use contract::ids::CallId;
use contract::limits::{SUMMARY_BYTES_MAX, SUMMARY_MAX};
use contract::model::{ModelFinished, ResultMeta};
use contract::settings::Prune;

use super::builder::DecisionBuilder;
use crate::state::Activity;
use crate::tokens::TokenBudget;
use crate::transcript::Transcript;

impl DecisionBuilder<'_> {
    /// The transcript as it is after what was decided so far.
    fn transcript(&self) -> Transcript {
        let mut transcript = self.transcript.clone();
        for event in &self.events {
            transcript.apply(event);
        }
        transcript
    }

    /// Makes room for a step that is about to open. True when a summary is asked for first.
    pub(super) fn fit(&mut self, turn: u32, step: u32) -> bool {
        let Some((window, max_output)) = self.state.model().and_then(|m| Some((m.context_window?, m.max_output)))
        else {
            return false;
        };
        let room = TokenBudget::of(window, max_output);
        // Most of the time there is plenty of room, and a look at the sizes tells.
        if self.transcript.tokens_at_most(&self.events) <= room.most {
            return false;
        }
        let transcript = self.transcript();
        let Some(pruned) = transcript.plan(turn, step, room) else { return false };
        let (Some(setup), Some(state)) = (&self.state.setup, &self.state.turn) else { return false };
        let before = pruned.before_turn;
        let call = CallId::summary(turn, state.summaries + 1);
        let deadline = state.clock.deadline_from(self.at).min(self.at.after(SUMMARY_MAX));
        // A turn that ends for its limit makes no other call than its last one.
        let may_sum_up = state.summarised != step && state.last_step.is_none();
        let sums_up = setup.agent.continuation.prune == Prune::Summarise && may_sum_up;
        if sums_up && transcript.has_before(pruned.before_turn) {
            if !pruned.cut.is_empty() {
                let mut cut = ContextPruned { before_turn: 0, before_step: 0, ..pruned.clone() };
                let mut after = transcript;
                after.prune(&cut);
                cut.tokens_after = after.tokens();
                self.emit(Event::ContextPruned(cut));
            }
            self.emit(Event::SummaryOpened(SummaryOpened { call, before, deadline }));
            return true;
        }
        self.emit(Event::ContextPruned(pruned));
        false
    }

    /// The provider says that the request is too long, whatever we thought: half of it must do. False when there is
    /// nothing to leave out, or when that was done already.
    pub(super) fn force_prune(&mut self, report: &ModelFinished, message: &str) -> bool {
        let Some(turn) = &self.state.turn else { return false };
        let (number, step) = (turn.number, turn.step);
        if turn.squeezed == step {
            return false;
        }
        let transcript = self.transcript();
        let Some(pruned) = transcript.plan(number, step, TokenBudget::half_of(transcript.tokens())) else {
            return false;
        };
        self.attempt_failed(report, contract::model::FailureKind::ContextLength, message, Some(self.at));
        self.emit(Event::ContextPruned(pruned));
        true
    }

    /// The first turn that stays, if this report is of the call that is to sum up those before it.
    pub(super) fn summarises(&self, report: &ResultMeta) -> Option<u32> {
        let Activity::Summarising { model, before } = &self.state.turn.as_ref()?.activity else { return None };
        (model.call == report.call && model.attempt == report.attempt).then_some(*before)
    }

    /// The summary takes the place of what it sums up.
    pub(super) fn summary(&mut self, finished: &ModelFinished, before: u32) {
        let spent = Spent { usage: finished.usage, cost_usd: finished.cost_usd };
        let text = finished.text.trim();
        let text = &text[..text.floor_char_boundary(SUMMARY_BYTES_MAX)];
        self.forget(before, (!text.is_empty()).then(|| text.to_owned()), spent);
    }

    /// Leaves out the turns before one, whether or not there is a summary of them.
    pub(super) fn forget(&mut self, before_turn: u32, summary: Option<String>, spent: Spent) {
        let turn = self.state.turn.as_ref().map_or(0, |turn| turn.number);
        let mut transcript = self.transcript();
        let tokens_before = transcript.tokens();
        let mut pruned = ContextPruned {
            turn,
            cut: Vec::new(),
            keep_bytes: 0,
            before_turn,
            before_step: 0,
            summary,
            tokens_before,
            tokens_after: 0,
            spent,
        };
        transcript.prune(&pruned);
        pruned.tokens_after = transcript.tokens();
        self.emit(Event::ContextPruned(pruned));
    }
}
