//! One turn of a session: its text as it streams, and its result.

use std::collections::HashMap;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use proto::Content;

use crate::error::{ClientError, ErrorKind};
use crate::event::{EventContent, SessionEnd, SessionEvent, SessionFailure, TurnCost, TurnEnd, TurnStopReason};
use crate::event_stream::EventStream;
use crate::message::{MessageRequest, SendMode};
use crate::reply_text::TextOfReply;
use crate::responder::{Handlers, Responder};
use crate::session_context::{FirstMessage, SessionContext};

/// Result of a turn that ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TurnResult {
    /// Id of its session.
    pub session_id: String,
    /// Number of the turn, from 1; 0 if the session ended before the turn began.
    pub turn: u32,
    /// The answer for the user.
    pub text: String,
    /// Reason why the turn ended, such as a limit.
    pub stop_reason: TurnStopReason,
    /// Number of steps that it took.
    pub iterations: u32,
    /// Cost of the turn.
    pub cost: TurnCost,
}

impl TurnResult {
    /// Whether the model finished its work, and no limit cut the turn short.
    pub fn is_complete(&self) -> bool {
        self.stop_reason == TurnStopReason::Completed
    }
}

/// A turn that is not followed yet: await it for its result, or [`follow`](TurnRequest::follow) it for its text.
///
/// Nothing is sent before.
#[must_use = "nothing is sent until it is awaited or followed"]
pub struct TurnRequest {
    context: Arc<SessionContext>,
    handlers: Handlers,
    message: Option<MessageRequest>,
    /// Whether the message may have been sent before.
    may_be_repeated: bool,
}

impl TurnRequest {
    pub(crate) fn new(context: Arc<SessionContext>, handlers: Handlers, text: Option<String>) -> Self {
        let message = text.map(|text| MessageRequest::new(context.clone(), text, SendMode::Queue));
        Self { context, handlers, message, may_be_repeated: false }
    }

    /// Sets the effect of the message on a running turn; default [`SendMode::Queue`].
    pub fn mode(mut self, mode: SendMode) -> Self {
        self.message = self.message.map(|message| message.mode(mode));
        self
    }

    /// The content of a message that has images, in place of its text.
    pub fn content(mut self, content: impl Into<Content>) -> Self {
        self.message = self.message.map(|message| message.content(content));
        self
    }

    /// A key of your own, 1 to 64 of `A-Z a-z 0-9 _ -`. A program that was restarted finds the turn of the message by it,
    /// and the message is sent once.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.may_be_repeated = self.message.is_some();
        self.message = self.message.map(|message| message.idempotency_key(key));
        self
    }

    /// The text of the turn as it streams. Nothing is sent before it is polled.
    pub fn follow(self) -> Turn {
        let progress = stream::try_unfold(TurnReader::Unsent(Box::new(self)), TurnReader::next);
        Turn { progress: progress.boxed(), end: None }
    }
}

impl IntoFuture for TurnRequest {
    type Output = Result<TurnResult, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let mut turn = self.follow();
        Box::pin(async move { turn.result().await })
    }
}

/// A turn that is followed: a stream of text that is only ever added, and then its [`result`](Turn::result).
///
/// If a reply breaks off and starts over, text that came already does not come again; if the new reply differs, it follows
/// as a paragraph of its own. An empty line stands between two steps.
///
/// The turn goes on in the fleet if this is dropped; calls of local tools and decisions that run are dropped.
pub struct Turn {
    progress: BoxStream<'static, Result<TurnProgress, ClientError>>,
    end: Option<Result<TurnResult, ClientError>>,
}

enum TurnProgress {
    Text(String),
    Ended(TurnResult),
}

impl Turn {
    /// Waits for the end of the turn; text that was not read yet is dropped. It may be called again.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::TurnFailed`] if the turn could not go on, and with the error of a message, an answer or the
    /// events.
    pub async fn result(&mut self) -> Result<TurnResult, ClientError> {
        while let Some(text) = self.next().await {
            text?;
        }
        self.end.clone().unwrap_or_else(|| Err(ClientError::internal("the turn has no end")))
    }
}

impl Stream for Turn {
    type Item = Result<String, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        self.progress.poll_next_unpin(context).map(|progress| match progress {
            Some(Ok(TurnProgress::Text(text))) => Some(Ok(text)),
            Some(Ok(TurnProgress::Ended(result))) => {
                self.end = Some(Ok(result));
                None
            }
            Some(Err(error)) => {
                self.end = Some(Err(error.clone()));
                Some(Err(error))
            }
            None => None,
        })
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("end", &self.end).finish_non_exhaustive()
    }
}

impl fmt::Debug for TurnRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.as_ref().map(|message| &message.request);
        f.debug_struct("TurnRequest").field("message", &message).finish_non_exhaustive()
    }
}

/// Position to read from, and the turn to follow.
struct TurnStart {
    /// The last `seq` before the events to read.
    seq: u64,
    /// Id of the message whose turn it is.
    message_id: Option<String>,
    /// Number of the turn, once it is known: an event says with which messages a turn begins.
    turn: Option<u32>,
}

/// Reads the events of one turn.
enum TurnReader {
    Unsent(Box<TurnRequest>),
    Following(Box<Following>),
}

struct Following {
    context: Arc<SessionContext>,
    start: TurnStart,
    events: EventStream,
    responder: Responder,
    /// The turn that runs.
    running: Option<u32>,
    /// Whether the message is in the log, and its turn is not known.
    is_waiting: bool,
    /// Turns that ended meanwhile without a start that was seen. One had started before the message came.
    unseen_turns: u32,
    /// The replies of the turn, by step.
    replies: HashMap<u32, TextOfReply>,
    has_text: bool,
    last_failure: Option<SessionFailure>,
}

impl TurnReader {
    /// Returns the next progress, and the reader of the rest.
    async fn next(self) -> Result<Option<(TurnProgress, Self)>, ClientError> {
        let mut following = match self {
            Self::Unsent(request) => Box::new(Following::begin(*request).await?),
            Self::Following(following) => following,
        };
        let progress = following.next().await?;
        Ok(Some((progress, Self::Following(following))))
    }
}

impl Following {
    async fn begin(request: TurnRequest) -> Result<Self, ClientError> {
        let TurnRequest { context, handlers, message, may_be_repeated } = request;
        let mut responder = Responder::new(context.clone(), handlers);
        let is_alone = !context.begin_turn();
        let start = match message {
            Some(MessageRequest { request: message, .. }) => {
                let seq = find_place(&context, &mut responder, may_be_repeated, is_alone).await?;
                let message_id = message.command_id.clone();
                TurnStart { seq, message_id, turn: context.send(message).await?.turn }
            }
            None => find_turn(&context, &mut responder, is_alone).await?,
        };
        Ok(Self {
            events: context.events(start.seq + 1, true),
            context,
            start,
            responder,
            running: None,
            is_waiting: false,
            unseen_turns: 0,
            replies: HashMap::new(),
            has_text: false,
            last_failure: None,
        })
    }

    /// Returns the next text of the turn, or its end.
    async fn next(&mut self) -> Result<TurnProgress, ClientError> {
        loop {
            let event = tokio::select! {
                failure = self.responder.next_failure() => return Err(failure),
                event = self.events.next() => event,
            };
            let Some(event) = event.transpose()? else {
                return Err(ClientError::internal("the events of the session ended before the turn"));
            };
            self.responder.push(&event);
            if let Some(progress) = self.take(event)? {
                return Ok(progress);
            }
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    fn take(&mut self, event: SessionEvent) -> Result<Option<TurnProgress>, ClientError> {
        self.start.seq = event.seq.unwrap_or(self.start.seq);
        let is_ours = self.start.turn.is_some_and(|turn| event.data["turn"] == turn);
        let is_snapshot = event.is_snapshot();
        match event.content {
            EventContent::UserMessage(message) if self.is_own(&message.message_id) => {
                if message.mode != SendMode::Queue.as_str() {
                    // The turn that runs reads it.
                    self.start.turn = self.start.turn.or(self.running);
                }
                self.is_waiting = self.start.turn.is_none();
                Ok(None)
            }
            EventContent::TurnStarted(begin) => {
                self.running = Some(begin.turn);
                if begin.messages.iter().any(|message| self.is_own(message)) {
                    (self.start.turn, self.is_waiting) = (self.running, false);
                }
                Ok(None)
            }
            EventContent::ReplyChunk(chunk) if is_ours => {
                Ok(self.add_text(chunk.step, |reply| reply.push(&chunk, is_snapshot)))
            }
            EventContent::ReplyCompleted(complete) if is_ours => {
                Ok(self.add_text(complete.step, |reply| reply.finish(&complete.text)))
            }
            EventContent::Failed(failure) => {
                self.last_failure = Some(failure);
                Ok(None)
            }
            EventContent::TurnCompleted(end) if is_ours => self.end(event.session_id, end).map(Some),
            EventContent::TurnCompleted(end) => {
                self.unseen_turns += u32::from(self.running.take().is_none() && self.is_waiting);
                if self.unseen_turns > 1 {
                    let turn = end.turn;
                    let message = format!("no event said with which messages turn {turn} began: upgrade the fleet");
                    return Err(ClientError::internal(message));
                }
                Ok(None)
            }
            EventContent::SessionEnded(SessionEnd { stop_reason, iterations, final_response, cost, .. }) => {
                let turn = self.start.turn.unwrap_or_default();
                let stop_reason = stop_reason.unwrap_or(TurnStopReason::Stopped);
                self.end(event.session_id, TurnEnd { turn, stop_reason, iterations, final_response, cost }).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether a message is the one whose turn is followed.
    fn is_own(&self, message: &str) -> bool {
        self.start.message_id.as_deref() == Some(message)
    }

    /// Adds text of a step. An empty line stands between two steps.
    fn add_text(&mut self, step: u32, text_of: impl FnOnce(&mut TextOfReply) -> String) -> Option<TurnProgress> {
        let reply = self.replies.entry(step).or_default();
        let is_first = !reply.has_begun();
        let text = text_of(reply);
        if text.is_empty() {
            return None;
        }
        let text = if is_first && self.has_text { format!("\n\n{}", text.trim_start()) } else { text };
        self.has_text = true;
        Some(TurnProgress::Text(text))
    }

    fn end(&mut self, session_id: String, end: TurnEnd) -> Result<TurnProgress, ClientError> {
        self.context.end_turn(self.start.seq);
        let TurnEnd { turn, stop_reason, iterations, final_response: text, cost } = end;
        if stop_reason != TurnStopReason::Error {
            return Ok(TurnProgress::Ended(TurnResult { session_id, turn, text, stop_reason, iterations, cost }));
        }
        Err(match self.last_failure.take() {
            Some(SessionFailure { code, message }) => ClientError::new(ErrorKind::TurnFailed, code, message),
            None => ClientError::new(ErrorKind::TurnFailed, "internal", "the turn ended with an error"),
        })
    }
}

/// Finds the `seq` after which to read, before a message is sent. A message that may have been sent before can be anywhere.
async fn find_place(
    context: &SessionContext,
    responder: &mut Responder,
    may_be_repeated: bool,
    is_alone: bool,
) -> Result<u64, ClientError> {
    let known = context.seq().filter(|_| !may_be_repeated);
    if let Some(seq) = known
        && is_alone
    {
        return Ok(seq);
    }
    let info = context.get().await?;
    responder.skip_answered(&info).await?;
    let is_idle = info.phase == "idle" && !may_be_repeated;
    Ok(known.unwrap_or(if is_idle { info.seq } else { 0 }))
}

/// Finds the turn of the prompt with which the session was started, else the turn that runs, else the last one.
async fn find_turn(
    context: &SessionContext,
    responder: &mut Responder,
    is_alone: bool,
) -> Result<TurnStart, ClientError> {
    let is_new = context.seq().is_some();
    if let Some(FirstMessage { id, turn }) = context.take_first_message() {
        if !is_new || !is_alone {
            responder.skip_answered(&context.get().await?).await?;
        }
        return Ok(TurnStart { seq: 0, message_id: Some(id), turn });
    }
    let info = context.get().await?;
    responder.skip_answered(&info).await?;
    if info.turn == 0 {
        let message = format!("session {} has no turn yet: send a message", context.id);
        return Err(ClientError::new(ErrorKind::Conflict, "not_now", message));
    }
    Ok(TurnStart { seq: 0, message_id: None, turn: Some(info.turn) })
}
