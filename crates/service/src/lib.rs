//! What every process shares: configuration, models, continuation settings, shutdown, tasks and health.

pub mod clock;
pub mod config;
pub mod connections;
pub mod continuation;
pub mod files;
pub mod health;
pub mod http;
pub mod models;
pub mod network;
pub mod pace;
pub mod paths;
pub mod process;
pub mod reload;
pub mod schema;
pub mod secret;
pub mod shipped;
pub mod shutdown;
pub mod suggest;
pub mod tasks;
pub mod yaml;

/// A fifth of the time of a busy fleet goes by in the allocator: this one takes half as long as glibc's, and gives memory
/// back that a burst has taken.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use config::ConfigError;
pub use secret::Secret;
