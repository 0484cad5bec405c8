//! Errors of the bus, by what the caller can do about them.

use contract::limits::BODY_LATE_MAX;
use contract::{Coded, ErrorCode, Timestamp};

/// A failure of the bus.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// Nobody subscribes to the subject: the answer is known at once.
    #[error("nobody answers on {subject}")]
    NoResponders {
        /// The subject of the request.
        subject: String,
    },
    /// No answer in time: whether anything happened is unknown.
    #[error("no answer in time: {what}")]
    Timeout {
        /// The operation that timed out.
        what: String,
    },
    /// The server cannot be reached, or has no JetStream, or no quorum: try again later.
    #[error("the bus is not available: {0}")]
    Unavailable(String),
    /// The server refuses because something is full: try again later.
    #[error("the bus is full: {0}")]
    Full(String),
    /// The body is over a limit.
    #[error("{bytes} bytes are over the limit of {max}")]
    TooLarge {
        /// Bytes of the body.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The server cannot be used: configuration, version or permission. Trying again will not help.
    #[error("{message}")]
    Unusable {
        /// The stable error code for callers.
        code: ErrorCode,
        /// For people: what, and what to do.
        message: String,
    },
    /// The large body that a message refers to is not in its store. A replica may be behind; a body that a message
    /// refers to for longer than [`contract::limits::BODY_LATE_MAX`] is gone for good.
    #[error("the body {blob} is not in its store: it expired, or the store was put back to an older state")]
    BodyMissing {
        /// Its name in the store.
        blob: String,
    },
    /// The end of a log is of another history than what stands before it: a server that came back with an older store
    /// took commits that were decided before. The next orchestrator that reads the log removes that end.
    #[error("{why}; an orchestrator removes the end of the log with the next input of the session")]
    TwoHistories {
        /// The first slot of that end.
        slot: u64,
        /// Description of the commits that do not belong together.
        why: String,
    },
    /// A message that does not follow the contract.
    #[error("not what the contract says: {0}")]
    Malformed(String),
}

impl BusError {
    /// Whether asking again cannot help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::TooLarge { .. } | Self::Unusable { .. } | Self::Malformed(_) => true,
            Self::NoResponders { .. }
            | Self::Timeout { .. }
            | Self::Unavailable(_)
            | Self::Full(_)
            | Self::BodyMissing { .. }
            | Self::TwoHistories { .. } => false,
        }
    }

    /// Returns the error as it is, or a final one if a large body is missing and the message that refers to it was
    /// stored at `stored_at`, too long before `now` for a replica that is behind. Both are times of the server.
    #[must_use]
    pub fn final_after(self, stored_at: Timestamp, now: Timestamp) -> Self {
        if let Self::BodyMissing { blob } = &self
            && now.since(stored_at) > BODY_LATE_MAX
        {
            return Self::Malformed(format!("its body {blob} is gone from the object store; send it again"));
        }
        self
    }

    /// Whether the server is away, and may be back without anybody changing a setting.
    pub fn is_away(&self) -> bool {
        match self {
            Self::NoResponders { .. } | Self::Timeout { .. } | Self::Unavailable(_) | Self::Full(_) => true,
            Self::Unusable { code, .. } => *code == ErrorCode::NatsUnreachable,
            Self::TooLarge { .. } | Self::Malformed(_) | Self::BodyMissing { .. } | Self::TwoHistories { .. } => false,
        }
    }
}

impl Coded for BusError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoResponders { .. }
            | Self::Timeout { .. }
            | Self::Unavailable(_)
            | Self::BodyMissing { .. }
            | Self::TwoHistories { .. } => ErrorCode::Unavailable,
            Self::Full(_) => ErrorCode::Overloaded,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::Unusable { code, .. } => code.clone(),
            Self::Malformed(_) => ErrorCode::Internal,
        }
    }

    fn advice(&self) -> Option<String> {
        // The usual one for the code is about the token of the edge.
        let is_refused = self.code() == ErrorCode::Unauthorized;
        is_refused.then(|| "set nats.credentials (AILOOP__NATS__CREDENTIALS)".to_owned())
    }
}
