//! Rings 2 and 3: the loop, and the loop in its shell, in a seeded world with virtual time and many faults.
//!
//! A seed determines a whole run: what the user, the models and the tools do, and which faults occur. One oracle reads
//! the log after each commit, with its own model of a session. Planted bugs show that the oracle finds violations.

pub mod children;
mod ensure;
pub mod oracle;
pub mod planted_bug;
pub mod replies;
pub mod rng;
pub mod seeds;
pub mod shell;
pub mod world;
