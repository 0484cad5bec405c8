//! Requests with any number of answers share one subscription: with a subscription for each request the server would
//! add and remove a subject for every tool call.

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
use super::refusal::closed;
use crate::{BusError, SubscriptionEvent};

/// Most answers to one request that wait to be read. Further ones are lost, and a gap reports that.
const ANSWERS_MAX: usize = 1_024;

type Routes = Arc<Mutex<HashMap<String, Route>>>;

/// Destination of the answers to one request.
#[derive(Debug)]
struct Route {
    answers: mpsc::Sender<Message>,
    /// Whether an answer was lost since the last gap.
    missed: Arc<AtomicBool>,
}

/// The open requests and their one subscription.
#[derive(Debug, Default)]
pub(super) struct SharedInbox {
    routes: Routes,
    requests: AtomicU64,
    inbox: OnceCell<(String, Option<u64>, JoinSet<()>)>,
}

/// The answers to one request, until it is dropped or the server reports that there are no responders.
#[derive(Debug)]
pub(super) struct Answers {
    received: mpsc::Receiver<Message>,
    missed: Arc<AtomicBool>,
    name: String,
    routes: Routes,
}

impl SharedInbox {
    /// Opens an address for the answers to one request, with the number of the subscription that gets them.
    pub(super) async fn open(&self, client: &Client) -> Result<(String, Option<u64>, Answers), BusError> {
        let listen = async || {
            let inbox = client.new_inbox();
            let subscriber = client.subscribe(format!("{inbox}.*")).await.map_err(|error| closed(&error))?;
            let (sid, mut task) = (sid_of(&subscriber), JoinSet::new());
            task.spawn(route(subscriber, self.routes.clone()));
            Ok((inbox, sid, task))
        };
        let (inbox, sid, _) = self.inbox.get_or_try_init(listen).await?;
        let name = self.requests.fetch_add(1, Ordering::Relaxed).to_string();
        let address = format!("{inbox}.{name}");
        let (answers, received) = mpsc::channel(ANSWERS_MAX);
        let missed = Arc::new(AtomicBool::new(false));
        lock(&self.routes).insert(name.clone(), Route { answers, missed: missed.clone() });
        Ok((address, *sid, Answers { received, missed, name, routes: self.routes.clone() }))
    }
}

async fn route(mut subscriber: Subscriber, routes: Routes) {
    while let Some(message) = subscriber.next().await {
        let name = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
        if let Some(route) = lock(&routes).get(&name) {
            // A flood of answers causes a gap in its own request only.
            let full = matches!(route.answers.try_send(message), Err(mpsc::error::TrySendError::Full(_)));
            if full && !route.missed.swap(true, Ordering::Relaxed) {
                tracing::warn!("answers to a request are lost: they are read too slowly");
            }
        }
    }
    // The connection is closed, which ends every open request.
    lock(&routes).clear();
}

fn lock(routes: &Routes) -> std::sync::MutexGuard<'_, HashMap<String, Route>> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Answers {
    type Item = SubscriptionEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<SubscriptionEvent>> {
        match self.received.poll_recv(context) {
            Poll::Ready(Some(answer)) if answer.status == Some(StatusCode::NO_RESPONDERS) => Poll::Ready(None),
            Poll::Ready(answer) => Poll::Ready(answer.map(SubscriptionEvent::from)),
            // Answers before the gap are delivered before it. The channel was full then, so this is polled once more
            // after it.
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
