//! Finds the turn of a message in the events of a session.

use crate::event::{EventContent, SessionEvent};

/// Counts turns and messages, so that the end of the right turn is the end of a message.
///
/// No event says which messages a turn has read, so this follows the rules: a message begins a turn if none runs, a queued
/// one begins a turn of its own after those that wait, and any other is read in the turn that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TurnTracker {
    /// The last `seq` that was taken.
    pub(crate) seq: u64,
    pub(crate) is_running: bool,
    queued: u32,
}

impl TurnTracker {
    /// A tracker of an idle session from a `seq` on.
    pub(crate) fn idle_at(seq: u64) -> Self {
        Self { seq, ..Self::default() }
    }

    /// Takes the next event of the log. Returns how many turns end until a message has its answer, if it is a message.
    pub(crate) fn push(&mut self, event: &SessionEvent) -> Option<u32> {
        self.seq = event.seq.unwrap_or(self.seq);
        match &event.content {
            EventContent::TurnCompleted(_) => {
                // The next queued message begins a turn at once.
                self.is_running = self.queued > 0;
                self.queued = self.queued.saturating_sub(1);
                None
            }
            EventContent::UserMessage(_) if !self.is_running => {
                self.is_running = true;
                Some(1)
            }
            EventContent::UserMessage(message) if message.mode == "queue" => {
                self.queued += 1;
                Some(1 + self.queued)
            }
            EventContent::UserMessage(_) => Some(1),
            EventContent::SessionEnded(_)
            | EventContent::ReplyChunk(_)
            | EventContent::ReplyCompleted(_)
            | EventContent::CallWaiting(_)
            | EventContent::CallCompleted(_)
            | EventContent::GateOpened(_)
            | EventContent::GateClosed(_)
            | EventContent::Failed(_)
            | EventContent::Other => None,
        }
    }
}
