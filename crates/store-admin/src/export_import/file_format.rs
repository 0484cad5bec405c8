//! The lines of an exported session.

use contract::commit::TranscriptPart;
use contract::{Json, SessionId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

/// Name of the format, in the header of each file.
pub(super) const FORMAT: &str = "ailoop session";
/// The version of the format that is written, and the newest one that is read.
pub(super) const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileHeader {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) tenant: TenantId,
    pub(super) session_id: SessionId,
    /// The first slot: 0, unless the archive has deleted the beginning.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) exported: Timestamp,
}

/// Every line after the header.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CommitLine {
    pub(super) slot: u64,
    pub(super) commit: Json,
    /// Parts of the transcript that the commit names, and that are in no line before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<TranscriptPart>,
}
