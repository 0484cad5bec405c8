//! Adds up what a session used, as its events say it. Pure.

use contract::event::{Event, Spent};

/// Sum of what a session used, with the sessions below it. While a turn runs, that is what its events name so far; the
/// end of the turn has the whole.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpendSum {
    /// Part of the turns that ended.
    ended: Spent,
    /// Number of the last one of them.
    last_ended: u32,
    /// Part of the turn that runs.
    running: Spent,
    /// The part of both that sessions below used.
    delegated: Spent,
}

impl SpendSum {
    /// Adds what an event of the session says.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most events cost nothing")]
    pub fn update(&mut self, event: &Event) {
        match event {
            Event::AiFullReceived(reply) => self.running = self.running.plus(reply.spent),
            Event::ContinuationProgress(progress) => self.running = self.running.plus(progress.spent),
            Event::ContextPruned(pruned) => self.running = self.running.plus(pruned.spent),
            Event::ToolCallResult(result) => {
                let used = result.used.map(|used| used.spent).unwrap_or_default();
                self.running = self.running.plus(used);
                self.delegated = self.delegated.plus(used);
            }
            Event::TurnCompleted(completed) => {
                self.last_ended = completed.turn;
                self.ended = self.ended.plus(completed.spent);
                self.running = Spent::default();
            }
            // The end of its turn may not have counted it.
            Event::AiCutReceived(cut) if cut.turn <= self.last_ended => self.ended = self.ended.plus(cut.spent),
            Event::AiCutReceived(cut) => self.running = self.running.plus(cut.spent),
            Event::SessionEnded(ended) => self.ended = ended.spent,
            _ => {}
        }
    }

    /// Sum of what the session and those below it used.
    pub fn total(&self) -> Spent {
        self.ended.plus(self.running)
    }

    /// Whether sessions below used a part of it.
    pub(crate) fn has_delegated(&self) -> bool {
        !self.delegated.is_nothing()
    }
}
