//! A session: messages, turns, events and what a program may do with it.

use std::fmt;
use std::sync::Arc;

use proto::{CommandReply, ControlRequest, GetHistoryRequest, GetTranscriptRequest, PendingGate, SessionSummary};
use serde_json::Value;

use crate::connection::SessionsApi;
use crate::error::ClientError;
use crate::event::GateRequest;
use crate::event_stream::EventStream;
use crate::gate::{GateDecision, GateRef};
use crate::local_tool::LocalTool;
use crate::message::{MessageRequest, SendMode};
use crate::responder::Handlers;
use crate::session_context::{SessionContext, new_key};
use crate::transcript::SessionTranscript;
use crate::turn::TurnRequest;
use crate::watch::Watch;

/// A session of a fleet. Clones are the same session.
///
/// Every command has its idempotency key before it is first sent, and is repeated with the same key while that can help:
/// it takes effect once.
#[derive(Clone)]
pub struct AgentSession {
    context: Arc<SessionContext>,
    handlers: Handlers,
}

impl AgentSession {
    pub(crate) fn new(context: SessionContext, handlers: Handlers) -> Self {
        Self { context: Arc::new(context), handlers }
    }

    /// The id of the session.
    pub fn id(&self) -> &str {
        &self.context.id
    }

    /// Adds a function for a tool with which the session was started.
    #[must_use]
    pub fn with_tool(mut self, tool: LocalTool) -> Self {
        self.handlers.tools.push(tool);
        self
    }

    /// Decides about each gate that opens while a turn is followed; `None` leaves the gate open.
    #[must_use]
    pub fn on_gate<F, Fut>(mut self, decide: F) -> Self
    where
        F: Fn(GateRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<GateDecision>> + Send + 'static,
    {
        self.handlers.set_gate_handler(decide);
        self
    }

    /// Sends a message and follows its turn: await it for the result, or [`TurnRequest::follow`] it for the text. Calls of
    /// local tools are performed meanwhile.
    pub fn turn(&self, text: impl Into<String>) -> TurnRequest {
        TurnRequest::new(self.context.clone(), self.handlers.clone(), Some(text.into()))
    }

    /// Follows the turn of the prompt with which the session was started, else the turn that runs, else the last one.
    pub fn current_turn(&self) -> TurnRequest {
        TurnRequest::new(self.context.clone(), self.handlers.clone(), None)
    }

    /// Sends a message that begins a turn of its own, and does not wait for the turn.
    pub fn send(&self, text: impl Into<String>) -> MessageRequest {
        MessageRequest::new(self.context.clone(), text.into(), SendMode::Queue)
    }

    /// Sends a message that the model reads in the turn that runs.
    pub fn steer(&self, text: impl Into<String>) -> MessageRequest {
        MessageRequest::new(self.context.clone(), text.into(), SendMode::Steer)
    }

    /// The events from a `seq` on (1: all), live, until the session ends. `SessionEvent::seq` of the last event plus one is
    /// where another program goes on.
    pub fn events(&self, from_seq: u64) -> EventStream {
        self.context.events(from_seq, true)
    }

    /// As [`AgentSession::events`], without the chunks of replies.
    pub fn events_without_chunks(&self, from_seq: u64) -> EventStream {
        self.context.events(from_seq, false)
    }

    /// As [`AgentSession::events`], as messages of the API, and with the times in which the fleet cannot be reached.
    pub fn watch(&self, from_seq: u64, with_chunks: bool) -> Watch {
        self.context.watch(from_seq, with_chunks)
    }

    /// The summary: phase, agent, model, what was spent, and what waits.
    pub async fn get(&self) -> Result<SessionSummary, ClientError> {
        self.context.get().await
    }

    /// Returns the transcript as people read it, turn by turn: at most `limit` turns (0: 100, at most 1,000) after the
    /// turn `after` (0: from the beginning).
    pub async fn transcript(&self, after: u32, limit: u32) -> Result<SessionTranscript, ClientError> {
        let request =
            GetTranscriptRequest { session_id: self.context.id.clone(), after: Some(after), limit: Some(limit) };
        self.context.connection.call(request, SessionsApi::get_transcript).await?.try_into()
    }

    /// The messages as the model sees them: JSON objects with the roles system, user, assistant and tool.
    pub async fn history(&self) -> Result<Vec<Value>, ClientError> {
        let request = GetHistoryRequest { session_id: self.context.id.clone() };
        let reply = self.context.connection.call(request, SessionsApi::get_history).await?;
        let messages = reply.messages_json.iter().map(|message| serde_json::from_str(message));
        messages
            .collect::<Result<_, _>>()
            .map_err(|error| ClientError::internal(format!("the history cannot be read: {error}")))
    }

    /// Opens no new call until the session is resumed; calls in flight finish.
    pub async fn pause(&self, reason: &str) -> Result<CommandReply, ClientError> {
        self.context.connection.call(self.control(reason), SessionsApi::pause_session).await
    }

    /// Goes on after a pause.
    pub async fn resume(&self, reason: &str) -> Result<CommandReply, ClientError> {
        self.context.connection.call(self.control(reason), SessionsApi::resume_session).await
    }

    /// Cancels the turn that runs. The session stays open, and messages that wait begin the next turn.
    pub async fn cancel_turn(&self, reason: &str) -> Result<CommandReply, ClientError> {
        self.context.connection.call(self.control(reason), SessionsApi::cancel_turn).await
    }

    /// Cancels open calls, and ends the session.
    pub async fn stop(&self, reason: &str) -> Result<CommandReply, ClientError> {
        self.context.connection.call(self.control(reason), SessionsApi::stop_session).await
    }

    /// The gates that wait for a person.
    pub async fn gates(&self) -> Result<Vec<PendingGate>, ClientError> {
        self.context.gates().await
    }

    /// Answers a gate of [`AgentSession::gates`] or of an event. An answer to other arguments than those of the gate is
    /// refused.
    pub async fn answer(&self, gate: impl Into<GateRef>, decision: GateDecision) -> Result<CommandReply, ClientError> {
        self.context.answer(gate.into(), decision).await
    }

    /// Approves the call of a gate.
    pub async fn approve(&self, gate: impl Into<GateRef>) -> Result<CommandReply, ClientError> {
        self.answer(gate, GateDecision::approve()).await
    }

    /// Denies the call of a gate. The model reads the reason.
    pub async fn deny(&self, gate: impl Into<GateRef>, reason: &str) -> Result<CommandReply, ClientError> {
        self.answer(gate, GateDecision::deny().note(reason)).await
    }

    /// Answers a call of a tool of a client, of `client_calls` of [`AgentSession::get`] or of an event: what the model
    /// reads, at most 1 MiB, as a result or as an error. The first answer counts.
    pub async fn answer_call(&self, call: &str, answer: Result<String, String>) -> Result<CommandReply, ClientError> {
        self.context.answer_call(call, answer).await
    }

    fn control<R: ControlRequest>(&self, reason: &str) -> R {
        R::of(&self.context.id, Some(new_key()), reason)
    }
}

impl fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSession").field("id", &self.context.id).finish_non_exhaustive()
    }
}
