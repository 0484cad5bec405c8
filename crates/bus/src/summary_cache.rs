//! The line of the session index that this process wrote last for each session: the next one replaces it without a read.

use contract::commit::SummaryVersion;
use contract::subject::SessionKey;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;

/// Most sessions in the cache. A session that was dropped costs a read before its next line.
const SESSIONS_MAX: u64 = 16_384;
/// Sessions for which the cache makes room at first: most processes write no lines.
const SESSIONS_EXPECTED: usize = 64;

/// The last written line of each session, bounded by [`SESSIONS_MAX`].
pub(crate) struct SummaryCache(pub(crate) Cache<SessionKey, WrittenSummary>);

/// A line that the server has stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenSummary {
    pub(crate) version: SummaryVersion,
    pub(crate) revision: u64,
    /// The generation of the connection over which it was stored: a server with an older store gives revisions out
    /// again.
    pub(crate) generation: u64,
}

impl Default for SummaryCache {
    fn default() -> Self {
        Self(Cache::with_weighter(SESSIONS_EXPECTED, SESSIONS_MAX, UnitWeighter))
    }
}
