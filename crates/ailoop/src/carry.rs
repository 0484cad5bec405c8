//! Sessions as files: one line about the session, then one for each commit.

mod export;
mod import;

use contract::{Json, SessionId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::export::export;
pub use self::import::import;

/// What a file says that it is.
const FORMAT: &str = "ailoop session";
/// The newest version of the format that this version reads, and the one that it writes.
const VERSION: u32 = 1;

/// A file's first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    tenant: TenantId,
    session_id: SessionId,
    /// The first slot: 0, unless the beginning was gone already.
    first: u64,
    /// The last slot.
    last: u64,
    exported: Timestamp,
}

/// Every other line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    slot: u64,
    commit: Json,
}
