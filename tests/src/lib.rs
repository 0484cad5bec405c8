//! Helpers that tests share: model and tool servers, nats-servers, fleets, clients, and checks of session logs.

pub mod cli;
pub mod client;
pub mod commands;
pub mod disk;
pub mod durations;
pub mod editor;
pub mod effects;
pub mod examples;
pub mod fleet;
pub mod http;
pub mod install;
pub mod judge;
pub mod mcp;
pub mod model;
pub mod nats;
pub mod otlp;
pub mod process;
pub mod process_fleet;
pub mod python;
pub mod relay;
pub mod restored;
pub mod seed;
pub mod tls;
pub mod tool_server;
pub mod wait;
