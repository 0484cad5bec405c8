//! The slots of a log.

use contract::limits::SLOTS_PER_PAGE;
use contract::subject;

use crate::{BusError, Stored};

/// The first slot of the page of a slot.
pub(crate) fn page_start(slot: u64) -> u64 {
    slot / SLOTS_PER_PAGE * SLOTS_PER_PAGE
}

/// The slot of a message of a log.
pub(crate) fn slot_of(stored: &Stored) -> Result<u64, BusError> {
    let parsed = subject::parse_log(&stored.subject);
    parsed.map(|s| s.slot).ok_or_else(|| BusError::Malformed(format!("{} is no slot", stored.subject)))
}
