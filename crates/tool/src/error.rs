//! Errors that prevent serving tools.

/// Reason why tools could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// NATS cannot be reached.
    #[error("NATS cannot be used: {0}")]
    Connect(#[from] async_nats::ConnectError),
    /// The address of NATS cannot be read.
    #[error("the address of NATS is not one such as nats://127.0.0.1:4222: {0}")]
    Address(std::io::Error),
    /// The credentials file cannot be used.
    #[error(transparent)]
    Credentials(#[from] nats_credentials::CredentialsError),
    /// nats-server refuses the user.
    #[error("nats-server refuses this tool: {reason}")]
    Refused {
        /// Reason, as far as it is known, and what to do.
        reason: String,
    },
    /// A subscription was refused.
    #[error("cannot subscribe: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
    /// A name is not a valid token of a subject.
    #[error("{0:?} cannot be used: a tool's name is 1 to 64 of A-Z a-z 0-9 _ -, a tenant's 1 to 32 of a-z 0-9 -")]
    Name(String),
    /// A [`Reconcilable`](crate::Effect::Reconcilable) tool without a [`probe`](crate::Tool::probe), so that its lost calls
    /// cannot be resolved.
    #[error("the tool {0:?} is reconcilable and has no probe: give it one with Tool::probe, or say at_most_once")]
    NoProbe(String),
}
