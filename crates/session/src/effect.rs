//! Effects follow from events: what is performed was committed before (I2), and a reload owes the same again.

use contract::Timestamp;
use contract::event::{CallCancelled, Event, JudgeOpened, SummaryOpened};
use contract::ids::{CallAttempt, CallId, ToolName};
use contract::limits::{PAGES_BEHIND_MAX, SLOTS_PER_PAGE};

use crate::state::{CallStage, Lifecycle, RunsAt, State};

/// A wish to the world. It may be performed twice: each has a key under which the second one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEffect {
    /// Publish the model call's work item.
    CallModel(CallAttempt),
    /// Publish the tool call's work item.
    CallTool(CallAttempt),
    /// Remove the work item if it still waits, and notify the worker that runs it.
    Cancel {
        /// Attempt of the call that is cancelled.
        call: CallAttempt,
        /// The tool; none for a model call.
        tool: Option<ToolName>,
    },
    /// Set the session's one timer; an earlier setting is replaced.
    SetTimer {
        /// Number of this setting of the timer, from 1.
        number: u64,
        /// Time at which the timer fires.
        at: Timestamp,
    },
    /// Publish the `start` of the child session that performs the call.
    StartChild(CallAttempt),
    /// Send the last command again to the child of the call.
    CommandChild(CallId),
    /// Give the parent the result of its call.
    ReportToParent,
    /// The session needs no timer any more.
    CancelTimer,
    /// Write the session's line in the index, or remove that of a session that another cell has.
    Index,
    /// Move the slots before this one from the log to the archive, if they are still there.
    Archive {
        /// The first slot that stays.
        below: u64,
    },
}

/// Returns the effects of one event.
pub(crate) fn of(event: &Event) -> Vec<SessionEffect> {
    match event {
        Event::ModelCallOpened(opened) => {
            vec![SessionEffect::CallModel(CallAttempt { call: opened.call.clone(), attempt: opened.attempt })]
        }
        Event::ToolCallOpened(opened) => {
            let call = CallAttempt { call: opened.call.clone(), attempt: opened.attempt };
            vec![if opened.child.is_some() { SessionEffect::StartChild(call) } else { SessionEffect::CallTool(call) }]
        }
        Event::SummaryOpened(SummaryOpened { call, .. }) | Event::JudgeOpened(JudgeOpened { call, .. }) => {
            vec![SessionEffect::CallModel(CallAttempt { call: call.clone(), attempt: 1 })]
        }
        Event::ChildCommanded(command) => vec![SessionEffect::CommandChild(command.call.clone())],
        Event::InputIgnored(ignored) => {
            let report = ignored.parent.as_ref().map(|_| SessionEffect::ReportToParent);
            // It shows what the session used, and maybe no other event follows.
            let index = ignored.usage.filter(|usage| !usage.is_nothing()).map(|_| SessionEffect::Index);
            report.into_iter().chain(index).collect()
        }
        Event::CallCancelled(cancelled) => vec![cancel(cancelled)],
        Event::ModelCallInterrupted(interrupted) => vec![SessionEffect::Cancel {
            call: CallAttempt { call: interrupted.call.clone(), attempt: interrupted.attempt },
            tool: None,
        }],
        Event::TimerSet(timer) => vec![SessionEffect::SetTimer { number: timer.number, at: timer.at }],
        Event::SessionArchived(archived) => vec![SessionEffect::Archive { below: archived.slots }, SessionEffect::Index],
        Event::LogCompacted(compacted) => vec![SessionEffect::Archive { below: compacted.slots }],
        Event::SessionMoved(moved) => vec![SessionEffect::Archive { below: moved.slots }, SessionEffect::Index],
        Event::SessionStarted(_)
        | Event::SessionEnded(_)
        | Event::SessionImported(_)
        | Event::TurnStarted(_)
        | Event::PrivateTurnStarted(_)
        | Event::TurnCompleted(_)
        | Event::StatusPaused(_)
        | Event::StatusResumed(_)
        // The index shows what waits for a person, and what waits for a client.
        | Event::ClientCallOpened(_)
        | Event::GateOpened(_)
        | Event::GateClosed(_)
        // What the session used, which may come after the end of the turn.
        | Event::AiCutReceived(_) => vec![SessionEffect::Index],
        Event::ToolCallResult(result) if !result.performer.is_fleet() => vec![SessionEffect::Index],
        Event::InputHandled(_)
        | Event::UserProcessed(_)
        | Event::ToolsResolved(_)
        | Event::ModelCallFailed(_)
        | Event::AiFullReceived(_)
        | Event::ToolCallIdentified(_)
        | Event::ToolCallExtended(_)
        | Event::ToolCallResult(_)
        | Event::ContinuationProgress(_)
        | Event::Configured(_)
        | Event::ModelFellBack(_)
        | Event::LimitReached(_)
        | Event::ContextPruned(_)
        | Event::ContextCleared(_)
        | Event::Error(_)
        | Event::Unknown => Vec::new(),
    }
}

/// The effects of a commit that led to this state, each once.
pub(crate) fn of_all(state: &State, events: &[Event]) -> Vec<SessionEffect> {
    let mut effects = Vec::new();
    for effect in events.iter().flat_map(of) {
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    // A worker that finds its session paused acknowledges the item.
    if events.iter().any(|event| matches!(event, Event::StatusResumed(_))) {
        let is_item = |effect: &SessionEffect| {
            matches!(effect, SessionEffect::CallModel(_) | SessionEffect::CallTool(_)) && !effects.contains(effect)
        };
        let parked: Vec<SessionEffect> = call_effects(state).into_iter().filter(is_item).collect();
        effects.extend(parked);
    }
    // What is late for a session that is not in the log gives it no line.
    if state.life == Lifecycle::NotStarted {
        effects.retain(|effect| *effect != SessionEffect::Index);
    }
    if state.report.is_some() && events.iter().any(|event| matches!(event, Event::SessionEnded(_))) {
        effects.push(SessionEffect::ReportToParent);
    }
    let archives = effects.iter().any(|effect| matches!(effect, SessionEffect::Archive { .. }));
    if state.slot().is_multiple_of(SLOTS_PER_PAGE) && !archives {
        effects.extend(finished(state));
    }
    // Several settings of one commit: the last one counts.
    let last = effects.iter().rposition(|effect| matches!(effect, SessionEffect::SetTimer { .. }));
    let mut position = 0;
    effects.retain(|effect| {
        position += 1;
        !matches!(effect, SessionEffect::SetTimer { .. }) || Some(position - 1) == last
    });
    effects
}

/// The pages that a session which goes on has left behind, and what is before the slot with which its log begins. The
/// last page that it left stays for those who are late.
fn finished(state: &State) -> Option<SessionEffect> {
    let page = state.slot() / SLOTS_PER_PAGE;
    let below = page.saturating_sub(PAGES_BEHIND_MAX) * SLOTS_PER_PAGE;
    let below = below.max(state.log_start.unwrap_or(0));
    (below > 0).then_some(SessionEffect::Archive { below })
}

fn cancel(cancelled: &CallCancelled) -> SessionEffect {
    let call = CallAttempt { call: cancelled.call.clone(), attempt: cancelled.attempt };
    SessionEffect::Cancel { call, tool: cancelled.tool.clone() }
}

pub(crate) fn outstanding(state: &State) -> Vec<SessionEffect> {
    let mut effects: Vec<SessionEffect> = state.cancels.iter().map(cancel).collect();
    effects.extend(state.children.keys().cloned().map(SessionEffect::CommandChild));
    // The input that ended the session was acknowledged once the report was stored, and the archive comes much later.
    if state.report.is_some() && !state.is_archived() {
        effects.push(SessionEffect::ReportToParent);
    }
    match state.life {
        Lifecycle::NotStarted => return effects,
        Lifecycle::Ended => {
            effects.push(match (state.archived, &state.timer) {
                (Some(below), _) if state.is_archived() => SessionEffect::Archive { below },
                (_, Some(timer)) => SessionEffect::SetTimer { number: timer.number, at: timer.at },
                // An older version ended it, and set none.
                (_, None) => SessionEffect::CancelTimer,
            });
            effects.push(SessionEffect::Index);
            return effects;
        }
        Lifecycle::Alive => {}
    }
    effects.extend(call_effects(state));
    if let Some(timer) = &state.timer {
        effects.push(SessionEffect::SetTimer { number: timer.number, at: timer.at });
    }
    effects.extend(finished(state));
    effects.push(SessionEffect::Index);
    effects
}

/// Returns the effects that start the open calls, or cancel an interrupted model call whose text is still awaited.
fn call_effects(state: &State) -> Vec<SessionEffect> {
    let Some(turn) = &state.turn else { return Vec::new() };
    if let Some(model) = turn.open_model_call() {
        let call = model.id();
        let is_called_off = model.interrupted.is_some();
        return vec![if is_called_off {
            SessionEffect::Cancel { call, tool: None }
        } else {
            SessionEffect::CallModel(call)
        }];
    }
    let open = turn.calls().iter().filter_map(|state| match &state.stage {
        CallStage::Open { attempt, .. } => {
            let call = CallAttempt { call: state.call.clone(), attempt: *attempt };
            match state.runs_at()? {
                RunsAt::Executor => Some(SessionEffect::CallTool(call)),
                RunsAt::Child(_) => Some(SessionEffect::StartChild(call)),
                // The event and the index tell the client.
                RunsAt::Client => None,
            }
        }
        CallStage::Announced | CallStage::Pending(_) | CallStage::Gated { .. } | CallStage::Done(_) => None,
    });
    open.collect()
}
