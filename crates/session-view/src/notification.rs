//! Notifications of the edge, parsed as far as this version knows them (I8).

use contract::Timestamp;
use contract::event::{Event, ToolCallProgress, Topic};
use contract::model::Chunk;
use proto::Notification;

/// A notification with its parsed content.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedNotification {
    /// Number of the event in its session; none for chunks, which are not stored.
    pub seq: Option<u64>,
    /// Time at which the session decided on the event; none if it cannot be read.
    pub time: Option<Timestamp>,
    /// Trace of the turn; empty if nothing is traced.
    pub(crate) trace_id: String,
    /// The parsed content of the notification.
    pub content: NotificationContent,
}

/// The content of a notification.
#[derive(Debug, Clone, PartialEq)]
pub enum NotificationContent {
    /// A committed event of the session.
    Event(Box<Event>),
    /// A part of a reply while it is streamed.
    Chunk(Chunk),
    /// Progress of a running tool call.
    Progress(ToolCallProgress),
    /// Content that this version does not know or need.
    Other,
}

impl ParsedNotification {
    /// Parses a notification; content that cannot be parsed becomes [`NotificationContent::Other`].
    pub fn parse(notification: &Notification) -> Self {
        Self {
            seq: notification.seq,
            time: Timestamp::parse(&notification.time),
            trace_id: notification.trace_id.clone(),
            content: parse_content(&notification.topic, &notification.data_json).unwrap_or(NotificationContent::Other),
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the topics that it reads")]
fn parse_content(topic: &str, data: &str) -> Option<NotificationContent> {
    match Topic::parse(topic)? {
        Topic::AiChunkReceived => serde_json::from_str(data).ok().map(NotificationContent::Chunk),
        Topic::ToolCallProgress => serde_json::from_str(data).ok().map(NotificationContent::Progress),
        Topic::ToolCallPartial => None,
        _ => {
            let tagged = format!(r#"{{"type":"{topic}","data":{data}}}"#);
            serde_json::from_str(&tagged).ok().map(|event| NotificationContent::Event(Box::new(event)))
        }
    }
}

/// Formats a notification as the line that `--json` prints.
pub fn to_json_line(session: &str, notification: &Notification) -> String {
    let data = contract::Json::parse(&notification.data_json).unwrap_or_default();
    let line = NotificationLine {
        topic: &notification.topic,
        id: &notification.id,
        session_id: session,
        seq: notification.seq,
        time: &notification.time,
        trace_id: &notification.trace_id,
        data,
    };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

#[derive(serde::Serialize)]
struct NotificationLine<'a> {
    topic: &'a str,
    id: &'a str,
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    time: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    trace_id: &'a str,
    data: contract::Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(topic: &str, seq: Option<u64>, data: &str) -> Notification {
        Notification {
            topic: topic.into(),
            id: "s-1-0".into(),
            seq,
            time: "2024-01-15T10:30:45.123Z".into(),
            trace_id: String::new(),
            data_json: data.into(),
        }
    }

    #[test]
    fn unknown_notification_becomes_other_content() {
        for (topic, data) in [("moon.risen", "{}"), ("error", "not json"), ("turn.completed", "{}"), ("error", "")] {
            assert_eq!(
                ParsedNotification::parse(&notification(topic, Some(1), data)).content,
                NotificationContent::Other,
                "{topic} {data}"
            );
        }
    }

    #[test]
    fn event_of_newer_writer_is_parsed() {
        let data = r#"{"by":"me","reason":null,"moon":"full"}"#;
        let parsed = ParsedNotification::parse(&notification("status.paused", Some(3), data));
        assert!(
            matches!(parsed.content, NotificationContent::Event(event) if matches!(*event, Event::StatusPaused(_)))
        );
        assert_eq!(parsed.seq, Some(3));
    }

    #[test]
    fn json_line_data_is_kept_byte_for_byte() {
        assert_eq!(
            to_json_line("s", &notification("error", Some(3), "{\"a\": 1.50}")),
            "{\"topic\":\"error\",\"id\":\"s-1-0\",\"session_id\":\"s\",\"seq\":3,\
             \"time\":\"2024-01-15T10:30:45.123Z\",\"data\":{\"a\": 1.50}}\n"
        );
    }
}
