//! Events of AG-UI as they stand in the data of server-sent events. Optional fields are left out and never null.

use contract::{ErrorCode, Json};
use serde::Serialize;

use super::interrupt::Interrupt;

/// Version of the protocol that the events follow.
pub(super) const PROTOCOL_VERSION: &str = "1.0";
/// Role of the author of text and calls.
pub(super) const ASSISTANT: &str = "assistant";
/// Role of messages with reasoning.
pub(super) const REASONING: &str = "reasoning";
/// Role of the author of call results.
pub(super) const TOOL: &str = "tool";

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub(super) enum UiEvent {
    RunStarted {
        thread_id: String,
        run_id: String,
        /// Only for clients that name a version themselves.
        #[serde(skip_serializing_if = "Option::is_none")]
        protocol_version: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<String>,
    },
    RunFinished {
        thread_id: String,
        run_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<RunResult>,
        /// A run without one has succeeded.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<RunOutcome>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<ModelUsage>,
    },
    RunError {
        message: String,
        /// Stable code for programs.
        code: ErrorCode,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        usage: Vec<ModelUsage>,
    },
    StepStarted {
        step_name: String,
    },
    StepFinished {
        step_name: String,
    },
    TextMessageStart {
        message_id: String,
        role: &'static str,
    },
    TextMessageContent {
        message_id: String,
        delta: String,
    },
    TextMessageEnd {
        message_id: String,
    },
    ReasoningStart {
        message_id: String,
    },
    ReasoningMessageStart {
        message_id: String,
        role: &'static str,
    },
    ReasoningMessageContent {
        message_id: String,
        delta: String,
    },
    ReasoningMessageEnd {
        message_id: String,
    },
    ReasoningEnd {
        message_id: String,
    },
    ToolCallStart {
        tool_call_id: String,
        tool_call_name: String,
        parent_message_id: String,
    },
    ToolCallArgs {
        tool_call_id: String,
        delta: String,
    },
    ToolCallEnd {
        tool_call_id: String,
    },
    ToolCallResult {
        message_id: String,
        tool_call_id: String,
        content: String,
        role: &'static str,
    },
    StateSnapshot {
        snapshot: Json,
    },
    MessagesSnapshot {
        messages: Vec<Json>,
    },
    Custom {
        name: &'static str,
        value: serde_json::Value,
    },
}

/// Reason why a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum RunOutcome {
    /// The turn waits for calls that the client performs.
    Success { pending_tool_call_ids: Vec<String> },
    /// The turn waits for a person.
    Interrupt { interrupts: Vec<Interrupt> },
    /// The session was stopped.
    Cancelled,
}

/// The `result` of a run whose turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunResult {
    pub(super) session_id: String,
    pub(super) turn: u32,
    /// `completed`, or the limit that ended the turn.
    pub(super) stop_reason: &'static str,
}

/// Usage of the calls of one model in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelUsage {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) provider: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) model: String,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) total_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) cached_input_tokens: u64,
}
