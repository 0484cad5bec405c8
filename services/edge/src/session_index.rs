//! The tenant's session index in memory: read once, kept up to date by a watch, read again after a gap.

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
use tokio::time::Instant;

use crate::params::Cursor;

/// Pause between reads of the whole index: a line that expires is not told, and one may be lost.
const READ_EVERY: Duration = Duration::from_mins(1);
/// Pause before a failed read or watch is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bytes that a line takes in memory, as a multiple of its JSON.
const MEMORY_FACTOR: usize = 2;

/// The index. Clones are the same index.
#[derive(Debug, Clone)]
pub(crate) struct SessionIndex {
    lines: Arc<RwLock<Option<Lines>>>,
}

#[derive(Debug)]
struct Line {
    summary: Arc<SessionSummary>,
    bytes: usize,
}

/// The lines, by id and as lists show them: the newest first.
#[derive(Debug, Default)]
struct Lines {
    by_id: BTreeMap<SessionId, Line>,
    newest: BTreeSet<ListPlace>,
    /// Sessions in which something waits for a person.
    with_gates: BTreeSet<SessionId>,
    /// Sessions that have not ended.
    open: usize,
    bytes: usize,
}

/// Why a watch ended.
enum Ended {
    Gap,
    TooLarge,
    Failed(BusError),
}

impl SessionIndex {
    /// Keeps the index of a tenant until the tasks end.
    pub(crate) fn start(bus: Bus, tenant: TenantId, tasks: &Tasks) -> Self {
        let index = Self { lines: Arc::default() };
        let (ending, kept) = (tasks.token(), index.clone());
        tasks.spawn("session index", async move {
            ending.run_until_cancelled(kept.run(bus, tenant)).await;
        });
        index
    }

    /// The newest sessions behind a place that pass, at most so many; nothing while the index is not in memory.
    pub(crate) fn newest(
        &self,
        behind: Option<&Cursor>,
        phase: Option<Phase>,
        count: usize,
    ) -> Option<Vec<SessionSummary>> {
        let from = behind.map_or(Bound::Unbounded, |behind| Bound::Excluded(behind.place()));
        self.read(|lines| {
            let all = lines.newest.range((from, Bound::Unbounded));
            let all = all.filter_map(|(_, Reverse(session))| lines.by_id.get(session));
            let passing = all.filter(|line| phase.is_none_or(|phase| line.summary.phase == phase));
            passing.take(count).map(|line| (*line.summary).clone()).collect()
        })
    }

    /// Sessions in which something waits for a person; nothing while the index is not in memory.
    pub(crate) fn with_gates(&self) -> Option<Vec<Arc<SessionSummary>>> {
        self.read(|lines| {
            let found = lines.with_gates.iter().filter_map(|session| lines.by_id.get(session));
            found.map(|line| line.summary.clone()).collect()
        })
    }

    /// Every session; nothing while the index is not in memory.
    pub(crate) fn all(&self) -> Option<Vec<Arc<SessionSummary>>> {
        self.read(|lines| lines.by_id.values().map(|line| line.summary.clone()).collect())
    }

    /// How many sessions have not ended; nothing while the index is not in memory.
    pub(crate) fn open(&self) -> Option<usize> {
        self.read(|lines| lines.open)
    }

    /// Whether a session is in it; `false` while the index is not in memory.
    pub(crate) fn has(&self, session: &SessionId) -> bool {
        self.read(|lines| lines.by_id.contains_key(session)).unwrap_or(false)
    }

    fn read<T>(&self, read: impl FnOnce(&Lines) -> T) -> Option<T> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(read)
    }

    fn write<T>(&self, write: impl FnOnce(&mut Option<Lines>) -> T) -> T {
        write(&mut self.lines.write().unwrap_or_else(PoisonError::into_inner))
    }

    async fn run(&self, bus: Bus, tenant: TenantId) {
        loop {
            let pause = match self.follow(&bus, &tenant).await {
                Ended::Gap => Duration::ZERO,
                Ended::TooLarge => {
                    let max = SESSION_INDEX_BYTES_MAX;
                    tracing::warn!(max, "the session index is too large for memory: lists read its bucket");
                    READ_EVERY
                }
                Ended::Failed(error) => {
                    tracing::warn!(%error, "the session index cannot be read: lists read its bucket");
                    RETRY_AFTER
                }
            };
            if !pause.is_zero() {
                self.write(|lines| *lines = None);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the index and follows its changes until something may have been lost.
    async fn follow(&self, bus: &Bus, tenant: &TenantId) -> Ended {
        // The watch first: what is written while the index is read is in one of the two.
        let mut changes = match bus.watch_summaries(tenant).await {
            Ok(changes) => changes,
            Err(error) => return Ended::Failed(error),
        };
        loop {
            if let Err(ended) = self.read_all(bus, tenant, &mut changes).await {
                return ended;
            }
            let read_at = Instant::now() + READ_EVERY;
            while let Ok(change) = tokio::time::timeout_at(read_at, changes.next()).await {
                let fits = match change {
                    None | Some(SummaryChange::Gap) => return Ended::Gap,
                    Some(change) => self.write(|lines| lines.as_mut().is_none_or(|lines| lines.apply(change))),
                };
                if !fits {
                    return Ended::TooLarge;
                }
            }
        }
    }

    /// Reads the whole index. What the watch tells meanwhile is applied to it afterwards.
    async fn read_all(
        &self,
        bus: &Bus,
        tenant: &TenantId,
        changes: &mut BoxStream<'static, SummaryChange>,
    ) -> Result<(), Ended> {
        let mut found = Lines::default();
        let (mut reading, mut meanwhile, mut bytes) = (std::pin::pin!(bus.sized_summaries(tenant)), Vec::new(), 0);
        let read = loop {
            tokio::select! {
                read = &mut reading => break read.map_err(Ended::Failed)?,
                change = changes.next() => match change {
                    None | Some(SummaryChange::Gap) => return Err(Ended::Gap),
                    Some(change) => {
                        if let SummaryChange::Written { bytes: more, .. } = &change {
                            bytes += more * MEMORY_FACTOR;
                        }
                        if bytes > SESSION_INDEX_BYTES_MAX {
                            return Err(Ended::TooLarge);
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
                return Err(Ended::TooLarge);
            }
        }
        self.write(|lines| *lines = Some(found));
        Ok(())
    }
}

impl Lines {
    /// Applies a change; `false` when the index has become too large. An older line never replaces a newer one: the
    /// watch and the read of the bucket may come in either order.
    fn apply(&mut self, change: SummaryChange) -> bool {
        match change {
            SummaryChange::Written { summary, bytes } => {
                let age = |summary: &SessionSummary| (summary.seq, summary.updated);
                let known = self.by_id.get(&summary.session_id);
                if known.is_some_and(|known| age(&known.summary) > age(&summary)) {
                    return true;
                }
                self.remove(&summary.session_id.clone());
                let bytes = bytes.saturating_mul(MEMORY_FACTOR);
                let session = summary.session_id.clone();
                self.bytes += bytes;
                self.open += usize::from(summary.phase != Phase::Ended);
                self.newest.insert(summary.place());
                if !summary.gates.is_empty() {
                    self.with_gates.insert(session.clone());
                }
                self.by_id.insert(session, Line { summary: Arc::new(*summary), bytes });
            }
            SummaryChange::Removed(session) => self.remove(&session),
            SummaryChange::Gap => {}
        }
        self.bytes <= SESSION_INDEX_BYTES_MAX
    }

    fn remove(&mut self, session: &SessionId) {
        let Some(Line { summary, bytes }) = self.by_id.remove(session) else { return };
        self.bytes -= bytes;
        self.open -= usize::from(summary.phase != Phase::Ended);
        self.newest.remove(&summary.place());
        self.with_gates.remove(session);
    }
}
