//! Deadlines of a session: one timer for all of them, set lazily.

use std::time::Duration;

use contract::Timestamp;
use contract::limits::{COMPACT_COMMITS_MIN, IDLE_MAX, TOOL_CALL_GRACE};

use crate::state::{Activity, CallStage, Lifecycle, State};

impl State {
    /// The earliest instant at which something is due; none for a session that is not alive.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        match self.life {
            Lifecycle::NotStarted | Lifecycle::Ended => return None,
            Lifecycle::Alive => {}
        }
        let Some(turn) = &self.turn else { return Some(self.idle_end()) };
        let mut at = turn.clock.deadline().unwrap_or_else(|| self.idle_end());
        match &turn.activity {
            // Deadlines of calls stand still in a pause: those that have not begun are published again after it,
            // and those that have begun are answered by their workers.
            Activity::AwaitingModel(model)
            | Activity::Summarising { model, .. }
            | Activity::Judging { judge: model, .. } => {
                let deadline = (!self.paused).then_some(model.deadline);
                at = model.interrupted.or(deadline).map_or(at, |due| at.min(due));
            }
            Activity::Backoff { retry_at, .. } if !self.paused => at = at.min(*retry_at),
            Activity::RunningTools(calls) => {
                for state in calls {
                    match &state.stage {
                        CallStage::Open { .. } if self.paused => {}
                        CallStage::Open { deadline, .. } if state.waits_for_client() => at = at.min(*deadline),
                        CallStage::Open { deadline, .. } => at = at.min(deadline.after(TOOL_CALL_GRACE)),
                        CallStage::Gated { expires, .. } => at = at.min(*expires),
                        CallStage::Announced | CallStage::Pending(_) | CallStage::Done(_) => {}
                    }
                }
            }
            Activity::AwaitingUser { expires, .. } => at = at.min(*expires),
            Activity::Ready | Activity::Deciding | Activity::Backoff { .. } => {}
        }
        Some(at)
    }

    /// Returns the time at which the log is compacted if no input arrives before. `slots`: number of slots of the log.
    /// None if the log has fewer than [`COMPACT_COMMITS_MIN`] commits, if the session is not alive, and during a turn,
    /// since workers and viewers read the commits of the turn.
    pub(crate) fn compaction_due(&self, slots: u64, compact_after: Duration) -> Option<Timestamp> {
        let commits = slots - self.log_start.unwrap_or(0);
        let is_idle = self.life == Lifecycle::Alive && self.turn.is_none();
        (is_idle && commits >= COMPACT_COMMITS_MIN).then(|| self.active.max(self.touched).after(compact_after))
    }

    /// Returns the time at which the session expires if no command or result is handled before.
    pub(crate) fn idle_end(&self) -> Timestamp {
        self.touched.after(IDLE_MAX)
    }
}
