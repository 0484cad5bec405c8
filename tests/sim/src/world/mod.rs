//! Ring 2: one session on a toy bus in virtual time, with several replicas, stale views, crashes, repeats and losses.

mod catalogue;
mod effects;
mod replica;
mod run;
mod state;
mod stats;
mod user;
mod workers;

pub use run::simulate;
pub use stats::{RareEvents, RunStats};
