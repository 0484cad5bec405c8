//! Events: what happened. Once written, an event is a promise for ever: it is only ever added to.
//!
//! Events with a [`Topic`] are public: they get a `seq` and go to viewers. The others are the loop's own bookkeeping.

mod context;
mod gate;
mod input;
mod model;
mod session;
mod tool;
mod turn;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, TenantId};
use crate::timestamp::Timestamp;
use crate::words::words;
use crate::{ErrorCode, Json};

pub use crate::spent::Spent;
pub use context::{ContextCleared, ContextPruned};
pub use gate::{GateClosed, GateKind, GateOpened};
pub use input::{InputHandled, InputIgnored, InputKind, InputRef, UserProcessed};
pub use model::{
    AiCutReceived, AiFullReceived, CallCancelled, JudgeOpened, ModelCallFailed, ModelCallInterrupted, ModelCallOpened,
    ModelFellBack, SummaryOpened,
};
pub use session::{
    ChildCommanded, Configured, EndReason, LogCompacted, Requests, SessionArchived, SessionEnded, SessionImported,
    SessionMoved, SessionStarted, SystemPrompt,
};
pub use tool::{
    Child, ClientCallOpened, ToolCallExtended, ToolCallIdentified, ToolCallOpened, ToolCallProgress, ToolCallResult,
};
pub use turn::{
    ContinuationProgress, DecisionSource, LimitReached, Progress, StatusChanged, StopKind, StopReason, ToolsResolved,
    TurnCompleted, TurnStarted,
};

words! {
    /// A public topic: one or two tokens of a subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Topic {
        /// The session started: its settings and prompt.
        SessionStarted = "session_started",
        /// The session ended; only the text of a reply that was cut off may follow.
        SessionEnded = "session_ended",
        /// A user message was accepted.
        UserProcessed = "message.user_processed",
        /// A piece of a reply; never logged.
        AiChunkReceived = "message.ai_chunk_received",
        /// The complete reply of a model.
        AiFullReceived = "message.ai_full_received",
        /// The text of a reply that was cut off; also after the end of its turn and of its session.
        AiCutReceived = "message.ai_cut_received",
        /// A piece of a tool call's arguments; never logged.
        ToolCallPartial = "tool_call.partial",
        /// A complete tool call.
        ToolCallIdentified = "tool_call.identified",
        /// A call waits for the answer of a client.
        ToolCallWaiting = "tool_call.waiting",
        /// A tool says how far it is; never logged.
        ToolCallProgress = "tool_call.progress",
        /// The one result of a tool call.
        ToolCallResult = "tool_call.result_processed",
        /// No new call opens.
        StatusPaused = "status.paused",
        /// Calls may open again after a pause.
        StatusResumed = "status.resumed",
        /// A reply was decided about.
        ContinuationProgress = "continuation.progress",
        /// A turn started, with the messages that it reads first.
        TurnStarted = "turn.started",
        /// A turn ended, with its stop reason.
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
        /// An error that people should see.
        Error = "error",
    }

    /// Its tokens in a subject, which are its JSON-RPC method too.
    fn as_str;
}

/// The table of events: name and payload, the tag in a commit, and the topic of those that viewers get.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($data:ty) = $tag:literal $(, public as $topic:ident)?;)*) => {
        /// A fact that is committed to the log.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "type", content = "data")]
        pub enum Event {
            $($(#[$doc])* #[serde(rename = $tag)] $name($data),)*
            /// An event of a newer version. An observer passes over it; a writer that meets one must not decide (I8).
            #[serde(rename = "unknown")]
            Unknown,
        }

        impl Event {
            /// Its type, as in a commit.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $tag,)*
                    Self::Unknown => "unknown",
                }
            }

            /// Its own fields, without the tag.
            pub fn data(&self) -> Json {
                self.try_data().unwrap_or_default()
            }

            /// As [`Event::data`]; an error where the fields cannot be JSON.
            pub fn try_data(&self) -> Result<Json, serde_json::Error> {
                match self {
                    $(Self::$name(data) => Json::try_of(data),)*
                    Self::Unknown => Ok(Json::default()),
                }
            }

            /// Its public topic; none for bookkeeping.
            pub fn topic(&self) -> Option<Topic> {
                match self {
                    $(Self::$name(_) => events!(@topic $($topic)?),)*
                    Self::Unknown => None,
                }
            }
        }
    };
    (@topic) => { None };
    (@topic $topic:ident) => { Some(Topic::$topic) };
}

events! {
    /// An input was handled; first of the events that it brought.
    InputHandled(InputHandled) = "input_handled";
    /// An input changed nothing.
    InputIgnored(InputIgnored) = "input_ignored";
    /// The session started: its settings and prompt.
    SessionStarted(Box<SessionStarted>) = "session_started", public as SessionStarted;
    /// The session ended; only archiving and the text of a reply that was cut off may follow.
    SessionEnded(SessionEnded) = "session_ended", public as SessionEnded;
    /// A user message was accepted.
    UserProcessed(UserProcessed) = "message.user_processed", public as UserProcessed;
    /// A turn started with the messages that waited.
    TurnStarted(TurnStarted) = "turn.started", public as TurnStarted;
    /// The same in logs of folds below 15, where viewers did not get it.
    PrivateTurnStarted(TurnStarted) = "turn_started";
    /// The session's tools changed.
    ToolsResolved(ToolsResolved) = "tools_resolved";
    /// A model call was opened, or opened again with a new attempt.
    ModelCallOpened(ModelCallOpened) = "model_call_opened";
    /// An attempt of a model call failed; another one follows at `retry_at`.
    ModelCallFailed(ModelCallFailed) = "model_call_failed";
    /// A call in flight is no longer wanted.
    CallCancelled(CallCancelled) = "call_cancelled";
    /// A user message interrupts: the open model call is cancelled and its partial text awaited.
    ModelCallInterrupted(ModelCallInterrupted) = "model_call_interrupted";
    /// The complete reply of a model.
    AiFullReceived(Box<AiFullReceived>) = "message.ai_full_received", public as AiFullReceived;
    /// The text of a reply that was cut off.
    AiCutReceived(AiCutReceived) = "message.ai_cut_received", public as AiCutReceived;
    /// A complete tool call.
    ToolCallIdentified(ToolCallIdentified) = "tool_call.identified", public as ToolCallIdentified;
    /// A tool call went to the executors.
    ToolCallOpened(ToolCallOpened) = "tool_call_opened";
    /// A tool call waits for the answer of a client.
    ClientCallOpened(ClientCallOpened) = "tool_call.waiting", public as ToolCallWaiting;
    /// A tool call that shows progress may take longer.
    ToolCallExtended(ToolCallExtended) = "tool_call_extended";
    /// The one result of a tool call.
    ToolCallResult(ToolCallResult) = "tool_call.result_processed", public as ToolCallResult;
    /// No new call opens.
    StatusPaused(StatusChanged) = "status.paused", public as StatusPaused;
    /// Calls may open again after a pause.
    StatusResumed(StatusChanged) = "status.resumed", public as StatusResumed;
    /// A reply was decided about.
    ContinuationProgress(Box<ContinuationProgress>) = "continuation.progress", public as ContinuationProgress;
    /// A turn ended, with its stop reason.
    TurnCompleted(TurnCompleted) = "turn.completed", public as TurnCompleted;
    /// A person is asked.
    GateOpened(GateOpened) = "gate.opened", public as GateOpened;
    /// A person answered, or nobody did in time.
    GateClosed(GateClosed) = "gate.closed", public as GateClosed;
    /// Settings of a running session were changed.
    Configured(Box<Configured>) = "status.configured", public as Configured;
    /// The model's next fallback took over.
    ModelFellBack(ModelFellBack) = "model_fell_back";
    /// The turn is at a limit: one last step without tools follows, whose text is the turn's last word for the user.
    LimitReached(LimitReached) = "limit_reached";
    /// The model is asked to sum the oldest turns up; the answer is `context.pruned`.
    SummaryOpened(SummaryOpened) = "summary_opened";
    /// A judge is asked whether the turn goes on; its verdict is a `continuation.progress`.
    JudgeOpened(JudgeOpened) = "judge_opened";
    /// The transcript was cut to the model's window.
    ContextPruned(ContextPruned) = "context.pruned", public as ContextPruned;
    /// A child session is commanded to pause, resume or stop.
    ChildCommanded(ChildCommanded) = "child_told";
    /// The transcript was cleared.
    ContextCleared(ContextCleared) = "context.cleared", public as ContextCleared;
    /// The session's one timer was set.
    TimerSet(TimerSet) = "timer_set";
    /// All earlier commits left the log; of an ended session only the data that readers need is left.
    SessionArchived(SessionArchived) = "session_archived";
    /// The session came here from a file; all that was before is in the archive.
    SessionImported(SessionImported) = "session_imported";
    /// The session was idle for a while: its log begins with this commit, and all that was before is in the archive.
    LogCompacted(LogCompacted) = "log_compacted";
    /// Another cell has the session: this one decides nothing more for it and refuses its inputs.
    SessionMoved(SessionMoved) = "session_moved";
    /// An error that people should see.
    Error(ErrorEvent) = "error", public as Error;
}

impl Event {
    /// Whether a log begins with the commit of this event, with a snapshot that needs no commit before it.
    pub fn begins_log(&self) -> bool {
        matches!(self, Self::SessionImported(_) | Self::LogCompacted(_))
    }

    /// The turn that this event starts, in a log of any fold.
    pub fn turn_started(&self) -> Option<&TurnStarted> {
        let (Self::TurnStarted(started) | Self::PrivateTurnStarted(started)) = self else { return None };
        Some(started)
    }

    /// The input that this event closes: it was handled, or ignored.
    pub fn closed_input(&self) -> Option<&InputRef> {
        let (Self::InputHandled(InputHandled { input, .. }) | Self::InputIgnored(InputIgnored { input, .. })) = self
        else {
            return None;
        };
        Some(input)
    }
}

/// Reads events one by one; those of a newer version become [`Event::Unknown`]. `is_newer`: a newer fold wrote them,
/// and what cannot be read is news.
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
    /// Its own fields, as viewers get them. The log keeps the call that only signals, since transcripts are built from
    /// it; viewers would take it for a call that never gets a result.
    /// `text` is that of [`Event::data`], where it is known.
    pub fn public_data(&self, text: Option<&Json>) -> Json {
        if let Self::AiFullReceived(reply) = self
            && reply.tool_calls.iter().any(crate::model::ToolCall::is_signal)
        {
            let mut reply = reply.clone();
            reply.tool_calls.retain(|call| !call.is_signal());
            return Json::of(&reply);
        }
        text.cloned().unwrap_or_else(|| self.data())
    }
}

/// A public event as viewers receive it. Chunks have no `seq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// `<session>-<slot>-<position>`; the same event always has the same id.
    pub id: String,
    /// Id of the session that published it.
    pub session_id: SessionId,
    /// Tenant that owns the session.
    pub tenant: TenantId,
    /// One counter per session, from 1, without holes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Time of the decision.
    pub time: Timestamp,
    /// The turn's trace, 32 hex digits; empty where nothing is traced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// The event's own fields.
    pub data: Json,
}

/// The session's one timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerSet {
    /// Counts the settings of this session.
    pub number: u64,
    /// Due time of the timer.
    pub at: Timestamp,
}

/// An error that people should see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorEvent {
    /// Stable error code; see [`ErrorCode`].
    pub code: ErrorCode,
    /// Explanation for people: what failed, and what to do.
    pub message: String,
    /// Whether the same may succeed later.
    pub retryable: bool,
    /// Operation during which the error occurred.
    pub during: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_tool::Performer;
    use crate::command::Verb;
    use crate::ids::{CallId, CommandId, ToolName};
    use crate::tool::{ApprovalPolicy, EffectClass};

    #[test]
    fn input_reference_serialises_kind_and_id() {
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
        assert_eq!(calls(&event.public_data(None)), ["look"]);
        assert_eq!(calls(&event.public_data(Some(&event.data()))), ["look"]);
    }

    #[test]
    fn event_with_raw_arguments_is_read_back_unchanged() {
        let event = Event::ToolCallIdentified(ToolCallIdentified {
            call: CallId::tool(1, 1, 1),
            tool: ToolName::new("t").unwrap(),
            arguments: Json::parse("{\"a\": 1.50}").unwrap(),
            effect: EffectClass::Pure,
            approval: ApprovalPolicy::Never,
            timeout_ms: 1,
            max_output: 1,
            performer: Performer::Fleet,
        });
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains("\"arguments\":{\"a\": 1.50}"), "{text}");
        let back: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
