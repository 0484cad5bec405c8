//! The receiving end of a subscription or of a request.

use std::sync::Arc;

use bus::{Subscription, SubscriptionEvent};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::lifecycle::ClientState;

/// The entry of the server that a receiver belongs to.
pub(crate) enum Registration {
    Subscription(u64),
    Inbox(String),
}

/// Events of a subscription or of a request. Dropping it removes its registration from the server.
pub(crate) struct EventReceiver {
    pub(crate) client: Arc<ClientState>,
    pub(crate) registration: Registration,
    pub(crate) events: mpsc::Receiver<SubscriptionEvent>,
}

impl EventReceiver {
    pub(crate) async fn next(&mut self) -> Option<SubscriptionEvent> {
        let client = self.client.clone();
        client.run_while_alive(self.events.recv()).await
    }

    pub(crate) fn into_stream(self) -> Subscription {
        futures::stream::unfold(self, |mut receiver| async { receiver.next().await.map(|event| (event, receiver)) })
            .boxed()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.client.server.lock();
        match &self.registration {
            Registration::Subscription(id) => state.core.unsubscribe(*id),
            Registration::Inbox(name) => state.core.drop_inbox(name),
        }
    }
}
