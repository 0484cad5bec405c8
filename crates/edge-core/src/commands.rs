//! Commands of clients: each is validated, sent once, and answered when its commit is in the log.

use std::marker::PhantomData;
use std::time::Duration;

use bus::{Bus, Inbox, Read, SendOutcome};
use contract::client_tool::AnswerToolCall;
use contract::command::{
    Answer, Command, CommandAck, CommandMeta, Configure, ControlReason, Refusal, SendUserMessage, Start, Verb,
};
use contract::commit::{Commit, Phase};
use contract::compose::ComposeRequest;
use contract::event::{Event, InputKind, InputRef};
use contract::limits::WAITING_COMMANDS_MAX;
use contract::subject::{self, SessionKey};
use contract::{CommandId, ErrorCode, Json, SessionId};
use serde::Serialize;
use session_api::CommandReply;
use tokio::time::Instant;

use crate::access::{AllowedAgent, ApiCaller};
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::cells::Cell;
use crate::clock;
use crate::command_waiters::CommandWaiter;
use crate::compose::compose;
use crate::fair_queue::RequestCost;
use crate::inbox::{InboxLoad, load_inbox};
use crate::params::{CommandBody, CommandRequest, UnvalidatedCommand};
use crate::session_log::fold_session;

/// Pause between checks of the log while an acknowledgement is awaited: it may be lost.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of the check that reads the page whatever the head says: the head does not change if a command is repeated
/// that was handled long ago.
const FORCED_LOG_CHECK: u32 = 2;
/// Retry delay for a client that got `too_many_waiting`.
const WAITING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A command that is stored, with what is needed to wait for its commit.
#[derive(Debug)]
pub struct PendingCommand {
    bus: Bus,
    key: SessionKey,
    verb: Verb,
    id: CommandId,
    state: PendingState,
}

/// Progress of a sent command.
#[derive(Debug)]
enum PendingState {
    /// The client does not wait for the commit.
    Accepted,
    /// The command was handled before this request.
    Handled(CommandOutcome),
    /// The client waits for the commit.
    AwaitingCommit(CommitWait),
}

/// Values with which a request waits for the commit of its command.
#[derive(Debug)]
struct CommitWait {
    waiter: CommandWaiter,
    control_seq: Option<u64>,
    wait: Duration,
}

/// Outcome of a command in a session, as recorded in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandOutcome {
    slot: u64,
    seq: u64,
    turn: Option<u32>,
    refused: Option<Refusal>,
}

/// The verb of a command to a session that is there, with the type of its body.
#[derive(Debug)]
pub struct CommandVerb<T> {
    verb: Verb,
    body: PhantomData<T>,
}

impl<T> CommandVerb<T> {
    const fn new(verb: Verb) -> Self {
        Self { verb, body: PhantomData }
    }
}

/// Sends a message of the user.
pub const SEND: CommandVerb<SendUserMessage> = CommandVerb::new(Verb::SendUserMessage);
/// Pauses a session: it opens no new call until it is resumed.
pub const PAUSE: CommandVerb<ControlReason> = CommandVerb::new(Verb::Pause);
/// Resumes a paused session.
pub const RESUME: CommandVerb<ControlReason> = CommandVerb::new(Verb::Resume);
/// Cancels the open calls of a session and ends it.
pub const STOP: CommandVerb<ControlReason> = CommandVerb::new(Verb::Stop);
/// Cancels the running turn of a session, which goes on.
pub const CANCEL_TURN: CommandVerb<ControlReason> = CommandVerb::new(Verb::CancelTurn);
/// Answers a gate: approves, denies, or answers a question.
pub const ANSWER: CommandVerb<Answer> = CommandVerb::new(Verb::Answer);
/// Answers a call of a tool that a client brought.
pub const ANSWER_CALL: CommandVerb<AnswerToolCall> = CommandVerb::new(Verb::AnswerToolCall);
/// Clears the transcript of a session.
pub const CLEAR: CommandVerb<ControlReason> = CommandVerb::new(Verb::ClearHistory);
/// Changes the settings of a running session.
pub const CONFIGURE: CommandVerb<Configure> = CommandVerb::new(Verb::Configure);

impl SessionApi {
    /// Validates a command, and sends it to a session that the caller reaches. An agent that the command gives to the
    /// session is checked here, so no command brings one that its sender may not use.
    pub async fn submit<T: CommandBody + Serialize + Send + 'static>(
        &self,
        caller: &ApiCaller,
        verb: CommandVerb<T>,
        command: UnvalidatedCommand<T>,
    ) -> Result<PendingCommand, ApiError> {
        let request = self.validate_command(caller, command).await?;
        if let Some(agent) = request.body.new_agent() {
            // Few commands come here, and the future is large.
            Box::pin(self.allow_named_agent(caller, agent)).await?;
        }
        let session = self.reach(caller, &request.session).await?;
        let cell = self.cell_of(&session).await?;
        self.submit_to(&cell, caller, verb.verb, request, std::future::ready(Ok(()))).await
    }

    /// As [`SessionApi::submit`], and waits for the commit. An empty `id` stands for a new one.
    pub async fn perform<T: CommandBody + Serialize + Send + 'static>(
        &self,
        caller: &ApiCaller,
        verb: CommandVerb<T>,
        session: &SessionId,
        id: &str,
        body: T,
    ) -> Result<CommandReply, ApiError> {
        let command = UnvalidatedCommand::new(session.as_str(), id, true, body)?;
        self.submit(caller, verb, command).await?.wait().await
    }

    /// Cancels the running turn of a session; returns whether there was something to cancel.
    pub async fn cancel_turn(&self, caller: &ApiCaller, session: &SessionId, reason: String) -> Result<bool, ApiError> {
        match self.perform(caller, CANCEL_TURN, session, "", ControlReason { reason: Some(reason) }).await {
            // It has ended meanwhile.
            Err(error) if [ErrorCode::SessionEnded, ErrorCode::NotNow].contains(&error.code) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// Sends a start, whose agent is checked by `allowing` meanwhile.
    pub(crate) async fn submit_start(
        &self,
        cell: &Cell,
        caller: &ApiCaller,
        request: CommandRequest<Start>,
        allowing: impl Future<Output = Result<AllowedAgent, ApiError>>,
    ) -> Result<PendingCommand, ApiError> {
        self.submit_to(cell, caller, Verb::Start, request, async { allowing.await.map(drop) }).await
    }

    /// Stores the start of a session that nobody has started, for a caller that may use its agent.
    pub(crate) async fn store_start(
        &self,
        cell: &Cell,
        caller: &ApiCaller,
        request: CommandRequest<Start>,
        _allowed: AllowedAgent,
    ) -> Result<PendingCommand, ApiError> {
        self.store_command(cell, caller, Verb::Start, request, Examined::UNUSED).await
    }

    /// Sends a command to a session of this cell, unless the check that runs meanwhile refuses it.
    async fn submit_to<T: Serialize>(
        &self,
        cell: &Cell,
        caller: &ApiCaller,
        verb: Verb,
        request: CommandRequest<T>,
        check: impl Future<Output = Result<(), ApiError>>,
    ) -> Result<PendingCommand, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        let examining = async {
            // If the session exists all the same, the loop answers as it does to a repeated start.
            if verb == Verb::Start && cell.tenant(&key.tenant).seems_unused(&key.session) {
                return Ok((SessionState::NotStarted, InboxLoad::default()));
            }
            let checking_state = check_session_state(cell, &key, verb, &request.id);
            let (state, inbox) = tokio::join!(checking_state, load_inbox(&cell.bus, &key));
            Ok::<_, ApiError>((state?, inbox?))
        };
        // Nothing of this waits for the other.
        let (examined, checked) = tokio::join!(examining, check);
        let (state, inbox) = examined?;
        if let SessionState::EndedHandled(outcome) = state {
            let state = PendingState::Handled(outcome);
            return Ok(PendingCommand { bus: cell.bus.clone(), key, verb, id: request.id, state });
        }
        let is_new = matches!(state, SessionState::NotStarted) && !inbox.has_start;
        // Every command but `start` needs a session. A stored start is enough: it is handled before this command.
        if is_new && verb != Verb::Start {
            return Err(SessionApi::unknown_session(&key));
        }
        checked?;
        self.store_command(cell, caller, verb, request, Examined { is_new, commands: inbox.commands }).await
    }

    /// Admits a command, and stores it in the inbox of its session. The loop gets the agents of the caller with it, and
    /// refuses it where it concerns another one.
    async fn store_command<T: Serialize>(
        &self,
        cell: &Cell,
        caller: &ApiCaller,
        verb: Verb,
        request: CommandRequest<T>,
        examined: Examined,
    ) -> Result<PendingCommand, ApiError> {
        let bus = cell.bus.clone();
        let CommandRequest { session, id, is_awaited, is_id_generated: _, body } = request;
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        let pending = |state| PendingCommand { bus: bus.clone(), key: key.clone(), verb, id: id.clone(), state };
        let Examined { is_new, commands } = examined;
        if commands >= WAITING_COMMANDS_MAX && verb != Verb::Stop {
            let message = format!("{commands} commands wait for session {} already", key.session);
            return Err(ApiError::new(ErrorCode::TooManyWaiting, message).with_retry_after(WAITING_RETRY_AFTER));
        }

        if matches!(verb, Verb::Start | Verb::SendUserMessage) {
            cell.tenant(&key.tenant).admission.admit_turn(&bus, &key.tenant).await?;
        }
        if is_new && verb == Verb::Start {
            let tenant = cell.tenant(&key.tenant);
            tenant.admission.admit_session(&tenant.index, &key.session)?;
        }
        let edge = is_awaited.then(|| self.replica_id().clone());
        let (by, agents) = (Some(caller.subject().to_owned()), caller.grant.agents.clone());
        let meta = CommandMeta { by, edge, agents, ..CommandMeta::new(clock::now()) };
        let body = serde_json::to_vec(&Command { meta, body })
            .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        let waiter = cell.command_waiters.register((key.clone(), verb, id.clone()));
        let control_seq = match bus.send_control(&key, verb, &id, body.into()).await? {
            SendOutcome::Stored(seq) => Some(seq),
            SendOutcome::Duplicate => None,
        };
        if !is_awaited {
            return Ok(pending(PendingState::Accepted));
        }
        Ok(pending(PendingState::AwaitingCommit(CommitWait { waiter, control_seq, wait: self.command_wait() })))
    }
}

impl SessionApi {
    /// Whether a session has begun, or is about to.
    pub async fn is_session_known(&self, caller: &ApiCaller, session: &SessionId) -> Result<bool, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: session.clone() };
        let cell = self.cells().of_start(&key, None).await?;
        // It is mostly unknown, and only the leader can tell that for sure.
        let (head, inbox) = tokio::try_join!(cell.bus.head(&key, Read::Leader), load_inbox(&cell.bus, &key))?;
        Ok(head.is_some() || inbox.has_start)
    }

    /// Finds the message of this id, stored in a session or handled by it; returns the verb that brought it.
    pub(crate) async fn find_message(
        &self,
        caller: &ApiCaller,
        session: &SessionId,
        id: &CommandId,
    ) -> Result<Option<Verb>, ApiError> {
        const VERBS: [Verb; 2] = [Verb::SendUserMessage, Verb::Start];
        let key = SessionKey { tenant: caller.tenant.clone(), session: session.clone() };
        let cell = self.cells().of_start(&key, None).await?;
        if let Some(commits) = cell.bus.load(&key).await? {
            let state = fold_session(&key, &commits)?;
            let input = |verb| InputRef { kind: InputKind::Control(verb), id: id.clone() };
            if let Some(verb) = VERBS.into_iter().find(|verb| state.handled(&input(*verb)).is_some()) {
                return Ok(Some(verb));
            }
        }
        match cell.bus.inbox(&key).await? {
            Inbox::TooMany => Ok(None),
            Inbox::Messages(messages) => {
                let controls = messages.iter().filter_map(|stored| subject::parse_control(&stored.subject));
                let mut verbs = controls.filter(|control| control.id == *id).map(|control| control.verb);
                Ok(verbs.find(|verb| VERBS.contains(verb)))
            }
        }
    }
}

/// State of a session that was read before a command is sent to it.
#[derive(Debug, Clone, Copy)]
struct Examined {
    /// Neither the log nor the inbox has a start.
    is_new: bool,
    /// Commands that wait in the inbox.
    commands: usize,
}

impl Examined {
    /// Nothing is there of the session.
    const UNUSED: Self = Self { is_new: true, commands: 0 };
}

/// State of a session before a command is sent to it.
#[derive(Debug)]
enum SessionState {
    NotStarted,
    /// The session has started and has not ended.
    Active,
    /// The session has ended, and it handled the command before its end.
    EndedHandled(CommandOutcome),
}

/// Refuses a command to an ended session, unless the session handled it before its end: then the answer is the same.
async fn check_session_state(
    cell: &Cell,
    key: &SessionKey,
    verb: Verb,
    id: &CommandId,
) -> Result<SessionState, ApiError> {
    // A session that starts has no log as a rule, and only the leader can tell that for sure.
    let head = if verb == Verb::Start { cell.bus.head(key, Read::Leader).await? } else { cell.load_head(key).await? };
    match head {
        None => return Ok(SessionState::NotStarted),
        Some(head) if head.meta.phase != Phase::Ended => return Ok(SessionState::Active),
        Some(_) => {}
    }
    if let Some(outcome) = find_outcome(&cell.bus, key, verb, id).await? {
        return Ok(SessionState::EndedHandled(outcome));
    }
    // The head may be stale: the session may have started since. A session that never started has the phase `ended`
    // too.
    let commits = cell.bus.load_latest(key).await?.unwrap_or_default();
    let session = fold_session(key, &commits)?;
    if session.seq() == 0 {
        return Ok(SessionState::NotStarted);
    }
    if session.phase() != Phase::Ended {
        return Ok(SessionState::Active);
    }
    Err(ApiError::new(ErrorCode::SessionEnded, format!("session {} has ended", key.session)))
}

impl PendingCommand {
    /// Waits for the commit until the deadline; after it the answer is `done: false`, which means stored.
    pub async fn wait(self) -> Result<CommandReply, ApiError> {
        let handled = match self.state {
            PendingState::Accepted => None,
            PendingState::Handled(handled) => Some(handled),
            PendingState::AwaitingCommit(wait) => wait.wait(&self.bus, &self.key, self.verb, &self.id).await,
        };
        let (session_id, command_id) = (self.key.session, self.id);
        match handled {
            Some(CommandOutcome { refused: Some(refusal), .. }) => Err(refusal.into()),
            Some(CommandOutcome { slot, seq, turn, refused: None }) => {
                Ok(CommandReply { session_id, command_id, done: true, seq, turn, slot })
            }
            None => Ok(CommandReply { session_id, command_id, done: false, seq: 0, turn: None, slot: 0 }),
        }
    }
}

impl CommitWait {
    async fn wait(mut self, bus: &Bus, key: &SessionKey, verb: Verb, id: &CommandId) -> Option<CommandOutcome> {
        let deadline = Instant::now() + self.wait;
        let mut checks = 0;
        loop {
            let check_at = (Instant::now() + LOG_CHECK_INTERVAL).min(deadline);
            tokio::select! {
                CommandAck { slot, seq, turn, refused, .. } = self.waiter.wait_for_ack() => {
                    return Some(CommandOutcome { slot, seq, turn, refused });
                }
                () = tokio::time::sleep_until(check_at) => {}
            }
            checks += 1;
            match self.check_log(bus, key, verb, id, checks).await {
                Ok(Some(handled)) => return Some(handled),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, session = %key, "the log cannot be read for a command"),
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
    }

    /// Looks for the command in the log, and reads the page only if the head shows that something new was handled.
    async fn check_log(
        &self,
        bus: &Bus,
        key: &SessionKey,
        verb: Verb,
        id: &CommandId,
        checks: u32,
    ) -> Result<Option<CommandOutcome>, ApiError> {
        let Some(head) = bus.head(key, Read::Any).await? else { return Ok(None) };
        match self.control_seq {
            Some(seq) if head.meta.control_seq < seq && checks != FORCED_LOG_CHECK => Ok(None),
            Some(_) | None => find_outcome(bus, key, verb, id).await,
        }
    }
}

/// Asks the composer whether it knows the names of a start; returns the agent.
pub(crate) async fn check_names(cell: &Cell, check: &ComposeRequest) -> Result<String, ApiError> {
    let (text, at) = (Json::of(check).get().to_owned(), Instant::now());
    if let Some(agent) = cell.accepted_names.get(&text) {
        return Ok(agent);
    }
    let agent = compose(&cell.bus, check).await?.agent.id.to_string();
    let bytes = text.len() + agent.len();
    cell.accepted_names.put(text, agent.clone(), bytes, at);
    Ok(agent)
}

/// Finds the outcome of a command among those that the session remembers.
async fn find_outcome(
    bus: &Bus,
    key: &SessionKey,
    verb: Verb,
    id: &CommandId,
) -> Result<Option<CommandOutcome>, ApiError> {
    let input = InputRef { kind: InputKind::Control(verb), id: id.clone() };
    let Some(commits) = bus.load(key).await? else { return Ok(None) };
    let Some(slot) = fold_session(key, &commits)?.handled(&input) else { return Ok(None) };
    let commit = match commits.into_iter().find(|(at, _)| *at == slot) {
        Some((_, commit)) => Some(commit),
        None => bus.commit_at(key, slot).await?,
    };
    Ok(commit.and_then(|commit| read_outcome(slot, &commit, &input)))
}

fn read_outcome(slot: u64, commit: &Commit, input: &InputRef) -> Option<CommandOutcome> {
    let closing = commit.events.iter().find(|event| event.closed_input() == Some(input))?;
    let refused = if let Event::InputIgnored(ignored) = closing { Some(ignored.refusal.clone()) } else { None };
    Some(CommandOutcome { slot, seq: commit.last_seq(), turn: commit.turn_of(&input.id), refused })
}
