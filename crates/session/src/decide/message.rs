//! `send_user_message`: the user during and between turns.

use contract::ErrorCode;
use contract::command::{MessageMode, SendUserMessage};
use contract::event::{CallCancelled, Event, ModelCallInterrupted, UserProcessed};
use contract::limits::{INTERRUPT_GRACE, QUEUED_BYTES_MAX, QUEUED_MESSAGES_MAX};

use super::builder::{DecisionBuilder, Rejection};
use crate::check;
use crate::state::{Activity, ModelCall};

impl DecisionBuilder<'_> {
    pub(super) fn send(&mut self, message: &SendUserMessage) -> Result<(), Rejection> {
        if self.state.waiting.len() >= QUEUED_MESSAGES_MAX {
            let message = format!("{QUEUED_MESSAGES_MAX} messages wait already; let the session catch up");
            return Err(Rejection::new(ErrorCode::TooManyWaiting, message));
        }
        let brought = message.client_tools.as_deref();
        let bytes = self.state.waiting_bytes() + message.content.bytes() + check::client_tools_bytes(brought);
        if bytes > QUEUED_BYTES_MAX {
            let message = format!(
                "the messages that wait for their turn would have {bytes} bytes; at most {QUEUED_BYTES_MAX}: let the session catch up"
            );
            return Err(Rejection::new(ErrorCode::TooManyWaiting, message));
        }
        if let (Some(brought), Some(setup)) = (brought, self.state.setup.clone()) {
            self.check_tool_names(brought, &setup.agent.tools)?;
        }
        self.handled();
        self.user_message(message);
        self.overrule_judge();
        if message.mode == MessageMode::Interrupt {
            self.interrupt();
        }
        Ok(())
    }

    pub(super) fn user_message(&mut self, message: &SendUserMessage) {
        let message_id = self.input.reference.id.clone();
        let SendUserMessage { content, mode, client_tools } = message.clone();
        self.emit(Event::UserProcessed(UserProcessed { message_id, content, mode, client_tools }));
    }

    /// Takes the floor from the model. Tools that run are not interrupted: the message is seen right after them.
    fn interrupt(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        let event = match &turn.activity {
            Activity::AwaitingModel(ModelCall { call, attempt, interrupted: None, .. }) => {
                let until = self.at.after(INTERRUPT_GRACE);
                Event::ModelCallInterrupted(ModelCallInterrupted { call: call.clone(), attempt: *attempt, until })
            }
            Activity::Backoff { call, attempt, .. } => {
                Event::CallCancelled(CallCancelled { call: call.clone(), attempt: *attempt, tool: None })
            }
            Activity::AwaitingModel(_)
            | Activity::Ready
            | Activity::Deciding
            | Activity::RunningTools(_)
            // The step that reads the message has not begun.
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => return,
        };
        self.emit(event);
    }
}
