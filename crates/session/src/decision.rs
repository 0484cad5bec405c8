//! Decisions: the events and effects that follow from an input.

use contract::Timestamp;
use contract::event::Event;

use crate::SessionEffect;

/// Events and effects that follow from an input: at least one event.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Time of the decision: never before the last commit, whatever the caller's clock says.
    pub at: Timestamp,
    /// Events of the decision, in order.
    pub events: Vec<Event>,
    /// Effects to perform once the events are in the log.
    pub effects: Vec<SessionEffect>,
}
