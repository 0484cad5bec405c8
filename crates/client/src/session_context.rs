//! The calls of one session, and where its next turn begins to read.

use std::sync::{Arc, Mutex, PoisonError};

use proto::{
    AnswerGateRequest, AnswerToolCallRequest, CommandReply, GetSessionRequest, ListGatesRequest, PendingGate,
    SendMessageRequest, SessionSummary,
};

use crate::call_claims::CallClaims;
use crate::connection::{EdgeConnection, SessionsApi};
use crate::error::ClientError;
use crate::event_stream::EventStream;
use crate::gate::{GateDecision, GateRef};
use crate::local_tool::CallAnswer;
use crate::watch::Watch;

/// One session of a fleet.
#[derive(Debug)]
pub(crate) struct SessionContext {
    pub(crate) connection: EdgeConnection,
    pub(crate) id: String,
    pub(crate) claims: Arc<CallClaims>,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The last `seq` that this program has read; none for a session that others have used.
    seq: Option<u64>,
    /// The message of the prompt with which the session was started, until its turn is followed.
    first_message: Option<FirstMessage>,
    /// Turns that were begun and not followed to their end.
    open_turns: u32,
}

/// The message with which a session was started, and its turn if it has begun.
#[derive(Debug)]
pub(crate) struct FirstMessage {
    pub(crate) id: String,
    pub(crate) turn: Option<u32>,
}

impl SessionContext {
    /// A session that exists.
    pub(crate) fn existing(connection: EdgeConnection, id: String) -> Self {
        Self { connection, id, claims: Arc::default(), progress: Mutex::default() }
    }

    /// A session that was just started with a prompt.
    pub(crate) fn started(
        connection: EdgeConnection,
        id: String,
        first_message: Option<FirstMessage>,
        is_new: bool,
    ) -> Self {
        let progress = Progress { seq: is_new.then_some(0), first_message, open_turns: 0 };
        Self { connection, id, claims: Arc::default(), progress: Mutex::new(progress) }
    }

    pub(crate) fn watch(&self, from_seq: u64, with_chunks: bool) -> Watch {
        Watch::new(self.connection.clone(), self.id.clone(), from_seq, with_chunks)
    }

    pub(crate) fn events(&self, from_seq: u64, with_chunks: bool) -> EventStream {
        EventStream::new(self.id.clone(), self.watch(from_seq, with_chunks))
    }

    /// Returns the last `seq` that was read; none for a session that others have used.
    pub(crate) fn seq(&self) -> Option<u64> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).seq
    }

    /// Counts a turn that begins. Returns whether others were begun and not followed to their end, so that the events from
    /// here on have calls of theirs.
    pub(crate) fn begin_turn(&self) -> bool {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.open_turns += 1;
        progress.open_turns > 1
    }

    /// Remembers where the next turn begins to read, at the end of a turn.
    pub(crate) fn end_turn(&self, seq: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.open_turns = progress.open_turns.saturating_sub(1);
        progress.seq = progress.seq.max(Some(seq));
    }

    pub(crate) fn take_first_message(&self) -> Option<FirstMessage> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).first_message.take()
    }

    /// Sends a message; by its `command_id` it is handled once.
    pub(crate) async fn send(&self, request: SendMessageRequest) -> Result<CommandReply, ClientError> {
        self.connection.call(request, SessionsApi::send_message).await
    }

    pub(crate) async fn get(&self) -> Result<SessionSummary, ClientError> {
        let request = GetSessionRequest { session_id: self.id.clone() };
        self.connection.call(request, SessionsApi::get_session).await
    }

    pub(crate) async fn gates(&self) -> Result<Vec<PendingGate>, ClientError> {
        let request = ListGatesRequest { session_id: Some(self.id.clone()), limit: None };
        let gates = self.connection.call(request, SessionsApi::list_gates);
        Ok(gates.await?.gates)
    }

    pub(crate) async fn answer(&self, gate: GateRef, decision: GateDecision) -> Result<CommandReply, ClientError> {
        let request = AnswerGateRequest {
            session_id: self.id.clone(),
            command_id: Some(new_key()),
            gate: gate.gate,
            arguments_sha256: gate.arguments_sha256,
            decision: decision.decision.to_owned(),
            note: decision.note,
            wait: None,
            arguments_json: decision.arguments.map(|arguments| arguments.to_string()),
            content: decision.content,
        };
        self.connection.call(request, SessionsApi::answer_gate).await
    }

    /// Answers a call of a client tool. The id of the call is the key of the command: an answer counts once.
    pub(crate) async fn answer_call(&self, call: &str, answer: CallAnswer) -> Result<CommandReply, ClientError> {
        let (outcome, content) = match answer {
            Ok(content) => ("ok", content),
            Err(content) => ("error", content),
        };
        let request = AnswerToolCallRequest {
            session_id: self.id.clone(),
            command_id: Some(call.to_owned()),
            call: call.to_owned(),
            outcome: outcome.to_owned(),
            content,
            wait: None,
        };
        self.connection.call(request, SessionsApi::answer_tool_call).await
    }
}

/// Makes the idempotency key of a command, before it is first sent.
pub(crate) fn new_key() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
