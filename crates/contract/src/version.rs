//! Which version of the contract this is.

/// Version of the contract.
pub const VERSION: u32 = 1;
