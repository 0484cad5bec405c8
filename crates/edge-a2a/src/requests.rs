//! Requests of clients in `ProtoJSON`: a field has its name in JSON or in the proto file. Unknown fields are ignored,
//! since newer minor versions may send some.

use contract::{ErrorCode, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::errors::{A2aError, A2aErrorKind};
use super::task_id::TaskId;

/// Parameters of `SendMessage` and `SendStreamingMessage`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendParams {
    pub(super) message: UserMessage,
    pub(super) configuration: Option<SendConfiguration>,
}

/// A message of the user, as it comes.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UserMessage {
    #[serde(alias = "message_id")]
    pub(super) message_id: Option<String>,
    #[serde(alias = "context_id")]
    pub(super) context_id: Option<String>,
    #[serde(alias = "task_id")]
    pub(super) task_id: Option<String>,
    pub(super) role: Option<String>,
    #[serde(default)]
    pub(super) parts: Vec<MessagePart>,
}

/// A part of a message: one of its contents is there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessagePart {
    pub(super) text: Option<String>,
    /// Bytes of a file, in base64.
    pub(super) raw: Option<String>,
    pub(super) url: Option<String>,
    pub(super) data: Option<Value>,
    #[serde(alias = "media_type")]
    pub(super) media_type: Option<String>,
}

/// Options for the answer to a message.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendConfiguration {
    #[serde(alias = "accepted_output_modes")]
    pub(super) accepted_output_modes: Option<Vec<String>>,
    #[serde(alias = "task_push_notification_config")]
    pub(super) task_push_notification_config: Option<Value>,
    #[serde(alias = "history_length")]
    pub(super) history_length: Option<i64>,
    #[serde(alias = "return_immediately")]
    pub(super) return_immediately: Option<bool>,
}

/// Parameters of the methods for one task.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskParams {
    pub(super) id: Option<String>,
    #[serde(alias = "history_length")]
    pub(super) history_length: Option<i64>,
}

impl TaskParams {
    pub(super) fn task_id(&self) -> Result<TaskId, A2aError> {
        match self.id.as_deref().unwrap_or_default() {
            "" => Err(A2aError::invalid("`id` is missing: it names the task")),
            id => parse_task_id(id),
        }
    }
}

/// Filters and page of `ListTasks`, all of them optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListTasksParams {
    #[serde(alias = "context_id")]
    pub(super) context_id: Option<String>,
    pub(super) status: Option<String>,
    #[serde(alias = "page_size")]
    pub(super) page_size: Option<i64>,
    #[serde(alias = "page_token")]
    pub(super) page_token: Option<String>,
    #[serde(alias = "history_length")]
    pub(super) history_length: Option<i64>,
    #[serde(alias = "status_timestamp_after")]
    pub(super) status_timestamp_after: Option<Timestamp>,
    #[serde(alias = "include_artifacts")]
    pub(super) include_artifacts: Option<bool>,
}

/// Parses the id of a task. What has not its form is no task of this server.
pub(super) fn parse_task_id(id: &str) -> Result<TaskId, A2aError> {
    id.parse().map_err(|()| {
        let id: String = id.chars().take(120).collect();
        A2aError::new(A2aErrorKind::TaskNotFound, ErrorCode::UnknownSession, format!("there is no task {id:?}"))
    })
}

/// Checks the number of messages of the history that a client wants.
pub(super) fn parse_history_length(length: Option<i64>) -> Result<Option<usize>, A2aError> {
    let parsed = length.map(usize::try_from).transpose();
    parsed.map_err(|_| A2aError::invalid("`historyLength` must not be negative"))
}
