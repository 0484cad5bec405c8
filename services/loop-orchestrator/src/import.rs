//! Imports a session from a file. One commit makes the whole session visible.

use bus::log::Committed;
use bus::{Bus, BusError, Head, Read};
use contract::Timestamp;
use contract::limits::TRANSCRIPT_PART_BYTES;
use session::Session;

use crate::commit::prepare;
use crate::perform::perform_in_turn;
use crate::relocate::load_session;

/// Result of [`import_session`] for the session.
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
/// again after a failure. `over` is the id of the commit by which the log expects the session from another cell; the
/// import takes its place, once.
pub async fn import_session(
    bus: &Bus,
    session: Session,
    last: &str,
    now: Timestamp,
    exported: Timestamp,
    over: Option<&str>,
) -> Result<ImportOutcome, BusError> {
    let (key, slot) = (session.key(), session.next_slot());
    let Some(decision) = session.import(now, exported) else { return Ok(ImportOutcome::InTurn) };
    let head = bus.head(&key, Read::Leader).await?;
    let is_expected = |head: &Head| head.meta.moved.is_some() && over == Some(head.meta.commit.as_str());
    let (after, effects) = match head {
        head if head.as_ref().map_or(over.is_none(), is_expected) => {
            let prepared = prepare(session, &decision, TRANSCRIPT_PART_BYTES)?;
            let committed = match over {
                None => bus.commit_first(&key, prepared.offer(bus)).await?,
                Some(expected) => bus.commit_behind_head(&key, prepared.offer(bus), expected).await?,
            };
            match committed {
                Committed::Ours => (prepared.after, decision.effects),
                Committed::Theirs => return Ok(ImportOutcome::IdTaken),
            }
        }
        // An earlier import, which may not have performed its effects.
        Some(head) if head.slot == slot && head.meta.archived == Some(slot) => {
            let there = bus.commit_at(&key, slot.saturating_sub(1)).await?;
            if there.is_none_or(|commit| commit.meta.commit != last) {
                return Ok(ImportOutcome::IdTaken);
            }
            let after = load_session(bus, &key).await?;
            let owed = after.outstanding();
            (after, owed)
        }
        Some(_) | None => return Ok(ImportOutcome::IdTaken),
    };
    perform_in_turn(bus, &key, &after, &effects).await?;
    Ok(ImportOutcome::Imported)
}
