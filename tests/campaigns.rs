//! Long runs that are left to chance or need more than a clone; each has a target in the Makefile.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod hostile;
mod random_faults;
mod restore;
mod tool_faults;
mod upgrade;
