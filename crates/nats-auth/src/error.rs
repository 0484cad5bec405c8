//! Errors, by what the caller can do.

use contract::{Coded, ErrorCode};

/// Reason why keys, accounts or credentials cannot be made, kept or handed to a server.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A key is missing or is none.
    #[error("the key {name} {problem}")]
    Key {
        /// Name of its file.
        name: String,
        /// Description of the fault of the key.
        problem: String,
    },
    /// A name that no role has.
    #[error("there is no role {0:?}")]
    UnknownRole(String),
    /// A text is not what it should be.
    #[error("{what} cannot be read: {problem}")]
    Malformed {
        /// Name of the text for people.
        what: String,
        /// Description of the mistake in the text.
        problem: String,
    },
    /// There are keys already.
    #[error("{path} exists")]
    Exists {
        /// Place of one of them.
        path: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {problem}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        problem: String,
    },
    /// No nats-server answers at the address.
    #[error("no nats-server answers at {url}: {problem}")]
    Unreachable {
        /// Address at which it should be.
        url: String,
        /// Error of the attempt to connect.
        problem: String,
    },
    /// The server accepts no user of this operator.
    #[error("nats-server at {url} does not know these keys: {problem}")]
    ForeignServer {
        /// Address of the server.
        url: String,
        /// Answer of the server.
        problem: String,
    },
    /// No server has an account.
    #[error("no nats-server has the account {key} of these keys")]
    UnknownAccount {
        /// Public key of the account.
        key: String,
    },
    /// A server does not take the account.
    #[error("nats-server {server} refuses the account: {problem}")]
    Refused {
        /// Name of the server.
        server: String,
        /// Answer of the server.
        problem: String,
    },
    /// Some servers did not answer.
    #[error("{answered} of {known} nats-servers took the account; no answer from the others in time")]
    Incomplete {
        /// Servers that took it.
        answered: usize,
        /// Servers that were there.
        known: usize,
    },
}

impl Coded for AuthError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } => ErrorCode::NatsUnreachable,
            Self::UnknownAccount { .. } | Self::ForeignServer { .. } | Self::Refused { .. } => ErrorCode::Unauthorized,
            Self::Incomplete { .. } => ErrorCode::Unavailable,
            Self::Key { .. }
            | Self::UnknownRole(_)
            | Self::Malformed { .. }
            | Self::Exists { .. }
            | Self::File { .. } => ErrorCode::BadRequest,
        }
    }

    fn advice(&self) -> Option<String> {
        let advice = match self {
            Self::Unreachable { .. } | Self::Refused { .. } => return None,
            Self::UnknownAccount { .. } | Self::ForeignServer { .. } => {
                "pass the keys that this nats-server was configured with, and see that it includes their auth.conf"
            }
            Self::Exists { .. } => {
                "pass another directory; for one more credential use `ailoop nats-auth user add`, and after an upgrade \
                 `ailoop nats-auth update`"
            }
            Self::UnknownRole(_) => {
                let names: Vec<&str> = nats_permissions::roles().iter().map(|role| role.name).collect();
                return Some(format!("the roles are {}", names.join(", ")));
            }
            Self::Incomplete { .. } => "see that all nats-servers run, and repeat the command",
            Self::Key { .. } | Self::Malformed { .. } | Self::File { .. } => {
                "pass the directory of `ailoop nats-auth init` with --keys, or its Secrets on stdin with `--keys -`"
            }
        };
        Some(advice.to_owned())
    }
}
