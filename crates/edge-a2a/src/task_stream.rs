//! A task as it goes on: its state first, then the changes, until it is at rest.

use axum::response::Response;
use axum::response::sse::Event;
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::sse;
use edge_core::turn::TurnStream;
use serde_json::{Value, json};

use super::errors::A2aError;
use super::json_rpc_response::{failure, success};
use super::loaded_task::LoadedTask;
use super::task::{AgentTask, TaskUpdate};

/// A task that is followed.
#[derive(Debug)]
pub(super) struct TaskStream {
    task: AgentTask,
    /// `None` once nothing more is expected.
    turn: Option<TurnStream>,
}

impl TaskStream {
    /// Follows a task. `waits` says whether one that waits for an answer is followed until somebody gives it.
    pub(super) async fn open(
        api: &SessionApi,
        caller: &ApiCaller,
        loaded: LoadedTask,
        has_chunks: bool,
        waits: bool,
    ) -> Result<Self, ApiError> {
        let phase = loaded.task.phase();
        let is_over = if waits { phase.is_final() } else { phase.is_at_rest() };
        let turn =
            if is_over { None } else { Some(TurnStream::open(api, caller, &loaded.to_turn(), has_chunks).await?) };
        Ok(Self { task: loaded.task, turn })
    }

    /// Waits for the next changes; `None` at the end.
    async fn next(&mut self) -> Option<Result<Vec<TaskUpdate>, ApiError>> {
        let turn = self.turn.as_mut()?;
        let part = match turn.next().await {
            Ok(part) => part,
            Err(error) => {
                self.turn = None;
                return Some(Err(error));
            }
        };
        let updates = self.task.push(part, turn.time());
        if updates.contains(&TaskUpdate::Status) && self.task.phase().is_at_rest() {
            self.turn = None;
        }
        Some(Ok(updates))
    }

    /// Waits until the task is at rest.
    pub(super) async fn wait(mut self) -> Result<AgentTask, ApiError> {
        while let Some(updates) = self.next().await {
            updates?;
        }
        Ok(self.task)
    }

    /// Sends the task and its changes as server-sent events, each in the frame of its binding.
    pub(super) fn into_response(self, history: Option<usize>, frame: StreamFrame) -> Response {
        let first = frame.event(json!({"task": self.task.to_json(history, true)}));
        sse::unfold(vec![first], (self, frame), async |(mut stream, frame)| {
            let events = match stream.next().await? {
                Ok(updates) => updates.iter().map(|update| frame.event(stream.task.update_to_json(update))).collect(),
                Err(error) => vec![frame.failure(&error.into())],
            };
            Some((events, (stream, frame)))
        })
    }
}

/// Wrapper of the body of an event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StreamFrame {
    /// A whole response of JSON-RPC with the id of the request.
    JsonRpc(Value),
    Bare,
}

impl StreamFrame {
    fn event(&self, body: Value) -> Event {
        let body = match self {
            Self::JsonRpc(id) => success(id, &body),
            Self::Bare => body,
        };
        Event::default().data(body.to_string())
    }

    fn failure(&self, fault: &A2aError) -> Event {
        match self {
            Self::JsonRpc(id) => Event::default().data(failure(id, fault).to_string()),
            Self::Bare => Event::default().event("error").data(fault.to_body().to_string()),
        }
    }
}
