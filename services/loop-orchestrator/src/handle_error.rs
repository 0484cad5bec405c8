//! Reasons why an input could not be handled.

use bus::BusError;
use session::RestoreError;

use crate::skew::Skew;

/// Reason why an input could not be handled.
#[derive(Debug, Clone)]
pub(crate) enum HandleError {
    /// The bus failed; the input is retried.
    Bus(BusError),
    /// A newer version of the loop wrote this session or sent the input; one of its replicas handles the input.
    Newer { fold: u32 },
    /// Other replicas won the slot in every round, or the command is not visible in its inbox yet.
    Busy,
    /// The input makes the loop panic, and the log has it as poison.
    Poison,
    /// One of several inputs makes the loop panic; they must be handled one by one.
    Split,
    /// The clock of this replica is too far from the server's; another replica handles the input.
    Skewed(Skew),
    /// A defect of this program or of its data.
    Internal(String),
}

impl From<RestoreError> for HandleError {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Newer { fold } => Self::Newer { fold },
            RestoreError::Snapshot(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<BusError> for HandleError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}
