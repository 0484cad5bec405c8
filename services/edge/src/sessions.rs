//! The calls themselves, whatever protocol they came by.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Head, Read};
use contract::Json;
use contract::commit::{Commit, OpenGate, Phase, SessionSummary};
use contract::compose::{KnownAgent, KnownModel};
use contract::limits::TRANSCRIPT_BYTES_MAX;
use contract::repair::RepairReply;
use contract::streams::Objects;
use contract::subject::SessionKey;
use contract::tool::{FullResultRef, ToolSpec};
use contract::{AgentId, CallId, CommandId, ErrorCode, SessionId, Timestamp};
use serde::Serialize;
use service::connections::ByteBudget;
use service::tasks::Tasks;
use session::audit::Difference;
use session::{Session, readable};
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::board::Board;
use crate::commands::replay;
use crate::config::{Config, StartError};
use crate::failure::Failure;
use crate::fair_queue::{Cost, FairQueue, Permit};
use crate::guard::Caller;
use crate::params::{self, Checked, Cursor, Given, List, Unchecked};
use crate::queue::{CLIENT_BYTES_MAX, ClientQueue};
use crate::session_index::SessionIndex;
use crate::stats::{self, Stats};
use crate::watch::feed::Feeds;

/// When a client of a replica that goes down should connect again.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// A part of the list of sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SessionPage {
    /// Newest first.
    pub(crate) sessions: Vec<SessionSummary>,
    /// Where the next part begins; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// An agent in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Agent {
    /// Its key.
    pub(crate) id: AgentId,
    /// Its name, as people read it.
    pub(crate) name: String,
    /// What it may be called beside its key.
    pub(crate) aliases: Vec<AgentId>,
    /// Its model, where it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Whether sessions have it that name none.
    pub(crate) is_default: bool,
}

/// What was performed again for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Repaired {
    /// The session.
    pub(crate) session_id: SessionId,
    /// One short line for each effect.
    pub(crate) performed: Vec<String>,
}

/// The calls; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bus: Bus,
    me: CommandId,
    board: Board,
    feeds: Feeds,
    tasks: Tasks,
    draining: CancellationToken,
    command_wait: Duration,
    client_queue: usize,
    admission: Admission,
    budget: ByteBudget,
    turns: FairQueue,
    checks: FairQueue,
    index: SessionIndex,
}

/// The transcript of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct History {
    /// The session.
    pub(crate) session_id: SessionId,
    /// As the model sees it.
    pub(crate) messages: Vec<Json>,
    /// The last `seq` that they include.
    pub(crate) seq: u64,
}

/// A part of a session as people read it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TranscriptPart {
    /// The session.
    pub(crate) session_id: SessionId,
    /// In order.
    pub(crate) turns: Vec<readable::ReadableTurn>,
    /// What `after` of the next part is; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_after: Option<u32>,
    /// Whether parts of the session are gone, since the archive kept them for as long as it keeps anything.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_incomplete: bool,
}

/// A log, folded again.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Replayed {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The slot after which this is the state.
    pub(crate) slot: u64,
    /// The log's last slot.
    pub(crate) last_slot: u64,
    /// What the session was doing then.
    pub(crate) phase: Phase,
    /// The last `seq` then.
    pub(crate) seq: u64,
    /// Every commit, in a line.
    pub(crate) commits: Vec<Line>,
    /// Where the fold and what was written disagree.
    pub(crate) differs: Vec<Difference>,
    /// The state, as a page's snapshot has it.
    pub(crate) state: Json,
}

/// What waits for a person, and in which session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Waiting {
    /// The session.
    pub(crate) session_id: SessionId,
    /// Its agent.
    pub(crate) agent: String,
    /// The beginning of its first message.
    pub(crate) title: String,
    /// What is asked.
    #[serde(flatten)]
    pub(crate) gate: OpenGate,
}

impl Waiting {
    fn of(summary: &SessionSummary, gate: OpenGate) -> Self {
        let SessionSummary { session_id, agent, title, .. } = summary;
        Self { session_id: session_id.clone(), agent: agent.clone(), title: title.clone(), gate }
    }
}

/// The whole of a result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WholeResult {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The call.
    pub(crate) call: CallId,
    /// What the tool gave.
    pub(crate) content: String,
}

/// A commit, in a line.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    /// Its slot.
    pub(crate) slot: u64,
    /// When it was decided.
    pub(crate) time: Timestamp,
    /// The phase after it.
    pub(crate) phase: Phase,
    /// Its events, by type.
    pub(crate) events: Vec<String>,
}

impl Line {
    fn of((slot, commit): &(u64, Commit)) -> Self {
        let events = commit.events.iter().map(|event| event.name().to_owned()).collect();
        Self { slot: *slot, time: commit.meta.time, phase: commit.meta.phase, events }
    }
}

impl Sessions {
    /// Subscribes to the notices for this replica. Clients run in `tasks`, what they rely on in `ground`. What waits for
    /// clients takes bytes from `budget`.
    pub(crate) async fn open(
        config: &Config,
        bus: Bus,
        budget: ByteBudget,
        tasks: Tasks,
        ground: &Tasks,
    ) -> Result<Self, StartError> {
        let me: CommandId = params::fresh().map_err(|failure| StartError::Internal(failure.message))?;
        let board = Board::start(bus.clone(), me.clone(), ground).await?;
        let feeds = Feeds::new(bus.clone(), ground.clone());
        let index = SessionIndex::start(bus.clone(), config.tenant.clone(), ground);
        let (draining, command_wait) = (CancellationToken::new(), config.command_wait());
        Ok(Self {
            inner: Arc::new(Inner {
                bus,
                me,
                board,
                feeds,
                tasks,
                draining,
                command_wait,
                client_queue: config.client_queue,
                admission: Admission::new(config.admission()),
                budget,
                turns: FairQueue::default(),
                checks: FairQueue::new(Cost::Light.units()),
                index,
            }),
        })
    }

    /// The transcript.
    pub(crate) async fn history(&self, caller: &Caller, session: SessionId) -> Result<History, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let mut session = self.fold(caller, session).await?;
        if session.is_archived() {
            // What is left of it has no transcript: that is where the rest is.
            let key = session.key();
            let commits = self.bus().load_until(&key, None).await?.ok_or_else(|| Self::gone(&key))?;
            session = replay(&key, &commits)?;
        }
        let summary = session.summary();
        Ok(History { session_id: summary.session_id, messages: session.messages(), seq: session.seq() })
    }

    /// What was said and done, as people read it.
    pub(crate) async fn transcript(
        &self,
        caller: &Caller,
        wanted: params::Transcript,
    ) -> Result<TranscriptPart, Failure> {
        let _permit = self.turn(caller, Cost::Scan).await?;
        let count = wanted.count();
        let key = SessionKey { tenant: caller.tenant.clone(), session: wanted.session_id };
        let commits = self.bus().history(&key, 0).await?;
        if commits.is_empty() {
            return Err(Self::unknown(&key));
        }
        let all = readable::turns(commits.iter().map(|(_, commit)| commit));
        let mut rest = all.into_iter().filter(|turn| turn.turn > wanted.after).peekable();
        let (mut turns, mut bytes) = (Vec::new(), 0);
        while turns.len() < count
            && let Some(turn) = rest.next_if(|turn| {
                bytes += Json::of(turn).get().len();
                bytes <= TRANSCRIPT_BYTES_MAX || turns.is_empty()
            })
        {
            turns.push(turn);
        }
        let next_after = rest.peek().and_then(|_| turns.last()).map(|turn| turn.turn);
        let is_incomplete = (0..).zip(&commits).any(|(expected, (slot, _))| expected != *slot);
        Ok(TranscriptPart { session_id: key.session, turns, next_after, is_incomplete })
    }

    /// One session. The log tells: the index is written now and then only.
    pub(crate) async fn get(&self, caller: &Caller, session: SessionId) -> Result<SessionSummary, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        Ok(self.fold(caller, session).await?.summary())
    }

    /// Has an orchestrator perform again what a session is owed, after its streams lost something.
    pub(crate) async fn repair(&self, caller: &Caller, session: SessionId) -> Result<Repaired, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        if self.bus().head(&key, Read::Any).await?.is_none() && self.bus().head(&key, Read::Leader).await?.is_none() {
            return Err(Self::unknown(&key));
        }
        match self.bus().repair_session(&key).await {
            Ok(RepairReply::Repaired(performed)) => Ok(Repaired { session_id: key.session, performed }),
            Ok(RepairReply::Refused { code, message }) => Err(Failure::new(code, message)),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => {
                let message = "no orchestrator answers; see that one runs, and try again";
                Err(Failure::new(ErrorCode::Unavailable, message).retry_after(Duration::from_secs(1)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The sessions of the tenant, newest first, as the index has them.
    pub(crate) async fn list(&self, caller: &Caller, list: &List) -> Result<SessionPage, Failure> {
        // One more than is wanted tells whether there are more.
        let (count, behind) = (list.count(), list.cursor.as_ref());
        let in_memory = {
            let _permit = self.turn(caller, Cost::Light).await?;
            self.index().newest(behind, list.phase, count + 1)
        };
        let mut sessions = if let Some(sessions) = in_memory {
            sessions
        } else {
            let mut all = self.read_index(caller).await?;
            all.retain(|summary| list.phase.is_none_or(|phase| summary.phase == phase));
            all.sort_by_cached_key(|summary| summary.place());
            let behind = behind.map(Cursor::place);
            all.retain(|summary| behind.as_ref().is_none_or(|behind| summary.place() > *behind));
            all.truncate(count + 1);
            all.into_iter().map(Arc::unwrap_or_clone).collect()
        };
        let has_more = sessions.len() > count;
        sessions.truncate(count);
        let end = sessions.last().filter(|_| has_more);
        let next_cursor = end.map(|end| Cursor { started: end.started, session: end.session_id.clone() }.to_string());
        Ok(SessionPage { sessions, next_cursor })
    }

    /// The index from its bucket: where it is not in memory.
    async fn read_index(&self, caller: &Caller) -> Result<Vec<Arc<SessionSummary>>, Failure> {
        let _permit = self.turn(caller, Cost::Scan).await?;
        Ok(self.bus().summaries(&caller.tenant).await?.into_iter().map(Arc::new).collect())
    }

    /// Folds a session's whole log again and compares it with what its writers saw.
    pub(crate) async fn replay(&self, caller: &Caller, wanted: params::Replay) -> Result<Replayed, Failure> {
        let _permit = self.turn(caller, Cost::Scan).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: wanted.session_id };
        let commits = self.bus().history(&key, 0).await?;
        let Some((last, _)) = commits.last() else { return Err(Self::unknown(&key)) };
        if let Some(at) = wanted.at.filter(|at| at > last) {
            let message = format!("there is no slot {at}: the log of session {} ends with slot {last}", key.session);
            return Err(Failure::bad_request(message));
        }
        let slot = wanted.at.unwrap_or(*last);
        if let Some((_, commit)) = commits.iter().find(|(_, commit)| commit.is_newer()) {
            let message = format!("the log was written by a newer version (fold {}); ask one of it", commit.meta.fold);
            return Err(Failure::new(ErrorCode::NotNow, message));
        }
        let audit = session::audit::audit(key.clone(), &commits, Some(slot));
        Ok(Replayed {
            session_id: key.session,
            slot,
            last_slot: *last,
            phase: audit.session.phase(),
            seq: audit.session.seq(),
            commits: commits.iter().map(Line::of).collect(),
            differs: audit.differs,
            state: audit.session.snapshot(),
        })
    }

    /// How the turns of the tenant's sessions went, by agent and model.
    pub(crate) async fn stats(&self, caller: &Caller, wanted: &params::Stats) -> Result<Vec<Stats>, Failure> {
        let known = {
            let _permit = self.turn(caller, Cost::Read).await?;
            self.index().all()
        };
        let summaries = match known {
            Some(summaries) => summaries,
            None => self.read_index(caller).await?,
        };
        let wanted = |summary: &&SessionSummary| wanted.since.is_none_or(|since| summary.started >= since);
        Ok(stats::of(summaries.iter().map(|summary| &**summary).filter(wanted)))
    }

    /// The tool catalogue of the tenant.
    pub(crate) async fn tools(&self, caller: &Caller) -> Result<Vec<ToolSpec>, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let mut tools = self.bus().tools(&caller.tenant).await?;
        // Nobody but the loop performs these.
        let own = [session::ask_user_spec(), session::delegate_spec()];
        tools.retain(|tool| own.iter().all(|spec| spec.name != tool.name));
        tools.extend(own);
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tools)
    }

    /// The agents that sessions may have, by key.
    pub(crate) async fn agents(&self, caller: &Caller) -> Result<Vec<Agent>, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let known = self.bus().agents(&caller.tenant).await?;
        let agent = |KnownAgent { id, name, aliases, model, is_default, tools: _ }| Agent {
            id,
            name,
            aliases,
            model,
            is_default,
        };
        Ok(known.agents.into_iter().map(agent).collect())
    }

    /// The models that are described, by id.
    pub(crate) async fn models(&self, caller: &Caller) -> Result<Vec<KnownModel>, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        Ok(self.bus().agents(&caller.tenant).await?.models)
    }

    /// What waits for a person, the most urgent first: of one session as its log has it, of all as the index has them,
    /// with long arguments shortened.
    pub(crate) async fn gates(&self, caller: &Caller, wanted: &params::Gates) -> Result<Vec<Waiting>, Failure> {
        let mut waiting: Vec<Waiting> = if let Some(session) = &wanted.session_id {
            let _permit = self.turn(caller, Cost::Read).await?;
            let session = self.fold(caller, session.clone()).await?;
            let summary = session.summary();
            session.gates().into_iter().map(|gate| Waiting::of(&summary, gate)).collect()
        } else {
            let known = {
                let _permit = self.turn(caller, Cost::Light).await?;
                self.index().with_gates()
            };
            let summaries = match known {
                Some(summaries) => summaries,
                None => self.read_index(caller).await?,
            };
            let of = |summary: &Arc<SessionSummary>| {
                summary.gates.iter().map(|gate| Waiting::of(summary, gate.clone())).collect::<Vec<_>>()
            };
            summaries.iter().flat_map(of).collect()
        };
        waiting.sort_by(|a, b| (a.gate.expires, &a.session_id).cmp(&(b.gate.expires, &b.session_id)));
        waiting.truncate(wanted.count());
        Ok(waiting)
    }

    /// The whole result of a call of which the model read only parts.
    pub(crate) async fn whole_result(&self, caller: &Caller, wanted: &params::Call) -> Result<WholeResult, Failure> {
        let _permit = self.turn(caller, Cost::Read).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: wanted.session_id.clone() };
        let started = self.bus().summary(&key).await?.map(|summary| summary.started);
        let object = FullResultRef::id(&caller.tenant, &wanted.session_id, started, &wanted.call);
        let Some(found) = self.bus().transport().get_object(Objects::Results, &object).await? else {
            let message = format!(
                "of call {} of session {} nothing is kept: the model has read all of its result, or it is too old",
                wanted.call, wanted.session_id
            );
            return Err(Failure::new(ErrorCode::UnknownCall, message));
        };
        let content = String::from_utf8_lossy(&found).into_owned();
        Ok(WholeResult { session_id: wanted.session_id.clone(), call: wanted.call.clone(), content })
    }

    /// The session's head; that there is none is only believed of the leader.
    pub(crate) async fn head(&self, key: &SessionKey) -> Result<Option<Head>, Failure> {
        match self.bus().head(key, Read::Any).await? {
            Some(head) => Ok(Some(head)),
            None => Ok(self.bus().head(key, Read::Leader).await?),
        }
    }

    /// The session as it is now: what a caller was told is done is in it.
    async fn fold(&self, caller: &Caller, session: SessionId) -> Result<Session, Failure> {
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        let commits = self.bus().load_latest(&key).await?.ok_or_else(|| Self::unknown(&key))?;
        let session = replay(&key, &commits)?;
        // A log may begin with refused commands: such a session never started.
        if session.seq() == 0 { Err(Self::unknown(&key)) } else { Ok(session) }
    }

    /// What a client is told when the replica goes down.
    pub(crate) fn going_down() -> Failure {
        Failure::new(ErrorCode::Draining, "this replica is going down: connect again").retry_after(RECONNECT_AFTER)
    }

    pub(crate) fn unknown(key: &SessionKey) -> Failure {
        Failure::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session))
    }

    fn gone(key: &SessionKey) -> Failure {
        let message = format!("session {} was archived so long ago that its history is gone", key.session);
        Failure::new(ErrorCode::Resync, message)
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.inner.bus
    }

    /// Waits for the turn of a call of this caller.
    pub(crate) async fn turn(&self, caller: &Caller, cost: Cost) -> Result<Permit, Failure> {
        self.inner.turns.acquire(caller.flow, cost).await
    }

    /// Checks a command. One whose check is costly waits for its turn: they run one at a time, and not on a thread that
    /// serves clients.
    pub(crate) async fn check<T>(&self, caller: &Caller, given: Unchecked<T>) -> Result<Given<T>, Failure>
    where
        T: Checked + Send + 'static,
    {
        if !given.is_costly() {
            return given.check();
        }
        let turn = self.inner.checks.acquire(caller.flow, Cost::Light).await?;
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            given.check()
        });
        checked.await.unwrap_or_else(|_| Err(Failure::new(ErrorCode::Internal, "the check of the command failed")))
    }

    pub(crate) fn index(&self) -> &SessionIndex {
        &self.inner.index
    }

    /// The budget that what waits for clients, and from them, is taken from.
    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.inner.budget
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    pub(crate) fn me(&self) -> &CommandId {
        &self.inner.me
    }

    pub(crate) fn board(&self) -> &Board {
        &self.inner.board
    }

    pub(crate) fn feeds(&self) -> &Feeds {
        &self.inner.feeds
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    /// Cancelled when clients must go elsewhere.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.inner.draining
    }

    /// A queue for one more client.
    pub(crate) fn client_queue(&self) -> ClientQueue {
        ClientQueue::new(self.inner.client_queue, CLIENT_BYTES_MAX, self.inner.budget.clone())
    }

    pub(crate) fn command_wait(&self) -> Duration {
        self.inner.command_wait
    }
}
