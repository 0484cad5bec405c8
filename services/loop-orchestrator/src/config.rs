//! The `orchestrator` section of the configuration.

use std::time::Duration;

use contract::limits::{ARCHIVE_AFTER, COMPACT_AFTER, TRANSCRIPT_PART_BYTES};
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
    /// Seconds without an input after which the log of an idle session is compacted to one commit.
    pub compact_after: u64,
}

/// Times after which the log removes commits of a session in which nothing happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdleTimes {
    /// Time from the end of a session until it is archived.
    pub(crate) archive_after: Duration,
    /// Time without an input until the log of an idle session is compacted.
    pub(crate) compact_after: Duration,
}

impl IdleTimes {
    pub(crate) fn of(config: &OrchestratorConfig) -> Self {
        Self {
            archive_after: Duration::from_secs(config.archive_after),
            compact_after: Duration::from_secs(config.compact_after),
        }
    }
}

impl Default for OrchestratorConfig {
    fn default() -> Self {
        Self {
            concurrency: 512,
            cached_sessions: 10_000,
            cache_bytes: 128 << 20,
            transcript_part_bytes: TRANSCRIPT_PART_BYTES,
            archive_after: ARCHIVE_AFTER.as_secs(),
            compact_after: COMPACT_AFTER.as_secs(),
        }
    }
}
