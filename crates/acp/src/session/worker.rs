//! The worker of a session: what it knows, and how it shows something.

use std::pin::Pin;
use std::sync::Arc;

use contract::ErrorCode;
use contract::event::GateOpened;
use fleet_connection::stream::SessionStream;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::super::edge_link::EdgeLink;
use super::super::peer::{Peer, PeerAnswer};
use super::super::settings::{Catalogue, Choices};
use super::super::translate::Translator;
use super::super::update::{Block, SessionUpdate};
use super::super::wire::RpcError;

/// Follows one session for one editor.
pub(crate) struct SessionWorker {
    pub(super) session: String,
    pub(super) peer: Peer,
    pub(super) link: Arc<EdgeLink>,
    /// Whether the editor shows forms.
    pub(super) has_forms: bool,
    pub(super) catalogue: Catalogue,
    pub(super) choices: Choices,
    /// Notice that the person reads before the first answer.
    pub(super) notice: Option<String>,
    pub(super) phase: Phase,
    pub(super) translator: Translator,
    pub(super) stream: Option<SessionStream>,
    /// Number of the first event that was not seen.
    pub(super) next_seq: u64,
    pub(super) prompt: Option<PendingPrompt>,
    pub(super) load: Option<PendingLoad>,
    pub(super) asked: Vec<AskedGate>,
    pub(super) replies: FuturesUnordered<GateReplyFuture>,
    /// The question that the next prompt answers.
    pub(super) typed_gate: Option<GateOpened>,
}

/// State of the session in the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It begins with its first prompt.
    NotStarted,
    Open,
    Ended,
}

/// Whether the worker goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    GoesOn,
    Ends,
}

/// A prompt that is not answered.
#[derive(Debug)]
pub(super) struct PendingPrompt {
    pub(super) id: Value,
    /// The message of the prompt; empty if the prompt answers a question.
    pub(super) message_id: String,
    /// Whether the session has accepted the message, so that the next end of a turn is that of the prompt.
    pub(super) has_begun: bool,
}

/// A load that is not answered.
#[derive(Debug)]
pub(super) struct PendingLoad {
    pub(super) id: Value,
    /// Whether the editor sees the events.
    pub(super) is_shown: bool,
    /// Number of the last event that belongs to the past.
    pub(super) last_seq: u64,
}

/// An answer of the editor that has not come.
pub(super) type GateReplyFuture = Pin<Box<dyn Future<Output = GateReply> + Send + Sync>>;

/// A gate that the editor was asked about.
#[derive(Debug)]
pub(super) struct AskedGate {
    pub(super) gate: GateOpened,
    pub(super) request: u64,
}

/// The answer of the editor about a gate.
#[derive(Debug)]
pub(super) struct GateReply {
    pub(super) request: u64,
    /// None if the request was taken back.
    pub(super) answer: Option<PeerAnswer>,
}

impl SessionWorker {
    pub(crate) fn new(session: String, peer: Peer, link: Arc<EdgeLink>, has_forms: bool) -> Self {
        Self {
            session,
            peer,
            link,
            has_forms,
            catalogue: Catalogue::default(),
            choices: Choices::default(),
            notice: None,
            phase: Phase::NotStarted,
            translator: Translator::default(),
            stream: None,
            next_seq: 1,
            prompt: None,
            load: None,
            asked: Vec::new(),
            replies: FuturesUnordered::new(),
            typed_gate: None,
        }
    }

    /// Sets the catalogue, and the choices with which a new session begins.
    #[must_use]
    pub(crate) fn with_choices(self, catalogue: Catalogue, choices: Choices) -> Self {
        Self { catalogue, choices, ..self }
    }

    /// Sets the notice that the person reads before the first answer.
    #[must_use]
    pub(crate) fn with_notice(self, notice: Option<String>) -> Self {
        Self { notice, ..self }
    }

    pub(super) fn ended_error(&self) -> RpcError {
        let message = format!("the session {} has ended; begin another one", self.session);
        RpcError::new(ErrorCode::SessionEnded, message)
    }

    /// Sends an update, unless the session is taken up without being shown.
    pub(super) async fn show(&self, update: &SessionUpdate) {
        if self.load.as_ref().is_none_or(|load| load.is_shown) {
            self.peer.update(&self.session, update).await;
        }
    }

    pub(super) async fn show_text(&self, text: &str) {
        let message_id = format!("notice-{}", self.next_seq);
        self.show(&SessionUpdate::AgentMessageChunk { content: Block::text(text), message_id }).await;
    }

    pub(super) async fn show_thought(&self, text: &str) {
        let message_id = format!("notice-{}", self.next_seq);
        self.show(&SessionUpdate::AgentThoughtChunk { content: Block::text(text), message_id }).await;
    }
}
