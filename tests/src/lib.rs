//! What tests share: servers that play the outside world, fleets, clients, and a judge of logs.

pub mod cli;
pub mod client;
pub mod commands;
pub mod crowd;
pub mod disk;
pub mod effects;
pub mod examples;
pub mod fleet;
pub mod install;
pub mod judge;
pub mod model;
pub mod nats;
pub mod otlp;
pub mod python;
pub mod restored;
pub mod seed;
pub mod workshop;
