//! A log in which a commit follows another commit than the one that stands before it. A server that came back with an
//! older store took a commit that was decided on commits that this store lacks.

use std::collections::BTreeSet;

use contract::commit::{CommitHead, CommitMeta};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use futures::future::try_join_all;

use crate::json::parse;
use crate::slots::{page_start, slot_of};
use crate::transport::ReadMany;
use crate::{Bus, BusError, Read, Stored};

/// Most commits of the end of a log that are read one by one: a log has three pages.
const END_MAX: u64 = 4 * SLOTS_PER_PAGE;

/// A commit that follows another commit than the one that stands before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBreak {
    /// Slot of the commit.
    pub slot: u64,
    /// Id of the commit that it names as the one before it.
    pub prev: String,
    /// Id of the commit that stands before it; empty where the slot before it is empty.
    pub found: String,
}

impl std::fmt::Display for HistoryBreak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slot, prev, found } = self;
        let found = if found.is_empty() { "nothing" } else { found };
        write!(f, "slot {slot} follows commit {prev}, but {found} stands before it: two histories")
    }
}

/// Every break among commits of a log that are in the order of their slots and end with its last one. Slots may be
/// missing that the state after the last commit does not need: they are in the archive.
pub fn find_breaks(commits: &[(u64, CommitMeta)]) -> Vec<HistoryBreak> {
    let needed_from = commits.last().map_or(0, |(slot, head)| page_start(*slot).max(head.first_slot()));
    let pairs = commits.iter().zip(commits.iter().skip(1));
    let breaks = pairs.filter_map(|((before, found), (slot, commit))| {
        let is_next = before + 1 == *slot;
        let is_break = if is_next { !commit.follows(&found.commit) } else { *slot > needed_from };
        let found = if is_next { found.commit.clone() } else { String::new() };
        is_break.then(|| HistoryBreak { slot: *slot, prev: commit.prev.clone(), found })
    });
    breaks.collect()
}

/// Whether what stands behind the first of these commits ends the log and is of another history: `slot` does not follow
/// the slot before it, and each later commit follows one of that history, which may be `removed` already.
fn is_foreign_end(slot: u64, end: &[(u64, CommitMeta)], removed: &BTreeSet<String>) -> bool {
    let Some((before, behind)) = end.split_first().filter(|((first, _), _)| first + 1 == slot) else { return false };
    let is_foreign = |(found, (next_slot, next)): (&(u64, CommitMeta), &(u64, CommitMeta))| {
        let follows = found.0 + 1 == *next_slot && next.follows(&found.1.commit);
        follows != (*next_slot == slot) || removed.contains(&next.prev)
    };
    !behind.is_empty() && std::iter::once(before).chain(behind).zip(behind).all(is_foreign)
}

impl Bus {
    /// The commits that the log itself has of a session, in the order of their slots, from any replica.
    pub async fn log_commits(&self, key: &SessionKey) -> Result<Vec<(u64, CommitMeta)>, BusError> {
        let ReadMany::Messages(messages) =
            self.transport().last_many(Stream::Log, &[subject::log_session(key)]).await?
        else {
            return Err(BusError::Malformed(format!("the log of {key} has too many commits to be read at once")));
        };
        let mut commits = messages.iter().map(read_meta).collect::<Result<Vec<_>, _>>()?;
        commits.sort_by_key(|(slot, _)| *slot);
        Ok(commits)
    }

    /// Removes the end of a log from slot `slot` on, newest commit first, where the leader shows that it is of another
    /// history than the slot before it. Returns how many commits it removed. Only for those who may write the log.
    pub async fn remove_foreign_end(&self, key: &SessionKey, slot: u64) -> Result<usize, BusError> {
        self.remove_end(key, slot, |end, removed| is_foreign_end(slot, end, removed)).await
    }

    /// Removes the commits of a log from slot `slot` on, newest first, as long as they are among `ids`, or were decided
    /// on one that was removed. Returns how many commits it removed. For operators: nothing proves that the commits
    /// belong elsewhere.
    pub async fn drop_from(&self, key: &SessionKey, slot: u64, ids: &BTreeSet<&str>) -> Result<usize, BusError> {
        let is_named = |(_, last): &(u64, CommitMeta)| ids.contains(last.commit.as_str());
        let is_last_named = |end: &[(u64, CommitMeta)], removed: &BTreeSet<String>| {
            end.last().is_some_and(|last| is_named(last) || removed.contains(&last.1.prev))
        };
        self.remove_end(key, slot, is_last_named).await
    }

    /// Removes the newest commit as long as it may be removed. A writer that knows only the removed history may add a
    /// commit until its own last one is gone; so the end is read again each time, until nothing is left of it.
    async fn remove_end(
        &self,
        key: &SessionKey,
        slot: u64,
        may_remove: impl Fn(&[(u64, CommitMeta)], &BTreeSet<String>) -> bool,
    ) -> Result<usize, BusError> {
        let mut removed = BTreeSet::new();
        loop {
            let messages = self.log_end(key, slot.saturating_sub(1)).await?;
            let end = messages.iter().map(read_meta).collect::<Result<Vec<_>, _>>()?;
            let (Some(last), Some((last_slot, meta))) = (messages.last(), end.last()) else { break };
            if *last_slot < slot || !may_remove(&end, &removed) {
                break;
            }
            tracing::warn!(
                session = %key, slot = last_slot, commit = meta.commit, prev = meta.prev, seq = meta.seq,
                "a commit of another history is removed from the log"
            );
            // Fails over another connection than that of the read, which may lead to another store.
            self.transport().delete(Stream::Log, last).await?;
            removed.insert(meta.commit.clone());
            self.forget(Objects::Blobs, &last.payload).await;
        }
        Ok(removed.len())
    }

    /// The error for a log in which a read found this break. The leader tells whether it is there, and whether one
    /// history ends the log.
    pub(crate) async fn two_histories(&self, key: &SessionKey, found: &HistoryBreak) -> BusError {
        let (why, slot) = (format!("session {key}: {found}"), found.slot);
        let read = self.log_end(key, slot.saturating_sub(1)).await;
        let end = match read.and_then(|end| end.iter().map(read_meta).collect::<Result<Vec<_>, _>>()) {
            Ok(end) => end,
            Err(error) => return error,
        };
        if is_foreign_end(slot, &end, &BTreeSet::new()) {
            return BusError::TwoHistories { slot, why };
        }
        let is_in_log = end.first().is_some_and(|(first, _)| *first <= slot);
        if is_in_log && find_breaks(&end).iter().all(|found| found.slot != slot) {
            // A stream replica that lags showed what was removed since.
            return BusError::Unavailable(format!("a replica has an older end of the log: {why}"));
        }
        BusError::Malformed(format!("{why}, and not only at the end of the log; see `ailoop sessions drop-history`"))
    }

    /// The messages of a log from slot `first` to its end, as the leader has them.
    async fn log_end(&self, key: &SessionKey, first: u64) -> Result<Vec<Stored>, BusError> {
        let Some(last) = self.last_message(key, Read::Leader).await? else { return Ok(Vec::new()) };
        let end = slot_of(&last)?;
        if end.saturating_sub(first) > END_MAX {
            return Err(BusError::Malformed(format!("slot {first} of {key} has {} slots behind it", end - first)));
        }
        let before = try_join_all((first..end).map(|slot| self.slot_message(key, slot, Read::Leader)));
        // The last one was read first: where it can still be deleted, the others are of the same connection.
        Ok(before.await?.into_iter().flatten().chain((end >= first).then_some(last)).collect())
    }
}

fn read_meta(stored: &Stored) -> Result<(u64, CommitMeta), BusError> {
    Ok((slot_of(stored)?, parse::<CommitHead>(&stored.payload)?.meta))
}
