//! Bugs, planted to prove that the oracle finds them.

use contract::event::{Event, ToolCallIdentified, ToolCallOpened, ToolCallResult};

/// A mistake that somebody could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// None.
    None,
    /// A reply of an older call is taken for the one that is awaited.
    AcceptStaleReply,
    /// An input that changes nothing is acknowledged and not written down.
    AckWithoutCommit,
    /// The calls of every step get the ids of the first one.
    ReuseCallId,
    /// One of several results is not written.
    SkipResult,
    /// The limit of steps is forgotten.
    ForgetLimit,
    /// A new attempt gets the number of the old one.
    ResetNoAttempt,
    /// A worker believes a stale read that says its call is open.
    TrustStaleRead,
    /// A writer that lost its slot believes that it won.
    BelieveDuplicateAck,
    /// The events are published, the effects forgotten, and a redelivery does not make up for it.
    ForgetEffects,
    /// A redelivered input is decided again.
    DecideTwice,
    /// What a late reply cost is forgotten.
    ForgetLateCost,
    /// A pause is written, and calls open all the same.
    OpenInPause,
    /// A user's message is answered for and not written.
    LoseMessage,
    /// No timer is set.
    ForgetTimer,
    /// A turn ends and leaves its calls running.
    LeaveCallsOpen,
    /// A person should be asked, and is not.
    AskNobody,
    /// Children are not told to pause or stop.
    ForgetChild,
    /// What a child cost is forgotten.
    ForgetChildCost,
    /// What the user asked in the running turn is pruned away.
    PruneTooMuch,
    /// A fallback takes over again and again.
    FallBackForever,
    /// A call runs as the model asked for it, although a person changed its arguments.
    ForgetChange,
    /// A turn at a limit goes on and does not say that its next step is the last one.
    ForgetLastStep,
    /// A turn that had its last word at a limit says that it is done.
    ForgetLimitAfterLastWord,
    /// What a judge cost is forgotten.
    ForgetJudgeCost,
}

impl Bug {
    /// Every bug.
    pub const ALL: &'static [Self] = &[
        Self::AcceptStaleReply,
        Self::AckWithoutCommit,
        Self::ReuseCallId,
        Self::SkipResult,
        Self::ForgetLimit,
        Self::ResetNoAttempt,
        Self::TrustStaleRead,
        Self::BelieveDuplicateAck,
        Self::ForgetEffects,
        Self::DecideTwice,
        Self::ForgetLateCost,
        Self::OpenInPause,
        Self::LoseMessage,
        Self::ForgetTimer,
        Self::LeaveCallsOpen,
        Self::AskNobody,
        Self::ForgetChild,
        Self::ForgetChildCost,
        Self::PruneTooMuch,
        Self::FallBackForever,
        Self::ForgetChange,
        Self::ForgetLastStep,
        Self::ForgetLimitAfterLastWord,
        Self::ForgetJudgeCost,
    ];

    /// Spoils what was decided, for bugs that lie in the decision.
    pub fn spoil(self, events: &mut Vec<Event>) {
        match self {
            Self::SkipResult => {
                if let Some(at) = events.iter().rposition(|event| matches!(event, Event::ToolCallResult(_))) {
                    events.remove(at);
                }
            }
            Self::ResetNoAttempt => {
                for event in events {
                    if let Event::ModelCallOpened(opened) = event {
                        opened.attempt = 1;
                    }
                }
            }
            Self::ForgetLateCost => {
                for event in events {
                    if let Event::InputIgnored(ignored) = event {
                        ignored.usage = None;
                    }
                }
            }
            Self::ReuseCallId => {
                for event in events {
                    rename_call(event);
                }
            }
            Self::LoseMessage => events.retain(|event| !matches!(event, Event::UserProcessed(_))),
            Self::ForgetTimer => events.retain(|event| !matches!(event, Event::TimerSet(_))),
            Self::LeaveCallsOpen => events.retain(|event| !matches!(event, Event::CallCancelled(_))),
            Self::AskNobody => events.retain(|event| !matches!(event, Event::GateOpened(_))),
            Self::ForgetChild => events.retain(|event| !matches!(event, Event::ChildCommanded(_))),
            Self::ForgetChildCost => {
                for event in events {
                    if let Event::ToolCallResult(result) = event {
                        result.used = None;
                    }
                }
            }
            Self::ForgetJudgeCost => {
                for event in events {
                    if let Event::ContinuationProgress(progress) = event {
                        progress.spent = contract::event::Spent::default();
                    }
                }
            }
            Self::PruneTooMuch => {
                for event in events {
                    if let Event::ContextPruned(pruned) = event {
                        pruned.before_turn = pruned.turn + 1;
                    }
                }
            }
            Self::FallBackForever => {
                for event in events {
                    if let Event::ModelFellBack(fallen) = event {
                        fallen.number = 1;
                    }
                }
            }
            Self::ForgetChange => {
                for event in events {
                    if let Event::GateClosed(closed) = event {
                        closed.arguments = None;
                    }
                }
            }
            Self::ForgetLastStep => events.retain(|event| !matches!(event, Event::LimitReached(_))),
            Self::ForgetLimitAfterLastWord => {
                for event in events {
                    if let Event::TurnCompleted(completed) = event
                        && completed.stop_reason.is_limit()
                    {
                        completed.stop_reason = contract::event::StopReason::Completed;
                    }
                }
            }
            Self::OpenInPause => events.retain(|event| !matches!(event, Event::StatusResumed(_))),
            Self::None
            | Self::AcceptStaleReply
            | Self::AckWithoutCommit
            | Self::ForgetLimit
            | Self::TrustStaleRead
            | Self::BelieveDuplicateAck
            | Self::ForgetEffects
            | Self::DecideTwice => {}
        }
    }
}

fn first(id: &str) -> String {
    let index = id.rsplit('-').next().unwrap_or("1");
    format!("c1-1-{index}")
}

fn rename_call(event: &mut Event) {
    if let Event::AiFullReceived(reply) = event {
        for call in &mut reply.tool_calls {
            call.id = first(&call.id);
        }
    }
    if let Event::ToolCallIdentified(ToolCallIdentified { call, .. })
    | Event::ToolCallOpened(ToolCallOpened { call, .. })
    | Event::ToolCallResult(ToolCallResult { call, .. }) = event
        && let Ok(renamed) = contract::CallId::new(&first(call.as_str()))
    {
        *call = renamed;
    }
}
