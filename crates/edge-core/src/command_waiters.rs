//! Requests that wait for the acknowledgement of a command by the loop.

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

/// Pause before a lost subscription is renewed.
const RESUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);

/// Identity of a command.
pub(crate) type CommandKey = (SessionKey, Verb, CommandId);

/// The waiting requests of this replica. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandWaiters {
    waiting: Arc<Mutex<HashMap<CommandKey, watch::Sender<Option<CommandAck>>>>>,
}

/// A request that waits for one command. Dropping it removes the registration.
#[derive(Debug)]
pub(crate) struct CommandWaiter {
    waiters: CommandWaiters,
    key: CommandKey,
    receiver: Option<watch::Receiver<Option<CommandAck>>>,
}

impl CommandWaiters {
    /// Subscribes to the acknowledgements for this replica and resolves the waiters until the tasks end.
    pub(crate) async fn start(bus: Bus, replica_id: CommandId, tasks: &Tasks) -> Result<Self, BusError> {
        let waiters = Self::default();
        let acks = bus.dones(&replica_id).await?;
        let background = waiters.clone();
        tasks.spawn_until_end("notices", async move { background.receive_acks(bus, replica_id, acks).await });
        Ok(waiters)
    }

    /// Registers a waiter for a command. This must come before the command is sent, or its acknowledgement may be
    /// missed.
    pub(crate) fn register(&self, key: CommandKey) -> CommandWaiter {
        let receiver = self.lock().entry(key.clone()).or_insert_with(|| watch::channel(None).0).subscribe();
        CommandWaiter { waiters: self.clone(), key, receiver: Some(receiver) }
    }

    async fn receive_acks(&self, bus: Bus, replica_id: CommandId, mut acks: Subscription) {
        loop {
            match acks.next().await {
                Some(SubscriptionEvent::Message(message)) => {
                    match serde_json::from_slice::<CommandAck>(&message.payload) {
                        Ok(ack) => self.resolve(ack),
                        Err(error) => tracing::warn!(%error, subject = message.subject, "acknowledgement ignored"),
                    }
                }
                // Waiters check the log every second as well.
                Some(SubscriptionEvent::Gap) => {}
                None => {
                    tokio::time::sleep(RESUBSCRIBE_PAUSE).await;
                    if let Ok(subscription) = bus.dones(&replica_id).await {
                        acks = subscription;
                    }
                }
            }
        }
    }

    fn resolve(&self, ack: CommandAck) {
        let session = SessionKey { tenant: ack.tenant.clone(), session: ack.session.clone() };
        let key = (session, ack.verb, ack.id.clone());
        if let Some(sender) = self.lock().get(&key) {
            sender.send_replace(Some(ack));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CommandKey, watch::Sender<Option<CommandAck>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandWaiter {
    /// Waits for the acknowledgement of the command.
    pub(crate) async fn wait_for_ack(&mut self) -> CommandAck {
        if let Some(receiver) = &mut self.receiver
            && let Ok(ack) = receiver.wait_for(Option::is_some).await
            && let Some(ack) = ack.clone()
        {
            return ack;
        }
        std::future::pending().await
    }
}

impl Drop for CommandWaiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        self.receiver = None;
        if waiting.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            waiting.remove(&self.key);
        }
    }
}
