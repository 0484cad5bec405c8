//! The stream of notifications of one watch.

use std::pin::Pin;

use futures::{Stream, stream};
use tonic::Status;

use super::status::to_status;
use crate::feed::viewer_event::ViewerEvent;
use crate::watch::event_stream::EventStream;

/// Notifications until the end of the watch, or an error.
pub(super) type NotificationStream = Pin<Box<dyn Stream<Item = Result<proto::Notification, Status>> + Send>>;

pub(super) fn stream_notifications(events: EventStream) -> NotificationStream {
    let next = async |events: Option<EventStream>| {
        let events = events?;
        match events.next().await {
            Ok(event) => Some((Ok(to_notification(&event)), Some(events))),
            Err(end) => end.error().map(|error| (Err(to_status(&error)), None)),
        }
    };
    Box::pin(stream::unfold(Some(events), next))
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
