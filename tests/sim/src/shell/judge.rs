//! Checks the logs of a run that has ended.

use std::collections::BTreeMap;

use bus::transport::ReadMany;
use bus::{Bus, Read};
use contract::CallId;
use contract::command::Verb;
use contract::commit::Phase;
use contract::event::{Child, Event, InputKind, InputRef, StopReason};
use contract::limits::COMPACT_COMMITS_MIN;
use contract::model::FailureKind;
use contract::streams::Stream;
use contract::subject::{self, ControlSubject, SessionKey};
use contract::tool::Outcome;
use session::audit::Audit;

use crate::oracle::{Oracle, check_request};

/// Length of the faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// There was none, so nothing may have been repeated.
    None,
    /// Each was over, and noticed, long before a deadline, so nothing may have waited for one.
    Short,
    /// One was longer than a turn.
    Long,
}

/// Checks the commits of a session and the requests to its model. Returns the number of commits.
pub(super) async fn session(client: &Bus, key: &SessionKey, disturbance: Disturbance) -> Result<u64, String> {
    let commits = client.history(key, 0).await.map_err(|error| error.to_string())?;
    let mut oracle = Oracle::new(6);
    let mut audit = Audit::new(key.clone());
    let mut read = Vec::new();
    let mut seq = 1;
    for (slot, commit) in &commits {
        let at = |why: String| format!("{key} slot {slot}: {why}");
        oracle.commit(&commit.events).map_err(at)?;
        let is_wrong = |event: &&Event| match disturbance {
            Disturbance::None => follows_failure(event),
            Disturbance::Short => has_timed_out(event),
            Disturbance::Long => false,
        };
        if let Some(event) = commit.events.iter().find(is_wrong) {
            return Err(at(format!("a run with disturbance {disturbance:?} has {event:?}")));
        }
        if commit.meta.seq != seq {
            return Err(at(format!("seq {} where {seq} is next", commit.meta.seq)));
        }
        seq += commit.envelopes(key, *slot).len() as u64;
        check_read(&read, &commit.events).map_err(at)?;
        let before = audit.session.commit_id();
        if !commit.meta.follows(before) {
            return Err(at(format!("it follows {}, not {before}: two histories", commit.meta.prev)));
        }
        if !audit.next(*slot, commit) {
            return Err(at(format!("it is not what the fold comes to: {:?}", audit.differs)));
        }
        if commit.events.iter().any(|event| matches!(event, Event::ModelCallOpened(_))) {
            check_request(&audit.session.messages()).map_err(at)?;
            read.clear();
        }
        read.push(audit.session.messages().len());
    }
    Ok(commits.len() as u64)
}

/// Checks that the model was given as many messages as the transcript had at some time since its call was opened: the
/// scripted one says how many. The text of an earlier reply that was called off may come while the call is open.
fn check_read(lengths: &[usize], events: &[Event]) -> Result<(), String> {
    for event in events {
        let Event::AiFullReceived(reply) = event else { continue };
        let Some((text, _)) = reply.text.split_once(" messages.") else { continue };
        let given = text.rsplit(' ').next().and_then(|count| count.parse().ok());
        if !given.is_some_and(|given| lengths.contains(&given)) {
            return Err(format!("the model read {given:?} messages, the transcript had {lengths:?}"));
        }
    }
    Ok(())
}

/// Counts the compactions of the log of a session.
pub(super) async fn compactions(client: &Bus, key: &SessionKey) -> Result<u64, String> {
    let commits = client.history(key, 0).await.map_err(|error| error.to_string())?;
    let events = commits.iter().flat_map(|(_, commit)| &commit.events);
    Ok(events.filter(|event| matches!(event, Event::LogCompacted(_))).count() as u64)
}

/// Whether the log of an idle session has only the messages that an idle session needs: one since it was compacted, or
/// as few as no compaction would save.
pub(super) async fn is_compact(client: &Bus, key: &SessionKey) -> bool {
    let Ok(Some(head)) = client.head(key, Read::Leader).await else { return false };
    let found = client.transport().last_many(Stream::Log, &[subject::log_session(key)]).await;
    let Ok(ReadMany::Messages(messages)) = found else { return false };
    let most = if head.meta.log_start == Some(head.slot) { 1 } else { COMPACT_COMMITS_MIN - 1 };
    head.meta.phase == Phase::Ended || messages.len() as u64 <= most
}

/// The child sessions of a session.
pub(super) async fn children(client: &Bus, key: &SessionKey) -> Result<Vec<SessionKey>, String> {
    let opened = calls_of_children(client, key).await?;
    let child = |child: Child| SessionKey { tenant: key.tenant.clone(), session: child.session_id };
    Ok(opened.into_iter().map(|(_, opened)| child(opened)).collect())
}

async fn calls_of_children(client: &Bus, key: &SessionKey) -> Result<Vec<(CallId, Child)>, String> {
    let commits = client.history(key, 0).await.map_err(|error| error.to_string())?;
    let opened = commits.into_iter().flat_map(|(_, commit)| commit.events).filter_map(|event| {
        if let Event::ToolCallOpened(opened) = event { Some((opened.call, opened.child?)) } else { None }
    });
    Ok(opened.collect())
}

/// Checks that each child that started has reported to its parent once, and no other child has. A child may never
/// start: the replica that opened the call died, and the parent was stopped before the repair. Then the child gets only
/// the stop.
pub(super) async fn reports(client: &Bus, key: &SessionKey) -> Result<(), String> {
    let commits = client.history(key, 0).await.map_err(|error| error.to_string())?;
    for (call, child) in calls_of_children(client, key).await? {
        let id = format!("{call}-1");
        let is_report =
            |input: &InputRef| input.kind == InputKind::Control(Verb::ProvideToolResult) && input.id.as_str() == id;
        let reports = commits.iter().flat_map(|(_, commit)| &commit.events);
        let reports = reports.filter_map(Event::closed_input).filter(|input| is_report(input)).count();
        let of = SessionKey { tenant: key.tenant.clone(), session: child.session_id.clone() };
        let child_log = client.history(&of, 0).await.map_err(|error| error.to_string())?;
        let is_start = |input: &InputRef| input.kind == InputKind::Control(Verb::Start);
        let began =
            child_log.iter().flat_map(|(_, commit)| &commit.events).filter_map(Event::closed_input).any(is_start);
        let called_off = commits
            .iter()
            .flat_map(|(_, commit)| &commit.events)
            .any(|event| matches!(event, Event::ChildCommanded(command) if command.call == call && command.verb == Verb::Stop));
        if !began && !called_off {
            return Err(format!("{} of {key} never started", child.session_id));
        }
        if reports != usize::from(began) {
            return Err(format!("{} of {key} has reported {reports} times", child.session_id));
        }
    }
    Ok(())
}

/// Whether an event ends a tool call or a turn by its deadline: nobody went on before.
fn has_timed_out(event: &Event) -> bool {
    matches!(event, Event::ToolCallResult(result) if result.outcome == Outcome::Timeout)
        || matches!(event, Event::TurnCompleted(completed) if completed.stop_reason == StopReason::Timeout)
}

/// Whether an event occurs only after a fault: a failed attempt, a retry, a missing answer, or a turn that timed out.
fn follows_failure(event: &Event) -> bool {
    match event {
        Event::ModelCallOpened(opened) => opened.attempt > 1,
        Event::ToolCallOpened(opened) => opened.attempt > 1,
        Event::ToolCallResult(result) => matches!(result.outcome, Outcome::Timeout | Outcome::Unknown),
        Event::TurnCompleted(completed) => completed.stop_reason == StopReason::Timeout,
        // A model may answer without text: in a last step that is no reply, and no fault of the fleet.
        Event::ModelCallFailed(failed) => failed.kind != FailureKind::Empty,
        Event::InputHandled(_)
        | Event::InputIgnored(_)
        | Event::SessionStarted(_)
        | Event::SessionEnded(_)
        | Event::UserProcessed(_)
        | Event::TurnStarted(_)
        | Event::PrivateTurnStarted(_)
        | Event::ToolsResolved(_)
        | Event::CallCancelled(_)
        | Event::ModelCallInterrupted(_)
        | Event::AiFullReceived(_)
        | Event::AiCutReceived(_)
        | Event::ToolCallIdentified(_)
        | Event::ClientCallOpened(_)
        | Event::ToolCallExtended(_)
        | Event::StatusPaused(_)
        | Event::StatusResumed(_)
        | Event::ContinuationProgress(_)
        | Event::GateOpened(_)
        | Event::GateClosed(_)
        | Event::Configured(_)
        | Event::ModelFellBack(_)
        | Event::LimitReached(_)
        | Event::SummaryOpened(_)
        | Event::JudgeOpened(_)
        | Event::ContextPruned(_)
        | Event::ChildCommanded(_)
        | Event::ContextCleared(_)
        | Event::TimerSet(_)
        | Event::SessionArchived(_)
        | Event::SessionImported(_)
        | Event::LogCompacted(_)
        | Event::SessionMoved(_)
        | Event::Error(_)
        | Event::Unknown => false,
    }
}

/// Checks that every command of the client is in a log, once.
pub(super) async fn inputs(client: &Bus, sessions: &[SessionKey], sent: u64) -> Result<(), String> {
    let mut found = std::collections::BTreeSet::new();
    for key in sessions {
        for (_, commit) in client.history(key, 0).await.map_err(|error| error.to_string())? {
            for event in &commit.events {
                let Some(input) = event.closed_input() else { continue };
                let is_command = matches!(input.kind, InputKind::Control(verb) if verb.is_client());
                if is_command && !found.insert(input.id.clone()) {
                    return Err(format!("{key}: command {} is in the log twice", input.id));
                }
            }
        }
    }
    if found.len() as u64 == sent { Ok(()) } else { Err(format!("{sent} commands sent, {} in the logs", found.len())) }
}

/// Checks that each result is in a log of which its worker learned that it is there.
pub(super) async fn promises(client: &Bus, promised: Vec<ControlSubject>) -> Result<(), String> {
    let mut logs: BTreeMap<SessionKey, Vec<InputRef>> = BTreeMap::new();
    for ControlSubject { key, verb, id } in promised {
        if !logs.contains_key(&key) {
            let history = client.history(&key, 0).await.map_err(|error| error.to_string())?;
            let events = history.iter().flat_map(|(_, commit)| &commit.events);
            logs.insert(key.clone(), events.filter_map(Event::closed_input).cloned().collect());
        }
        // The id of a model's result gets that of its run.
        let is_it = |input: &InputRef| {
            let rest = input.id.as_str().strip_prefix(id.as_str());
            input.kind == InputKind::Control(verb) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        if !logs.get(&key).is_some_and(|inputs| inputs.iter().any(is_it)) {
            return Err(format!("{key}: the {verb} {id} is not in the log, and was answered as if it were"));
        }
    }
    Ok(())
}
