//! Reasons for which the edge does not start.

use std::net::SocketAddr;

use contract::{Coded, ErrorCode};

/// Reason for which the edge does not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeStartError {
    /// The configuration has a mistake.
    #[error("{0}")]
    BadConfig(String),
    /// Another program listens on the port.
    #[error(
        "{field} is {listen}, and another program listens there: stop it, or set {field} (port 0 takes a free one)"
    )]
    PortInUse {
        /// The field to change.
        field: &'static str,
        /// The address that was wanted.
        listen: SocketAddr,
    },
    /// The address cannot be used.
    #[error("{field} is {listen}, which cannot be used: {source}")]
    Listen {
        /// The field to change.
        field: &'static str,
        /// The address that was wanted.
        listen: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The bus cannot be used.
    #[error(transparent)]
    Bus(#[from] bus::BusError),
    /// No cell of the table can be reached.
    #[error("no cell can be used: {0}")]
    NoCell(String),
    /// A server could not be set up.
    #[error("{0}")]
    Internal(String),
}

impl Coded for EdgeStartError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::BadConfig(_) | Self::Listen { .. } => ErrorCode::BadConfig,
            Self::PortInUse { .. } => ErrorCode::PortInUse,
            Self::Bus(error) => error.code(),
            Self::NoCell(_) => ErrorCode::NatsUnreachable,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }
}
