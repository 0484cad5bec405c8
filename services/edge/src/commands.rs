//! Commands: checked at the border, sent once, answered when their commit is in the log.

use std::time::Duration;

use bus::{Bus, BusError, Inbox, Read, Sent};
use contract::command::{
    Answer, Command, CommandMeta, Configure, ControlReason, Refusal, SendUserMessage, Start, Verb,
};
use contract::commit::{Commit, Phase, VERSION};
use contract::compose::{ComposeReply, ComposeRequest};
use contract::event::{Event, InputKind, InputRef};
use contract::limits::WAITING_COMMANDS_MAX;
use contract::subject::{self, SessionKey};
use contract::{CommandId, ErrorCode, SessionId};
use serde::Serialize;
use session::Session;
use tokio::time::Instant;

use crate::board::Place;
use crate::clock;
use crate::failure::Failure;
use crate::fair_queue::Cost;
use crate::guard::Caller;
use crate::params::Given;
use crate::sessions::Sessions;

/// Pause between looks at the log while a notice is awaited.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The look that does not trust the head: a command that was handled long ago leaves no trace there when repeated.
const LOOK_ANYWAY: u32 = 2;
/// When a client should come back to a session with too many waiting commands.
const WAITING_RETRY: Duration = Duration::from_secs(1);

/// How a command came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CommandReply {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The command.
    pub(crate) command_id: CommandId,
    /// True when its commit was seen; false when it is only stored, which is enough for it to be handled.
    pub(crate) done: bool,
    /// The session's last `seq` after its commit; 0 while that is not known.
    pub(crate) seq: u64,
}

/// A command that is stored, and how to wait for its commit.
#[derive(Debug)]
pub(crate) struct Pending {
    bus: Bus,
    key: SessionKey,
    verb: Verb,
    id: CommandId,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nobody waits.
    Accepted,
    /// It was handled before.
    Known(Handled),
    /// Its commit is awaited.
    Sent(Sending),
}

#[derive(Debug)]
struct Sending {
    place: Place,
    control_seq: Option<u64>,
    wait: Duration,
}

/// What the log says of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Handled {
    seq: u64,
    refused: Option<Refusal>,
}

impl Sessions {
    /// Begins a session. Agent and model are checked with the composer first, so that a wrong name is told at once.
    pub(crate) async fn start(&self, caller: &Caller, given: Given<Start>) -> Result<Pending, Failure> {
        // Only names are checked: nothing is composed of parts.
        let check = ComposeRequest {
            include_tools: false,
            include_shared: false,
            only_tools: None,
            ..ComposeRequest::of_start(caller.tenant.clone(), &given.body, Vec::new())
        };
        // One that resumes from another session has that one's agent and model, which only the loop reads.
        let check = given.body.resume_from.is_none().then_some(check);
        self.submit(caller, Verb::Start, given, check).await
    }

    /// Sends a user message.
    pub(crate) async fn send(&self, caller: &Caller, given: Given<SendUserMessage>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::SendUserMessage, given, None).await
    }

    /// Opens no new call until resumed.
    pub(crate) async fn pause(&self, caller: &Caller, given: Given<ControlReason>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::Pause, given, None).await
    }

    /// Goes on.
    pub(crate) async fn resume(&self, caller: &Caller, given: Given<ControlReason>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::Resume, given, None).await
    }

    /// Cancels what is in flight and ends the session.
    pub(crate) async fn stop(&self, caller: &Caller, given: Given<ControlReason>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::Stop, given, None).await
    }

    /// Answers a gate.
    pub(crate) async fn answer(&self, caller: &Caller, given: Given<Answer>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::Answer, given, None).await
    }

    /// Forgets the transcript.
    pub(crate) async fn clear(&self, caller: &Caller, given: Given<ControlReason>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::ClearHistory, given, None).await
    }

    /// Changes settings of a session that runs.
    pub(crate) async fn configure(&self, caller: &Caller, given: Given<Configure>) -> Result<Pending, Failure> {
        self.submit(caller, Verb::Configure, given, None).await
    }

    async fn submit<T: Serialize>(
        &self,
        caller: &Caller,
        verb: Verb,
        given: Given<T>,
        check: Option<ComposeRequest>,
    ) -> Result<Pending, Failure> {
        let bus = self.bus().clone();
        let Given { session, id, wait, body } = given;
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        let pending = |state| Pending { bus: bus.clone(), key: key.clone(), verb, id: id.clone(), state };

        let _permit = self.turn(caller, Cost::Command).await?;
        let standing = self.standing(&key, verb, &id).await?;
        if let Standing::Handled(handled) = standing {
            return Ok(pending(State::Known(handled)));
        }
        let waiting = waiting(&bus, &key).await?;
        let is_new = matches!(standing, Standing::New) && !waiting.start;
        // Only a start needs no session; one that waits is as good as a session.
        if is_new && verb != Verb::Start {
            return Err(Sessions::unknown(&key));
        }
        if let (Standing::New, Some(check)) = (standing, check) {
            composable(&bus, &check).await?;
        }
        if waiting.commands >= WAITING_COMMANDS_MAX && verb != Verb::Stop {
            let message = format!("{} commands wait for session {} already", waiting.commands, key.session);
            return Err(Failure::new(ErrorCode::TooManyWaiting, message).retry_after(WAITING_RETRY));
        }

        if matches!(verb, Verb::Start | Verb::SendUserMessage) {
            self.admission().admit(&bus, &key.tenant).await?;
        }
        if is_new && verb == Verb::Start {
            self.admission().admit_session(self.index(), &key.session)?;
        }
        let edge = wait.then(|| self.me().clone());
        let meta = CommandMeta { v: VERSION, time: clock::now(), by: Some(caller.by.clone()), edge, told: None };
        let body = serde_json::to_vec(&Command { meta, body })
            .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
        let place = self.board().wait_for((key.clone(), verb, id.clone()));
        let control_seq = match bus.send_control(&key, verb, &id, body.into()).await? {
            Sent::Stored(seq) => Some(seq),
            Sent::Duplicate => None,
        };
        if !wait {
            return Ok(pending(State::Accepted));
        }
        Ok(pending(State::Sent(Sending { place, control_seq, wait: self.command_wait() })))
    }
}

impl Sessions {
    /// Whether the start of a session is stored and not handled.
    pub(crate) async fn start_waits(&self, key: &SessionKey) -> Result<bool, Failure> {
        Ok(waiting(self.bus(), key).await?.start)
    }
}

/// Where a session stands before a command.
#[derive(Debug)]
enum Standing {
    /// It never started.
    New,
    /// It goes on.
    Alive,
    /// It has ended, and the command was handled before.
    Handled(Handled),
}

impl Sessions {
    /// Refuses commands to an ended session, but a repeated one gets the answer that it got before the end.
    async fn standing(&self, key: &SessionKey, verb: Verb, id: &CommandId) -> Result<Standing, Failure> {
        // Of a session that begins there is nothing to see as a rule, and only the leader proves that.
        let head = if verb == Verb::Start { self.bus().head(key, Read::Leader).await? } else { self.head(key).await? };
        match head {
            None => return Ok(Standing::New),
            Some(head) if head.meta.phase != Phase::Ended => return Ok(Standing::Alive),
            Some(_) => {}
        }
        if let Some(handled) = find(self.bus(), key, verb, id).await? {
            return Ok(Standing::Handled(handled));
        }
        // The head may be old: the session may have started since. Before its start it counts as ended too.
        let commits = self.bus().load_latest(key).await?.unwrap_or_default();
        let session = replay(key, &commits)?;
        if session.seq() == 0 {
            return Ok(Standing::New);
        }
        if session.phase() != Phase::Ended {
            return Ok(Standing::Alive);
        }
        Err(Failure::new(ErrorCode::SessionEnded, format!("session {} has ended", key.session)))
    }
}

impl Pending {
    /// Waits for the commit, but not for ever: an answer with `done: false` says that the command is stored.
    pub(crate) async fn done(self) -> Result<CommandReply, Failure> {
        let handled = match self.state {
            State::Accepted => None,
            State::Known(handled) => Some(handled),
            State::Sent(sending) => sending.wait(&self.bus, &self.key, self.verb, &self.id).await,
        };
        if let Some(Handled { refused: Some(refusal), .. }) = handled {
            return Err(refusal.into());
        }
        Ok(CommandReply {
            session_id: self.key.session,
            command_id: self.id,
            done: handled.is_some(),
            seq: handled.map_or(0, |handled| handled.seq),
        })
    }
}

impl Sending {
    async fn wait(mut self, bus: &Bus, key: &SessionKey, verb: Verb, id: &CommandId) -> Option<Handled> {
        let deadline = Instant::now() + self.wait;
        let mut looks = 0;
        loop {
            let look_at = (Instant::now() + LOOK_EVERY).min(deadline);
            tokio::select! {
                done = self.place.notice() => return Some(Handled { seq: done.seq, refused: done.refused }),
                () = tokio::time::sleep_until(look_at) => {}
            }
            looks += 1;
            match self.look(bus, key, verb, id, looks).await {
                Ok(Some(handled)) => return Some(handled),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, session = %key, "the log cannot be read for a command"),
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
    }

    /// Looks for the command in the log, reading its page only when the head tells of something new.
    async fn look(
        &self,
        bus: &Bus,
        key: &SessionKey,
        verb: Verb,
        id: &CommandId,
        looks: u32,
    ) -> Result<Option<Handled>, Failure> {
        let Some(head) = bus.head(key, Read::Any).await? else { return Ok(None) };
        match self.control_seq {
            Some(seq) if head.meta.control_seq < seq && looks != LOOK_ANYWAY => Ok(None),
            Some(_) | None => find(bus, key, verb, id).await,
        }
    }
}

/// What waits in a session's inbox.
#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    commands: usize,
    start: bool,
}

async fn waiting(bus: &Bus, key: &SessionKey) -> Result<Waiting, BusError> {
    let messages = match bus.inbox(key).await? {
        Inbox::Messages(messages) => messages,
        Inbox::TooMany => return Ok(Waiting { commands: usize::MAX, start: true }),
    };
    let mut waiting = Waiting::default();
    for verb in messages.iter().filter_map(|stored| subject::parse_control(&stored.subject)).map(|control| control.verb)
    {
        waiting.commands += usize::from(verb.is_client());
        waiting.start |= verb == Verb::Start;
    }
    Ok(waiting)
}

async fn composable(bus: &Bus, request: &ComposeRequest) -> Result<(), Failure> {
    match bus.compose(request).await {
        Ok(ComposeReply::Composed(_)) => Ok(()),
        Ok(ComposeReply::Refused { code, message }) => Err(Failure::new(code, message)),
        Err(error @ (BusError::NoResponders { .. } | BusError::Timeout { .. })) => {
            let message = "no prompt-composer answers: start one (`ailoop up` does), or look at its log";
            tracing::warn!(%error, "no composer");
            Err(Failure::new(ErrorCode::Unavailable, message).retry_after(LOOK_EVERY))
        }
        Err(error) => Err(error.into()),
    }
}

/// Looks a command up among those that the session remembers.
async fn find(bus: &Bus, key: &SessionKey, verb: Verb, id: &CommandId) -> Result<Option<Handled>, Failure> {
    let input = InputRef { kind: InputKind::Control(verb), id: id.clone() };
    let Some(commits) = bus.load(key).await? else { return Ok(None) };
    let Some(slot) = replay(key, &commits)?.handled(&input) else { return Ok(None) };
    let commit = match commits.into_iter().find(|(at, _)| *at == slot) {
        Some((_, commit)) => Some(commit),
        None => bus.commit_at(key, slot).await?,
    };
    Ok(commit.and_then(|commit| handled(&commit, &input)))
}

fn handled(commit: &Commit, wanted: &InputRef) -> Option<Handled> {
    commit.events.iter().find_map(|event| {
        let refused = if let Event::InputHandled(handled) = event {
            (handled.input == *wanted).then_some(None)
        } else if let Event::InputIgnored(ignored) = event {
            (ignored.input == *wanted).then(|| Some(ignored.refusal.clone()))
        } else {
            None
        };
        refused.map(|refused| Handled { seq: last_seq(commit), refused })
    })
}

/// Folds the head's page into a session.
pub(crate) fn replay(key: &SessionKey, commits: &[(u64, Commit)]) -> Result<Session, Failure> {
    Session::replay(key.clone(), commits).map_err(|error| {
        tracing::error!(session = %key, %error, "the log cannot be folded");
        Failure::new(ErrorCode::Internal, format!("the log of session {} cannot be read", key.session))
    })
}

/// The session's last `seq` after a commit.
pub(crate) fn last_seq(commit: &Commit) -> u64 {
    let public = commit.events.iter().filter(|event| event.topic().is_some()).count();
    (commit.meta.seq + public as u64).saturating_sub(1)
}
