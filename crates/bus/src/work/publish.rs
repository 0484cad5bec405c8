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
    /// Its commit is this publisher's own, and new. Another item that waits there is of a history that an older store has
    /// lost, and is replaced.
    First,
    /// It may have been handled, and its result may wait for the loop.
    Again,
    /// As [`Publication::Again`], and it replaces an item that waits there: that one may be acknowledged unhandled, by a
    /// worker that found the session paused, or may never be delivered, after an older store came back.
    Replacing,
}

impl Publication {
    fn headers(self) -> Headers {
        match self {
            Self::First => trace_headers(),
            Self::Again | Self::Replacing => marked_again(trace_headers()),
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

    /// A worker that holds an item which is replaced answers for its call, and takes the new one over.
    async fn publish_item(
        &self,
        stream: Stream,
        subject: &Subject,
        publication: Publication,
        mut headers: Headers,
        body: Bytes,
    ) -> Result<(), BusError> {
        headers.extend(self.address.iter().map(|replica| (header::REPLICA.to_owned(), replica.to_string())));
        if publication == Publication::Replacing {
            self.remove_at(stream, subject).await?;
        }
        let sent = self.send_once(stream, subject, headers.clone(), body.clone()).await?;
        if sent == SendOutcome::Duplicate && publication == Publication::First {
            return self.replace_other(stream, subject, headers, body).await;
        }
        Ok(())
    }

    /// Replaces the item that waits, unless it is this very one, whose answer was lost.
    async fn replace_other(
        &self,
        stream: Stream,
        subject: &Subject,
        headers: Headers,
        body: Bytes,
    ) -> Result<(), BusError> {
        if let Some(waits) = self.transport().last(stream, subject, Read::Leader).await? {
            if waits.payload == body {
                return Ok(());
            }
            tracing::debug!(%subject, "an item of another history waits, and is replaced");
            self.transport().delete(stream, &waits).await?;
        }
        self.send_once(stream, subject, marked_again(headers), body).await.map(drop)
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
