//! Versions of the contract and of the fold.

/// Version of the contract.
pub const VERSION: u32 = 1;
/// Version of the fold. A replica that meets a greater one neither decides nor writes snapshots; it hands the input
/// back.
pub const FOLD: u32 = 15;
/// The first fold whose orchestrators publish the items of open calls again when they resume a session: a worker may
/// acknowledge the item of a paused session.
pub const PARKING_FOLD: u32 = 14;
/// The oldest fold whose sessions can be read; `tests/suite/old_log.rs` of the package `session` reads one of its logs.
pub const FOLD_OLDEST: u32 = 1;
