//! Questions with any number of answers, over one subscription: one of its own for each question would have the server
//! learn and forget a subject for every tool call.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_nats::{Client, Message, StatusCode, Subscriber};
use futures::{Stream, StreamExt};
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinSet;

use super::losses::sid_of;
use crate::{BusError, SubscriptionEvent};

/// Answers to one question that wait to be read; when there are more, what follows is lost, and a gap says so.
const ANSWERS_MAX: usize = 1_024;

type Routes = Arc<Mutex<HashMap<String, Route>>>;

/// Where the answers to one question go.
#[derive(Debug)]
struct Route {
    heard: mpsc::Sender<Message>,
    /// Whether one of them was lost, since there were more than are read.
    missed: Arc<AtomicBool>,
}

/// The questions that are open.
#[derive(Debug, Default)]
pub(super) struct Many {
    routes: Routes,
    asked: AtomicU64,
    inbox: OnceCell<(String, Option<u64>, JoinSet<()>)>,
}

/// The answers to one question, until it is dropped or the server says that there is nobody to answer.
#[derive(Debug)]
pub(super) struct Answers {
    heard: mpsc::Receiver<Message>,
    missed: Arc<AtomicBool>,
    name: String,
    routes: Routes,
}

impl Many {
    /// An address for the answers to one question, and the number of the subscription by which they come.
    pub(super) async fn open(&self, client: &Client) -> Result<(String, Option<u64>, Answers), BusError> {
        let listen = async || {
            let inbox = client.new_inbox();
            let heard = client.subscribe(format!("{inbox}.*")).await;
            let heard = heard.map_err(|error| BusError::Unavailable(format!("the connection is closed: {error}")))?;
            let (sid, mut task) = (sid_of(&heard), JoinSet::new());
            task.spawn(route(heard, self.routes.clone()));
            Ok((inbox, sid, task))
        };
        let (inbox, sid, _) = self.inbox.get_or_try_init(listen).await?;
        let name = self.asked.fetch_add(1, Ordering::Relaxed).to_string();
        let address = format!("{inbox}.{name}");
        let (send, heard) = mpsc::channel(ANSWERS_MAX);
        let missed = Arc::new(AtomicBool::new(false));
        lock(&self.routes).insert(name.clone(), Route { heard: send, missed: missed.clone() });
        Ok((address, *sid, Answers { heard, missed, name, routes: self.routes.clone() }))
    }
}

async fn route(mut heard: Subscriber, routes: Routes) {
    while let Some(message) = heard.next().await {
        let name = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
        if let Some(route) = lock(&routes).get(&name) {
            // Who answers so much is heard by nobody but those who asked: no other question has a gap.
            let full = matches!(route.heard.try_send(message), Err(mpsc::error::TrySendError::Full(_)));
            if full && !route.missed.swap(true, Ordering::Relaxed) {
                tracing::warn!("more answers to a question than are read");
            }
        }
    }
    // The connection is closed: whoever waits waits no more.
    lock(&routes).clear();
}

fn lock(routes: &Routes) -> std::sync::MutexGuard<'_, HashMap<String, Route>> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Answers {
    type Item = SubscriptionEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SubscriptionEvent>> {
        match self.heard.poll_recv(context) {
            Poll::Ready(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => Poll::Ready(None),
            Poll::Ready(answer) => Poll::Ready(answer.map(SubscriptionEvent::from)),
            // What came before the gap is heard before it. It was full then, so that this is asked once more after it.
            Poll::Pending if self.missed.swap(false, Ordering::Relaxed) => Poll::Ready(Some(SubscriptionEvent::Gap)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        lock(&self.routes).remove(&self.name);
    }
}
