//! Starts of sessions. The composer checks agent and model first, so that a wrong name is refused at once.

use contract::command::{ResumeFrom, Start};
use contract::compose::ComposeRequest;
use contract::subject::SessionKey;
use contract::{AgentId, SessionId};

use crate::access::{AllowedAgent, ApiCaller};
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::cells::Cell;
use crate::commands::{PendingCommand, check_names};
use crate::fair_queue::RequestCost;
use crate::params::{self, CommandRequest, UnvalidatedCommand};
use crate::session_log::fold_session;

/// Maximum number of ids that the edge generates for a session until one has a home cell that can be reached. If one of
/// 64 cells can be reached, half of the starts find one.
const REACHABLE_ID_TRIES_MAX: u32 = 44;

/// The id that a request chose for a session of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenId {
    pub(crate) id: String,
    /// No session had it an instant ago. Otherwise an earlier try of the request may have started it.
    pub(crate) is_unused: bool,
}

impl SessionApi {
    /// Starts a session under the id that its client chose.
    pub async fn start(
        &self,
        caller: &ApiCaller,
        command: UnvalidatedCommand<Start>,
    ) -> Result<PendingCommand, ApiError> {
        let request = self.choose_reachable_id(caller, self.validate_command(caller, command).await?)?;
        let check = AgentCheck::of(caller, &request.body)?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        let cell = self.cells().of_start(&key, source_of(&request.body)).await?;
        let allowing = Box::pin(self.allow_start(&cell, caller, &check));
        self.submit_start(&cell, caller, request, allowing).await
    }

    /// Starts a session under the id that `choose` returns. While it looks for one, the composer checks agent and model.
    pub(crate) async fn start_chosen(
        &self,
        caller: &ApiCaller,
        start: Start,
        choose: impl Future<Output = Result<ChosenId, ApiError>>,
    ) -> Result<PendingCommand, ApiError> {
        let (check, any) = (AgentCheck::of(caller, &start)?, self.any_cell(caller)?);
        let (chosen, allowed) = tokio::join!(choose, Box::pin(self.allow_start(&any, caller, &check)));
        let ChosenId { id, is_unused } = chosen?;
        let command = UnvalidatedCommand::new(&id, &id, true, start)?;
        if !is_unused {
            return self.start(caller, command).await;
        }
        let request = self.validate_command(caller, command).await?;
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        let allowed = allowed?;
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        let cell = self.cells().of_new(&key, source_of(&request.body)).await?;
        cell.feeds.follow_new(&key).await?;
        self.store_start(&cell, caller, request, allowed).await
    }
}

impl SessionApi {
    /// Finds the agent of a start, and checks that the caller may use it: the one that the start names, or else that of
    /// the session which it resumes, or else the default one. The loop decides about the agent by the same order.
    async fn allow_start(&self, cell: &Cell, caller: &ApiCaller, check: &AgentCheck) -> Result<AllowedAgent, ApiError> {
        match check {
            AgentCheck::Composer { names, source } => {
                if let Some(source) = source {
                    self.reach(caller, source).await?;
                }
                caller.allow_agent(&check_names(cell, names).await?)
            }
            AgentCheck::Source(source) => match caller.allow_any_agent() {
                Some(allowed) => Ok(allowed),
                None => caller.allow_agent(&self.find_agent_at(caller, source).await?),
            },
        }
    }

    /// Finds the agent that a session had at the slot from which another one resumes it.
    async fn find_agent_at(&self, caller: &ApiCaller, source: &ResumeFrom) -> Result<String, ApiError> {
        let session = self.reach(caller, &source.session_id).await?;
        let cell = self.cell_of(&session).await?;
        let commits = cell.bus.load_until(session.key(), source.at).await?;
        let commits = commits.ok_or_else(|| Self::unknown_session(session.key()))?;
        Ok(fold_session(session.key(), &commits)?.summary().agent)
    }

    /// Checks that the caller may use an agent that it names by its id or by another name.
    pub(crate) async fn allow_named_agent(&self, caller: &ApiCaller, agent: &AgentId) -> Result<(), ApiError> {
        if caller.allow_any_agent().is_some() {
            return Ok(());
        }
        let start = Start { agent: Some(agent.clone()), ..Start::default() };
        let cell = self.any_cell(caller)?;
        let named = check_names(&cell, &name_check(caller, &start)).await?;
        caller.allow_agent(&named).map(drop)
    }

    /// Replaces an id that the edge generated, and whose home cannot be reached: any other id does as well.
    fn choose_reachable_id(
        &self,
        caller: &ApiCaller,
        mut request: CommandRequest<Start>,
    ) -> Result<CommandRequest<Start>, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        if request.is_id_generated && !self.cells().can_start(&key) {
            request.session = self.generate_session_id(caller)?;
            request.id = params::parse("command_id", request.session.as_str())?;
        }
        Ok(request)
    }

    /// Generates the id of a session, one whose home can be reached if one of some ids has such a home.
    pub(crate) fn generate_session_id(&self, caller: &ApiCaller) -> Result<SessionId, ApiError> {
        let mut key = SessionKey { tenant: caller.tenant.clone(), session: params::generate_id()? };
        for _ in 0..REACHABLE_ID_TRIES_MAX {
            if self.cells().can_start(&key) {
                break;
            }
            key.session = params::generate_id()?;
        }
        Ok(key.session)
    }
}

/// The session that a new one resumes.
fn source_of(start: &Start) -> Option<&SessionId> {
    start.resume_from.as_ref().map(|from| &from.session_id)
}

/// Source of the agent of a start.
enum AgentCheck {
    /// The composer: it knows the agent by the name in the start, or the default one. `source` is the session that is
    /// resumed, if one is.
    Composer { names: Box<ComposeRequest>, source: Option<SessionId> },
    /// The session that is resumed, whose agent and model a start takes that names no agent.
    Source(ResumeFrom),
}

impl AgentCheck {
    /// Makes the check for a caller that may set what the start sets.
    fn of(caller: &ApiCaller, start: &Start) -> Result<Self, ApiError> {
        caller.check_settings(start)?;
        Ok(match (&start.resume_from, &start.agent) {
            (Some(source), None) => Self::Source(source.clone()),
            (Some(_) | None, _) => {
                Self::Composer { names: Box::new(name_check(caller, start)), source: source_of(start).cloned() }
            }
        })
    }
}

/// The request by which the composer tells whether it knows agent and model of a start. Only the names are checked, so
/// it needs none of the parts.
fn name_check(caller: &ApiCaller, start: &Start) -> ComposeRequest {
    ComposeRequest {
        include_tools: false,
        include_shared: false,
        only_tools: None,
        ..ComposeRequest::of_start(caller.tenant.clone(), start, Vec::new())
    }
}
