//! A turn begins, goes on, and ends.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{CallId, CommandId};
use crate::spent::Spent;
use crate::tool::ToolSpec;
use crate::words::words;

/// A turn is at a limit and ends with its next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReached {
    /// The limit: the turn's stop reason.
    pub limit: StopReason,
    /// The user-role message that asks the model for the last word.
    pub nudge: String,
}

/// The start of a turn, with its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnStarted {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// W3C `traceparent` under which the turn's spans stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Ids of the messages that begin it. One that steers it later is not among them.
    pub messages: Vec<CommandId>,
    /// Whether the user only asks to go on with what had ended as completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub premature: bool,
}

/// The session's tools, as found at a turn's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolsResolved {
    /// SHA-256 over all of them.
    pub sha256: String,
    /// Tools on offer, sorted by name.
    pub tools: Vec<ToolSpec>,
}

/// Pause or resume of a session, with its sender and reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StatusChanged {
    /// Client that paused or resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason that the client gave, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Source of a decision on whether the turn goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DecisionSource {
    /// The model's own signal.
    Explicit,
    /// A pattern: `continuation:<pattern>` or `termination:<pattern>`.
    Pattern(String),
    /// Intent that the words of the reply show: `announces`, `unfinished`, `asks` or `done`.
    Intent(String),
    /// The reply holds tool calls.
    ToolCalls,
    /// The reply was cut at the output limit.
    Length,
    /// A user message that the model has not seen.
    Message,
    /// The model's own signal, of which it is less sure than its agent has to be.
    Confidence,
    /// Another model that was asked, by its id.
    Judge(String),
    /// A limit, by its name.
    Limit(String),
    /// Nothing else decided; the turn ends.
    Default,
}

impl fmt::Display for DecisionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit => f.write_str("explicit"),
            Self::Pattern(which) => write!(f, "pattern:{which}"),
            Self::Intent(rule) => write!(f, "intent:{rule}"),
            Self::ToolCalls => f.write_str("tool_calls"),
            Self::Length => f.write_str("length"),
            Self::Message => f.write_str("message"),
            Self::Confidence => f.write_str("confidence"),
            Self::Judge(model) => write!(f, "judge:{model}"),
            Self::Limit(which) => write!(f, "limit:{which}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl From<DecisionSource> for String {
    fn from(source: DecisionSource) -> Self {
        source.to_string()
    }
}

impl From<String> for DecisionSource {
    fn from(text: String) -> Self {
        match text.split_once(':') {
            Some(("pattern", which)) => Self::Pattern(which.to_owned()),
            Some(("intent", rule)) => Self::Intent(rule.to_owned()),
            Some(("judge", model)) => Self::Judge(model.to_owned()),
            Some(("limit", which)) => Self::Limit(which.to_owned()),
            _ => match text.as_str() {
                "explicit" => Self::Explicit,
                "tool_calls" => Self::ToolCalls,
                "length" => Self::Length,
                "message" => Self::Message,
                "confidence" => Self::Confidence,
                _ => Self::Default,
            },
        }
    }
}

/// Estimate of the progress of the work, by the model or by the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Progress {
    /// The step at hand.
    pub current_step: Option<u32>,
    /// Number of all steps; null if unknown.
    pub total_steps: Option<u32>,
    /// 0 to 100; unknown is null. Written without a fraction where it has none.
    #[serde(serialize_with = "without_empty_fraction")]
    pub completion_percentage: Option<f64>,
    /// Steps that the model reports as done.
    pub steps_completed: Vec<String>,
    /// Steps that the model still plans.
    pub steps_remaining: Vec<String>,
}

impl Progress {
    /// Whether anything but the current step is known.
    pub fn is_known(&self) -> bool {
        *self != Self { current_step: self.current_step, ..Self::default() }
    }
}

/// Writes 50 for 50.0.
#[allow(clippy::ref_option, clippy::cast_possible_truncation, reason = "as serde asks; the bounds are checked")]
fn without_empty_fraction<S: serde::Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        None => serializer.serialize_none(),
        Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => serializer.serialize_i64(*number as i64),
        Some(number) => serializer.serialize_f64(*number),
    }
}

/// A decision and the progress that goes with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContinuationProgress {
    /// Id of the session's agent.
    pub agent_id: String,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// The step's number within its turn.
    pub iteration: u32,
    /// Steps that the turn may have.
    pub max_iterations: u32,
    /// Estimated progress of the work.
    pub progress: Progress,
    /// The tools that the reply called.
    pub current_tools: Vec<String>,
    /// Whether another step follows.
    pub continues: bool,
    /// Source of the decision.
    pub source: DecisionSource,
    /// Reason for the decision, in the words of the model or of the loop.
    pub reason: String,
    /// The signal's status, or `UNKNOWN`.
    pub status: String,
    /// Confidence of the model in its signal, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The reply's first 200 characters.
    pub excerpt: String,
    /// Ids of the tool calls in the reply.
    pub call_ids: Vec<CallId>,
    /// User-role message from the loop to the model at the start of the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// Tokens and money that a judge used.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub spent: Spent,
}

words! {
    /// Reason why a turn ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum StopReason {
        /// The model finished its work.
        Completed = "completed",
        /// Its steps were used up.
        MaxIterations = "max_iterations",
        /// Its time was used up.
        Timeout = "timeout",
        /// Its tokens were used up.
        TokenLimit = "token_limit",
        /// Its money was used up.
        CostLimit = "cost_limit",
        /// Its tool calls were used up.
        ToolCallLimit = "tool_call_limit",
        /// The model made the same call again and again.
        Repetition = "repetition",
        /// Step after step brought nothing new.
        NoProgress = "no_progress",
        /// A client or the parent stopped it.
        Stopped = "stopped",
        /// It could not go on.
        Error = "error",
    }

    /// Its word in an event.
    fn as_str;
}

impl StopReason {
    /// Whether the turn neither did what it was to do nor was stopped by somebody.
    pub const fn is_failure(self) -> bool {
        matches!(self.kind(), StopKind::Limit | StopKind::Error)
    }

    /// Whether the turn was cut short by a limit.
    pub const fn is_limit(self) -> bool {
        matches!(self.kind(), StopKind::Limit)
    }

    /// Returns the kind of the reason.
    pub const fn kind(self) -> StopKind {
        match self {
            Self::Completed => StopKind::Completed,
            Self::Stopped => StopKind::Stopped,
            Self::Error => StopKind::Error,
            Self::MaxIterations
            | Self::Timeout
            | Self::TokenLimit
            | Self::CostLimit
            | Self::ToolCallLimit
            | Self::Repetition
            | Self::NoProgress => StopKind::Limit,
        }
    }
}

/// Kind of a [`StopReason`], for readers that treat all limits alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    /// The model finished its work.
    Completed,
    /// A limit cut the turn short.
    Limit,
    /// A client or the parent stopped it.
    Stopped,
    /// The turn could not go on.
    Error,
}

/// The end of a turn, with its stop reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnCompleted {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Reason why the turn ended.
    pub stop_reason: StopReason,
    /// `MAX_ITERATIONS_REACHED` at that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Number of steps that the turn took.
    pub iterations: u32,
    /// Final text that the user reads.
    pub final_response: String,
    /// Tokens and money of the turn, with those of the sessions that it delegated to.
    pub spent: Spent,
    /// Tokens and money of this session alone. None if an older version counted any of them, since it did not separate
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_own: Option<Spent>,
    /// Client that cancelled it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason that the client gave, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
