//! A turn: from a user message to the answer to it.

use contract::Timestamp;
use contract::event::{Progress, Spent, StopReason};
use contract::ids::{CallAttempt, CallId};
use contract::model::{FailureKind, SignalForm};
use contract::settings::ContinuationSettings;
use serde::{Deserialize, Serialize};

use super::tool_call::{CallStage, ToolCallState};
use crate::clock::Clock;
use crate::repetition_guard::RepetitionGuard;

/// From a user message to the answer to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TurnState {
    pub(crate) number: u32,
    pub(crate) step: u32,
    pub(crate) clock: Clock,
    pub(crate) activity: Activity,
    pub(crate) retries: u32,
    /// Tokens and money that it used, with the sessions below it: its limits count both.
    pub(crate) spent: Spent,
    /// Those that it used itself, as [`super::State::spent_own`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent_own: Option<Spent>,
    /// Last text of the model that the user read.
    pub(crate) text: String,
    /// Counters for the limits and repetitions of the turn.
    #[serde(default)]
    pub(crate) guard: RepetitionGuard,
    /// The attempt that was opened last, of this step's model call.
    #[serde(default)]
    pub(crate) attempt: u32,
    /// The id of the commit that opened the first attempt of the last model call, summaries and questions to the judge
    /// included; empty where an older fold opened it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opened_by: String,
    /// Number of the fallback that replaces the model, from 1; 0 for none.
    #[serde(default)]
    pub(crate) fallback: u32,
    /// Summaries that were asked for in this turn.
    #[serde(default)]
    pub(crate) summaries: u32,
    /// The step before which the last summary was asked for.
    #[serde(default)]
    pub(crate) summarised: u32,
    /// The last step whose request was cut because the provider found it too long.
    #[serde(default)]
    pub(crate) squeezed: u32,
    /// Time at which the turn began; 1970 if an older fold did not record it.
    #[serde(default)]
    pub(crate) started: Timestamp,
    /// The form in which the last model call asked for a signal; none where an older fold did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) form: Option<SignalForm>,
    /// The progress that the model reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
    /// Whether a step was taken since the model was not sure that it is done.
    #[serde(default)]
    pub(crate) is_doubted: bool,
    /// Set when the turn is at a limit and ends with its next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_step: Option<LastStep>,
}

/// The step without tools with which a turn at a limit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastStep {
    /// The turn's stop reason.
    pub(crate) limit: StopReason,
    /// Whether its one model call was opened.
    pub(crate) opened: bool,
}

/// Current activity of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Activity {
    /// The next step may begin.
    Ready,
    /// A model call is open.
    #[serde(rename = "Thinking")]
    AwaitingModel(ModelCall),
    /// A failed model call waits for its next attempt.
    Backoff { call: CallId, attempt: u32, empties: u32, retry_at: Timestamp },
    /// A reply without calls is being decided about: between two events of one commit, or until a pause is over in
    /// which nobody can be asked.
    Deciding,
    /// The reply's calls run.
    #[serde(rename = "Acting")]
    RunningTools(Vec<ToolCallState>),
    /// A person is asked whether to go on.
    #[serde(rename = "Asking")]
    AwaitingUser {
        gate: CallId,
        #[serde(alias = "limit")]
        question: Question,
        expires: Timestamp,
    },
    /// The model sums up the turns before one, so that they can go.
    Summarising { model: ModelCall, before: u32 },
    /// Another model is asked whether the turn goes on after its last reply.
    Judging { judge: ModelCall, model: String },
}

/// Reason why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Question {
    /// The turn is at a limit: may it use as much again?
    Limit(StopReason),
    /// A model call failed for good: shall it be tried again?
    Failed { kind: FailureKind },
}

impl Question {
    /// Returns the reason why the turn ends if the answer is no.
    pub(crate) fn denied(self) -> StopReason {
        match self {
            Self::Limit(limit) => limit,
            Self::Failed { .. } => StopReason::Error,
        }
    }

    /// Returns the text whose SHA-256 the answer must have as `arguments_sha256`.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Limit(limit) => limit.as_str().to_owned(),
            Self::Failed { kind } => kind.code().as_str().to_owned(),
        }
    }
}

/// An open model call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ModelCall {
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) slot: u64,
    pub(crate) deadline: Timestamp,
    /// Empty replies so far.
    pub(crate) empties: u32,
    /// Set when the user took the floor: how long the partial text is awaited.
    pub(crate) interrupted: Option<Timestamp>,
}

/// A model call that was called off, and of which the text that had come is kept when its gateway sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CutCall {
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) turn: u32,
    pub(crate) step: u32,
    /// The form in which its reply is read.
    pub(crate) form: SignalForm,
    /// The id of the commit that opened its first attempt, as [`TurnState::opened_by`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opened_by: String,
}

impl ModelCall {
    /// One that is made once, beside the turn's steps.
    pub(crate) fn once(call: CallId, slot: u64, deadline: Timestamp) -> Self {
        Self { call, attempt: 1, slot, deadline, empties: 0, interrupted: None }
    }

    pub(crate) fn id(&self) -> CallAttempt {
        CallAttempt { call: self.call.clone(), attempt: self.attempt }
    }
}

impl TurnState {
    /// The limit that keeps it from another step.
    pub(crate) fn limit(&self, settings: &ContinuationSettings, at: Timestamp) -> Option<StopReason> {
        let out_of_time = self.clock.deadline().is_some_and(|deadline| deadline <= at);
        let settled = !matches!(self.activity, Activity::RunningTools(_));
        let reached = self.guard.reached(settings, self.step, settled, self.spent);
        reached.or_else(|| out_of_time.then_some(StopReason::Timeout))
    }

    /// Whether no call runs and nobody is asked: the next step, or a question about it, may follow.
    pub(crate) fn is_between_steps(&self) -> bool {
        matches!(self.activity, Activity::Ready | Activity::Deciding)
    }

    /// Steps that count for the user: the last one at a limit is none.
    pub(crate) fn iterations(&self) -> u32 {
        self.step - u32::from(self.last_step.is_some_and(|last| last.opened))
    }

    /// Notes the id of the commit that was just folded in the calls that it opened. Every attempt of a model call names
    /// the commit of the first one: a reply to an earlier attempt counts, too.
    pub(crate) fn link(&mut self, slot: u64, commit: &str) {
        if self.open_model_call().is_some_and(|model| model.slot == slot && model.attempt == 1) {
            commit.clone_into(&mut self.opened_by);
        }
        for state in self.calls_mut() {
            if matches!(state.stage, CallStage::Open { slot: opened, .. } if opened == slot)
                && state.opened_by.is_empty()
            {
                commit.clone_into(&mut state.opened_by);
            }
        }
    }

    /// The id of the commit that opened a call of this turn whose result may count; empty where that is not known.
    pub(crate) fn opener(&self, call: &CallId) -> Option<&str> {
        let waiting = if let Activity::Backoff { call: waiting, .. } = &self.activity { Some(waiting) } else { None };
        if self.open_model_call().map(|model| &model.call).or(waiting) == Some(call) {
            return Some(&self.opened_by);
        }
        self.call(call).map(|state| state.opened_by.as_str())
    }

    /// The model call that runs, which may be a summary or a question to the judge.
    pub(crate) fn open_model_call(&self) -> Option<&ModelCall> {
        match &self.activity {
            Activity::AwaitingModel(model)
            | Activity::Summarising { model, .. }
            | Activity::Judging { judge: model, .. } => Some(model),
            Activity::Ready
            | Activity::Backoff { .. }
            | Activity::Deciding
            | Activity::RunningTools(_)
            | Activity::AwaitingUser { .. } => None,
        }
    }

    pub(crate) fn calls(&self) -> &[ToolCallState] {
        if let Activity::RunningTools(calls) = &self.activity { calls } else { &[] }
    }

    pub(crate) fn calls_mut(&mut self) -> &mut [ToolCallState] {
        if let Activity::RunningTools(calls) = &mut self.activity { calls } else { &mut [] }
    }

    pub(crate) fn call_mut(&mut self, call: &CallId) -> Option<&mut ToolCallState> {
        self.calls_mut().iter_mut().find(|state| state.call == *call)
    }

    pub(crate) fn call(&self, call: &CallId) -> Option<&ToolCallState> {
        self.calls().iter().find(|state| state.call == *call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_of_the_second_fold_is_read() {
        let old = r#"{"Asking":{"gate":"limit-1-1","limit":"max_iterations","expires":"2026-01-15T10:30:45.123Z"}}"#;
        let asking: Activity = serde_json::from_str(old).unwrap();
        assert!(matches!(asking, Activity::AwaitingUser { question: Question::Limit(StopReason::MaxIterations), .. }));
        let failed = Question::Failed { kind: FailureKind::Auth };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), failed);
    }
}
