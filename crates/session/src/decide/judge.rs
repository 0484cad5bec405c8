//! A reply of which neither a signal nor its text decides: the agent's judge is asked, once.

use contract::event::{DecisionSource, Event, JudgeOpened, Spent};
use contract::ids::CallId;
use contract::limits::{JUDGE_MAX, JUDGE_TOKENS};
use contract::model::{FinishReason, ModelFinished, ResultMeta};

use super::builder::DecisionBuilder;
use super::model::Reply;
use crate::continuation::{self, ContinuationVerdict};
use crate::judge::{self, Judgement};
use crate::repetition_guard::RepetitionGuard;
use crate::state::Activity;

impl DecisionBuilder<'_> {
    /// Asks about the running step's reply. False where no judge is configured, or time or money are used up.
    pub(super) fn ask_judge(&mut self) -> bool {
        let (Some(turn), Some(setup)) = (&self.state.turn, &self.state.setup) else { return false };
        let settings = &setup.agent.continuation;
        let Some(model) = settings.judge() else { return false };
        let deadline = turn.clock.deadline_from(self.at).min(self.at.after(JUDGE_MAX));
        if deadline <= self.at || !RepetitionGuard::affords_last_step(settings, turn.spent, JUDGE_TOKENS) {
            return false;
        }
        let (call, model) = (CallId::judge(turn.number, turn.step), model.to_owned());
        self.emit(Event::JudgeOpened(JudgeOpened { call, model, deadline }));
        true
    }

    /// A reply that came in a pause, and that the judge was to be asked about, is decided about now.
    pub(super) fn decide_after_pause(&mut self) {
        let (Some(turn), Some(setup)) = (&self.state.turn, &self.state.setup) else { return };
        let is_at_limit = turn.limit(&setup.agent.continuation, self.at).is_some();
        if self.has_unseen_message() {
            self.conclude_judging(ContinuationVerdict::unseen_message());
        } else if is_at_limit || !self.ask_judge() {
            self.conclude_judging(continuation::silent(""));
        }
    }

    /// The judge that a report is of, if it is asked now.
    pub(super) fn judges(&self, report: &ResultMeta) -> Option<String> {
        let Activity::Judging { judge, model } = &self.state.turn.as_ref()?.activity else { return None };
        (judge.call == report.call && judge.attempt == report.attempt).then(|| model.clone())
    }

    pub(super) fn judged(&mut self, finished: &ModelFinished, model: String) {
        let spent = Spent { usage: finished.usage, cost_usd: finished.cost_usd };
        if finished.finish_reason == FinishReason::Cancelled {
            return self.not_judged(&model, "the call was given up by its gateway", spent);
        }
        let Some(Judgement { continues, reason }) = judge::read(&finished.text) else {
            return self.not_judged(&model, "its answer is neither CONTINUE nor TERMINATE", spent);
        };
        let reason = match (reason.is_empty(), continues) {
            (false, _) => reason,
            (true, true) => "the judge says that the turn goes on".to_owned(),
            (true, false) => "the judge says that the turn ends".to_owned(),
        };
        let nudge = continues.then(|| "Go on.".to_owned());
        let verdict = continuation::verdict(continues, DecisionSource::Judge(model), &reason);
        self.conclude_judging(ContinuationVerdict { nudge, spent, ..verdict });
    }

    /// The judge does not say: the reply is decided about without it.
    pub(super) fn not_judged(&mut self, model: &str, why: &str, spent: Spent) {
        let verdict = continuation::silent(&format!(", and the judge {model} did not decide: {why}"));
        self.conclude_judging(ContinuationVerdict { spent, ..verdict });
    }

    /// Cancels the judge call and continues the turn if the user sent a message that the model has not seen.
    pub(super) fn overrule_judge(&mut self) {
        let activity = self.state.turn.as_ref().map(|turn| &turn.activity);
        if let Some(Activity::Judging { judge, .. }) = activity
            && self.has_unseen_message()
        {
            let judge = judge.id();
            self.cancel(&judge.call, judge.attempt, None);
            self.conclude_judging(ContinuationVerdict::unseen_message());
        }
    }

    fn conclude_judging(&mut self, verdict: ContinuationVerdict) {
        let (Some(turn), Some(setup)) = (&self.state.turn, self.state.setup.clone()) else { return };
        // What the judge used counts, too.
        let settings = &setup.agent.continuation;
        let mut after = turn.clone();
        after.spent = after.spent.plus(verdict.spent);
        let verdict = verdict.within(settings, after.limit(settings, self.at));
        let text = turn.text.clone();
        self.conclude(verdict, &Reply { text: &text, signal: None, calls: Vec::new() });
    }
}
