//! The settings of every stream and consumer, as JetStream wants them.

use std::time::Duration;

use contract::limits;
use contract::streams::{Bucket, Kind, Objects, Queue, Stream};
use serde_json::{Map, Value, json};

/// A stream's or consumer's settings: what it is created with, and what is verified, one by one.
pub(super) type Settings = Map<String, Value>;

/// Everything by name: the streams, then what stands behind buckets and object stores.
pub(super) fn streams(retention: Duration) -> Vec<(String, Settings)> {
    let streams = Stream::ALL.iter().map(|stream| (stream.name().to_owned(), stream_settings(*stream, retention)));
    let buckets = Bucket::ALL.iter().map(|bucket| (format!("KV_{}", bucket.name()), bucket_settings(*bucket)));
    let objects =
        Objects::ALL.iter().map(|store| (format!("OBJ_{}", store.name()), object_settings(*store, retention)));
    streams.chain(buckets).chain(objects).collect()
}

fn stream_settings(stream: Stream, kept: Duration) -> Settings {
    let (retention, discard, max_age) = match stream.kind() {
        Kind::Queue => ("workqueue", "new", None),
        Kind::Slots => ("limits", "new", None),
        Kind::Schedule => ("workqueue", "old", None),
        Kind::MaxAge(_) if stream == Stream::Archive => ("limits", "old", Some(kept)),
        Kind::MaxAge(age) | Kind::MaxAgeWithTtl(age) => ("limits", "old", Some(age)),
    };
    settings(json!({
        "subjects": stream.subjects(),
        "retention": retention,
        "discard": discard,
        "discard_new_per_subject": discard == "new",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": nanos(max_age),
        "storage": "file",
        "allow_direct": true,
        "allow_msg_schedules": stream.kind() == Kind::Schedule,
        "allow_msg_ttl": matches!(stream.kind(), Kind::MaxAgeWithTtl(_) | Kind::Slots),
        "compression": if stream == Stream::Archive { "s2" } else { "none" },
    }))
}

fn bucket_settings(bucket: Bucket) -> Settings {
    settings(json!({
        "subjects": [format!("$KV.{}.>", bucket.name())],
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": nanos(bucket.max_age()),
        "storage": "file",
        "allow_direct": true,
        "allow_rollup_hdrs": true,
        "deny_delete": true,
        "allow_msg_ttl": bucket == Bucket::Sessions,
    }))
}

fn object_settings(store: Objects, kept: Duration) -> Settings {
    let max_age = match store {
        Objects::Archive => Some(kept.saturating_add(limits::RETENTION_MARGIN)),
        Objects::Work | Objects::Blobs | Objects::Results => store.max_age(),
    };
    settings(json!({
        "subjects": [format!("$O.{}.C.>", store.name()), format!("$O.{}.M.>", store.name())],
        "retention": "limits",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": nanos(max_age),
        "storage": "file",
        "allow_direct": true,
        "allow_rollup_hdrs": true,
        "compression": if store == Objects::Archive { "s2" } else { "none" },
    }))
}

/// The settings of the consumer of a queue.
pub(super) fn consumer(queue: Queue) -> Settings {
    settings(json!({
        "durable_name": queue.durable(),
        "ack_policy": "explicit",
        "ack_wait": nanos(Some(limits::ACK_WAIT)),
        "max_ack_pending": limits::ACK_PENDING_MAX,
        "max_deliver": -1,
        "deliver_policy": "all",
        "replay_policy": "instant",
        "filter_subject": queue.filter().unwrap_or_default(),
    }))
}

fn settings(value: Value) -> Settings {
    if let Value::Object(settings) = value { settings } else { Settings::new() }
}

fn nanos(age: Option<Duration>) -> u64 {
    age.map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
}

/// The first setting that differs: its name, what is wanted, what was found. What the server leaves out is `false`, 0
/// or empty.
pub(super) fn drift(wanted: &Settings, found: &Settings) -> Option<(String, Value, Value)> {
    let plain = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        // Of compression.
        Value::String(text) => text.is_empty() || text == "none",
        Value::Array(values) => values.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    };
    wanted.iter().find_map(|(name, wanted)| {
        let found = found.get(name).unwrap_or(&Value::Null);
        let same = found == wanted || plain(found) && plain(wanted);
        (!same).then(|| (name.clone(), wanted.clone(), found.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_named_and_what_is_left_out_is_plain() {
        let wanted = settings(json!({"a": 0, "b": false, "c": "x", "d": [1]}));
        assert_eq!(drift(&wanted, &settings(json!({"c": "x", "d": [1], "more": 1}))), None);
        let found = settings(json!({"c": "y", "d": [1]}));
        assert_eq!(drift(&wanted, &found), Some(("c".to_owned(), json!("x"), json!("y"))));
        assert_eq!(drift(&wanted, &settings(json!({"a": 5}))).map(|d| d.0), Some("a".to_owned()));
    }
}
