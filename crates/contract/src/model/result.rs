//! Results of gateways: a whole reply, or the failure of an attempt.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::message::{ReasoningParts, ToolCall};
use crate::ids::CallId;

/// Tokens of one or several replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// Tokens of requests, cached ones included.
    pub input: u64,
    /// Tokens of replies, reasoning included.
    pub output: u64,
    /// Tokens of `input` that the provider had cached.
    pub cached: u64,
    /// Tokens of `output` that are reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// Both together; absurd figures of a provider saturate.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// Tokens that count against limits.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Reason why a reply ended, in terms that do not depend on the provider; the provider's own word is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FinishReason {
    /// The model was done.
    #[default]
    Stop,
    /// The model asked for tools.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The provider withheld the content.
    ContentFilter,
    /// We cancelled; the text is what had come.
    Cancelled,
    /// A word that we do not know.
    #[serde(other)]
    Other,
}

/// Head of a result, which identifies the work item that it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultMeta {
    /// Version of the contract.
    pub v: u32,
    /// The item's slot: an orchestrator whose state is older loads first.
    pub slot: u64,
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The orchestrator's attempt at this call, from 1.
    pub attempt: u32,
    /// The item's `opened_by`: call ids are counted, so a log that was put back to an older state gives them out again,
    /// and a result of the lost history may reach another call of the same id. Older workers do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opened_by: String,
}

impl ResultMeta {
    /// Whether the result may be that of the call of its id which this commit opened. Where one of the two names no
    /// commit, an older version made it, and it is believed.
    pub fn is_of(&self, opened_by: &str) -> bool {
        crate::ids::may_be_same_commit(&self.opened_by, opened_by)
    }
}

/// `model_finished`: the whole reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFinished {
    /// Call and attempt that this answers.
    pub meta: ResultMeta,
    /// The reply's text as the model wrote it.
    #[serde(default)]
    pub text: String,
    /// Reasoning of the model, where the provider shows it.
    #[serde(default)]
    pub reasoning: String,
    /// Its calls in the order of the reply, incomplete ones included (no name, or arguments that are not JSON).
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// Reason why the reply ended.
    #[serde(default)]
    pub finish_reason: FinishReason,
    /// The provider's word for it.
    #[serde(default)]
    pub raw_finish_reason: String,
    /// Tokens of request and reply.
    #[serde(default)]
    pub usage: Usage,
    /// Cost in US dollars, where prices are known.
    #[serde(default)]
    pub cost_usd: f64,
    /// Id of the provider that answered.
    #[serde(default)]
    pub provider: String,
    /// The model that answered, in the provider's words.
    #[serde(default)]
    pub model: String,
    /// Milliseconds from the request to the end of the reply.
    #[serde(default)]
    pub latency_ms: u64,
    /// Parts that the provider wants to see again in later requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReasoningParts>,
    /// Run of the attempt that made this result: an attempt may run twice when a gateway freezes. Only one result of an
    /// attempt is accepted; the costs of the others count too. Empty in results of older gateways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
}

/// Kind of a failure, by which the loop decides what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FailureKind {
    /// Too many requests; passes.
    RateLimited,
    /// The provider is overloaded; passes.
    Overloaded,
    /// Refused connections, 5xx; passes.
    Unreachable,
    /// No first byte, or silence within the stream; passes.
    #[serde(rename = "hung")]
    TimedOut,
    /// The stream broke off; passes.
    Truncated,
    /// The response violates the provider's protocol; may pass.
    #[serde(rename = "garbage")]
    ProtocolError,
    /// A reply without text, reasoning or calls; may pass.
    Empty,
    /// The call was cancelled by its session.
    Cancelled,
    /// The transcript does not fit the model.
    ContextLength,
    /// Nothing left to spend.
    Quota,
    /// The key is refused.
    Auth,
    /// The provider refuses the content.
    Refused,
    /// The provider refuses the request; also what a newer gateway calls by a name that we do not know.
    #[serde(other)]
    BadRequest,
}

impl FailureKind {
    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Overloaded
            | Self::Unreachable
            | Self::TimedOut
            | Self::Truncated
            | Self::ProtocolError
            | Self::Empty => true,
            Self::Cancelled | Self::ContextLength | Self::Quota | Self::Auth | Self::Refused | Self::BadRequest => {
                false
            }
        }
    }

    /// The error code that users see.
    pub fn code(self) -> crate::ErrorCode {
        use crate::ErrorCode as E;
        match self {
            Self::RateLimited => E::ModelRateLimited,
            Self::Overloaded => E::ModelOverloaded,
            Self::Unreachable => E::ModelUnreachable,
            Self::TimedOut => E::ModelHung,
            Self::Truncated => E::ModelTruncated,
            Self::ProtocolError => E::ModelGarbage,
            Self::Empty => E::ModelEmptyReply,
            Self::Cancelled => E::Internal,
            Self::ContextLength => E::ModelContextLength,
            Self::Quota => E::ModelQuota,
            Self::Auth => E::ModelAuth,
            Self::Refused => E::ModelRefused,
            Self::BadRequest => E::ModelBadRequest,
        }
    }
}

/// `model_failed`: final for that attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFailed {
    /// Call and attempt that this answers.
    pub meta: ResultMeta,
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Milliseconds that the provider asks to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Description of the failure, for people, without secrets and message contents.
    #[serde(default)]
    pub message: String,
    /// The text that had come, as the model wrote it: at most `CUT_REPLY_BYTES_MAX` bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Tokens that the failed attempt used.
    #[serde(default)]
    pub usage: Usage,
    /// Cost in US dollars, where prices are known.
    #[serde(default)]
    pub cost_usd: f64,
    /// Run of the attempt, as in [`ModelFinished`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
}

impl ModelFailed {
    /// Pause that the provider asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }
}
