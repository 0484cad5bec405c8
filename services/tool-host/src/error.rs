//! Reasons why the tool host cannot start.

use std::path::PathBuf;

use bus::BusError;
use contract::{Coded, ErrorCode};

use crate::server_name::ServerName;

/// Reason why the tool host cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A directory does not exist or must not be used. Correct the configuration.
    #[error("tool_host.{field} {path:?} cannot be used: {source}")]
    Directory {
        /// Field of the configuration.
        field: &'static str,
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A field has an invalid value, or asks for what this machine lacks. Correct the configuration.
    #[error("tool_host.{field} cannot be used: {message}")]
    Setting {
        /// Field of the configuration.
        field: String,
        /// Description of the mistake.
        message: String,
    },
    /// An MCP server cannot be used as it is configured. Correct the configuration, or what it refers to.
    #[error("tool_host.mcp.{server}: {reason}")]
    Server {
        /// Name of the server.
        server: ServerName,
        /// Description of the mistake.
        reason: String,
    },
    /// NATS cannot be reached, or refuses the tools.
    #[error(transparent)]
    Tools(#[from] ailoop_tool::ServeError),
    /// NATS cannot be reached, or refuses what the tools store.
    #[error(transparent)]
    Store(#[from] BusError),
}

impl Coded for HostError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Directory { .. } | Self::Setting { .. } | Self::Server { .. } => ErrorCode::BadConfig,
            Self::Tools(_) => ErrorCode::NatsUnreachable,
            Self::Store(error) => error.code(),
        }
    }
}
