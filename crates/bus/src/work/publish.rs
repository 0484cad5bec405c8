//! Publishing of work items.

use bytes::Bytes;
use contract::ids::{CallAttempt, ToolName};
use contract::model::{ItemMeta, ModelItem};
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey, Subject};
use contract::tool::{ToolItem, header};

use crate::control::SendOutcome;
use crate::headers::{marked_again, trace_headers};
use crate::json::encode;
use crate::{Bus, BusError, Headers, Read};

/// Whether an item may have been published and handled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// Its commit is this publisher's own, and new: an item that waits there is replaced.
    First,
    /// It may have been handled, and its result may wait for the loop.
    Again,
    /// As [`Publication::Again`], and it replaces an item that waits there. After an older store came back, the
    /// consumer's state may count such an item as handled, and the server never delivers it.
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
            tracing::debug!(%subject, "replacing an item that waits");
            self.remove_at(stream, subject).await?;
            self.send_once(stream, subject, marked_again(headers.clone()), body.clone()).await.map(drop)
        };
        match publication {
            Publication::Again => self.send_once(stream, subject, headers, body).await.map(drop),
            Publication::Anew => replace().await,
            Publication::First => match self.send_once(stream, subject, headers.clone(), body.clone()).await? {
                SendOutcome::Stored(_) => Ok(()),
                // What waits there is of a history that an older store has lost, or this very item, whose answer was
                // lost. The first may never be delivered.
                SendOutcome::Duplicate => replace().await,
            },
        }
    }

    /// Removes a call that is no longer wanted; `tool` is none for a model call. One that is held is removed too.
    pub async fn remove_item(
        &self,
        key: &SessionKey,
        tool: Option<&ToolName>,
        call: &CallAttempt,
    ) -> Result<(), BusError> {
        let (stream, subject) = match tool {
            Some(tool) => (Stream::Tool, subject::tool_item(key, tool, call)),
            None => (Stream::Model, subject::model_item(key, call)),
        };
        self.remove_at(stream, &subject).await
    }

    /// Removes an item by its sequence. After a purge of one held item, nats-server 2.15 may forget other held items of
    /// the consumer: the next ack moves its ack floor over them, and they are never delivered again.
    async fn remove_at(&self, stream: Stream, subject: &Subject) -> Result<(), BusError> {
        match self.transport().last(stream, subject, Read::Leader).await? {
            Some(item) => self.transport().delete(stream, &item).await,
            None => Ok(()),
        }
    }
}

pub(crate) fn call_of(meta: &ItemMeta) -> CallAttempt {
    CallAttempt { call: meta.call.clone(), attempt: meta.attempt }
}
