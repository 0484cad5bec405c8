//! Who waits for which command: the loop's notices, handed to the requests that wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError, Subscription, SubscriptionEvent};
use contract::CommandId;
use contract::command::{CommandAck, Verb};
use contract::subject::SessionKey;
use futures::StreamExt;
use service::tasks::Tasks;
use tokio::sync::watch;

/// Pause before a lost subscription is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A command by its identity.
pub(crate) type CommandKey = (SessionKey, Verb, CommandId);

/// The requests of this replica that wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    waiting: Arc<Mutex<HashMap<CommandKey, watch::Sender<Option<CommandAck>>>>>,
}

/// A place on the board, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    board: Board,
    key: CommandKey,
    notice: Option<watch::Receiver<Option<CommandAck>>>,
}

impl Board {
    /// Subscribes to the notices for this replica and hands them out until the tasks end.
    pub(crate) async fn start(bus: Bus, edge: CommandId, tasks: &Tasks) -> Result<Self, BusError> {
        let board = Self::default();
        let notices = bus.dones(&edge).await?;
        let (ending, reader) = (tasks.token(), board.clone());
        tasks.spawn("notices", async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = reader.read(bus, edge, notices) => {}
            }
        });
        Ok(board)
    }

    /// Takes a place for a command; to be done before the command is sent.
    pub(crate) fn wait_for(&self, key: CommandKey) -> Place {
        let notice = self.lock().entry(key.clone()).or_insert_with(|| watch::channel(None).0).subscribe();
        Place { board: self.clone(), key, notice: Some(notice) }
    }

    async fn read(&self, bus: Bus, edge: CommandId, mut notices: Subscription) {
        loop {
            match notices.next().await {
                Some(SubscriptionEvent::Message(message)) => {
                    match serde_json::from_slice::<CommandAck>(&message.payload) {
                        Ok(done) => self.tell(done),
                        Err(error) => tracing::warn!(%error, subject = message.subject, "notice left out"),
                    }
                }
                // Whoever waits reads the log every second anyway.
                Some(SubscriptionEvent::Gap) => {}
                None => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    if let Ok(again) = bus.dones(&edge).await {
                        notices = again;
                    }
                }
            }
        }
    }

    fn tell(&self, done: CommandAck) {
        let session = SessionKey { tenant: done.tenant.clone(), session: done.session.clone() };
        let key = (session, done.verb, done.id.clone());
        if let Some(place) = self.lock().get(&key) {
            place.send_replace(Some(done));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CommandKey, watch::Sender<Option<CommandAck>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for the notice.
    pub(crate) async fn notice(&mut self) -> CommandAck {
        if let Some(notice) = &mut self.notice
            && let Ok(done) = notice.wait_for(Option::is_some).await
            && let Some(done) = done.clone()
        {
            return done;
        }
        std::future::pending().await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.board.lock();
        self.notice = None;
        if waiting.get(&self.key).is_some_and(|place| place.receiver_count() == 0) {
            waiting.remove(&self.key);
        }
    }
}
