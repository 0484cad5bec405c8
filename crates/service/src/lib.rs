//! Common parts of every process: start, readiness, health server, connections, TLS, tasks, reloading and shutdown.

pub mod clock;
pub mod common;
pub mod connections;
pub mod contents;
pub mod fresh;
pub mod health;
pub mod http;
mod http_version;
pub mod network;
pub mod pace;
pub mod process;
pub mod reload;
pub mod shutdown;
pub mod status;
pub mod tasks;
pub mod tls;
