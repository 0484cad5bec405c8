//! Statistics of a simulated run.

use std::time::Duration;

use contract::event::{Event, GateKind, StopReason};

/// Statistics of one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunStats {
    /// Inputs delivered to replicas.
    pub inputs: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Commits that were written to the log.
    pub commits: u64,
    /// Virtual time from the first command to the end.
    pub duration: Duration,
    /// Counts of rare events.
    pub rare: RareEvents,
}

/// Counts of rare events. If an event never occurs, the simulation shows nothing about it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RareEvents {
    /// Transcripts that were cut to a context window.
    pub pruned: u64,
    /// Summaries that were requested.
    pub summaries: u64,
    /// Fallbacks to another model.
    pub fallbacks: u64,
    /// Calls performed by child sessions.
    pub children: u64,
    /// Commands to child sessions.
    pub child_commands: u64,
    /// Gates about a limit or a failed model.
    pub questions: u64,
    /// Changes of settings in a running session.
    pub configured: u64,
    /// Turns ended by a limit.
    pub limits: u64,
    /// Turns at a limit that had one last step.
    pub last_steps: u64,
    /// Replies that a judge assessed.
    pub judged: u64,
    /// Calls that waited for a client.
    pub client_calls: u64,
    /// Logs of idle sessions that were compacted.
    pub compactions: u64,
    /// Commands that a client sent again after they were handled.
    pub repeats: u64,
    /// Replies that were cut off and whose text was kept.
    pub cut_replies: u64,
    /// Turns at their limit of time that had a last step.
    pub timeouts_answered: u64,
}

impl RareEvents {
    pub(super) fn count(&mut self, event: &Event) {
        let counter = match event {
            Event::ContextPruned(_) => &mut self.pruned,
            Event::SummaryOpened(_) => &mut self.summaries,
            Event::ModelFellBack(_) => &mut self.fallbacks,
            Event::ToolCallOpened(opened) if opened.child.is_some() => &mut self.children,
            Event::ChildCommanded(_) => &mut self.child_commands,
            Event::GateOpened(gate) if gate.kind != GateKind::Approval => &mut self.questions,
            Event::Configured(_) => &mut self.configured,
            Event::TurnCompleted(turn) if turn.stop_reason.is_limit() => &mut self.limits,
            Event::LimitReached(reached) if reached.limit == StopReason::Timeout => &mut self.timeouts_answered,
            Event::LimitReached(_) => &mut self.last_steps,
            Event::AiCutReceived(cut) if !cut.text.is_empty() => &mut self.cut_replies,
            Event::JudgeOpened(_) => &mut self.judged,
            Event::ClientCallOpened(_) => &mut self.client_calls,
            Event::LogCompacted(_) => &mut self.compactions,
            Event::InputHandled(_)
            | Event::InputIgnored(_)
            | Event::SessionStarted(_)
            | Event::SessionEnded(_)
            | Event::UserProcessed(_)
            | Event::TurnStarted(_)
            | Event::PrivateTurnStarted(_)
            | Event::ToolsResolved(_)
            | Event::ModelCallOpened(_)
            | Event::ModelCallFailed(_)
            | Event::CallCancelled(_)
            | Event::ModelCallInterrupted(_)
            | Event::AiFullReceived(_)
            | Event::AiCutReceived(_)
            | Event::ToolCallIdentified(_)
            | Event::ToolCallOpened(_)
            | Event::ToolCallExtended(_)
            | Event::ToolCallResult(_)
            | Event::StatusPaused(_)
            | Event::StatusResumed(_)
            | Event::ContinuationProgress(_)
            | Event::TurnCompleted(_)
            | Event::GateOpened(_)
            | Event::GateClosed(_)
            | Event::ContextCleared(_)
            | Event::TimerSet(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::SessionMoved(_)
            | Event::Error(_)
            | Event::Unknown => return,
        };
        *counter += 1;
    }

    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pruned: self.pruned + other.pruned,
            summaries: self.summaries + other.summaries,
            fallbacks: self.fallbacks + other.fallbacks,
            children: self.children + other.children,
            child_commands: self.child_commands + other.child_commands,
            questions: self.questions + other.questions,
            configured: self.configured + other.configured,
            limits: self.limits + other.limits,
            last_steps: self.last_steps + other.last_steps,
            judged: self.judged + other.judged,
            client_calls: self.client_calls + other.client_calls,
            compactions: self.compactions + other.compactions,
            repeats: self.repeats + other.repeats,
            cut_replies: self.cut_replies + other.cut_replies,
            timeouts_answered: self.timeouts_answered + other.timeouts_answered,
        }
    }

    /// The smallest count of all.
    pub fn least(self) -> u64 {
        let Self {
            pruned,
            summaries,
            fallbacks,
            children,
            child_commands,
            questions,
            configured,
            limits,
            last_steps,
            judged,
            client_calls,
            compactions,
            repeats,
            cut_replies,
            timeouts_answered,
        } = self;
        let all = [
            pruned,
            summaries,
            fallbacks,
            children,
            child_commands,
            questions,
            configured,
            limits,
            last_steps,
            judged,
            client_calls,
            compactions,
            repeats,
            cut_replies,
            timeouts_answered,
        ];
        all.into_iter().min().unwrap_or(0)
    }
}
