//! One session of the editor: its worker follows the events, and takes the editor's requests one after the other.

mod gates;
mod loading;
mod prompting;
mod worker;

use std::sync::Arc;

use ailoop_client::WatchItem;
use contract::model::Content;
use fleet_connection::stream::SessionStream;
use futures::StreamExt as _;
use serde_json::Value;
use session_view::notification::ParsedNotification;
use terminal::failure::CommandFailure;
use tokio::sync::{Notify, mpsc};

pub(super) use self::worker::SessionWorker;
use self::worker::{Life, Phase};
use super::settings::SettingName;
use super::stop_reason;
use super::translate::{Translation, TurnResult};
use super::wire::RpcError;

/// A request of the editor about a session.
#[derive(Debug)]
pub(super) enum SessionCommand {
    Prompt {
        id: Value,
        content: Content,
    },
    /// Shows the session from its beginning, or only takes it up again.
    Load {
        id: Value,
        is_shown: bool,
    },
    Set {
        id: Value,
        name: SettingName,
        value: String,
    },
    /// Cancels the turn and ends the worker.
    Close {
        id: Value,
    },
}

impl SessionWorker {
    /// Runs until the editor closes the session, or leaves.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<SessionCommand>, cancel: Arc<Notify>) {
        loop {
            let life = tokio::select! {
                // A cancel comes after the prompt that it is about.
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.take_command(command).await,
                    None => return,
                },
                () = cancel.notified() => {
                    self.cancel().await;
                    Life::GoesOn
                }
                Some(reply) = self.replies.next(), if !self.replies.is_empty() => {
                    self.take_reply(reply).await;
                    Life::GoesOn
                }
                event = next_event(&mut self.stream) => self.take_event(event).await,
            };
            if life == Life::Ends {
                return;
            }
        }
    }

    async fn take_command(&mut self, command: SessionCommand) -> Life {
        match command {
            SessionCommand::Prompt { id, content } => self.begin_prompt(id, content).await,
            SessionCommand::Load { id, is_shown } => return self.begin_load(id, is_shown).await,
            SessionCommand::Set { id, name, value } => {
                let outcome = self.set(name, value).await;
                self.peer.answer(&id, &outcome).await;
            }
            SessionCommand::Close { id } => {
                self.cancel().await;
                self.peer.answer(&id, &Ok(Value::Object(serde_json::Map::new()))).await;
                return Life::Ends;
            }
        }
        Life::GoesOn
    }

    async fn take_event(&mut self, event: Result<Option<WatchItem>, CommandFailure>) -> Life {
        match event {
            Ok(Some(WatchItem::Notification(notification))) => {
                let parsed = ParsedNotification::parse(&notification);
                for translation in self.translator.translate(&parsed) {
                    self.apply(translation).await;
                }
                if let Some(seq) = parsed.seq {
                    self.next_seq = seq + 1;
                    self.finish_load_at(seq).await;
                }
                Life::GoesOn
            }
            Ok(Some(WatchItem::Lost { reason })) => {
                self.translator.restart_reply();
                if self.prompt.is_some() {
                    self.show_thought(&format!("({reason}; waiting for the fleet)\n")).await;
                }
                Life::GoesOn
            }
            Ok(Some(WatchItem::Restored)) => Life::GoesOn,
            Ok(None) => {
                (self.stream, self.phase) = (None, Phase::Ended);
                self.finish_load_at(u64::MAX).await;
                self.fail_prompt(&self.ended_error()).await;
                Life::GoesOn
            }
            Err(failure) => {
                // The next prompt goes on from the last event.
                self.stream = None;
                self.translator.restart_reply();
                let error = RpcError::from(failure);
                self.fail_prompt(&error).await;
                match self.load.take() {
                    Some(load) => {
                        self.peer.answer(&load.id, &Err(error)).await;
                        Life::Ends
                    }
                    None => Life::GoesOn,
                }
            }
        }
    }

    async fn apply(&mut self, translation: Translation) {
        let is_loading = self.load.is_some();
        match translation {
            Translation::Update(update) => self.show(&update).await,
            Translation::Message { id } => {
                if let Some(prompt) = self.prompt.as_mut().filter(|prompt| prompt.message_id == id) {
                    prompt.has_begun = true;
                }
            }
            // A gate of the past may be answered; the open ones are asked after the load.
            Translation::GateOpened(gate) if !is_loading => self.ask(&gate).await,
            Translation::GateOpened(_) => {}
            Translation::GateClosed { gate } => self.withdraw(&gate).await,
            Translation::TurnEnded(result) => self.end_turn(&result).await,
            Translation::SessionEnded => self.phase = Phase::Ended,
            Translation::Configured => self.adopt_settings().await,
        }
    }

    async fn end_turn(&mut self, result: &TurnResult) {
        let answer = stop_reason::prompt_answer(result);
        if let Some(prompt) = self.prompt.take_if(|prompt| prompt.has_begun) {
            self.peer.answer(&prompt.id, &answer).await;
        } else if let Err(error) = answer {
            // Nobody waits for the end of this turn, so the failure is part of the conversation.
            self.show_text(&format!("\n\nThe turn failed: {}", error.describe())).await;
        }
    }
}

async fn next_event(stream: &mut Option<SessionStream>) -> Result<Option<WatchItem>, CommandFailure> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}
