//! A notification of the edge, read as far as this version knows it (I8).

use contract::Timestamp;
use contract::event::{Event, ToolCallProgress, Topic};
use contract::model::Chunk;
use proto::Notification;

/// A notification, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// Counts the session's events; none on chunks.
    pub seq: Option<u64>,
    /// When it was decided.
    pub time: Option<Timestamp>,
    /// The turn's trace; empty where nothing is traced.
    pub trace_id: String,
    /// What it says.
    pub what: What,
}

/// What a notification says.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A committed fact.
    Event(Box<Event>),
    /// A piece of a reply.
    Chunk(Chunk),
    /// A tool says how far it is.
    Progress(ToolCallProgress),
    /// What this version does not know, or need.
    Other,
}

impl Heard {
    /// Reads a notification; what cannot be read is [`What::Other`].
    pub fn read(notification: &Notification) -> Self {
        Self {
            seq: notification.seq,
            time: Timestamp::parse(&notification.time),
            trace_id: notification.trace_id.clone(),
            what: what(&notification.topic, &notification.data_json).unwrap_or(What::Other),
        }
    }
}

fn what(topic: &str, data: &str) -> Option<What> {
    match Topic::parse(topic)? {
        Topic::AiChunkReceived => serde_json::from_str(data).ok().map(What::Chunk),
        Topic::ToolCallProgress => serde_json::from_str(data).ok().map(What::Progress),
        Topic::ToolCallPartial => None,
        Topic::SessionStarted
        | Topic::SessionEnded
        | Topic::UserProcessed
        | Topic::AiFullReceived
        | Topic::ToolCallIdentified
        | Topic::ToolCallResult
        | Topic::StatusPaused
        | Topic::StatusResumed
        | Topic::ContinuationProgress
        | Topic::TurnCompleted
        | Topic::GateOpened
        | Topic::GateClosed
        | Topic::Configured
        | Topic::ContextPruned
        | Topic::ContextCleared
        | Topic::Error => {
            let tagged = format!(r#"{{"type":"{topic}","data":{data}}}"#);
            serde_json::from_str(&tagged).ok().map(|event| What::Event(Box::new(event)))
        }
    }
}

/// A notification as a line of JSON, as `--json` prints it.
pub fn json_line(session: &str, notification: &Notification) -> String {
    let data = contract::Json::parse(&notification.data_json).unwrap_or_default();
    let line = Line {
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
struct Line<'a> {
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
    fn what_is_unknown_breaks_nothing() {
        for (topic, data) in [("moon.risen", "{}"), ("error", "not json"), ("turn.completed", "{}"), ("error", "")] {
            assert_eq!(Heard::read(&notification(topic, Some(1), data)).what, What::Other, "{topic} {data}");
        }
    }

    #[test]
    fn an_event_of_a_newer_writer_is_read() {
        let data = r#"{"by":"me","reason":null,"moon":"full"}"#;
        let heard = Heard::read(&notification("status.paused", Some(3), data));
        assert!(matches!(heard.what, What::Event(event) if matches!(*event, Event::StatusPaused(_))));
        assert_eq!(heard.seq, Some(3));
    }

    #[test]
    fn a_line_keeps_the_data_as_it_came() {
        assert_eq!(
            json_line("s", &notification("error", Some(3), "{\"a\": 1.50}")),
            "{\"topic\":\"error\",\"id\":\"s-1-0\",\"session_id\":\"s\",\"seq\":3,\
             \"time\":\"2024-01-15T10:30:45.123Z\",\"data\":{\"a\": 1.50}}\n"
        );
    }
}
