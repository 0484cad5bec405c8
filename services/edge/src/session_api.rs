//! The methods of the client API, the same for both protocols.

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

use crate::admission::AdmissionControl;
use crate::api_error::ApiError;
use crate::authentication::ApiCaller;
use crate::client_queue::{CLIENT_BYTES_MAX, ClientQueue};
use crate::command_waiters::CommandWaiters;
use crate::commands::fold_session;
use crate::config::{Config, StartError};
use crate::fair_queue::{FairQueue, RequestCost, RequestPermit};
use crate::params::{self, CommandBody, CommandRequest, ListCursor, ListSessionsParams, UnvalidatedCommand};
use crate::session_index::SessionIndex;
use crate::stats::{self, AgentStats};
use crate::watch::feed::Feeds;

/// When a client of a draining replica should reconnect.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// A page of the list of sessions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SessionPage {
    /// Newest first.
    pub(crate) sessions: Vec<SessionSummary>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AgentInfo {
    pub(crate) id: AgentId,
    /// Name for people.
    pub(crate) name: String,
    /// Other ids that select this agent.
    pub(crate) aliases: Vec<AgentId>,
    /// Model of the agent, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Whether sessions that name no agent get this one.
    pub(crate) is_default: bool,
}

/// The effects that a repair performed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RepairReport {
    pub(crate) session_id: SessionId,
    pub(crate) performed: Vec<String>,
}

/// The methods of the client API, and what they share. Clones are the same API.
#[derive(Debug, Clone)]
pub(crate) struct SessionApi {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bus: Bus,
    replica_id: CommandId,
    command_waiters: CommandWaiters,
    feeds: Feeds,
    tasks: Tasks,
    draining: CancellationToken,
    command_wait: Duration,
    client_queue: usize,
    admission: AdmissionControl,
    budget: ByteBudget,
    fair_queue: FairQueue,
    check_queue: FairQueue,
    index: SessionIndex,
}

/// The transcript of a session, as a model reads it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SessionHistory {
    pub(crate) session_id: SessionId,
    pub(crate) messages: Vec<Json>,
    /// The last `seq` that the messages include.
    pub(crate) seq: u64,
}

/// A page of the transcript of a session, as people read it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TranscriptPage {
    pub(crate) session_id: SessionId,
    pub(crate) turns: Vec<readable::ReadableTurn>,
    /// The value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_after: Option<u32>,
    /// Whether the archive has removed parts of the session because of their age.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_incomplete: bool,
}

/// State of a session after folding its log again, with the differences that were found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReplayReport {
    pub(crate) session_id: SessionId,
    /// The last slot that was folded.
    pub(crate) slot: u64,
    /// The last slot of the log.
    pub(crate) last_slot: u64,
    /// Phase after `slot`.
    pub(crate) phase: Phase,
    /// The last `seq` after `slot`.
    pub(crate) seq: u64,
    pub(crate) commits: Vec<CommitSummary>,
    /// Differences between this fold and what the writers stored.
    pub(crate) differs: Vec<Difference>,
    /// State in the form of a snapshot.
    pub(crate) state: Json,
}

/// A gate that waits for a person, with its session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PendingGate {
    pub(crate) session_id: SessionId,
    pub(crate) agent: String,
    /// Beginning of the first message of the session.
    pub(crate) title: String,
    #[serde(flatten)]
    pub(crate) gate: OpenGate,
}

impl PendingGate {
    fn new(summary: &SessionSummary, gate: OpenGate) -> Self {
        let SessionSummary { session_id, agent, title, .. } = summary;
        Self { session_id: session_id.clone(), agent: agent.clone(), title: title.clone(), gate }
    }
}

/// A whole tool result, of which the model read only parts.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FullResult {
    pub(crate) session_id: SessionId,
    pub(crate) call: CallId,
    pub(crate) content: String,
}

/// A commit without its contents.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CommitSummary {
    pub(crate) slot: u64,
    pub(crate) time: Timestamp,
    /// Phase after the commit.
    pub(crate) phase: Phase,
    /// Types of the events.
    pub(crate) events: Vec<String>,
}

impl CommitSummary {
    fn new((slot, commit): &(u64, Commit)) -> Self {
        let events = commit.events.iter().map(|event| event.name().to_owned()).collect();
        Self { slot: *slot, time: commit.meta.time, phase: commit.meta.phase, events }
    }
}

impl SessionApi {
    /// Starts the subscriptions of this replica. Clients run in `tasks`, and what they share in `shared_tasks`. Queues
    /// of clients take bytes from `budget`.
    pub(crate) async fn open(
        config: &Config,
        bus: Bus,
        budget: ByteBudget,
        tasks: Tasks,
        shared_tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let replica_id: CommandId = params::generate_id().map_err(|error| StartError::Internal(error.message))?;
        let command_waiters = CommandWaiters::start(bus.clone(), replica_id.clone(), shared_tasks).await?;
        let feeds = Feeds::new(bus.clone(), shared_tasks.clone());
        let index = SessionIndex::start(bus.clone(), config.tenant.clone(), shared_tasks);
        let (draining, command_wait) = (CancellationToken::new(), config.command_wait());
        Ok(Self {
            inner: Arc::new(Inner {
                bus,
                replica_id,
                command_waiters,
                feeds,
                tasks,
                draining,
                command_wait,
                client_queue: config.client_queue,
                admission: AdmissionControl::new(config.admission_limits()),
                budget,
                fair_queue: FairQueue::default(),
                check_queue: FairQueue::new(RequestCost::Light.units()),
                index,
            }),
        })
    }

    /// Returns the messages of a session, as a model reads them.
    pub(crate) async fn get_history(&self, caller: &ApiCaller, session: SessionId) -> Result<SessionHistory, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let mut session = self.load_session(caller, session).await?;
        if session.is_archived() {
            // The head of an archived session has no transcript, so its whole log is loaded.
            let key = session.key();
            let commits = self.bus().load_until(&key, None).await?.ok_or_else(|| Self::history_gone(&key))?;
            session = fold_session(&key, &commits)?;
        }
        let summary = session.summary();
        Ok(SessionHistory { session_id: summary.session_id, messages: session.messages(), seq: session.seq() })
    }

    /// Returns a page of the transcript, as people read it.
    pub(crate) async fn get_transcript(
        &self,
        caller: &ApiCaller,
        params: params::TranscriptParams,
    ) -> Result<TranscriptPage, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let count = params.effective_limit();
        let key = SessionKey { tenant: caller.tenant.clone(), session: params.session_id };
        let commits = self.bus().history(&key, 0).await?;
        if commits.is_empty() {
            return Err(Self::unknown_session(&key));
        }
        let all = readable::turns(commits.iter().map(|(_, commit)| commit));
        let mut rest = all.into_iter().filter(|turn| turn.turn > params.after).peekable();
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
        Ok(TranscriptPage { session_id: key.session, turns, next_after, is_incomplete })
    }

    /// Returns a session from its log, since the index may lag behind.
    pub(crate) async fn get_session(&self, caller: &ApiCaller, session: SessionId) -> Result<SessionSummary, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        Ok(self.load_session(caller, session).await?.summary())
    }

    /// Lets an orchestrator perform the effects of a session again, after a stream lost messages.
    pub(crate) async fn repair_session(
        &self,
        caller: &ApiCaller,
        session: SessionId,
    ) -> Result<RepairReport, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        if self.bus().head(&key, Read::Any).await?.is_none() && self.bus().head(&key, Read::Leader).await?.is_none() {
            return Err(Self::unknown_session(&key));
        }
        match self.bus().repair_session(&key).await {
            Ok(RepairReply::Repaired(performed)) => Ok(RepairReport { session_id: key.session, performed }),
            Ok(RepairReply::Refused { code, message }) => Err(ApiError::new(code, message)),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => {
                let message = "no orchestrator answers: check that one runs, and try again";
                Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(Duration::from_secs(1)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lists the sessions of the tenant from the index, newest first.
    pub(crate) async fn list_sessions(
        &self,
        caller: &ApiCaller,
        params: &ListSessionsParams,
    ) -> Result<SessionPage, ApiError> {
        // One more than the limit shows whether there is another page.
        let (count, after) = (params.effective_limit(), params.cursor.as_ref());
        let in_memory = {
            let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
            self.index().list_newest(after, params.phase, count + 1)
        };
        let mut sessions = if let Some(sessions) = in_memory {
            sessions
        } else {
            let mut all = self.read_index(caller).await?;
            all.retain(|summary| params.phase.is_none_or(|phase| summary.phase == phase));
            all.sort_by_cached_key(|summary| summary.place());
            let after = after.map(ListCursor::position);
            all.retain(|summary| after.as_ref().is_none_or(|after| summary.place() > *after));
            all.truncate(count + 1);
            all.into_iter().map(Arc::unwrap_or_clone).collect()
        };
        let has_more = sessions.len() > count;
        sessions.truncate(count);
        let end = sessions.last().filter(|_| has_more);
        let next_cursor =
            end.map(|end| ListCursor { started: end.started, session: end.session_id.clone() }.to_string());
        Ok(SessionPage { sessions, next_cursor })
    }

    /// Reads the index from its bucket, for when it is not in memory.
    async fn read_index(&self, caller: &ApiCaller) -> Result<Vec<Arc<SessionSummary>>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        Ok(self.bus().summaries(&caller.tenant).await?.into_iter().map(Arc::new).collect())
    }

    /// Folds the whole log of a session again, and compares the state with what its writers stored.
    pub(crate) async fn replay_session(
        &self,
        caller: &ApiCaller,
        params: params::ReplayParams,
    ) -> Result<ReplayReport, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: params.session_id };
        let commits = self.bus().history(&key, 0).await?;
        let Some((last, _)) = commits.last() else { return Err(Self::unknown_session(&key)) };
        if let Some(at) = params.at.filter(|at| at > last) {
            let message = format!("there is no slot {at}: the log of session {} ends with slot {last}", key.session);
            return Err(ApiError::bad_request(message));
        }
        let slot = params.at.unwrap_or(*last);
        if let Some((_, commit)) = commits.iter().find(|(_, commit)| commit.is_newer()) {
            let message = format!(
                "the log was written by a newer version (fold {}): send the request to an edge of that version",
                commit.meta.fold
            );
            return Err(ApiError::new(ErrorCode::NotNow, message));
        }
        let audit = session::audit::audit(key.clone(), &commits, Some(slot));
        Ok(ReplayReport {
            session_id: key.session,
            slot,
            last_slot: *last,
            phase: audit.session.phase(),
            seq: audit.session.seq(),
            commits: commits.iter().map(CommitSummary::new).collect(),
            differs: audit.differs,
            state: audit.session.snapshot(),
        })
    }

    /// Returns statistics of the tenant's sessions by agent and model.
    pub(crate) async fn get_stats(
        &self,
        caller: &ApiCaller,
        params: &params::StatsParams,
    ) -> Result<Vec<AgentStats>, ApiError> {
        let known = {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            self.index().list_all()
        };
        let summaries = match known {
            Some(summaries) => summaries,
            None => self.read_index(caller).await?,
        };
        let is_in_range = |summary: &&SessionSummary| params.since.is_none_or(|since| summary.started >= since);
        Ok(stats::summarize(summaries.iter().map(|summary| &**summary).filter(is_in_range)))
    }

    /// Lists the tools of the tenant.
    pub(crate) async fn list_tools(&self, caller: &ApiCaller) -> Result<Vec<ToolSpec>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let mut tools = self.bus().tools(&caller.tenant).await?;
        // The loop performs these itself, so they are not in the catalogue.
        let own = [session::ask_user_spec(), session::delegate_spec()];
        tools.retain(|tool| own.iter().all(|spec| spec.name != tool.name));
        tools.extend(own);
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tools)
    }

    /// Lists the agents, by key.
    pub(crate) async fn list_agents(&self, caller: &ApiCaller) -> Result<Vec<AgentInfo>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let known = self.bus().agents(&caller.tenant).await?;
        let agent = |KnownAgent { id, name, aliases, model, is_default, tools: _ }| AgentInfo {
            id,
            name,
            aliases,
            model,
            is_default,
        };
        Ok(known.agents.into_iter().map(agent).collect())
    }

    /// Lists the models that are described, by id.
    pub(crate) async fn list_models(&self, caller: &ApiCaller) -> Result<Vec<KnownModel>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        Ok(self.bus().agents(&caller.tenant).await?.models)
    }

    /// Lists the open gates, the most urgent first: of one session from its log, or of all sessions from the index,
    /// where long arguments are shortened.
    pub(crate) async fn list_gates(
        &self,
        caller: &ApiCaller,
        params: &params::ListGatesParams,
    ) -> Result<Vec<PendingGate>, ApiError> {
        let mut gates: Vec<PendingGate> = if let Some(session) = &params.session_id {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            let session = self.load_session(caller, session.clone()).await?;
            let summary = session.summary();
            session.gates().into_iter().map(|gate| PendingGate::new(&summary, gate)).collect()
        } else {
            let known = {
                let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
                self.index().list_with_gates()
            };
            let summaries = match known {
                Some(summaries) => summaries,
                None => self.read_index(caller).await?,
            };
            let of = |summary: &Arc<SessionSummary>| {
                summary.gates.iter().map(|gate| PendingGate::new(summary, gate.clone())).collect::<Vec<_>>()
            };
            summaries.iter().flat_map(of).collect()
        };
        gates.sort_by(|a, b| (a.gate.expires, &a.session_id).cmp(&(b.gate.expires, &b.session_id)));
        gates.truncate(params.effective_limit());
        Ok(gates)
    }

    /// Returns the whole result of a tool call of which the model read only parts.
    pub(crate) async fn get_full_result(
        &self,
        caller: &ApiCaller,
        params: &params::ToolResultParams,
    ) -> Result<FullResult, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: params.session_id.clone() };
        let started = self.bus().summary(&key).await?.map(|summary| summary.started);
        let object = FullResultRef::id(&caller.tenant, &params.session_id, started, &params.call);
        let Some(found) = self.bus().transport().get_object(Objects::Results, &object).await? else {
            let message = format!(
                "no result of call {} of session {} is stored: the model has read all of it, or it is too old",
                params.call, params.session_id
            );
            return Err(ApiError::new(ErrorCode::UnknownCall, message));
        };
        let content = String::from_utf8_lossy(&found).into_owned();
        Ok(FullResult { session_id: params.session_id.clone(), call: params.call.clone(), content })
    }

    /// Loads the head of a session. Only the leader is believed if there is none.
    pub(crate) async fn load_head(&self, key: &SessionKey) -> Result<Option<Head>, ApiError> {
        match self.bus().head(key, Read::Any).await? {
            Some(head) => Ok(Some(head)),
            None => Ok(self.bus().head(key, Read::Leader).await?),
        }
    }

    /// Loads the current state of a session, which includes every command that was answered with `done`.
    async fn load_session(&self, caller: &ApiCaller, session: SessionId) -> Result<Session, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        let commits = self.bus().load_latest(&key).await?.ok_or_else(|| Self::unknown_session(&key))?;
        let session = fold_session(&key, &commits)?;
        // A log may have nothing but refused commands; such a session never started.
        if session.seq() == 0 { Err(Self::unknown_session(&key)) } else { Ok(session) }
    }

    /// Error for clients of a draining replica.
    pub(crate) fn draining_error() -> ApiError {
        ApiError::new(ErrorCode::Draining, "this replica is draining: connect again").with_retry_after(RECONNECT_AFTER)
    }

    pub(crate) fn unknown_session(key: &SessionKey) -> ApiError {
        ApiError::new(ErrorCode::UnknownSession, format!("there is no session {}", key.session))
    }

    fn history_gone(key: &SessionKey) -> ApiError {
        let message =
            format!("the history of session {} is gone: the archive has removed it because of its age", key.session);
        ApiError::new(ErrorCode::Resync, message)
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.inner.bus
    }

    /// Waits until the fair queue lets a request of this caller run.
    pub(crate) async fn acquire_permit(
        &self,
        caller: &ApiCaller,
        cost: RequestCost,
    ) -> Result<RequestPermit, ApiError> {
        self.inner.fair_queue.acquire(caller.flow, cost).await
    }

    /// Validates a command. Costly validations run one at a time, and not on a thread that serves clients.
    pub(crate) async fn validate_command<T>(
        &self,
        caller: &ApiCaller,
        command: UnvalidatedCommand<T>,
    ) -> Result<CommandRequest<T>, ApiError>
    where
        T: CommandBody + Send + 'static,
    {
        if !command.is_costly() {
            return command.validate();
        }
        let permit = self.inner.check_queue.acquire(caller.flow, RequestCost::Light).await?;
        let checked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            command.validate()
        });
        checked
            .await
            .unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal, "the validation of the command failed")))
    }

    pub(crate) fn index(&self) -> &SessionIndex {
        &self.inner.index
    }

    /// Budget of the bytes that wait for clients and from them.
    pub(crate) fn budget(&self) -> &ByteBudget {
        &self.inner.budget
    }

    pub(crate) fn admission(&self) -> &AdmissionControl {
        &self.inner.admission
    }

    pub(crate) fn replica_id(&self) -> &CommandId {
        &self.inner.replica_id
    }

    pub(crate) fn command_waiters(&self) -> &CommandWaiters {
        &self.inner.command_waiters
    }

    pub(crate) fn feeds(&self) -> &Feeds {
        &self.inner.feeds
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    /// Cancelled when this replica drains and clients must reconnect to another one.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.inner.draining
    }

    /// Creates the queue of one more client.
    pub(crate) fn client_queue(&self) -> ClientQueue {
        ClientQueue::new(self.inner.client_queue, CLIENT_BYTES_MAX, self.inner.budget.clone())
    }

    pub(crate) fn command_wait(&self) -> Duration {
        self.inner.command_wait
    }
}
