//! The events of a session as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::ClientError;
use crate::event::SessionEvent;
use crate::watch::{Watch, WatchItem};

/// A stream of the events of a session, which ends with the session.
///
/// It connects again by itself. Every event with a `seq` comes once and in order. Chunks of replies may be lost; after a
/// new connection, a chunk that [`is_snapshot`](SessionEvent::is_snapshot) has all the text of the reply so far. It ends
/// after its first error.
pub struct EventStream(BoxStream<'static, Result<SessionEvent, ClientError>>);

impl EventStream {
    pub(crate) fn new(session_id: String, watch: Watch) -> Self {
        let events = stream::try_unfold((session_id, watch), async |(session_id, mut watch)| {
            while let Some(item) = watch.next().await? {
                match item {
                    WatchItem::Notification(notification) => {
                        let event = SessionEvent::parse(&session_id, *notification)?;
                        return Ok(Some((event, (session_id, watch))));
                    }
                    WatchItem::Lost { .. } | WatchItem::Restored => {}
                }
            }
            Ok(None)
        });
        Self(events.boxed())
    }
}

impl Stream for EventStream {
    type Item = Result<SessionEvent, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}
