//! Rings 2 and 3: the loop, and the loop in its shell, in a seeded world with virtual time and many faults.
//!
//! A world makes a session's life out of a seed: what the user, the models and the tools do, and what goes wrong. One
//! oracle reads the log after each commit, with its own idea of what a session is. Planted bugs prove the oracle.

pub mod children;
pub mod oracle;
pub mod plant;
pub mod replies;
pub mod rng;
pub mod seeds;
pub mod shell;
pub mod world;
