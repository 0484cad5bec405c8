//! Updates of a session, as the client reads them in `session/update`.

use contract::model::{Content, Part};
use serde::Serialize;
use serde_json::Value;

/// An update of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum SessionUpdate {
    UserMessageChunk { content: Block, message_id: String },
    AgentMessageChunk { content: Block, message_id: String },
    AgentThoughtChunk { content: Block, message_id: String },
    ToolCall(ToolCallFields),
    ToolCallUpdate(ToolCallFields),
    Plan { entries: Vec<PlanEntry> },
    ConfigOptionUpdate { config_options: Value },
    SessionInfoUpdate { title: String },
    UsageUpdate { used: u64, size: u64, cost: Cost },
}

/// A block of content.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Block {
    Text { text: String },
    Image { data: String, mime_type: String },
    ResourceLink { name: String, uri: String },
}

impl Block {
    /// Makes a block of text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A tool call, or what changed of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCallFields {
    pub(super) tool_call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<CallStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Vec<CallContent>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_output: Option<Value>,
}

/// Kind of a tool; an editor chooses its icon by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    Other,
}

/// Status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

/// Content that a call produced.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CallContent {
    Content { content: Block },
}

impl CallContent {
    /// Makes the content of a call that is one text.
    pub(super) fn text(text: impl Into<String>) -> Vec<Self> {
        vec![Self::Content { content: Block::text(text) }]
    }
}

/// A step of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PlanEntry {
    pub(super) content: String,
    pub(super) priority: &'static str,
    pub(super) status: &'static str,
}

/// Cost of the session so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cost {
    pub(super) amount: f64,
    pub(super) currency: &'static str,
}

/// Converts a user message to blocks.
pub(super) fn blocks_of(content: &Content) -> Vec<Block> {
    match content {
        Content::Text(text) => vec![Block::text(text)],
        Content::Parts(parts) => parts.iter().map(block_of).collect(),
    }
}

fn block_of(part: &Part) -> Block {
    match part {
        Part::Text { text } => Block::text(text),
        Part::ImageUrl { image_url } => {
            let url = &image_url.url;
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            match inline {
                Some((mime_type, data)) => Block::Image { data: data.to_owned(), mime_type: mime_type.to_owned() },
                None => Block::ResourceLink { name: "image".to_owned(), uri: url.clone() },
            }
        }
    }
}
