//! Bugs of ring 2, planted to show that the oracle finds them.

use contract::Json;
use contract::client_tool::Performer;
use contract::event::{ClientCallOpened, Event, StopReason, ToolCallIdentified, ToolCallOpened, ToolCallResult};
use contract::tool::Outcome;

/// A plausible bug of the loop or its shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The loop without a planted bug.
    None,
    /// A reply to an older call is taken for the awaited one.
    AcceptStaleReply,
    /// An input that changes nothing is acknowledged without a commit.
    AckWithoutCommit,
    /// The calls of every step get the ids of the first one.
    ReuseCallId,
    /// The last result of a commit is dropped.
    SkipResult,
    /// The step limit is not applied.
    ForgetLimit,
    /// A new attempt gets the number of the old one.
    ResetNoAttempt,
    /// A worker believes a stale read that says its call is open.
    TrustStaleRead,
    /// A writer that lost its slot believes that it won.
    BelieveDuplicateAck,
    /// Events are published, effects are skipped, and a redelivery does not repair it.
    ForgetEffects,
    /// A redelivered input is decided again.
    DecideTwice,
    /// The cost of a late reply is not recorded.
    ForgetLateCost,
    /// The resume is not recorded, and calls open all the same.
    OpenInPause,
    /// A user's message is acknowledged and not recorded.
    LoseMessage,
    /// The timer is not set.
    ForgetTimer,
    /// A turn ends without cancelling its open calls.
    LeaveCallsOpen,
    /// A gate is not opened.
    AskNobody,
    /// Children get no pause and no stop.
    ForgetChild,
    /// The cost of a child is not recorded.
    ForgetChildCost,
    /// The spend of a child counts as the session's own.
    ChargeChildToParent,
    /// A late result counts for the turn that runs when it comes.
    ChargeNextTurn,
    /// The text of a reply that was cut off is dropped.
    ForgetCutText,
    /// A turn at its limit of time ends without its last step.
    ForgetWordAtTimeout,
    /// The user's message of the running turn is pruned.
    PruneTooMuch,
    /// The same fallback is taken again and again.
    FallBackForever,
    /// A call runs with the arguments of the model although a person changed them.
    ForgetChange,
    /// A turn at a limit goes on without an event that its next step is the last one.
    ForgetLastStep,
    /// A turn that ended at a limit is recorded as completed.
    ForgetLimitAfterLastWord,
    /// The cost of a judge is not recorded.
    ForgetJudgeCost,
    /// A call that waits for a client goes to the executors.
    AskExecutorsForClient,
    /// A call waits for its client for ever.
    ForgetClientDeadline,
    /// A result is recorded as that of a client although no client gave it.
    InventClientAnswer,
    /// The log is compacted without the ids of the inputs that were handled.
    CompactHandledInputs,
    /// The log is compacted without the transcript.
    CompactTranscript,
    /// A start that was decided without a look at the inbox claims that the commands before it are handled.
    ClaimUnseenCommands,
    /// A resume does not replace the items that wait, which workers are about to acknowledge.
    LeaveParked,
}

impl PlantedBug {
    /// All bugs, without [`PlantedBug::None`].
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
        Self::ChargeChildToParent,
        Self::ChargeNextTurn,
        Self::ForgetCutText,
        Self::ForgetWordAtTimeout,
        Self::PruneTooMuch,
        Self::FallBackForever,
        Self::ForgetChange,
        Self::ForgetLastStep,
        Self::ForgetLimitAfterLastWord,
        Self::ForgetJudgeCost,
        Self::AskExecutorsForClient,
        Self::ForgetClientDeadline,
        Self::InventClientAnswer,
        Self::CompactHandledInputs,
        Self::CompactTranscript,
        Self::ClaimUnseenCommands,
        Self::LeaveParked,
    ];

    /// Changes the events of a decision, for bugs of the decision itself.
    #[allow(clippy::too_many_lines, reason = "one arm per bug, each a few lines: a table reads best whole")]
    pub fn apply(self, events: &mut Vec<Event>) {
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
            Self::ChargeChildToParent => {
                for event in events {
                    if let Event::TurnCompleted(completed) = event {
                        completed.spent_own = Some(completed.spent);
                    }
                }
            }
            Self::ChargeNextTurn => {
                for event in events {
                    if let Event::InputIgnored(ignored) = event {
                        ignored.call = None;
                    }
                }
            }
            Self::ForgetCutText => {
                for event in events {
                    if let Event::AiCutReceived(cut) = event {
                        cut.text.clear();
                    }
                }
            }
            Self::ForgetWordAtTimeout => {
                let is_time = |event: &Event| matches!(event, Event::LimitReached(reached) if reached.limit == StopReason::Timeout);
                events.retain(|event| !is_time(event));
            }
            Self::ForgetJudgeCost => {
                for event in events {
                    if let Event::ContinuationProgress(progress) = event {
                        progress.spent = contract::event::Spent::default();
                    }
                }
            }
            Self::AskExecutorsForClient => {
                for event in events {
                    if let Event::ClientCallOpened(ClientCallOpened { call, deadline, .. }) = event {
                        let (call, deadline) = (call.clone(), *deadline);
                        *event = Event::ToolCallOpened(ToolCallOpened { call, attempt: 1, deadline, child: None });
                    }
                }
            }
            Self::ForgetClientDeadline => {
                for event in events {
                    if let Event::ClientCallOpened(opened) = event {
                        opened.deadline = contract::Timestamp::from_millis(u64::MAX);
                    }
                }
            }
            Self::InventClientAnswer => {
                for event in events {
                    if let Event::ToolCallResult(result) = event
                        && result.performer == Performer::Client
                    {
                        result.outcome = Outcome::Ok;
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
                        completed.stop_reason = StopReason::Completed;
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
            | Self::CompactHandledInputs
            | Self::CompactTranscript
            | Self::ClaimUnseenCommands
            | Self::LeaveParked
            | Self::DecideTwice => {}
        }
    }

    /// Changes the snapshot with which a compacted log begins, for bugs of the compaction. `empty` is that of a session
    /// without a log.
    pub fn change_snapshot(self, snapshot: &Json, empty: &Json) -> Json {
        let forgotten = match self {
            Self::CompactHandledInputs => "handled",
            Self::CompactTranscript => "transcript",
            Self::None
            | Self::AcceptStaleReply
            | Self::AckWithoutCommit
            | Self::ReuseCallId
            | Self::SkipResult
            | Self::ForgetLimit
            | Self::ResetNoAttempt
            | Self::TrustStaleRead
            | Self::BelieveDuplicateAck
            | Self::ForgetEffects
            | Self::DecideTwice
            | Self::ForgetLateCost
            | Self::OpenInPause
            | Self::LoseMessage
            | Self::ForgetTimer
            | Self::LeaveCallsOpen
            | Self::AskNobody
            | Self::ForgetChild
            | Self::ForgetChildCost
            | Self::ChargeChildToParent
            | Self::ChargeNextTurn
            | Self::ForgetCutText
            | Self::ForgetWordAtTimeout
            | Self::PruneTooMuch
            | Self::FallBackForever
            | Self::ForgetChange
            | Self::ForgetLastStep
            | Self::ForgetLimitAfterLastWord
            | Self::ForgetJudgeCost
            | Self::AskExecutorsForClient
            | Self::ForgetClientDeadline
            | Self::InventClientAnswer
            | Self::ClaimUnseenCommands
            | Self::LeaveParked => return snapshot.clone(),
        };
        let empty: serde_json::Value = serde_json::from_str(empty.get()).unwrap_or_default();
        let mut changed: serde_json::Value = serde_json::from_str(snapshot.get()).unwrap_or_default();
        changed[forgotten] = empty[forgotten].clone();
        Json::of(&changed)
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
    | Event::ClientCallOpened(ClientCallOpened { call, .. })
    | Event::ToolCallResult(ToolCallResult { call, .. }) = event
        && let Ok(renamed) = contract::CallId::new(&first(call.as_str()))
    {
        *call = renamed;
    }
}
