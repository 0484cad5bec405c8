//! What a subscription or a request yields.

use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::mpsc;

use super::life::Shared;
use crate::{Subscription, SubscriptionEvent};

/// What the server forgets when nobody listens any more.
pub(super) enum End {
    Subscription(u64),
    Inbox(String),
}

/// What a subscription or a request yields; forgotten by the server when dropped.
pub(super) struct Answers {
    pub(super) shared: Arc<Shared>,
    pub(super) end: End,
    pub(super) from: mpsc::Receiver<SubscriptionEvent>,
}

impl Answers {
    pub(super) async fn next(&mut self) -> Option<SubscriptionEvent> {
        let shared = self.shared.clone();
        shared.guard(self.from.recv()).await
    }

    pub(super) fn stream(self) -> Subscription {
        futures::stream::unfold(self, |mut answers| async { answers.next().await.map(|heard| (heard, answers)) })
            .boxed()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let mut state = self.shared.server.lock();
        match &self.end {
            End::Subscription(id) => state.core.unsubscribe(*id),
            End::Inbox(name) => state.core.drop_inbox(name),
        }
    }
}
