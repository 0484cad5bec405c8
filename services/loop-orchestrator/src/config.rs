//! The `orchestrator` section of the configuration.

use contract::limits::{ARCHIVE_AFTER, TRANSCRIPT_PART_BYTES};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `orchestrator` section of the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "orchestrator")]
pub struct OrchestratorConfig {
    /// Inputs that are worked on at the same time.
    pub concurrency: usize,
    /// Sessions that are kept in memory.
    pub cached_sessions: usize,
    /// Bytes of memory for the sessions and the compiled patterns that are kept; what was used longest ago goes first.
    pub cache_bytes: usize,
    /// Bytes of messages that are in no part of the transcript, from which on the next commit stores them as one.
    pub transcript_part_bytes: usize,
    /// Seconds after its end in which a session leaves the log for the archive.
    pub archive_after: u64,
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            concurrency: 512,
            cached_sessions: 10_000,
            cache_bytes: 128 << 20,
            transcript_part_bytes: TRANSCRIPT_PART_BYTES,
            archive_after: ARCHIVE_AFTER.as_secs(),
        }
    }
}
