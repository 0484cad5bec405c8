//! Questions with any number of answers, over one subscription: one of its own for each question would have the server
//! learn and forget a subject for every tool call.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_nats::{Client, Message, Subscriber};
use futures::{Stream, StreamExt};
use tokio::sync::{OnceCell, broadcast, mpsc};
use tokio::task::JoinSet;

use crate::BusError;

/// Answers to one question that wait to be read; when there are more, what follows is lost, and a gap says so.
const ANSWERS_MAX: usize = 1_024;

type Routes = Arc<Mutex<HashMap<String, mpsc::Sender<Message>>>>;

/// The questions that are open.
#[derive(Debug, Default)]
pub(super) struct Many {
    routes: Routes,
    asked: AtomicU64,
    inbox: OnceCell<(String, JoinSet<()>)>,
}

/// The answers to one question, until it is dropped.
#[derive(Debug)]
pub(super) struct Answers {
    heard: mpsc::Receiver<Message>,
    name: String,
    routes: Routes,
}

impl Many {
    /// An address for the answers to one question.
    pub(super) async fn open(
        &self,
        client: &Client,
        gaps: &broadcast::Sender<()>,
    ) -> Result<(String, Answers), BusError> {
        let listen = async || {
            let inbox = client.new_inbox();
            let heard = client.subscribe(format!("{inbox}.*")).await;
            let heard = heard.map_err(|error| BusError::Unavailable(format!("the connection is closed: {error}")))?;
            let mut task = JoinSet::new();
            task.spawn(route(heard, self.routes.clone(), gaps.clone()));
            Ok((inbox, task))
        };
        let (inbox, _) = self.inbox.get_or_try_init(listen).await?;
        let name = self.asked.fetch_add(1, Ordering::Relaxed).to_string();
        let address = format!("{inbox}.{name}");
        let (send, heard) = mpsc::channel(ANSWERS_MAX);
        lock(&self.routes).insert(name.clone(), send);
        Ok((address, Answers { heard, name, routes: self.routes.clone() }))
    }
}

async fn route(mut heard: Subscriber, routes: Routes, gaps: broadcast::Sender<()>) {
    while let Some(message) = heard.next().await {
        let name = message.subject.rsplit('.').next().unwrap_or_default();
        let full = lock(&routes)
            .get(name)
            .is_some_and(|route| matches!(route.try_send(message.clone()), Err(mpsc::error::TrySendError::Full(_))));
        if full {
            tracing::warn!("more answers to a question than are read");
            // Nobody listens: fine.
            drop(gaps.send(()));
        }
    }
    // The connection is closed: whoever waits waits no more.
    lock(&routes).clear();
}

fn lock(routes: &Routes) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::Sender<Message>>> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Answers {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.heard.poll_recv(context)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        lock(&self.routes).remove(&self.name);
    }
}
