//! Moves a session from one cell to another, while it rests.
//!
//! The steps, each of which can be repeated:
//!
//! 1. A commit in the log of the new cell, the pointer, reserves the id: it says that the old cell has the session.
//! 2. The last commit in the old log says that the new cell has it. From here on nothing happens to the session in the
//!    old cell, and its commits never change again.
//! 3. Its pages are written to the archive of the new cell.
//! 4. One commit in the new log supersedes the pointer. From here on the session goes on in the new cell.
//! 5. The pointer is removed.
//!
//! The session is live in the old cell before step 2, in the new one after step 4, and in neither between them. Step 4
//! needs the pointer, and supersedes it, so a session comes at most once.

use bus::archive::Staying;
use bus::transport::ReadMany;
use bus::{Bus, Inbox, Read, Stored};
use bytes::Bytes;
use contract::commit::{Commit, CommitHead};
use contract::event::{Event, InputKind, InputRef};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::{CellName, ErrorCode, Timestamp};
use loop_orchestrator::{ImportOutcome, PointKind, PointOutcome, finish_import, import_session, point_session};
use session::Session;
use session::audit::Audit;
use terminal::failure::CommandFailure;

/// Most attempts of a step during which the log changes.
const ROUNDS_MAX: u32 = 8;

/// A cell with its bus.
#[derive(Debug, Clone)]
pub struct CellBus {
    /// Name of the cell.
    pub name: CellName,
    /// Connection to the streams of the cell.
    pub bus: Bus,
}

/// Outcome of moving a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The session came from this cell, by this call or by one that it finished.
    Moved {
        /// The cell that had it.
        from: CellName,
    },
    /// The session was in its new cell already.
    WasThere,
}

/// State of a session in the log of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CellLog {
    /// Nothing, or commands that were refused before any start.
    Nothing,
    /// The session as such.
    Session,
    /// Another cell has it. It had these slots here; 0 if it was never here, or came back since.
    Moved { to: CellName, slots: u64 },
}

/// A move of one session between two cells.
struct SessionMove<'a> {
    key: &'a SessionKey,
    from: &'a CellBus,
    to: &'a CellBus,
    now: &'a (dyn Fn() -> Timestamp + Sync),
}

/// Moves a session to the cell `to`, which is one of `cells`, or finishes a move that was interrupted. `cells` are those
/// of the tenant.
pub async fn move_session(
    cells: &[CellBus],
    key: &SessionKey,
    to: &CellName,
    now: &(dyn Fn() -> Timestamp + Sync),
) -> Result<MoveOutcome, CommandFailure> {
    let destination = cells.iter().find(|cell| cell.name == *to).ok_or_else(|| {
        CommandFailure::new(ErrorCode::BadRequest, format!("tenant {} does not use the cell {to}", key.tenant))
    })?;
    let mut logs = Vec::with_capacity(cells.len());
    for cell in cells {
        logs.push((cell, CellLog::read(&cell.bus, key).await?));
    }
    let live: Vec<&CellBus> = logs.iter().filter(|(_, log)| *log == CellLog::Session).map(|(cell, _)| *cell).collect();
    match live[..] {
        [only] if only.name == *to => {
            // The move that brought it may have been interrupted since.
            finish_import(&destination.bus, key).await?;
            remove_pointers(&destination.bus, key).await?;
            Ok(MoveOutcome::WasThere)
        }
        [from] => {
            let step = SessionMove { key, from, to: destination, now };
            let checked = Box::pin(read_session(&from.bus, key, false, async |_, _| Ok(()))).await?;
            step.check_source(&checked.session).await?;
            point(&destination.bus, key, &from.name, PointKind::Expected, now).await?;
            point(&from.bus, key, to, PointKind::Leaves, now).await?;
            Box::pin(step.carry()).await
        }
        [] => {
            let from = find_fenced(&logs, key, to)?;
            Box::pin(SessionMove { key, from, to: destination, now }.carry()).await
        }
        [one, other, ..] => {
            let message = format!("cells {} and {} have a session {} each", one.name, other.name, key.session);
            Err(CommandFailure::new(ErrorCode::SessionExists, message)
                .help("erase one with `ailoop sessions rm --cell`"))
        }
    }
}

impl CellLog {
    async fn read(bus: &Bus, key: &SessionKey) -> Result<Self, CommandFailure> {
        let Some(head) = bus.head(key, Read::Leader).await? else { return Ok(Self::Nothing) };
        if let Some(to) = head.meta.moved {
            return Ok(Self::Moved { to, slots: head.meta.archived.unwrap_or(0) });
        }
        let commits = bus.load_latest(key).await?.unwrap_or_default();
        let session = Session::replay(key.clone(), &commits)
            .map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("the log cannot be read: {error}")))?;
        Ok(if session.seq() == 0 { Self::Nothing } else { Self::Session })
    }
}

/// Finds the cell whose log ends with the session's move to `to`.
fn find_fenced<'a>(
    logs: &[(&'a CellBus, CellLog)],
    key: &SessionKey,
    to: &CellName,
) -> Result<&'a CellBus, CommandFailure> {
    let expects = |name: &CellName, from: &CellName| {
        let of_cell = logs.iter().find(|(cell, _)| cell.name == *name).map(|(_, log)| log);
        matches!(of_cell, Some(CellLog::Moved { to, slots: 0 }) if to == from)
    };
    // A cell that expects nothing has had the session, which has expired or was erased since.
    let mut sources = logs.iter().filter_map(|(cell, log)| match log {
        CellLog::Moved { to, slots: 1.. } if expects(to, &cell.name) => Some((*cell, to)),
        CellLog::Moved { .. } | CellLog::Session | CellLog::Nothing => None,
    });
    match sources.next() {
        Some((from, destination)) if destination == to => Ok(from),
        Some((from, destination)) => {
            let message = format!("session {} is on its way from {} to {destination}", key.session, from.name);
            let help = format!("finish that first: `ailoop move {} --to {destination}`", key.session);
            Err(CommandFailure::new(ErrorCode::SessionMoved, message).help(help))
        }
        None => Err(CommandFailure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session))),
    }
}

impl SessionMove<'_> {
    /// Refuses a session that does not rest, before anything is written.
    async fn check_source(&self, session: &Session) -> Result<(), CommandFailure> {
        let session_id = &self.key.session;
        if !session.is_resting() {
            let message = format!("session {session_id} does not rest: it is in a turn, has ended, or is a child");
            return Err(CommandFailure::new(ErrorCode::NotNow, message)
                .help(format!("wait for the end of its turn: `ailoop watch {session_id}`")));
        }
        // What was handled may stay for a moment until it is acknowledged.
        let is_unhandled = |stored: &bus::Stored| {
            let Some(control) = subject::parse_control(&stored.subject) else { return false };
            let input = InputRef { kind: InputKind::Control(control.verb), id: control.id };
            control.verb.is_client() && session.handled(&input).is_none()
        };
        let has_waiting = match self.from.bus.inbox(self.key).await? {
            Inbox::Messages(messages) => messages.iter().any(is_unhandled),
            Inbox::TooMany => true,
        };
        if has_waiting {
            let message = format!("commands wait for session {session_id}");
            return Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command in a moment"));
        }
        Ok(())
    }

    /// Steps 3 to 5: the old log has ended.
    async fn carry(&self) -> Result<MoveOutcome, CommandFailure> {
        let Self { key, from, to, now } = self;
        // An interrupted move may not have performed what follows from its last commit.
        point(&from.bus, key, &to.name, PointKind::Leaves, *now).await?;
        remove_timers(&from.bus, key).await?;
        let expected = self.clear_destination().await?;
        let written = read_session(&from.bus, key, true, async |first, bodies| {
            to.bus.put_archived(key, first, bodies).await.map_err(CommandFailure::from)
        });
        let ReadSession { session, last, results } = written.await?;
        let slots = session.next_slot();
        for object in results {
            if let Some(body) = from.bus.transport().get_object(Objects::Results, &object).await? {
                to.bus.transport().put_object(Objects::Results, &object, body).await?;
            }
        }
        let at = now();
        match import_session(&to.bus, session, &last, at, at, Some(&expected)).await? {
            ImportOutcome::Imported => {}
            ImportOutcome::InTurn | ImportOutcome::IdTaken => {
                let message = format!("the log of session {} in cell {} has changed", key.session, to.name);
                return Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command"));
            }
        }
        remove_pointers(&to.bus, key).await?;
        // Nobody needs the parts of the transcript in the old log any more. What a command that dies here leaves is
        // removed with the session.
        from.bus.archive(key, slots, Staying::Nothing).await?;
        Ok(MoveOutcome::Moved { from: from.name.clone() })
    }

    /// Removes from the new log all older commits: of an earlier session of the id, or of this one from an earlier
    /// stay. Only the pointer stays, which reserves the id; returns its commit id.
    async fn clear_destination(&self) -> Result<String, CommandFailure> {
        for _ in 0..ROUNDS_MAX {
            let messages = log_messages(&self.to.bus, self.key).await?;
            let last = messages.iter().max_by_key(|(stored, _)| stored.seq);
            let Some((last, head)) = last.filter(|(_, head)| head.meta.moved.is_some()) else { break };
            let older: Vec<&Stored> =
                messages.iter().map(|(stored, _)| stored).filter(|stored| stored.seq < last.seq).collect();
            if older.is_empty() {
                return Ok(head.meta.commit.clone());
            }
            for stored in older {
                self.to.bus.transport().delete(Stream::Log, stored).await?;
            }
        }
        let message = format!("the log of session {} in cell {} changes", self.key.session, self.to.name);
        Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command"))
    }
}

/// Writes the commit that says that the session is in another cell.
async fn point(
    bus: &Bus,
    key: &SessionKey,
    to: &CellName,
    kind: PointKind,
    now: &(dyn Fn() -> Timestamp + Sync),
) -> Result<(), CommandFailure> {
    for _ in 0..ROUNDS_MAX {
        match point_session(bus, key, to, kind, now()).await? {
            PointOutcome::Pointed => return Ok(()),
            PointOutcome::Changed => {}
            PointOutcome::NotResting => break,
        }
    }
    let message = format!("session {} has gone on meanwhile, or its id is in use in cell {to}", key.session);
    Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command when the session rests"))
}

/// A session as its log has it.
struct ReadSession {
    session: Session,
    /// Id of its last commit.
    last: String,
    /// Objects with long results.
    results: Vec<String>,
}

/// Reads a session page by page, and checks each commit against the fold of its events. If `is_fenced`, its log ends with the
/// commit that moves it, which is not part of the session.
async fn read_session(
    bus: &Bus,
    key: &SessionKey,
    is_fenced: bool,
    on_page: impl AsyncFn(u64, Vec<Bytes>) -> Result<(), CommandFailure>,
) -> Result<ReadSession, CommandFailure> {
    let unknown = || CommandFailure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session));
    let damaged = |slot: u64, why: &dyn std::fmt::Display| {
        CommandFailure::new(
            ErrorCode::Internal,
            format!("slot {slot} of session {} cannot be read: {why}", key.session),
        )
    };
    let head = bus.head(key, Read::Leader).await?.ok_or_else(unknown)?;
    if head.meta.moved.is_some() != is_fenced {
        let message = format!("session {} has moved meanwhile", key.session);
        return Err(CommandFailure::new(ErrorCode::NotNow, message).help("repeat the command"));
    }
    let last_slot = head.end();
    let mut audit = Audit::new(key.clone());
    let (mut last, mut results, mut has_begun) = (String::new(), Vec::new(), false);
    for page in 0..=last_slot / SLOTS_PER_PAGE {
        let first = page * SLOTS_PER_PAGE;
        let Some(bodies) = bus.bodies(key, first, last_slot.min(first + SLOTS_PER_PAGE - 1)).await? else {
            // The archive deletes the oldest pages first.
            if !has_begun && page < last_slot / SLOTS_PER_PAGE {
                continue;
            }
            return Err(CommandFailure::new(ErrorCode::Resync, format!("page {page} of {} is gone", key.session)));
        };
        let bodies: Vec<(u64, Bytes)> = bodies.into_iter().take_while(|(slot, _)| *slot <= last_slot).collect();
        for (slot, body) in &bodies {
            let mut commit: Commit = serde_json::from_slice(body).map_err(|error| damaged(*slot, &error))?;
            if !has_begun {
                bus.fill_earlier_parts(key, &mut commit).await?;
                has_begun = true;
            }
            if commit.is_newer() {
                return Err(damaged(*slot, &"a newer version wrote it: move it with that version"));
            }
            if !audit.next(*slot, &commit) {
                let differs: Vec<&str> = audit.differs.iter().map(|difference| difference.what).collect();
                return Err(damaged(*slot, &format!("it differs from the fold of its events: {}", differs.join(", "))));
            }
            for event in &commit.events {
                if let Event::ToolCallResult(result) = event {
                    results.extend(result.whole.as_ref().map(|whole| whole.object.clone()));
                }
            }
            last = commit.meta.commit;
        }
        let first = bodies.first().map_or(first, |(slot, _)| *slot);
        on_page(first, bodies.into_iter().map(|(_, body)| body).collect()).await?;
    }
    Ok(ReadSession { session: audit.session, last, results })
}

/// The messages that a log has of a session.
async fn log_messages(bus: &Bus, key: &SessionKey) -> Result<Vec<(Stored, CommitHead)>, CommandFailure> {
    let found = match bus.transport().last_many(Stream::Log, &[subject::log_session(key)]).await? {
        ReadMany::Messages(found) => found,
        ReadMany::TooMany => {
            let message = format!("the log of session {} has too many commits to be read at once", key.session);
            return Err(CommandFailure::new(ErrorCode::NotNow, message));
        }
    };
    let read = |stored: Stored| {
        let head = serde_json::from_slice(&stored.payload)
            .map_err(|error| CommandFailure::new(ErrorCode::Internal, format!("a commit cannot be read: {error}")))?;
        Ok((stored, head))
    };
    found.into_iter().map(read).collect()
}

/// Removes the pointer from the log of a session: the commit that reserved its id before the session came. It hides
/// nothing, and is only one message.
async fn remove_pointers(bus: &Bus, key: &SessionKey) -> Result<(), CommandFailure> {
    for (stored, head) in log_messages(bus, key).await? {
        if head.meta.moved.is_some() {
            bus.transport().delete(Stream::Log, &stored).await?;
        }
    }
    Ok(())
}

/// Removes the timer of a session, which has another one in its new cell. If it is due already, it is ignored.
async fn remove_timers(bus: &Bus, key: &SessionKey) -> Result<(), CommandFailure> {
    if let Some(timer) = bus.transport().last(Stream::Timer, &subject::timer_set(key), Read::Leader).await? {
        bus.transport().delete(Stream::Timer, &timer).await?;
    }
    Ok(())
}
