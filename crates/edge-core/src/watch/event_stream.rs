//! The events of one watch for a client that follows nothing else on its connection: gRPC and server-sent events.

use std::sync::Arc;

use contract::ErrorCode;
use futures::{Stream, stream};
use session_api::WatchParams;

use super::viewer::Viewer;
use crate::access::ApiCaller;
use crate::api::{ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::client_queue::{ClientQueue, QueueEnd, QueueItem};
use crate::feed::viewer_event::ViewerEvent;

/// The events of a watch. The watch ends when this is dropped.
#[derive(Debug)]
pub struct ViewerStream {
    queue: Arc<ClientQueue>,
}

impl ViewerStream {
    /// Waits for the next event, and returns the end once there is none.
    pub async fn next(&self) -> Result<Arc<ViewerEvent>, QueueEnd> {
        loop {
            match self.queue.pop().await {
                Ok(QueueItem::Event(event)) => return Ok(event),
                Ok(QueueItem::Text(_)) => {}
                Err(end) => {
                    if let QueueEnd::Slow { .. } = end {
                        telemetry::metric::slow_client();
                    }
                    return Err(end);
                }
            }
        }
    }

    /// Returns the events as a stream. If the watch ends with an error, that is its last item.
    pub fn into_stream(self) -> impl Stream<Item = Result<Arc<ViewerEvent>, ApiError>> + Send {
        stream::unfold(Some(self), async |events| {
            let events = events?;
            match events.next().await {
                Ok(event) => Some((Ok(event), Some(events))),
                Err(end) => end.error().map(|error| (Err(error), None)),
            }
        })
    }
}

impl Drop for ViewerStream {
    fn drop(&mut self) {
        self.queue.end(QueueEnd::Disconnected);
    }
}

impl SessionApi {
    /// Starts to watch a session, which may be about to start.
    pub async fn open_stream(
        &self,
        caller: &ApiCaller,
        session: &ReachedSession,
        params: &WatchParams,
    ) -> Result<ViewerStream, ApiError> {
        let (_, viewer) = match self.watch(caller, session, params).await {
            Err(error) if error.code == ErrorCode::UnknownSession => {
                self.watch_after_start(caller, session, params).await?
            }
            outcome => outcome?,
        };
        Ok(self.stream_of(caller, viewer))
    }

    /// Starts to watch a session that is there. If this process has started it just now, nothing is read for that.
    pub(crate) async fn open_begun_stream(
        &self,
        caller: &ApiCaller,
        session: &ReachedSession,
        params: &WatchParams,
    ) -> Result<ViewerStream, ApiError> {
        match Viewer::of_new(self, self.cell_of(session).await?, session, params) {
            Some(viewer) => Ok(self.stream_of(caller, viewer)),
            None => self.open_stream(caller, session, params).await,
        }
    }

    fn stream_of(&self, caller: &ApiCaller, viewer: Viewer) -> ViewerStream {
        let queue = Arc::new(self.client_queue());
        let (filled, draining, grant) = (queue.clone(), self.draining().clone(), caller.grant.clone());
        self.tasks().spawn("viewer", async move {
            let end = tokio::select! {
                () = draining.cancelled() => QueueEnd::Failed(Self::draining_error()),
                error = grant.wait_for_end() => QueueEnd::Failed(error),
                outcome = viewer.run(&filled) => outcome.map_or_else(QueueEnd::Failed, |()| QueueEnd::Complete),
            };
            filled.end(end);
        });
        ViewerStream { queue }
    }
}
