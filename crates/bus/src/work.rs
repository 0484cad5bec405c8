//! Work items and the worker that takes them: pulls what it has room for, shares its places out among tenants and tools,
//! keeps what it holds alive, settles each item in one place, and hands back the rest when it goes.

mod again;
mod backlog;
mod hold;
mod run;
mod settle;
mod share;
mod wait_queue;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contract::ErrorCode;
use contract::ids::{CallAttempt, ToolName};
use contract::model::{ItemMeta, ModelItem};
use contract::streams::{Objects, Queue, Stream};
use contract::subject::{self, SessionKey, Subject};
use contract::tool::{ToolItem, header};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::control::Sent;
use crate::log::{encode, trace_headers};
use crate::{Bus, BusError, Delivery, Headers};

/// What became of a delivered item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// It is dealt with.
    Done,
    /// It failed: somebody should try again after this long. Too many failures make a dead letter of a work item.
    Retry(Duration),
    /// It cannot be handled now, which is no failure of the item: the bus is away, its session is paused, somebody else
    /// holds it. It comes again after this long, and that never makes a dead letter of it.
    Postpone(Duration),
    /// It can never be dealt with: it becomes a dead letter.
    Reject {
        /// Stable.
        code: ErrorCode,
        /// For people: why.
        reason: String,
    },
}

/// Deals with delivered items.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Deals with one item. It is kept from others as long as this runs. The body may be a reference:
    /// [`Bus::open`] it. A panic is a retry, and a dead letter `poison` after a few deliveries.
    async fn handle(&self, delivery: &Delivery) -> Settle;
}

/// Takes items of one queue until it is drained. Dropping it leaves what it holds to the ack wait.
#[derive(Debug)]
pub struct Worker {
    stop: CancellationToken,
    abort: CancellationToken,
    task: JoinSet<()>,
}

impl Worker {
    /// Starts taking items, at most `concurrency` at the same time. These places are shared out by tenant, and by tool,
    /// model or session: from five places on nobody gets all of them, and an item beyond its share comes again later.
    pub fn start(bus: Bus, queue: Queue, concurrency: usize, handler: Arc<dyn Handler>) -> Self {
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(run::run(bus, queue, concurrency.max(1), handler, stop.clone(), abort.clone()));
        Self { stop, abort, task }
    }

    /// Stops pulling, lets running handlers end for up to `timeout`, then ends them and hands their items back.
    pub async fn drain(mut self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, self.task.join_next()).await.is_err() {
            self.abort.cancel();
            self.task.join_next().await;
        }
    }
}

/// Whether an item may have been published before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// Its commit is this publisher's own, and new: an item that waits there is replaced.
    First,
    /// It may have been taken and dealt with, and its result may wait for the loop.
    Again,
    /// As [`Publication::Again`], and it replaces an item that waits there. After an older store came back, the consumer's
    /// state may count such an item as handled, and the server delivers it to nobody.
    Anew,
}

impl Publication {
    fn headers(self) -> Headers {
        match self {
            Self::First => trace_headers(),
            Self::Again | Self::Anew => marked_again(trace_headers()),
        }
    }
}

/// The headers of an item that may have been taken and dealt with before: [`Delivery::may_have_been_held`].
pub(crate) fn marked_again(mut headers: Headers) -> Headers {
    if crate::transport::header(&headers, header::AGAIN).is_none() {
        headers.push((header::AGAIN.to_owned(), "1".to_owned()));
    }
    headers
}

impl Bus {
    /// Publishes a model call. One that waits there already is success.
    pub async fn publish_model_item(
        &self,
        key: &SessionKey,
        item: &ModelItem,
        publication: Publication,
    ) -> Result<(), BusError> {
        let body = self.offload_body(Objects::Work, encode(item)?).await?;
        let subject = subject::model_item(key, &call_of(&item.meta));
        let mut headers = publication.headers();
        // A header cannot hold line ends; such a model is not found anyway.
        headers.push((header::MODEL.to_owned(), item.model.chars().filter(|c| !c.is_control()).collect()));
        self.publish_item(Stream::Model, &subject, publication, headers, body).await
    }

    /// Publishes a tool call. One that waits there already is success.
    pub async fn publish_tool_item(
        &self,
        key: &SessionKey,
        item: &ToolItem,
        publication: Publication,
    ) -> Result<(), BusError> {
        let body = self.offload_body(Objects::Work, encode(item)?).await?;
        let subject = subject::tool_item(key, &item.tool, &call_of(&item.meta));
        self.publish_item(Stream::Tool, &subject, publication, publication.headers(), body).await
    }

    /// A worker that holds the item meanwhile answers for its call, so that the new one waits for it.
    async fn publish_item(
        &self,
        stream: Stream,
        subject: &Subject,
        publication: Publication,
        headers: Headers,
        body: Bytes,
    ) -> Result<(), BusError> {
        let replace = async || {
            self.transport().purge(stream, subject).await?;
            self.send_once(stream, subject, marked_again(headers.clone()), body.clone()).await.map(drop)
        };
        match publication {
            Publication::Again => self.send_once(stream, subject, headers, body).await.map(drop),
            Publication::Anew => replace().await,
            Publication::First => match self.send_once(stream, subject, headers.clone(), body.clone()).await? {
                Sent::Stored(_) => Ok(()),
                // What waits there is of a history that an older store has lost, or this very item, whose answer was lost.
                // The first may be delivered to nobody.
                Sent::Duplicate => replace().await,
            },
        }
    }

    /// Removes a call that is no longer wanted; `tool` is none for a model call. One that is held is removed too.
    pub async fn purge_item(
        &self,
        key: &SessionKey,
        tool: Option<&ToolName>,
        call: &CallAttempt,
    ) -> Result<(), BusError> {
        let (stream, subject) = match tool {
            Some(tool) => (Stream::Tool, subject::tool_item(key, tool, call)),
            None => (Stream::Model, subject::model_item(key, call)),
        };
        self.transport().purge(stream, &subject).await.map(drop)
    }
}

pub(crate) fn call_of(meta: &ItemMeta) -> CallAttempt {
    CallAttempt { call: meta.call.clone(), attempt: meta.attempt }
}
