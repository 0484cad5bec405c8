//! Whether a worker may start a call: the log says so.

use contract::commit::{PARKING_FOLD, Phase};
use contract::ids::CallAttempt;
use contract::subject::SessionKey;

use crate::{Bus, BusError, Head, Read};

/// The state of one attempt of a call in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// It is open: start it.
    Open,
    /// It was answered, stopped or superseded.
    Closed,
    /// It is open, but its session is paused.
    Paused,
    /// As [`CallStatus::Paused`], and whoever resumes the session publishes the item again, so that it need not wait here.
    Parked,
    /// The commit that opened it is not visible.
    NotVisible,
}

impl Bus {
    /// Reads the status of a call from the leader: only the leader proves that a call is open and its session not
    /// paused (I5). `slot` is the slot of the commit that opened the call.
    pub async fn call_status(&self, key: &SessionKey, call: &CallAttempt, slot: u64) -> Result<CallStatus, BusError> {
        let head = self.head(key, Read::Leader).await?;
        Ok(head.map_or(CallStatus::NotVisible, |head| of(&head, call, slot)))
    }

    /// Whether a call that runs is no longer wanted. Any replica may say so, since a try never opens again; that it
    /// does not say so proves nothing.
    pub async fn is_closed(&self, key: &SessionKey, call: &CallAttempt, slot: u64) -> Result<bool, BusError> {
        let head = self.head(key, Read::Any).await?;
        Ok(head.is_some_and(|head| of(&head, call, slot) == CallStatus::Closed))
    }
}

fn of(head: &Head, call: &CallAttempt, slot: u64) -> CallStatus {
    if head.slot < slot {
        return CallStatus::NotVisible;
    }
    match (head.meta.is_open(call), head.meta.phase) {
        (false, _) | (true, Phase::Ended) => CallStatus::Closed,
        (true, Phase::Paused) if head.meta.fold >= PARKING_FOLD => CallStatus::Parked,
        (true, Phase::Paused) => CallStatus::Paused,
        (true, Phase::Idle | Phase::Running) => CallStatus::Open,
    }
}
