//! Events: what happened. Once written, an event is a promise for ever: it is only ever added to.
//!
//! Events with a [`Topic`] are public: they get a `seq` and go to viewers. The others are the loop's own bookkeeping.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ai_config::AiConfig;
use crate::command::{AnswerDecision, Budget, ContinuationOverride, Features, MessageMode, Parent, Refusal, Verb};
use crate::ids::{AgentId, CallId, CommandId, SessionId, TenantId, ToolName};
use crate::model::{Content, FailureKind, FinishReason, Message, ReasoningParts, Streaming, ToolCall, Usage};
use crate::settings::{AgentSettings, ModelSettings, OnExpiry};
use crate::timestamp::Timestamp;
use crate::tool::{Approval, ChildUsage, EffectClass, FullResultRef, Outcome, ToolSpec};
use crate::{ErrorCode, Json};

macro_rules! topics {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A public topic: one or two tokens of a subject.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Topic {
            $($(#[$doc])* $name,)*
        }

        impl Topic {
            /// Every topic.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As in a subject and as a JSON-RPC method.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Reads the tokens.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

topics! {
    /// A session began.
    SessionStarted = "session_started",
    /// A session ended.
    SessionEnded = "session_ended",
    /// A user message was taken in.
    UserProcessed = "message.user_processed",
    /// A piece of a reply; never logged.
    AiChunkReceived = "message.ai_chunk_received",
    /// A whole reply.
    AiFullReceived = "message.ai_full_received",
    /// A piece of a tool call's arguments; never logged.
    ToolCallPartial = "tool_call.partial",
    /// A complete tool call.
    ToolCallIdentified = "tool_call.identified",
    /// A tool says how far it is; never logged.
    ToolCallProgress = "tool_call.progress",
    /// The one result of a tool call.
    ToolCallResult = "tool_call.result_processed",
    /// No new call opens.
    StatusPaused = "status.paused",
    /// Going on.
    StatusResumed = "status.resumed",
    /// A reply was decided about.
    ContinuationProgress = "continuation.progress",
    /// A turn ended.
    TurnCompleted = "turn.completed",
    /// A person is asked.
    GateOpened = "gate.opened",
    /// A person answered, or nobody did in time.
    GateClosed = "gate.closed",
    /// Settings of a running session were changed.
    Configured = "status.configured",
    /// The transcript was cut to the model's window.
    ContextPruned = "context.pruned",
    /// The transcript was cleared.
    ContextCleared = "context.cleared",
    /// Something went wrong.
    Error = "error",
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A committed fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// An input was handled; first of the events that it brought.
    #[serde(rename = "input_handled")]
    InputHandled(InputHandled),
    /// An input changed nothing.
    #[serde(rename = "input_ignored")]
    InputIgnored(InputIgnored),
    /// `session_started`
    #[serde(rename = "session_started")]
    SessionStarted(Box<SessionStarted>),
    /// `session_ended`
    #[serde(rename = "session_ended")]
    SessionEnded(SessionEnded),
    /// `message.user_processed`
    #[serde(rename = "message.user_processed")]
    UserProcessed(UserProcessed),
    /// A turn began.
    #[serde(rename = "turn_started")]
    TurnStarted(TurnStarted),
    /// The session's tools changed.
    #[serde(rename = "tools_resolved")]
    ToolsResolved(ToolsResolved),
    /// A model call was opened, or opened again with a new attempt.
    #[serde(rename = "model_call_opened")]
    ModelCallOpened(ModelCallOpened),
    /// An attempt of a model call failed; another one follows at `retry_at`.
    #[serde(rename = "model_call_failed")]
    ModelCallFailed(ModelCallFailed),
    /// A call in flight is no longer wanted.
    #[serde(rename = "call_cancelled")]
    CallCancelled(CallCancelled),
    /// The user wants the floor: the open model call is cancelled and its partial text awaited.
    #[serde(rename = "model_call_interrupted")]
    ModelCallInterrupted(ModelCallInterrupted),
    /// `message.ai_full_received`
    #[serde(rename = "message.ai_full_received")]
    AiFullReceived(Box<AiFullReceived>),
    /// `tool_call.identified`
    #[serde(rename = "tool_call.identified")]
    ToolCallIdentified(ToolCallIdentified),
    /// A tool call went to the executors.
    #[serde(rename = "tool_call_opened")]
    ToolCallOpened(ToolCallOpened),
    /// A tool call that shows progress may take longer.
    #[serde(rename = "tool_call_extended")]
    ToolCallExtended(ToolCallExtended),
    /// `tool_call.result_processed`
    #[serde(rename = "tool_call.result_processed")]
    ToolCallResult(ToolCallResult),
    /// `status.paused`
    #[serde(rename = "status.paused")]
    StatusPaused(StatusChanged),
    /// `status.resumed`
    #[serde(rename = "status.resumed")]
    StatusResumed(StatusChanged),
    /// `continuation.progress`
    #[serde(rename = "continuation.progress")]
    ContinuationProgress(Box<ContinuationProgress>),
    /// `turn.completed`
    #[serde(rename = "turn.completed")]
    TurnCompleted(TurnCompleted),
    /// `gate.opened`
    #[serde(rename = "gate.opened")]
    GateOpened(GateOpened),
    /// `gate.closed`
    #[serde(rename = "gate.closed")]
    GateClosed(GateClosed),
    /// `status.configured`
    #[serde(rename = "status.configured")]
    Configured(Box<Configured>),
    /// The model's next fallback took over.
    #[serde(rename = "model_fell_back")]
    ModelFellBack(ModelFellBack),
    /// The turn is at a limit: one last step without tools follows, whose text is the turn's last word for the user.
    #[serde(rename = "limit_reached")]
    LimitReached(LimitReached),
    /// The model is asked to sum the oldest turns up; the answer is `context.pruned`.
    #[serde(rename = "summary_opened")]
    SummaryOpened(SummaryOpened),
    /// A judge is asked whether the turn goes on; its verdict is a `continuation.progress`.
    #[serde(rename = "judge_opened")]
    JudgeOpened(JudgeOpened),
    /// `context.pruned`
    #[serde(rename = "context.pruned")]
    ContextPruned(ContextPruned),
    /// A child session is told to pause, resume or stop.
    #[serde(rename = "child_told")]
    ChildCommanded(ChildCommanded),
    /// `context.cleared`
    #[serde(rename = "context.cleared")]
    ContextCleared(ContextCleared),
    /// The session's one timer was set.
    #[serde(rename = "timer_set")]
    TimerSet(TimerSet),
    /// All that was before left the log; what is left of an ended session is what others ask of it.
    #[serde(rename = "session_archived")]
    SessionArchived(SessionArchived),
    /// The session came here from a file; all that was before is in the archive.
    #[serde(rename = "session_imported")]
    SessionImported(SessionImported),
    /// `error`
    #[serde(rename = "error")]
    Error(ErrorEvent),
    /// An event of a newer version. An observer passes over it; a writer that meets one must not decide (I8).
    #[serde(rename = "unknown")]
    Unknown,
}

/// Reads events one by one; those of a newer version become [`Event::Unknown`]. `is_newer`: a newer fold wrote them, and what
/// cannot be read is news.
pub(crate) fn read_all(texts: &[Json], is_newer: bool) -> Result<Vec<Event>, serde_json::Error> {
    let read = |text: &Json| match read_one(text) {
        Err(_) if is_newer => Ok(Event::Unknown),
        read => read,
    };
    texts.iter().map(read).collect()
}

fn read_one(text: &Json) -> Result<Event, serde_json::Error> {
    #[derive(Deserialize)]
    struct Tag {
        r#type: String,
    }
    let known = serde_json::from_str::<Event>(text.get());
    let Err(error) = known else { return known };
    // A known event that cannot be read is damage, not news.
    let tag: Tag = serde_json::from_str(text.get())?;
    let is_news = serde_json::from_value::<Event>(serde_json::json!({"type": tag.r#type}))
        .err()
        .is_some_and(|error| error.to_string().starts_with("unknown variant"));
    if is_news { Ok(Event::Unknown) } else { Err(error) }
}

impl Event {
    /// Its type, as in a commit.
    pub fn name(&self) -> String {
        #[derive(Deserialize)]
        struct Tagged {
            r#type: String,
        }
        match self.topic() {
            Some(topic) => topic.as_str().to_owned(),
            None => {
                serde_json::from_str::<Tagged>(Json::of(self).get()).map(|tagged| tagged.r#type).unwrap_or_default()
            }
        }
    }

    /// Its own fields, without the tag.
    pub fn data(&self) -> Json {
        match self {
            Self::InputHandled(data) => Json::of(data),
            Self::InputIgnored(data) => Json::of(data),
            Self::SessionStarted(data) => Json::of(data),
            Self::SessionEnded(data) => Json::of(data),
            Self::UserProcessed(data) => Json::of(data),
            Self::TurnStarted(data) => Json::of(data),
            Self::ToolsResolved(data) => Json::of(data),
            Self::ModelCallOpened(data) => Json::of(data),
            Self::ModelCallFailed(data) => Json::of(data),
            Self::CallCancelled(data) => Json::of(data),
            Self::ModelCallInterrupted(data) => Json::of(data),
            Self::AiFullReceived(data) => Json::of(data),
            Self::ToolCallIdentified(data) => Json::of(data),
            Self::ToolCallOpened(data) => Json::of(data),
            Self::ToolCallExtended(data) => Json::of(data),
            Self::ToolCallResult(data) => Json::of(data),
            Self::StatusPaused(data) | Self::StatusResumed(data) => Json::of(data),
            Self::ContinuationProgress(data) => Json::of(data),
            Self::TurnCompleted(data) => Json::of(data),
            Self::GateOpened(data) => Json::of(data),
            Self::GateClosed(data) => Json::of(data),
            Self::Configured(data) => Json::of(data),
            Self::ModelFellBack(data) => Json::of(data),
            Self::LimitReached(data) => Json::of(data),
            Self::SummaryOpened(data) => Json::of(data),
            Self::JudgeOpened(data) => Json::of(data),
            Self::ContextPruned(data) => Json::of(data),
            Self::ChildCommanded(data) => Json::of(data),
            Self::ContextCleared(data) => Json::of(data),
            Self::TimerSet(data) => Json::of(data),
            Self::SessionArchived(data) => Json::of(data),
            Self::SessionImported(data) => Json::of(data),
            Self::Error(data) => Json::of(data),
            Self::Unknown => Json::default(),
        }
    }

    /// Its own fields, as viewers get them. The log keeps the call that only signals, since transcripts are built from it;
    /// viewers would take it for a call that never gets a result.
    pub fn public_data(&self) -> Json {
        if let Self::AiFullReceived(reply) = self
            && reply.tool_calls.iter().any(ToolCall::is_signal)
        {
            let mut reply = reply.clone();
            reply.tool_calls.retain(|call| !call.is_signal());
            return Json::of(&reply);
        }
        self.data()
    }

    /// Its public topic; none for bookkeeping.
    pub fn topic(&self) -> Option<Topic> {
        match self {
            Self::InputHandled(_)
            | Self::InputIgnored(_)
            | Self::TurnStarted(_)
            | Self::ToolsResolved(_)
            | Self::ModelCallOpened(_)
            | Self::ModelCallFailed(_)
            | Self::CallCancelled(_)
            | Self::ModelCallInterrupted(_)
            | Self::ToolCallOpened(_)
            | Self::ToolCallExtended(_)
            | Self::ModelFellBack(_)
            | Self::LimitReached(_)
            | Self::SummaryOpened(_)
            | Self::JudgeOpened(_)
            | Self::ChildCommanded(_)
            | Self::TimerSet(_)
            | Self::SessionArchived(_)
            | Self::SessionImported(_)
            | Self::Unknown => None,
            Self::SessionStarted(_) => Some(Topic::SessionStarted),
            Self::SessionEnded(_) => Some(Topic::SessionEnded),
            Self::UserProcessed(_) => Some(Topic::UserProcessed),
            Self::AiFullReceived(_) => Some(Topic::AiFullReceived),
            Self::ToolCallIdentified(_) => Some(Topic::ToolCallIdentified),
            Self::ToolCallResult(_) => Some(Topic::ToolCallResult),
            Self::StatusPaused(_) => Some(Topic::StatusPaused),
            Self::StatusResumed(_) => Some(Topic::StatusResumed),
            Self::ContinuationProgress(_) => Some(Topic::ContinuationProgress),
            Self::TurnCompleted(_) => Some(Topic::TurnCompleted),
            Self::GateOpened(_) => Some(Topic::GateOpened),
            Self::GateClosed(_) => Some(Topic::GateClosed),
            Self::Configured(_) => Some(Topic::Configured),
            Self::ContextPruned(_) => Some(Topic::ContextPruned),
            Self::ContextCleared(_) => Some(Topic::ContextCleared),
            Self::Error(_) => Some(Topic::Error),
        }
    }
}

/// A public event as viewers receive it. Chunks have no `seq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// `<session>-<slot>-<position>`; the same event always has the same id.
    pub id: String,
    /// Its session.
    pub session_id: SessionId,
    /// Its tenant.
    pub tenant: TenantId,
    /// One counter per session, from 1, without holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// When it was decided.
    pub time: Timestamp,
    /// The turn's trace, 32 hex digits; empty where nothing is traced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// The event's own fields.
    pub data: Json,
}

/// The session left the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionArchived {
    /// The slots before this one are in the archive.
    pub slots: u64,
}

/// The session came from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionImported {
    /// The slots before this one are in the archive.
    pub slots: u64,
    /// When the file was written.
    pub exported: Timestamp,
}

/// Which input was handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputHandled {
    /// What it was.
    #[serde(flatten)]
    pub input: InputRef,
    /// For client commands: their sequence in the control stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_at: Option<Timestamp>,
    /// Of a parent's command: which of all that it told its children this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<u64>,
}

/// Which input changed nothing, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputIgnored {
    /// What it was.
    #[serde(flatten)]
    pub input: InputRef,
    /// For client commands: their sequence in the control stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_at: Option<Timestamp>,
    /// Of a parent's command: which of all that it told its children this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<u64>,
    /// Why, as its sender is told.
    pub refusal: Refusal,
    /// What a late reply used all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spent>,
    /// What a late result says, where it was not known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Outcome>,
    /// Of a `start` by another session: whose call gets the refusal as its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
}

/// An input by its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputRef {
    /// What kind.
    pub kind: InputKind,
    /// Unique within its kind.
    pub id: CommandId,
}

/// A control verb, or the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// The session's timer; its id is the number of the setting.
    Timer,
    /// Control.
    #[serde(untagged)]
    Control(Verb),
}

/// Tokens and money.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// US dollars.
    pub cost_usd: f64,
}

impl Spent {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { usage: self.usage.plus(other.usage), cost_usd: self.cost_usd + other.cost_usd }
    }

    /// Whether it is nothing at all.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The session's beginning, with everything that it keeps to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// The agent.
    pub agent: AgentSettings,
    /// The model.
    pub model: ModelSettings,
    /// Whether it waits for more after its first turn.
    pub interactive: bool,
    /// The composed prompt; the session keeps it.
    pub prompt: String,
    /// SHA-256 over prompt and components.
    pub fingerprint: String,
    /// History to begin with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Parameters for the provider.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Which tools may be called, by the step of a turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_choice: Vec<serde_json::Value>,
    /// What this session says itself of its prompt and requests; it stays when agent or model are looked up again.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub ai_config: AiConfig,
    /// How replies are streamed.
    pub streaming: Streaming,
    /// Models that may take the model's place, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelSettings>,
    /// Features that this session switched.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// Continuation settings that this session replaced; they stay when agent or model are looked up again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ContinuationOverride>,
    /// The tools to which the session limits itself, of those that its agent may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_tools: Option<Vec<String>>,
    /// The call of another session that this one performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
}

/// What holds from now on in a session that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The agent.
    pub agent: AgentSettings,
    /// The model.
    pub model: ModelSettings,
    /// Models that may take its place, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelSettings>,
    /// The new prompt and its fingerprint; none: as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// All features that this session switched.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// All continuation settings that this session replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ContinuationOverride>,
    /// Requests to the model from now on; none: as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
}

/// How requests to the model are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Parameters for the provider.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Which tools may be called, by the step of a turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_choice: Vec<serde_json::Value>,
    /// All that this session says itself of its prompt and requests.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub ai_config: AiConfig,
}

/// A composed prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its text.
    pub text: String,
    /// SHA-256 over the text, in hex.
    pub fingerprint: String,
}

/// A fallback of the model takes over, to the turn's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFellBack {
    /// Which of the fallbacks, from 1.
    pub number: u32,
    /// Its id.
    pub model: String,
}

/// A turn is at a limit and ends with its next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReached {
    /// The limit: the turn's stop reason.
    pub limit: StopReason,
    /// The user-role message that asks the model for the last word.
    pub nudge: String,
}

/// An open request for a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryOpened {
    /// Its id.
    pub call: CallId,
    /// The first turn that stays as it is.
    pub before: u32,
    /// When its watchdog bites.
    pub deadline: Timestamp,
}

/// An open question to a judge about the running step's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeOpened {
    /// Its id.
    pub call: CallId,
    /// The model that judges.
    pub model: String,
    /// When its watchdog bites.
    pub deadline: Timestamp,
}

/// What the model no longer reads. Nothing of it leaves the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextPruned {
    /// The turn in which it was done.
    pub turn: u32,
    /// Results of which head and tail are left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// Bytes of such a result, half of them its head.
    #[serde(default)]
    pub keep_bytes: usize,
    /// Turns before this one are gone; 0 and 1: none, the history that came with the start aside.
    #[serde(default)]
    pub before_turn: u32,
    /// Replies and results of this turn's steps before this one are gone; 0 and 1: none.
    #[serde(default)]
    pub before_step: u32,
    /// What the model says about the turns that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Tokens of the request before, as far as that is known.
    pub tokens_before: u64,
    /// Tokens after.
    pub tokens_after: u64,
    /// What the summary used.
    #[serde(default)]
    pub spent: Spent,
}

/// What a child session is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCommanded {
    /// The call that it performs.
    pub call: CallId,
    /// Counts all that is told to children.
    pub number: u64,
    /// `pause`, `resume` or `stop`.
    pub verb: Verb,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its turn ended and it was not interactive.
    Completed,
    /// It was stopped.
    Stopped,
    /// It could not go on.
    Error,
    /// Nobody wanted anything of it for too long.
    Expired,
}

impl EndReason {
    /// As in an event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Error => "error",
            Self::Expired => "expired",
        }
    }
}

/// The session's end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnded {
    /// Why.
    pub reason: EndReason,
    /// Why its last turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// `MAX_ITERATIONS_REACHED` at that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The last turn's answer.
    #[serde(default)]
    pub final_response: String,
    /// Steps of the last turn.
    #[serde(default)]
    pub iterations: u32,
    /// What the whole session used.
    #[serde(default)]
    pub spent: Spent,
    /// Who stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, in the words of whoever stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A user message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserProcessed {
    /// The id of the command that brought it.
    pub message_id: CommandId,
    /// Text or parts.
    pub content: Content,
    /// How it meets a running turn.
    pub mode: MessageMode,
}

/// A turn's beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// From 1.
    pub turn: u32,
    /// W3C `traceparent` under which the turn's spans stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The messages that begin it.
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
    /// Sorted by name.
    pub tools: Vec<ToolSpec>,
}

/// An open model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallOpened {
    /// Its id.
    pub call: CallId,
    /// From 1.
    pub attempt: u32,
    /// The turn.
    pub turn: u32,
    /// The step.
    pub step: u32,
    /// When its watchdog bites.
    pub deadline: Timestamp,
}

/// A failed attempt of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallFailed {
    /// Which call.
    pub call: CallId,
    /// Which attempt.
    pub attempt: u32,
    /// How it failed.
    pub kind: FailureKind,
    /// What happened, for people.
    pub message: String,
    /// What it used.
    #[serde(default)]
    pub spent: Spent,
    /// When the next attempt opens; none: no further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// A call that is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCancelled {
    /// Which call.
    pub call: CallId,
    /// Which attempt.
    pub attempt: u32,
    /// The tool; none for a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
}

/// A model call that gives way to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCallInterrupted {
    /// Which call.
    pub call: CallId,
    /// Which attempt.
    pub attempt: u32,
    /// How long its partial text is awaited.
    pub until: Timestamp,
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AiFullReceived {
    /// The model call that it answers; also the message's id.
    pub call: CallId,
    /// The turn.
    pub turn: u32,
    /// The step.
    pub step: u32,
    /// What the user reads.
    pub text: String,
    /// What the model wrote, where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Its reasoning.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Its calls, with our ids. In the log the pseudo-call `continuation` is among them; viewers get it without that one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The provider's word for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub raw_finish_reason: String,
    /// What it used.
    #[serde(default)]
    pub spent: Spent,
    /// Who answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The model that answered, in the provider's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Milliseconds from the request to the end of the reply.
    #[serde(default)]
    pub latency_ms: u64,
    /// What the provider wants to be told again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReasoningParts>,
}

/// A complete tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallIdentified {
    /// Its id.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The arguments object.
    pub arguments: Json,
    /// What may be done after a loss.
    pub effect: EffectClass,
    /// Whether a person is asked first.
    pub approval: Approval,
    /// Milliseconds from dispatch to its deadline, the turn's deadline aside.
    pub timeout_ms: u64,
    /// Bytes of its result that the model reads.
    pub max_output: usize,
}

/// A tool call on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallOpened {
    /// Which call.
    pub call: CallId,
    /// From 1.
    pub attempt: u32,
    /// When an answer is no longer wanted.
    pub deadline: Timestamp,
    /// Set where the loop performs the call itself, by a child session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Child>,
}

/// A tool call that shows progress may take longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallExtended {
    /// Which call.
    pub call: CallId,
    /// Which try of it.
    pub attempt: u32,
    /// When an answer is no longer wanted.
    pub deadline: Timestamp,
}

/// Data of `tool_call.progress`, which is told once and never logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallProgress {
    /// Which call.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// What it says, shortened where it is long.
    #[serde(default)]
    pub text: String,
}

/// A child session that performs a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// The session; its id follows from the call's.
    pub session_id: SessionId,
    /// Its agent, as the model named it.
    pub agent: AgentId,
    /// What it is asked.
    pub task: String,
    /// What is reserved for it.
    pub share: Budget,
}

/// The one result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResult {
    /// Which call.
    pub call: CallId,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What the model reads.
    pub content: String,
    /// For `error`: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Milliseconds from dispatch to result.
    #[serde(default)]
    pub duration_ms: u64,
    /// Where the whole of it is, when `content` is only parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<FullResultRef>,
    /// What the child session used that performed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ChildUsage>,
    /// Whether it takes the place of an earlier `unknown` or `timeout`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
}

/// Who paused or resumed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StatusChanged {
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What made the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DecisionSource {
    /// The model's own signal.
    Explicit,
    /// A pattern: `continuation:<pattern>` or `termination:<pattern>`.
    Pattern(String),
    /// What the words of the reply say: `announces`, `unfinished`, `asks` or `done`.
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
    /// Nothing spoke.
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

/// The model's, or the loop's, idea of how far the work is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Progress {
    /// The step at hand.
    pub current_step: Option<u32>,
    /// Of how many; unknown is null.
    pub total_steps: Option<u32>,
    /// 0 to 100; unknown is null. Written without a fraction where it has none.
    #[serde(serialize_with = "without_empty_fraction")]
    pub completion_percentage: Option<f64>,
    /// What is done.
    pub steps_completed: Vec<String>,
    /// What is left.
    pub steps_remaining: Vec<String>,
}

impl Progress {
    /// Whether it says more than which step is at hand.
    pub fn is_told(&self) -> bool {
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
    /// The agent.
    pub agent_id: String,
    /// The turn.
    pub turn: u32,
    /// The step's number within its turn.
    pub iteration: u32,
    /// Steps that the turn may have.
    pub max_iterations: u32,
    /// How far the work is.
    pub progress: Progress,
    /// The tools that the reply called.
    pub current_tools: Vec<String>,
    /// Whether another step follows.
    pub continues: bool,
    /// What made the decision.
    pub source: DecisionSource,
    /// Why.
    pub reason: String,
    /// The signal's status, or `UNKNOWN`.
    pub status: String,
    /// How sure the model says it is, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The reply's first 200 characters.
    pub excerpt: String,
    /// Its tool calls.
    pub call_ids: Vec<CallId>,
    /// What the loop says to the model at the start of the next step, as a user-role message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// What a judge used.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub spent: Spent,
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    Completed,
    /// Its steps were used up.
    MaxIterations,
    /// Its time was used up.
    Timeout,
    /// Its tokens were used up.
    TokenLimit,
    /// Its money was used up.
    CostLimit,
    /// Its tool calls were used up.
    ToolCallLimit,
    /// The model made the same call again and again.
    Repetition,
    /// Step after step brought nothing new.
    NoProgress,
    /// It was stopped.
    Stopped,
    /// It could not go on.
    Error,
}

impl StopReason {
    /// As in an event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxIterations => "max_iterations",
            Self::Timeout => "timeout",
            Self::TokenLimit => "token_limit",
            Self::CostLimit => "cost_limit",
            Self::ToolCallLimit => "tool_call_limit",
            Self::Repetition => "repetition",
            Self::NoProgress => "no_progress",
            Self::Stopped => "stopped",
            Self::Error => "error",
        }
    }

    /// Whether the turn was cut short by a limit.
    pub const fn is_limit(self) -> bool {
        match self {
            Self::MaxIterations
            | Self::Timeout
            | Self::TokenLimit
            | Self::CostLimit
            | Self::ToolCallLimit
            | Self::Repetition
            | Self::NoProgress => true,
            Self::Completed | Self::Stopped | Self::Error => false,
        }
    }
}

/// A turn's end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnCompleted {
    /// The turn.
    pub turn: u32,
    /// Why.
    pub stop_reason: StopReason,
    /// `MAX_ITERATIONS_REACHED` at that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its steps.
    pub iterations: u32,
    /// What the user reads.
    pub final_response: String,
    /// What it used.
    pub spent: Spent,
}

/// What a gate asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// May this call run?
    Approval,
    /// The model asks: see the arguments of `ask_user`.
    Question,
    /// The turn is at a limit: may it use as much again?
    Limit(StopReason),
    /// A model call has failed for good: shall it be tried again?
    Error(FailureKind),
}

/// A person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateOpened {
    /// The gate's id: that of the call.
    pub gate: CallId,
    /// What is asked.
    pub kind: GateKind,
    /// SHA-256 of the arguments that are shown.
    pub arguments_sha256: String,
    /// When it closes by itself.
    pub expires: Timestamp,
    /// The call's tool, where the gate is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// The call's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// What counts when nobody answers in time.
    #[serde(default, skip_serializing_if = "OnExpiry::is_deny")]
    pub on_expiry: OnExpiry,
}

/// A gate's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateClosed {
    /// Which gate.
    pub gate: CallId,
    /// What was decided.
    pub decision: AnswerDecision,
    /// By whom; nobody when it expired or the turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The arguments with which the call runs, where they were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// SHA-256 of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_sha256: Option<String>,
    /// The note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The transcript was cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCleared {
    /// Turns whose messages went.
    pub turns: u32,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, in the words of whoever asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The session's one timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerSet {
    /// Counts the settings of this session.
    pub number: u64,
    /// When it is due.
    pub at: Timestamp,
}

/// Something went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorEvent {
    /// Stable.
    pub code: ErrorCode,
    /// For people: what, and what to do.
    pub message: String,
    /// Whether the same may succeed later.
    pub retryable: bool,
    /// What was being tried.
    pub during: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_named_by_kind_and_id() {
        let input = InputRef { kind: InputKind::Control(Verb::ModelFinished), id: CommandId::new("m1-1").unwrap() };
        let text = serde_json::to_string(&input).unwrap();
        assert_eq!(text, r#"{"kind":"model_finished","id":"m1-1"}"#);
        assert_eq!(serde_json::from_str::<InputRef>(&text).unwrap(), input);
        let timer = InputRef { kind: InputKind::Timer, id: CommandId::new("7").unwrap() };
        let text = serde_json::to_string(&timer).unwrap();
        assert_eq!(text, r#"{"kind":"timer","id":"7"}"#);
        assert_eq!(serde_json::from_str::<InputRef>(&text).unwrap(), timer);
    }

    #[test]
    fn reply_with_a_pseudo_call_viewers_get_its_other_calls() {
        let text = r#"{"type":"message.ai_full_received","data":{"call":"m1-1","turn":1,"step":1,"text":"Hi",
            "tool_calls":[{"id":"c1-1-1","type":"function","function":{"name":"continuation","arguments":"{}"}},
            {"id":"c1-1-2","type":"function","function":{"name":"look","arguments":"{}"}}],"finish_reason":"tool_calls"}}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        let calls = |data: &Json| -> Vec<String> {
            let reply: AiFullReceived = serde_json::from_str(data.get()).unwrap();
            reply.tool_calls.into_iter().map(|call| call.function.name).collect()
        };
        assert_eq!(calls(&event.data()), ["continuation", "look"]);
        assert_eq!(calls(&event.public_data()), ["look"]);
    }

    #[test]
    fn raw_arguments_survive_the_tagging() {
        let event = Event::ToolCallIdentified(ToolCallIdentified {
            call: CallId::tool(1, 1, 1),
            tool: ToolName::new("t").unwrap(),
            arguments: Json::parse("{\"a\": 1.50}").unwrap(),
            effect: EffectClass::Pure,
            approval: Approval::Never,
            timeout_ms: 1,
            max_output: 1,
        });
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains("\"arguments\":{\"a\": 1.50}"), "{text}");
        let back: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
