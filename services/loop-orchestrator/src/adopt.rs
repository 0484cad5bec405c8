//! Takes in a session that was folded from a file: one commit makes it visible, whole.

use bus::log::Committed;
use bus::work::Publication;
use bus::{Bus, BusError, Offer, Read};
use contract::Timestamp;
use session::Session;

use crate::commit::{Prepared, prepare};
use crate::perform;

/// What became of a session that was to be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// It is there.
    Done,
    /// It cannot go on elsewhere: it never started, or is in a turn.
    InTurn,
    /// There is another one of that id.
    Taken,
}

/// Takes in a session whose commits are in the archive already, the last of them under the id `last`. Doing it again after
/// it broke off is harmless.
pub async fn adopt(
    bus: &Bus,
    session: Session,
    last: &str,
    now: Timestamp,
    exported: Timestamp,
) -> Result<Adopted, BusError> {
    let (key, slot) = (session.key(), session.next_slot());
    let Some(decision) = session.import(now, exported) else { return Ok(Adopted::InTurn) };
    let malformed = |error: serde_json::Error| BusError::Malformed(error.to_string());
    let (after, effects) = match bus.head(&key, Read::Leader).await? {
        None => {
            let Prepared { slot, meta, body, after, fades } = prepare(session, &decision).map_err(malformed)?;
            let life = fades.then(|| bus.transport().retention());
            let offer = Offer { slot, prev: &meta.prev, commit: &meta.commit, body, life };
            match bus.commit_first(&key, offer).await? {
                Committed::Ours => (after, decision.effects),
                Committed::Theirs => return Ok(Adopted::Taken),
            }
        }
        // Ours of a former try, which may not have come to its end.
        Some(head) if head.slot == slot && head.meta.archived == Some(slot) => {
            let there = bus.commit_at(&key, slot.saturating_sub(1)).await?;
            if there.is_none_or(|commit| commit.meta.commit != last) {
                return Ok(Adopted::Taken);
            }
            let commits = bus.load_latest(&key).await?.unwrap_or_default();
            let after =
                Session::restore(key.clone(), &commits).map_err(|error| BusError::Malformed(error.to_string()))?;
            let owed = after.outstanding();
            (after, owed)
        }
        Some(_) => return Ok(Adopted::Taken),
    };
    for effect in &effects {
        perform::perform(bus, &key, &after, effect, Publication::First).await?;
    }
    Ok(Adopted::Done)
}
