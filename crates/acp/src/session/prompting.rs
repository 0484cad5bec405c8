//! Prompts of the editor, and their cancellation.

use std::time::Duration;

use contract::ErrorCode;
use contract::model::Content;
use fleet_connection::client::{SessionsApi, chosen, command_id, control_request, request_of};
use fleet_connection::stream::SessionStream;
use serde_json::{Value, json};
use session_view::gate_prompt::answer_request;
use terminal::failure::CommandFailure;
use tokio::time::timeout;

use super::super::stop_reason;
use super::super::update::SessionUpdate;
use super::super::wire::RpcError;
use super::worker::{PendingPrompt, Phase, SessionWorker};

/// Reason of a cancellation, for the log.
const CANCEL_REASON: &str = "cancelled in the editor";
/// Longest wait for the fleet when a prompt is cancelled.
const CANCEL_MAX: Duration = Duration::from_secs(5);
/// Characters of the title of a new session.
const TITLE_CHARS_MAX: usize = 80;

impl SessionWorker {
    pub(super) async fn begin_prompt(&mut self, id: Value, content: Content) {
        match self.try_prompt(&content).await {
            Ok(message_id) => {
                let has_begun = message_id.is_empty();
                self.prompt = Some(PendingPrompt { id, message_id, has_begun });
            }
            Err(error) => self.peer.answer(&id, &Err(error)).await,
        }
    }

    /// Sends the prompt; returns the id of its message, which is empty if it answers a question.
    async fn try_prompt(&mut self, content: &Content) -> Result<String, RpcError> {
        let not_now = |message: String| Err(RpcError::new(ErrorCode::NotNow, message));
        if self.prompt.is_some() {
            return not_now("a prompt of this session runs; cancel it, or wait for its end".to_owned());
        }
        if self.load.is_some() {
            return not_now("the session is being loaded; wait for the answer".to_owned());
        }
        if self.phase == Phase::Ended {
            return Err(self.ended_error());
        }
        if content.is_empty() {
            return Err(RpcError::new(ErrorCode::EmptyMessage, "the prompt has no text and no image"));
        }
        if let Some(notice) = self.notice.take() {
            self.show_text(&notice).await;
        }
        if let Some(gate) = &self.typed_gate {
            let answer = answer_request(gate, "answer", Some(content.text()));
            self.follow().await?;
            let is_first = self.send_answer(answer).await?;
            self.typed_gate = None;
            // If somebody else has answered, the prompt is a message like any other.
            if is_first {
                return Ok(String::new());
            }
        }
        let message_id = command_id();
        self.translator.set_own_message(&message_id);
        if self.phase == Phase::Open {
            self.send(&message_id, content).await?;
        } else {
            self.start(&message_id, content).await?;
        }
        self.follow().await?;
        Ok(message_id)
    }

    async fn start(&mut self, message_id: &str, content: &Content) -> Result<(), CommandFailure> {
        let request = json!({
            "session_id": self.session, "command_id": message_id, "agent": chosen(&self.choices.agent),
            "model": chosen(&self.choices.model), "prompt": content, "interactive": true,
        });
        self.link.call(request_of(request)?, SessionsApi::start_session).await?;
        self.phase = Phase::Open;
        let title = content.text().lines().next().unwrap_or_default().chars().take(TITLE_CHARS_MAX).collect();
        self.show(&SessionUpdate::SessionInfoUpdate { title }).await;
        Ok(())
    }

    async fn send(&mut self, message_id: &str, content: &Content) -> Result<(), RpcError> {
        if let Some(paused) = self.translator.paused() {
            let (by, reason) = (paused.by.as_deref(), paused.reason.as_deref());
            let (by, reason) = (by.unwrap_or("somebody"), reason.unwrap_or("no reason is given"));
            let message = format!("{by} paused the session ({reason}); to go on: ailoop resume {}", self.session);
            return Err(RpcError::new(ErrorCode::NotNow, message));
        }
        let request = json!({"session_id": self.session, "command_id": message_id, "content": content});
        self.link.call(request_of(request)?, SessionsApi::send_message).await?;
        Ok(())
    }

    /// Follows the session from the first event that was not seen, if it is not followed yet.
    async fn follow(&mut self) -> Result<(), CommandFailure> {
        if self.stream.is_none() {
            let client = self.link.client().await?;
            self.stream = Some(SessionStream::new(client, &self.session, self.next_seq, true));
        }
        Ok(())
    }

    /// Cancels the turn, and answers the prompt. The session goes on with the next one.
    pub(super) async fn cancel(&mut self) {
        if self.prompt.is_none() && !self.translator.is_turn_running() {
            return;
        }
        self.translator.mute();
        if timeout(CANCEL_MAX, self.cancel_turn()).await.ok().and_then(Result::ok).is_none() {
            let text = "(The fleet did not answer the cancellation. The turn may go on; `ailoop cancel` ends it.)";
            self.show_text(text).await;
        }
        self.asked.clear();
        self.typed_gate = None;
        if let Some(prompt) = self.prompt.take() {
            self.peer.answer(&prompt.id, &Ok(stop_reason::cancelled())).await;
        }
    }

    async fn cancel_turn(&mut self) -> Result<(), CommandFailure> {
        match self.link.call(control_request(&self.session, CANCEL_REASON), SessionsApi::cancel_turn).await {
            Ok(_) => Ok(()),
            // It has ended meanwhile.
            Err(failure) if [ErrorCode::NotNow, ErrorCode::SessionEnded].contains(failure.code()) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn fail_prompt(&mut self, error: &RpcError) {
        if let Some(prompt) = self.prompt.take() {
            self.peer.answer(&prompt.id, &Err(error.clone())).await;
        }
    }
}
