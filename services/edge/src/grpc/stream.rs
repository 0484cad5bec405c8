//! The stream of notifications of one watch.

use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, stream};
use tonic::Status;

use super::status::to_status;
use crate::client_queue::{ClientQueue, QueueEnd, QueueItem};
use crate::watch::viewer_event::ViewerEvent;

/// Notifications until the end of the watch, or an error.
pub(super) type NotificationStream = Pin<Box<dyn Stream<Item = Result<proto::Notification, Status>> + Send>>;

/// Ends the queue, and so the viewer, if the client drops the stream.
struct DisconnectGuard(Arc<ClientQueue>);

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.0.end(QueueEnd::Disconnected);
    }
}

pub(super) fn stream_notifications(queue: Arc<ClientQueue>) -> NotificationStream {
    let next = async |guard: Option<DisconnectGuard>| {
        let guard = guard?;
        loop {
            match guard.0.pop().await {
                Ok(QueueItem::Event(event)) => return Some((Ok(to_notification(&event)), Some(guard))),
                Ok(QueueItem::Text(_)) => {}
                Err(end) => {
                    if let QueueEnd::Slow { .. } = end {
                        telemetry::metric::slow_client();
                    }
                    return end.error().map(|error| (Err(to_status(&error)), None));
                }
            }
        }
    };
    Box::pin(stream::unfold(Some(DisconnectGuard(queue)), next))
}

fn to_notification(event: &ViewerEvent) -> proto::Notification {
    let envelope = &event.envelope;
    proto::Notification {
        topic: event.topic.as_str().to_owned(),
        id: envelope.id.clone(),
        seq: envelope.seq,
        time: envelope.time.to_string(),
        trace_id: envelope.trace_id.clone(),
        data_json: envelope.data.get().to_owned(),
    }
}
