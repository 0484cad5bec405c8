//! Dead letters: items that failed for good, with the reason and the original.

use bytes::Bytes;
use contract::ids::{CommandId, TenantId};
use contract::streams::Stream;
use contract::subject::{self, DeadKind, DeadSubject, SessionKey, Subject};
use contract::{ErrorCode, Json, Timestamp};
use serde::{Deserialize, Serialize};

use crate::headers::trace_headers;
use crate::json::{encode, parse};
use crate::transport::ReadMany;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Delivery, Read};

/// The body of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The stable error code.
    pub code: ErrorCode,
    /// Reason why the item failed, for people.
    pub reason: String,
    /// The subject of the original item.
    pub subject: String,
    /// The original's sequence in its stream.
    pub seq: u64,
    /// Number of deliveries of the item.
    pub delivered: u64,
    /// Time at which the original was stored.
    #[serde(default)]
    pub stored_at: Timestamp,
    /// The original's body; text that is not JSON stands as a JSON string.
    pub body: Json,
}

impl Bus {
    /// Writes a dead letter. Writing it again changes nothing but its time.
    pub async fn write_dead_letter(&self, delivery: &Delivery, code: ErrorCode, reason: &str) -> Result<(), BusError> {
        let letter = DeadLetter {
            code,
            reason: reason.to_owned(),
            subject: delivery.subject.clone(),
            seq: delivery.seq,
            delivered: delivery.delivered,
            stored_at: delivery.stored_at,
            body: body_of(&delivery.payload),
        };
        let (subject, body) = (dead_subject(delivery)?, encode(&letter)?);
        Verified::at(&subject)
            .repeat(|_| async {
                let appended = self.transport().append(&subject, false, trace_headers(), body.clone()).await?;
                Ok(Write::of(appended, |_| ()))
            })
            .await
    }

    /// The dead letters of a tenant, or of one of its sessions, the oldest original first; `None` when there are more
    /// than 1,024 of them.
    pub async fn dead_letters(
        &self,
        tenant: &TenantId,
        session: Option<&SessionKey>,
    ) -> Result<Option<Vec<(DeadSubject, DeadLetter)>>, BusError> {
        let filter = session.map_or_else(|| subject::dead_of(tenant), subject::dead_of_session);
        let ReadMany::Messages(messages) =
            self.transport().last_many(Stream::Dead, std::slice::from_ref(&filter)).await?
        else {
            return Ok(None);
        };
        let read = |stored: crate::Stored| {
            let at = subject::parse_dead(&stored.subject)?;
            Some(parse(&stored.payload).map(|letter| (at, letter)))
        };
        let mut letters = messages.into_iter().filter_map(read).collect::<Result<Vec<(_, DeadLetter)>, _>>()?;
        letters.sort_by_key(|(_, letter)| letter.stored_at);
        Ok(Some(letters))
    }

    /// A dead letter by its subject; none where it was dropped.
    pub async fn dead_letter(&self, at: &DeadSubject) -> Result<Option<DeadLetter>, BusError> {
        let stored = self.transport().last(Stream::Dead, &place(at), Read::Leader).await?;
        stored.map(|stored| parse(&stored.payload)).transpose()
    }

    /// Removes a dead letter; `false` when there is none.
    pub async fn drop_dead(&self, at: &DeadSubject) -> Result<bool, BusError> {
        self.transport().purge(Stream::Dead, &place(at)).await.map(|removed| removed > 0)
    }
}

fn place(at: &DeadSubject) -> Subject {
    subject::dead(&at.key, at.kind, &at.id)
}

fn body_of(payload: &Bytes) -> Json {
    let text = String::from_utf8_lossy(payload);
    Json::parse(&text).unwrap_or_else(|_| Json::of(&*text))
}

fn dead_subject(delivery: &Delivery) -> Result<Subject, BusError> {
    let id = |text: String| CommandId::new(&text).map_err(|e| BusError::Malformed(e.to_string()));
    let by_seq = id(format!("seq-{}", delivery.seq))?;
    if let Some(control) = subject::parse_control(&delivery.subject) {
        return Ok(subject::dead(&control.key, DeadKind::Control, &control.id));
    }
    if let Some(item) = subject::parse_item(&delivery.subject) {
        // A call's id may be so long that its attempt does not fit behind it.
        let id = id(format!("{}-{}", item.call.call, item.call.attempt)).unwrap_or(by_seq);
        return Ok(subject::dead(&item.key, if item.tool.is_some() { DeadKind::Tool } else { DeadKind::Model }, &id));
    }
    if let Some(key) = subject::parse_timer(&delivery.subject) {
        return Ok(subject::dead(&key, DeadKind::Timer, &by_seq));
    }
    Ok(match subject::parse_control_key(&delivery.subject) {
        Some(key) => subject::dead(&key, DeadKind::Control, &by_seq),
        None => subject::dead_unknown(&by_seq),
    })
}
