//! Finds a task in the log of its session.

use contract::CommandId;
use contract::commit::Commit;
use contract::limits::SLOTS_PER_PAGE;
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::fair_queue::RequestCost;
use edge_core::turn::{BegunTurn, TurnStart};

use super::errors::A2aError;
use super::task::AgentTask;
use super::task_id::TaskId;
use super::task_reader::TaskReader;

/// A task as the log has it.
#[derive(Debug)]
pub(super) struct LoadedTask {
    pub(super) task: AgentTask,
    pub(super) message: CommandId,
    /// Answers to gates and calls that the session has handled since the message.
    pub(super) answers: std::collections::BTreeSet<CommandId>,
    /// The last `seq` of the log that the task includes.
    seq: u64,
}

impl LoadedTask {
    /// Loads a task of a session that the caller reaches.
    pub(super) async fn load(api: &SessionApi, caller: &ApiCaller, id: &TaskId) -> Result<Self, A2aError> {
        let session = api.reach(caller, &id.session).await?;
        let _permit = api.acquire_permit(caller, RequestCost::Read).await?;
        let end = api.last_slot(&session).await?.filter(|end| *end >= id.slot);
        let Some(end) = end else { return Err(A2aError::task_not_found(id)) };
        let mut reader = TaskReader::new(id.clone());
        for page in id.slot / SLOTS_PER_PAGE..=end / SLOTS_PER_PAGE {
            let last = ((page + 1) * SLOTS_PER_PAGE - 1).min(end);
            let commits = api.page_until(&session, last).await?;
            read(&mut reader, &commits);
            if !reader.has_message() || reader.task.phase().is_final() {
                break;
            }
        }
        Self::of(reader).ok_or_else(|| A2aError::task_not_found(id))
    }

    /// Loads the task of the last turn of a session; `None` if its log has none any more.
    pub(super) async fn load_newest(api: &SessionApi, session: &ReachedSession) -> Result<Option<Self>, ApiError> {
        let Some(end) = api.last_slot(session).await? else { return Ok(None) };
        let mut commits: Vec<(u64, Commit)> = Vec::new();
        for page in (0..=end / SLOTS_PER_PAGE).rev() {
            let last = ((page + 1) * SLOTS_PER_PAGE - 1).min(end);
            let mut earlier = api.page_until(session, last).await?;
            earlier.append(&mut commits);
            commits = earlier;
            if let Some(slot) = find_newest(&commits) {
                let mut reader = TaskReader::new(TaskId { session: session.id().clone(), slot });
                read(&mut reader, &commits);
                return Ok(Self::of(reader));
            }
        }
        Ok(None)
    }

    /// Makes the task that a reader has read; `None` if there is none.
    pub(super) fn of(reader: TaskReader) -> Option<Self> {
        let message = reader.message()?.clone();
        let TaskReader { task, answers, seq, .. } = reader;
        Some(Self { task, message, answers, seq })
    }

    /// Returns where the rest of the turn is to be followed from.
    pub(super) fn to_turn(&self) -> BegunTurn {
        let TaskId { session, slot } = self.task.id.clone();
        let message = self.message.clone();
        let start = if self.task.is_started { TurnStart::Running } else { TurnStart::Waiting { message } };
        BegunTurn { session_id: session, seq: self.seq, slot, start }
    }
}

/// Reads the commits from that of the message on.
fn read(reader: &mut TaskReader, commits: &[(u64, Commit)]) {
    let from = reader.task.id.slot;
    for (slot, commit) in commits.iter().filter(|(slot, _)| *slot >= from) {
        reader.push(*slot, commit);
    }
}

/// Finds the slot of the first message of the last turn.
fn find_newest(commits: &[(u64, Commit)]) -> Option<u64> {
    let message = commits.iter().rev().find_map(|(_, commit)| {
        commit.events.iter().rev().find_map(|event| match started_by(event) {
            [] => None,
            [message, ..] => Some(message),
        })
    })?;
    let brings = |commit: &Commit| commit.events.iter().any(|event| message_of(event) == Some(message));
    commits.iter().find(|(_, commit)| brings(commit)).map(|(slot, _)| *slot)
}

fn started_by(event: &contract::event::Event) -> &[CommandId] {
    event.turn_started().map_or(&[], |started| &started.messages)
}

/// Returns the id of the message that an event brings.
#[allow(clippy::wildcard_enum_match_arm, reason = "one event counts")]
pub(super) fn message_of(event: &contract::event::Event) -> Option<&CommandId> {
    match event {
        contract::event::Event::UserProcessed(message) => Some(&message.message_id),
        _ => None,
    }
}
