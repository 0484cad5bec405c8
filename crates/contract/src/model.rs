//! The model call: what a gateway is asked, and what it answers. Messages are provider-neutral.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::ids::CallId;
use crate::timestamp::Timestamp;

/// One message of a transcript, as the gateway maps it to a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// The system prompt that the composer wrote.
    System {
        /// Text of the system prompt.
        content: String,
    },
    /// What the user, or the loop on the user's behalf, says.
    User {
        /// The message, as text or as parts.
        content: Content,
    },
    /// A reply of the model.
    Assistant {
        /// Its text as the model wrote it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        content: String,
        /// Its reasoning, where the provider shows it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// The calls that it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// Parts that its provider wants to see again in later requests.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay: Option<ReasoningParts>,
    },
    /// The one result of one call.
    Tool {
        /// Id of the call that this is the result of.
        tool_call_id: String,
        /// What the model reads.
        content: String,
    },
}

/// Parts of a reply that its provider wants to see again, unchanged, in the requests that follow: reasoning that it signed
/// or encrypted. Only gateways look into it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningParts {
    /// The protocol whose parts these are.
    pub family: String,
    /// The model that wrote them, in the provider's words: another one cannot read them.
    pub model: String,
    /// The parts, in the order of the reply.
    pub parts: Vec<serde_json::Value>,
    /// Where each part stood among text and calls. Empty in what older gateways wrote: all their parts come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<ReplayPosition>,
}

/// What of a reply came before a part that is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ReplayPosition {
    /// Whether text came before it.
    #[serde(default)]
    pub after_text: bool,
    /// Number of the reply's calls that came before it.
    #[serde(default)]
    pub calls: u32,
}

/// What a user message holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// A message of plain text.
    Text(String),
    /// A message of texts and images, in order.
    Parts(Vec<Part>),
}

impl Content {
    /// Whether there is nothing in it that a model could read.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().all(|part| match part {
                Part::Text { text } => text.trim().is_empty(),
                Part::ImageUrl { .. } => false,
            }),
        }
    }

    /// Bytes of its texts and addresses.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts.iter().map(Part::bytes).sum(),
        }
    }

    /// How many images it holds.
    pub fn images(&self) -> usize {
        match self {
            Self::Text(_) => 0,
            Self::Parts(parts) => parts.iter().filter(|part| matches!(part, Part::ImageUrl { .. })).count(),
        }
    }

    /// Its text; parts are joined by line ends, images left out.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Text { text } => Some(text.as_str()),
                        Part::ImageUrl { .. } => None,
                    })
                    .collect();
                texts.join("\n")
            }
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A part of a user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// A part of plain text.
    Text {
        /// Text of the part, or of the reply so far.
        text: String,
    },
    /// An image by address; `data:` addresses carry it inline.
    ImageUrl {
        /// Address of the image.
        image_url: ImageUrl,
    },
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ImageUrl { image_url } => image_url.url.len(),
        }
    }
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// An `https:` or `data:` address.
    pub url: String,
}

/// The name of the pseudo-tool by which a model says whether it goes on.
pub const SIGNAL_TOOL: &str = "continuation";

/// A tool call as a model writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id: the provider's in a reply, ours in a transcript.
    #[serde(default)]
    pub id: String,
    /// The protocol's type of call: always `function`.
    #[serde(rename = "type", default = "function_kind")]
    pub kind: String,
    /// Name and arguments of the function.
    pub function: Function,
}

impl ToolCall {
    /// A call of `name` with `arguments`, JSON text as received.
    pub fn new(id: &str, name: &str, arguments: &str) -> Self {
        let function = Function { name: name.to_owned(), arguments: arguments.to_owned() };
        Self { id: id.to_owned(), kind: function_kind(), function }
    }

    /// Whether it is the pseudo-call, which only signals.
    pub fn is_signal(&self) -> bool {
        self.function.name == SIGNAL_TOOL
    }
}

fn function_kind() -> String {
    "function".to_owned()
}

/// Which function, with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Name of the tool, as the model wrote it.
    #[serde(default)]
    pub name: String,
    /// JSON text as received, valid or not.
    #[serde(default)]
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub parameters: Json,
}

/// How a reply is streamed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streaming {
    /// `false` sends only the full message.
    pub enabled: bool,
    /// Milliseconds that deltas are gathered before a chunk goes out.
    pub chunk_ms: u64,
    /// Bytes after which a chunk goes out at once.
    pub chunk_bytes: usize,
    /// Seconds that connecting may take.
    pub connect: u64,
    /// Seconds to the first byte of the reply.
    pub first_byte: u64,
    /// Seconds between two pieces of the stream.
    pub idle: u64,
}

impl Default for Streaming {
    fn default() -> Self {
        Self { enabled: true, chunk_ms: 25, chunk_bytes: 256, connect: 5, first_byte: 30, idle: 30 }
    }
}

/// What stands first in every work item, so that a worker need not read the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemMeta {
    /// Version of the contract.
    pub v: u32,
    /// The slot of the commit that opened the call.
    pub slot: u64,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The orchestrator's attempt at this call, from 1.
    pub attempt: u32,
    /// When the answer is no longer wanted.
    pub deadline: Timestamp,
    /// The agent that asks.
    pub agent: String,
}

impl ItemMeta {
    /// What a result tells of the item.
    pub fn of_result(&self) -> ResultMeta {
        let Self { slot, call, attempt, .. } = self;
        ResultMeta { v: crate::version::VERSION, slot: *slot, call: call.clone(), attempt: *attempt }
    }
}

/// A model call on its way to a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelItem {
    /// Ids of the call and its deadline.
    pub meta: ItemMeta,
    /// The model's id, as in `models.yaml`.
    pub model: String,
    /// The transcript; each is a [`Message`] that was serialised once.
    pub messages: Vec<Json>,
    /// The tools on offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Json>,
    /// Whether several calls may stand in one reply.
    pub parallel_tool_calls: bool,
    /// `temperature`, `max_tokens` and whatever else the provider takes.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// The form that a reply must have, in the words of OpenAI's `response_format`; for models with structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Json>,
    /// Chunk size and timeouts of the stream.
    #[serde(default)]
    pub streaming: Streaming,
    /// The form in which the model was asked to signal; only such a signal is taken out of its text.
    #[serde(default, skip_serializing_if = "SignalForm::is_text")]
    pub signal: SignalForm,
}

/// The form in which a session asks a model to say whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum SignalForm {
    /// It does not ask: the text is shown as it stands.
    Off,
    /// As an object in the text.
    #[default]
    Text,
    /// By the pseudo-call `continuation`; an object in the text is understood too.
    Call,
    /// The whole reply is one object, with what people read in it.
    Envelope,
}

impl SignalForm {
    /// Whether it is the default.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Text)
    }
}

/// Tokens of one or several replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Usage {
    /// Tokens of requests, cached ones included.
    pub input: u64,
    /// Tokens of replies, reasoning included.
    pub output: u64,
    /// Of `input`, those that the provider had cached.
    pub cached: u64,
    /// Of `output`, those of reasoning.
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

/// Why a reply ended, mapped; the provider's own word is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
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

/// What a result tells of the item it answers.
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
    /// What it cost in US dollars, where prices are known.
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
    /// Which run of the attempt this is the result of: an attempt may run twice when a gateway freezes. Only one result of
    /// an attempt is taken; of the others the costs are. Empty in results of older gateways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
}

/// What kind of failure, so that the loop knows what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// What came is not the provider's protocol; may pass.
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
    /// What kind of failure.
    pub kind: FailureKind,
    /// Milliseconds that the provider asks to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What happened, for people; no secrets, no message contents.
    #[serde(default)]
    pub message: String,
    /// What it used all the same.
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
    /// How long the provider asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }
}

/// A piece of a reply on its way to viewers: `message.ai_chunk_received`. Not a fact; it is in no log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// `<orchestrator's attempt>.<delivery>`: a viewer empties its buffer when it grows.
    pub attempt: String,
    /// Counts from 0 within an attempt.
    pub index: u64,
    /// What the delta belongs to.
    pub channel: Channel,
    /// Text since the chunk before.
    pub delta: String,
    /// The last one of this attempt; always sent, also for an empty reply.
    #[serde(rename = "final")]
    pub last: bool,
    /// In the last one: why the reply ended. None where the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
}

/// What a chunk belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// What the user reads.
    Text,
    /// What the model thinks.
    Reasoning,
}

/// A piece of a tool call's arguments: `tool_call.partial`. For viewers only; executors see complete calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialCall {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Attempt and delivery, as in [`Chunk`].
    pub attempt: String,
    /// Which call of the reply, from 0.
    pub index: u32,
    /// The tool's name, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of its arguments.
    pub delta: String,
}

/// What `ai_rpc.view` answers: the reply so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplySnapshot {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Attempt and delivery, as in [`Chunk`].
    pub attempt: String,
    /// The next chunk's index.
    pub index: u64,
    /// The text so far.
    pub text: String,
}
