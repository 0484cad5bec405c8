//! Messages of the user.

use std::future::IntoFuture;
use std::sync::Arc;

use futures::future::BoxFuture;
use proto::{CommandReply, Content, SendMessageRequest};

use crate::error::ClientError;
use crate::session_context::{SessionContext, new_key};

/// Effect of a message on a running turn. In an idle session, each mode begins a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SendMode {
    /// It begins a turn of its own, after those that wait.
    #[default]
    Queue,
    /// The model reads it in the turn that runs, at its next step.
    Steer,
    /// It stops the model call of the turn that runs, and the model reads it at once.
    Interrupt,
}

impl SendMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Steer => "steer",
            Self::Interrupt => "interrupt",
        }
    }
}

/// A message that is sent when this is awaited, without waiting for its turn.
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct MessageRequest {
    context: Arc<SessionContext>,
    pub(crate) request: SendMessageRequest,
}

impl MessageRequest {
    pub(crate) fn new(context: Arc<SessionContext>, text: String, mode: SendMode) -> Self {
        let request = SendMessageRequest {
            session_id: context.id.clone(),
            command_id: Some(new_key()),
            content: Some(text.into()),
            mode: Some(mode.as_str().to_owned()),
            ..SendMessageRequest::default()
        };
        Self { context, request }
    }

    /// Sets the effect of the message on a running turn.
    pub fn mode(mut self, mode: SendMode) -> Self {
        self.request.mode = Some(mode.as_str().to_owned());
        self
    }

    /// The content of a message that has images, in place of its text.
    pub fn content(mut self, content: impl Into<Content>) -> Self {
        self.request.content = Some(content.into());
        self
    }

    /// A key of your own, 1 to 64 of `A-Z a-z 0-9 _ -`: messages with the same key are one message.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.request.command_id = Some(key.into());
        self
    }
}

impl IntoFuture for MessageRequest {
    type Output = Result<CommandReply, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.context.send(self.request).await })
    }
}
