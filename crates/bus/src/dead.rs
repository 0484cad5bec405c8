//! Dead letters: what failed for good, with the reason and the original.

use bytes::Bytes;
use contract::ids::CommandId;
use contract::subject::{self, Subject};
use contract::{ErrorCode, Json};
use serde::{Deserialize, Serialize};

use crate::log::{encode, is_final, trace_headers};
use crate::transport::Appended;
use crate::{Bus, BusError, Delivery, retry};

/// The body of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Stable: why.
    pub code: ErrorCode,
    /// Why, for people.
    pub reason: String,
    /// The original's subject.
    pub subject: String,
    /// The original's sequence in its stream.
    pub seq: u64,
    /// How often it was delivered.
    pub delivered: u64,
    /// The original's body; text that is not JSON stands as a JSON string.
    pub body: Json,
}

impl Bus {
    /// Writes a dead letter. Writing it again changes nothing but its time.
    pub async fn bury(&self, delivery: &Delivery, code: ErrorCode, reason: &str) -> Result<(), BusError> {
        let letter = DeadLetter {
            code,
            reason: reason.to_owned(),
            subject: delivery.subject.clone(),
            seq: delivery.seq,
            delivered: delivery.delivered,
            body: body_of(&delivery.payload),
        };
        let (subject, body) = (dead_subject(delivery)?, encode(&letter)?);
        let mut doubt = BusError::Timeout { what: subject.to_string() };
        for round in 1..=retry::ROUNDS_MAX {
            match self.transport().append(&subject, false, trace_headers(), body.clone()).await {
                Ok(Appended::Stored(_)) => return Ok(()),
                Ok(Appended::Doubtful(why)) => doubt = BusError::Full(why),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => doubt = error,
            }
            retry::wait(round, subject.as_str()).await;
        }
        Err(doubt)
    }
}

fn body_of(payload: &Bytes) -> Json {
    let text = String::from_utf8_lossy(payload);
    Json::parse(&text).unwrap_or_else(|_| Json::of(&*text))
}

fn dead_subject(delivery: &Delivery) -> Result<Subject, BusError> {
    let id = |text: String| CommandId::new(&text).map_err(|e| BusError::Malformed(e.to_string()));
    let by_seq = id(format!("seq-{}", delivery.seq))?;
    if let Some(control) = subject::parse_control(&delivery.subject) {
        return Ok(subject::dead(&control.key, "control", &control.id));
    }
    if let Some(item) = subject::parse_item(&delivery.subject) {
        // A call's id may be so long that its attempt does not fit behind it.
        let id = id(format!("{}-{}", item.call.call, item.call.attempt)).unwrap_or(by_seq);
        return Ok(subject::dead(&item.key, if item.tool.is_some() { "tool" } else { "model" }, &id));
    }
    if let Some(key) = subject::parse_timer(&delivery.subject) {
        return Ok(subject::dead(&key, "timer", &by_seq));
    }
    Ok(match subject::parse_control_key(&delivery.subject) {
        Some(key) => subject::dead(&key, "control", &by_seq),
        None => subject::dead_unknown("item", &by_seq),
    })
}
