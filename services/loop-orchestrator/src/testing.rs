//! Test data that several tests of this crate begin with.

use std::time::Duration;

use bus::Delivery;
use bytes::Bytes;
use contract::Timestamp;

/// A delivery of an input, the one of this number.
pub(crate) fn delivery(subject: &str, delivered: u64, payload: Bytes) -> Delivery {
    Delivery {
        subject: subject.to_owned(),
        seq: 1,
        delivered,
        stored_at: Timestamp::default(),
        waited: Duration::ZERO,
        connected_for: Duration::MAX,
        generation: 1,
        headers: Vec::new(),
        payload,
        ack: String::new(),
    }
}
