//! Imports a session from a file. One commit makes the whole session visible.

use bus::log::Committed;
use bus::work::Publication;
use bus::{Bus, BusError, Offer, Read};
use contract::Timestamp;
use contract::limits::TRANSCRIPT_PART_BYTES;
use session::Session;

use crate::commit::{Prepared, prepare};
use crate::perform;

/// What [`import_session`] did with the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The session exists, by this import or an earlier one.
    Imported,
    /// The session cannot be imported: it never started, or it is in a turn.
    InTurn,
    /// Another session has this id.
    IdTaken,
}

/// Imports a session whose commits are in the archive already; `last` is the id of its last commit. It can be called
/// again after a failure.
pub async fn import_session(
    bus: &Bus,
    session: Session,
    last: &str,
    now: Timestamp,
    exported: Timestamp,
) -> Result<ImportOutcome, BusError> {
    let (key, slot) = (session.key(), session.next_slot());
    let Some(decision) = session.import(now, exported) else { return Ok(ImportOutcome::InTurn) };
    let malformed = |error: serde_json::Error| BusError::Malformed(error.to_string());
    let (after, effects) = match bus.head(&key, Read::Leader).await? {
        None => {
            let Prepared { slot, meta, body, after, expires } =
                prepare(session, &decision, TRANSCRIPT_PART_BYTES).map_err(malformed)?;
            let life = expires.then(|| bus.transport().retention());
            let offer = Offer { slot, prev: &meta.prev, commit: &meta.commit, body, ttl: life };
            match bus.commit_first(&key, offer).await? {
                Committed::Ours => (after, decision.effects),
                Committed::Theirs => return Ok(ImportOutcome::IdTaken),
            }
        }
        // An earlier import, which may not have performed its effects.
        Some(head) if head.slot == slot && head.meta.archived == Some(slot) => {
            let there = bus.commit_at(&key, slot.saturating_sub(1)).await?;
            if there.is_none_or(|commit| commit.meta.commit != last) {
                return Ok(ImportOutcome::IdTaken);
            }
            let commits = bus.load_latest(&key).await?.unwrap_or_default();
            let after =
                Session::restore(key.clone(), &commits).map_err(|error| BusError::Malformed(error.to_string()))?;
            let owed = after.outstanding();
            (after, owed)
        }
        Some(_) => return Ok(ImportOutcome::IdTaken),
    };
    for effect in &effects {
        perform::perform(bus, &key, &after, effect, Publication::First).await?;
    }
    Ok(ImportOutcome::Imported)
}
