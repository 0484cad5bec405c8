//! The stream of notifications of one watch.

use std::pin::Pin;

use bytes::Bytes;
use edge_core::feed::viewer_event::ViewerEvent;
use edge_core::watch::event_stream::ViewerStream;
use futures::{Stream, StreamExt};
use prost::Message as _;
use tonic::Status;

use super::status::to_status;

/// Notifications until the end of the watch, or an error.
pub(super) type NotificationStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

pub(super) fn stream_notifications(events: ViewerStream) -> NotificationStream {
    Box::pin(events.into_stream().map(|event| match event {
        Ok(event) => Ok(Bytes::from(to_notification(&event).encode_to_vec())),
        Err(error) => Err(to_status(&error)),
    }))
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
