//! Reads the public events of a session page by page, so that a long session is never in memory as a whole.

use std::sync::Arc;

use bus::{Bus, BusError};
use contract::commit::{Commit, Phase};
use contract::subject::SessionKey;

use super::viewer_event::{self, ViewerEvent};

/// Public events of consecutive slots of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogRange {
    pub(crate) events: Vec<Arc<ViewerEvent>>,
    /// The `seq` with which the range begins; 0 if it is empty.
    pub(crate) first_seq: u64,
    /// The last slot; `None` if the range is empty.
    pub(crate) last_slot: Option<u64>,
    /// The session's last `seq` after the range.
    pub(crate) last_seq: u64,
    /// The phase after the last commit; `None` if the range is empty.
    pub(crate) phase: Option<Phase>,
}

impl LogRange {
    fn from_commits(key: &SessionKey, commits: &[(u64, Commit)]) -> Self {
        let events =
            commits.iter().flat_map(|(slot, commit)| viewer_event::events_of_commit(key, *slot, commit)).collect();
        let last = commits.last();
        Self {
            events,
            first_seq: commits.first().map_or(0, |(_, commit)| commit.meta.seq),
            last_slot: last.map(|(slot, _)| *slot),
            last_seq: last.map_or(0, |(_, commit)| commit.last_seq()),
            phase: last.map(|(_, commit)| commit.meta.phase),
        }
    }
}

/// Loads everything from a page to the head.
pub(crate) async fn load_from_page(bus: &Bus, key: &SessionKey, from_page: u64) -> Result<LogRange, BusError> {
    Ok(LogRange::from_commits(key, &bus.history(key, from_page).await?))
}

/// Loads the head's page from the leader.
pub(crate) async fn load_head_page(bus: &Bus, key: &SessionKey) -> Result<LogRange, BusError> {
    Ok(LogRange::from_commits(key, &bus.head_page(key).await?))
}

/// Loads a finished page; `None` if it is not stored any more.
pub(crate) async fn load_finished_page(bus: &Bus, key: &SessionKey, page: u64) -> Result<Option<LogRange>, BusError> {
    Ok(bus.page(key, page).await?.map(|commits| LogRange::from_commits(key, &commits)))
}

/// Finds the last page up to `last` that begins at or before a `seq`.
pub(crate) async fn find_page(bus: &Bus, key: &SessionKey, seq: u64, last: u64) -> Result<u64, BusError> {
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match bus.page_seq(key, middle).await? {
            Some(begins) if begins <= seq => low = middle,
            // The page begins later or is not visible. To begin with an earlier page is always correct.
            Some(_) | None => high = middle - 1,
        }
    }
    Ok(low)
}
