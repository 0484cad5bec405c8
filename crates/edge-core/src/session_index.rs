//! The session index of the tenant in memory: it is read once, kept up to date by a watch, and read again after a gap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bus::{Bus, BusError, SummaryChange};
use contract::commit::{ListPlace, Phase, SessionSummary};
use contract::limits::SESSION_INDEX_BYTES_MAX;
use contract::{SessionId, TenantId};
use futures::StreamExt;
use futures::stream::BoxStream;
use service::tasks::Tasks;
use session_api::{ListCursor, SessionNumbers};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Shortest and longest pause between reads of the whole index: the watch does not report expired entries, and it may
/// lose a change.
const READ_INTERVAL: Duration = Duration::from_mins(1);
const READ_INTERVAL_MAX: Duration = Duration::from_mins(15);
/// The pause as a multiple of the time of a read: an index of many sessions must not be read all the time.
const READ_INTERVAL_FACTOR: u32 = 200;
/// Pause before a failed read or watch is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bytes of an entry in memory, as a multiple of its JSON.
const MEMORY_FACTOR: usize = 2;

/// The index. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct SessionIndex {
    entries: Arc<RwLock<Option<IndexEntries>>>,
}

/// A session, with the bytes that count for it.
#[derive(Debug)]
struct IndexEntry {
    summary: Arc<SessionSummary>,
    bytes: usize,
}

/// The entries by id, and in the order of lists: the newest first.
#[derive(Debug, Default)]
struct IndexEntries {
    by_id: BTreeMap<SessionId, IndexEntry>,
    newest: BTreeSet<ListPlace>,
    /// Sessions with open gates.
    with_gates: BTreeSet<SessionId>,
    /// Sessions with calls that wait for a client.
    with_client_calls: BTreeSet<SessionId>,
    open_count: usize,
    bytes: usize,
}

/// Reason for which following the index ended.
enum FollowEnd {
    Gap,
    TooLarge,
    Failed(BusError),
}

impl SessionIndex {
    /// Starts to follow the index of a tenant, until the tasks or this one end.
    pub(crate) fn start(bus: Bus, tenant: TenantId, tasks: &Tasks, ending: CancellationToken) -> Self {
        let index = Self { entries: Arc::default() };
        let (all_ending, follower) = (tasks.token(), index.clone());
        tasks.spawn("session index", async move {
            let following = ending.run_until_cancelled(follower.run(bus, tenant));
            all_ending.run_until_cancelled(following).await;
        });
        index
    }

    /// Lists the newest selected sessions after a position; `None` while the index is not in memory.
    pub(crate) fn list_newest(
        &self,
        after: Option<&ListCursor>,
        selects: impl Fn(&SessionSummary) -> bool,
        count: usize,
    ) -> Option<Vec<SessionSummary>> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.position()));
        self.read(|entries| {
            let all = entries.newest.range((from, Bound::Unbounded));
            let all = all.filter_map(|(_, Reverse(session))| entries.by_id.get(session));
            let matching = all.filter(|entry| selects(&entry.summary));
            matching.take(count).map(|entry| (*entry.summary).clone()).collect()
        })
    }

    /// Counts the selected sessions; `None` while the index is not in memory.
    pub(crate) fn count(&self, selects: impl Fn(&SessionSummary) -> bool) -> Option<usize> {
        self.read(|entries| entries.by_id.values().filter(|entry| selects(&entry.summary)).count())
    }

    /// Lists the sessions with open gates; `None` while the index is not in memory.
    pub(crate) fn list_with_gates(&self) -> Option<Vec<Arc<SessionSummary>>> {
        self.read(|entries| entries.list(&entries.with_gates))
    }

    /// Lists the sessions with calls that wait for a client; `None` while the index is not in memory.
    pub(crate) fn list_with_client_calls(&self) -> Option<Vec<Arc<SessionSummary>>> {
        self.read(|entries| entries.list(&entries.with_client_calls))
    }

    /// Lists every session; `None` while the index is not in memory.
    pub(crate) fn list_all(&self) -> Option<Vec<Arc<SessionSummary>>> {
        self.read(|entries| entries.by_id.values().map(|entry| entry.summary.clone()).collect())
    }

    /// Returns the number of sessions that have not ended; `None` while the index is not in memory.
    pub(crate) fn open_count(&self) -> Option<usize> {
        self.read(|entries| entries.open_count)
    }

    /// Counts the sessions; `None` while the index is not in memory.
    pub(crate) fn counts(&self) -> Option<SessionNumbers> {
        self.read(|entries| {
            let mut counts = SessionNumbers { with_gates: entries.with_gates.len(), ..SessionNumbers::default() };
            for entry in entries.by_id.values() {
                *counts.of_phase(entry.summary.phase) += 1;
            }
            counts
        })
    }

    /// Whether the index has a session; `false` while it is not in memory.
    pub(crate) fn contains(&self, session: &SessionId) -> bool {
        self.phase(session).is_some()
    }

    /// Whether the index is in memory and does not have a session.
    pub(crate) fn lacks(&self, session: &SessionId) -> bool {
        self.read(|entries| !entries.by_id.contains_key(session)).unwrap_or(false)
    }

    /// Returns the phase of a session; `None` if the index does not have it.
    pub(crate) fn phase(&self, session: &SessionId) -> Option<Phase> {
        self.read(|entries| entries.by_id.get(session).map(|entry| entry.summary.phase)).flatten()
    }

    fn read<T>(&self, read: impl FnOnce(&IndexEntries) -> T) -> Option<T> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }

    fn write<T>(&self, write: impl FnOnce(&mut Option<IndexEntries>) -> T) -> T {
        write(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    async fn run(&self, bus: Bus, tenant: TenantId) {
        loop {
            let pause = match self.follow(&bus, &tenant).await {
                FollowEnd::Gap => Duration::ZERO,
                FollowEnd::TooLarge => {
                    let max = SESSION_INDEX_BYTES_MAX;
                    tracing::warn!(max, "the session index is too large for memory: lists read its bucket");
                    READ_INTERVAL
                }
                FollowEnd::Failed(error) => {
                    tracing::warn!(%error, "the session index cannot be read: lists read its bucket");
                    RETRY_AFTER
                }
            };
            if !pause.is_zero() {
                self.write(|entries| *entries = None);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the index and follows its changes until a change may have been lost.
    async fn follow(&self, bus: &Bus, tenant: &TenantId) -> FollowEnd {
        // The watch starts first, so that a change during the read is in one of the two.
        let mut changes = match bus.watch_summaries(tenant).await {
            Ok(changes) => changes,
            Err(error) => return FollowEnd::Failed(error),
        };
        loop {
            let began = Instant::now();
            if let Err(ended) = self.read_all(bus, tenant, &mut changes).await {
                return ended;
            }
            let read_at = Instant::now() + read_interval(began.elapsed());
            while let Ok(change) = tokio::time::timeout_at(read_at, changes.next()).await {
                let fits = match change {
                    None | Some(SummaryChange::Gap) => return FollowEnd::Gap,
                    Some(change) => self.write(|entries| entries.as_mut().is_none_or(|entries| entries.apply(change))),
                };
                if !fits {
                    return FollowEnd::TooLarge;
                }
            }
        }
    }

    /// Reads the whole index, and then applies the changes that the watch reported meanwhile.
    async fn read_all(
        &self,
        bus: &Bus,
        tenant: &TenantId,
        changes: &mut BoxStream<'static, SummaryChange>,
    ) -> Result<(), FollowEnd> {
        let mut found = IndexEntries::default();
        let (mut reading, mut meanwhile, mut bytes) = (std::pin::pin!(bus.sized_summaries(tenant)), Vec::new(), 0);
        let read = loop {
            tokio::select! {
                read = &mut reading => break read.map_err(FollowEnd::Failed)?,
                change = changes.next() => match change {
                    None | Some(SummaryChange::Gap) => return Err(FollowEnd::Gap),
                    Some(change) => {
                        if let SummaryChange::Written { bytes: more, .. } = &change {
                            bytes += more * MEMORY_FACTOR;
                        }
                        if bytes > SESSION_INDEX_BYTES_MAX {
                            return Err(FollowEnd::TooLarge);
                        }
                        meanwhile.push(change);
                    }
                },
            }
        };
        let read =
            read.into_iter().map(|(summary, bytes)| SummaryChange::Written { summary: Box::new(summary), bytes });
        for change in read.chain(meanwhile) {
            if !found.apply(change) {
                return Err(FollowEnd::TooLarge);
            }
        }
        self.write(|entries| *entries = Some(found));
        Ok(())
    }
}

/// Pause until the next read of the whole index, by the time that this one took.
fn read_interval(took: Duration) -> Duration {
    took.saturating_mul(READ_INTERVAL_FACTOR).clamp(READ_INTERVAL, READ_INTERVAL_MAX)
}

impl IndexEntries {
    /// Applies a change; `false` if the index has become too large. An older entry never replaces a newer one, since
    /// the watch and the read of the bucket may come in either order.
    fn apply(&mut self, change: SummaryChange) -> bool {
        match change {
            SummaryChange::Written { summary, bytes } => {
                let known = self.by_id.get(&summary.session_id);
                if known.is_some_and(|known| known.summary.version() > summary.version()) {
                    return true;
                }
                self.remove(&summary.session_id.clone());
                let bytes = bytes.saturating_mul(MEMORY_FACTOR);
                let session = summary.session_id.clone();
                self.bytes += bytes;
                self.open_count += usize::from(summary.phase != Phase::Ended);
                self.newest.insert(summary.place());
                if !summary.gates.is_empty() {
                    self.with_gates.insert(session.clone());
                }
                if !summary.client_calls.is_empty() {
                    self.with_client_calls.insert(session.clone());
                }
                self.by_id.insert(session, IndexEntry { summary: Arc::new(*summary), bytes });
            }
            SummaryChange::Removed(session) => self.remove(&session),
            SummaryChange::Gap => {}
        }
        self.bytes <= SESSION_INDEX_BYTES_MAX
    }

    fn list(&self, sessions: &BTreeSet<SessionId>) -> Vec<Arc<SessionSummary>> {
        let found = sessions.iter().filter_map(|session| self.by_id.get(session));
        found.map(|entry| entry.summary.clone()).collect()
    }

    fn remove(&mut self, session: &SessionId) {
        let Some(IndexEntry { summary, bytes }) = self.by_id.remove(session) else { return };
        self.bytes -= bytes;
        self.open_count -= usize::from(summary.phase != Phase::Ended);
        self.newest.remove(&summary.place());
        self.with_gates.remove(session);
        self.with_client_calls.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_that_takes_long_to_read_is_read_less_often() {
        for (took_ms, pause) in
            [(20, Duration::from_mins(1)), (1_500, Duration::from_mins(5)), (60_000, READ_INTERVAL_MAX)]
        {
            assert_eq!(read_interval(Duration::from_millis(took_ms)), pause);
        }
    }
}
