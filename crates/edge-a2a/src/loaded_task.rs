//! A task as the log of its session has it.

use std::collections::BTreeSet;

use contract::command::{MessageMode, Verb};
use contract::commit::Commit;
use contract::event::{Event, InputKind, UserProcessed};
use contract::limits::SLOTS_PER_PAGE;
use contract::subject::SessionKey;
use contract::{CommandId, Timestamp};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::fair_queue::RequestCost;
use edge_core::feed::viewer_event::with_views;
use edge_core::turn::{BegunTurn, TurnFollower, TurnStart};

use super::errors::A2aError;
use super::message;
use super::task::AgentTask;
use super::task_id::TaskId;

/// Task that is read from the log, commit by commit, from that of its message on.
#[derive(Debug)]
pub(super) struct LoadedTask {
    pub(super) task: AgentTask,
    message: CommandId,
    /// Whether a running turn reads the message, so that it may begin none.
    is_steering: bool,
    /// Answers to gates and calls that the session has handled since the message, by the id of their command.
    pub(super) answers: BTreeSet<CommandId>,
    follower: TurnFollower,
    /// The last `seq` of the log that the task includes.
    seq: u64,
}

impl LoadedTask {
    /// Loads a task of a session that the caller reaches.
    pub(super) async fn load(api: &SessionApi, caller: &ApiCaller, id: &TaskId) -> Result<Self, A2aError> {
        let session = api.reach(caller, &id.session).await?;
        let _permit = api.acquire_permit(caller, RequestCost::Read).await?;
        let not_found = || A2aError::task_not_found(id);
        let end = api.last_slot(&session).await?.filter(|end| *end >= id.slot).ok_or_else(not_found)?;
        let first_page = id.slot / SLOTS_PER_PAGE;
        let commits = api.page_until(&session, end_of_page(first_page).min(end)).await?;
        let mut loaded = Self::read(session.key(), id.slot, &commits).ok_or_else(not_found)?;
        for page in first_page + 1..=end / SLOTS_PER_PAGE {
            if loaded.task.phase().is_final() {
                break;
            }
            for (slot, commit) in api.page_until(&session, end_of_page(page).min(end)).await? {
                loaded.push(session.key(), slot, &commit);
            }
        }
        Some(loaded).filter(Self::is_task).ok_or_else(not_found)
    }

    /// Loads the task of the last turn of a session; `None` if its log has none any more.
    pub(super) async fn load_newest(api: &SessionApi, session: &ReachedSession) -> Result<Option<Self>, ApiError> {
        let Some(end) = api.last_slot(session).await? else { return Ok(None) };
        let mut commits: Vec<(u64, Commit)> = Vec::new();
        for page in (0..=end / SLOTS_PER_PAGE).rev() {
            let mut earlier = api.page_until(session, end_of_page(page).min(end)).await?;
            earlier.append(&mut commits);
            commits = earlier;
            if let Some(slot) = find_newest(&commits) {
                return Ok(Self::read(session.key(), slot, &commits).filter(Self::is_task));
            }
        }
        Ok(None)
    }

    /// Reads the task of a slot as far as it is in these commits; `None` if they have no message in the slot.
    pub(super) fn read(session: &SessionKey, slot: u64, commits: &[(u64, Commit)]) -> Option<Self> {
        let mut rest = commits.iter().skip_while(|(at, _)| *at < slot);
        let (_, first) = rest.next().filter(|(at, _)| *at == slot)?;
        let mut loaded = Self::begin(session, slot, first)?;
        rest.for_each(|(at, commit)| loaded.push(session, *at, commit));
        Some(loaded)
    }

    /// Begins with the commit that brings the message of the task; `None` if it brings none.
    pub(super) fn begin(session: &SessionKey, slot: u64, commit: &Commit) -> Option<Self> {
        let message = commit.events.iter().find_map(message_of)?;
        let id = TaskId { session: session.session.clone(), slot };
        let mut task = AgentTask::new(id, commit.meta.time);
        task.remember(message::of_user(&task.id, message));
        let mut begun = Self {
            task,
            message: message.message_id.clone(),
            is_steering: steers(message.mode),
            answers: BTreeSet::new(),
            follower: TurnFollower::default(),
            seq: 0,
        };
        begun.push(session, slot, commit);
        Some(begun)
    }

    /// Takes the next commit of the log.
    pub(super) fn push(&mut self, session: &SessionKey, slot: u64, commit: &Commit) {
        self.seq = commit.last_seq();
        let time = commit.meta.time;
        for (event, view) in with_views(session, slot, commit) {
            self.note(event, time);
            // The session may also end before the turn begins.
            let is_of_task = self.task.is_started || matches!(event, Event::SessionEnded(_));
            if let Some(view) = view.filter(|_| is_of_task) {
                for part in self.follower.push(&view) {
                    self.task.push(part, time);
                }
            }
        }
    }

    /// Notes what an event says about the messages of the task and the answers to it.
    #[allow(clippy::wildcard_enum_match_arm, reason = "most events say nothing about a task")]
    fn note(&mut self, event: &Event, time: Timestamp) {
        match event {
            Event::UserProcessed(message) if self.task.is_started && steers(message.mode) => {
                self.task.remember(message::of_user(&self.task.id, message));
            }
            Event::TurnStarted(started) | Event::PrivateTurnStarted(started)
                if !self.task.is_started && started.messages.contains(&self.message) =>
            {
                self.task.is_started = true;
                self.task.changed = time;
            }
            Event::InputHandled(handled)
                if [Verb::Answer, Verb::AnswerToolCall].map(InputKind::Control).contains(&handled.input.kind) =>
            {
                self.answers.insert(handled.input.id.clone());
            }
            _ => {}
        }
    }

    /// Whether the message is a task by itself, and does not belong to the turn of another one.
    pub(super) fn is_task(&self) -> bool {
        !self.is_steering || self.task.is_started
    }

    /// Returns where the rest of the turn is to be followed from.
    pub(super) fn to_turn(&self) -> BegunTurn {
        let TaskId { session, slot } = self.task.id.clone();
        let message = self.message.clone();
        let start = if self.task.is_started { TurnStart::Running } else { TurnStart::Waiting { message } };
        BegunTurn { session_id: session, seq: self.seq, slot, start }
    }
}

fn end_of_page(page: u64) -> u64 {
    (page + 1) * SLOTS_PER_PAGE - 1
}

/// Finds the slot of the first message of the last turn.
fn find_newest(commits: &[(u64, Commit)]) -> Option<u64> {
    let events = commits.iter().rev().flat_map(|(_, commit)| commit.events.iter().rev());
    let mut started = events.filter_map(Event::turn_started);
    let message = started.find_map(|started| started.messages.first())?;
    let is_brought = |commit: &Commit| commit.events.iter().filter_map(message_of).any(|it| it.message_id == *message);
    commits.iter().find(|(_, commit)| is_brought(commit)).map(|(slot, _)| *slot)
}

fn message_of(event: &Event) -> Option<&UserProcessed> {
    if let Event::UserProcessed(message) = event { Some(message) } else { None }
}

const fn steers(mode: MessageMode) -> bool {
    match mode {
        MessageMode::Steer | MessageMode::Interrupt => true,
        MessageMode::Queue => false,
    }
}
