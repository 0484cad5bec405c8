//! Says in a log that another cell has its session. After that commit nothing happens here.

use bus::log::Committed;
use bus::{Bus, BusError};
use contract::cell::RESERVED_SLOT;
use contract::limits::TRANSCRIPT_PART_BYTES;
use contract::subject::SessionKey;
use contract::{CellName, Timestamp};
use session::Session;

use crate::commit::prepare;
use crate::perform::perform_in_turn;

/// Kind of the log that says that another cell has a moved session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointKind {
    /// The log that has the session, which must rest. Its pages move to the archive of this cell.
    Leaves,
    /// The log of the cell to which the session will come. It has nothing of this id but the commit that says that
    /// another cell has it, and keeps the id until then.
    Expected,
}

/// Result of [`point_session`] for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointOutcome {
    /// The log says that the session is in the other cell, by this call or an earlier one.
    Pointed,
    /// The session does not rest, so it stays.
    NotResting,
    /// Another commit came first: look again.
    Changed,
}

/// Commits that a session is in the cell `to`. It can be called again after a failure.
pub async fn point_session(
    bus: &Bus,
    key: &SessionKey,
    to: &CellName,
    kind: PointKind,
    now: Timestamp,
) -> Result<PointOutcome, BusError> {
    let session = load_session(bus, key).await?;
    let has_log = session.next_slot() > 0;
    // A log that only expects the session has no slots of it.
    let was_kind = if session.archived() == Some(0) { PointKind::Expected } else { PointKind::Leaves };
    if session.moved() == Some(to) && was_kind == kind {
        perform_in_turn(bus, key, &session, &session.outstanding()).await?;
        return Ok(PointOutcome::Pointed);
    }
    let is_here = session.moved().is_none() && session.seq() > 0;
    if is_here != (kind == PointKind::Leaves) {
        return Ok(PointOutcome::NotResting);
    }
    let session = if is_here { session } else { jump(session, now) };
    let Some(decision) = session.move_to(now, to.clone()) else { return Ok(PointOutcome::NotResting) };
    let prepared = prepare(session, &decision, TRANSCRIPT_PART_BYTES)?;
    let offer = prepared.offer(bus);
    let committed = match (has_log, is_here) {
        (false, _) => bus.commit_first(key, offer).await?,
        (true, true) => bus.commit_for(key, offer).await?,
        (true, false) => bus.commit_behind_head(key, offer, &prepared.meta.prev).await?,
    };
    match committed {
        Committed::Ours => {
            perform_in_turn(bus, key, &prepared.after, &prepared.after.outstanding()).await?;
            Ok(PointOutcome::Pointed)
        }
        Committed::Theirs => Ok(PointOutcome::Changed),
    }
}

/// Performs what follows from the import of a session, unless it has gone on since.
pub async fn finish_import(bus: &Bus, key: &SessionKey) -> Result<(), BusError> {
    let session = load_session(bus, key).await?;
    if session.archived().is_some_and(|slots| session.next_slot() == slots + 1) {
        perform_in_turn(bus, key, &session, &session.outstanding()).await?;
    }
    Ok(())
}

/// Lets the next commit stand beyond every slot that a session has, so that it is in no page of the one that comes.
fn jump(mut session: Session, now: Timestamp) -> Session {
    if session.next_slot() < RESERVED_SLOT {
        let commit = session.commit_id().to_owned();
        session.fold(RESERVED_SLOT - 1, now, &[]);
        session.link(RESERVED_SLOT - 1, &commit);
    }
    session
}

/// Reads the state of a session up to the head that the leader has now.
pub(crate) async fn load_session(bus: &Bus, key: &SessionKey) -> Result<Session, BusError> {
    let commits = bus.load_latest(key).await?.unwrap_or_default();
    Session::restore(key.clone(), &commits).map_err(|error| BusError::Malformed(error.to_string()))
}
