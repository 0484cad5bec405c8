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

pub use config::ConfigError;
pub use secret::Secret;
