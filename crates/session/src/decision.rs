//! What an input leads to.

use contract::Timestamp;
use contract::event::Event;

use crate::SessionEffect;

/// What an input leads to: at least one event.
#[derive(Debug, Clone)]
pub struct Decision {
    /// When it was decided: never before the last commit, whatever the caller's clock says.
    pub at: Timestamp,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What the world is asked for once the events are in the log.
    pub effects: Vec<SessionEffect>,
}
