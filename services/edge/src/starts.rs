//! Starts of sessions. The composer checks agent and model first, so that a wrong name is refused at once.

use contract::SessionId;
use contract::command::{Start, Verb};
use contract::compose::ComposeRequest;
use contract::subject::SessionKey;

use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::commands::{Examined, PendingCommand, check_agent, check_names};
use crate::fair_queue::RequestCost;
use crate::params::{self, CommandRequest, UnvalidatedCommand};
use crate::session_api::SessionApi;

/// How many ids the edge generates for a session until it has one whose home can be reached. With one of 64 cells, a half
/// of the starts find one.
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
    pub(crate) async fn start(
        &self,
        caller: &ApiCaller,
        request: CommandRequest<Start>,
    ) -> Result<PendingCommand, ApiError> {
        if let Some(resumed) = &request.body.resume_from {
            self.check_reach(caller, resumed.session_id.as_str()).await?;
        }
        let request = self.choose_reachable_id(caller, request)?;
        let check = name_check(caller, &request.body);
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        let cell = self.cells().of_start(&key, source_of(&request.body)).await?;
        self.submit_to(&cell, caller, Verb::Start, request, check).await
    }

    /// Starts a session under the id that `choose` returns. While it looks for one, the composer checks agent and model.
    pub(crate) async fn start_chosen(
        &self,
        caller: &ApiCaller,
        start: Start,
        choose: impl Future<Output = Result<ChosenId, ApiError>>,
    ) -> Result<PendingCommand, ApiError> {
        let (check, any) = (name_check(caller, &start), self.any_cell(caller)?);
        let (chosen, agent) = tokio::join!(choose, check_names(&any, check.as_ref()));
        let ChosenId { id, is_unused } = chosen?;
        let request = self.validate_command(caller, UnvalidatedCommand::new(&id, &id, true, start)?).await?;
        if !is_unused {
            return self.start(caller, request).await;
        }
        if let Some(resumed) = &request.body.resume_from {
            self.check_reach(caller, resumed.session_id.as_str()).await?;
        }
        let _permit = self.acquire_permit(caller, RequestCost::Command).await?;
        if let Some(agent) = agent? {
            check_agent(caller, &agent)?;
        }
        let key = SessionKey { tenant: caller.tenant.clone(), session: request.session.clone() };
        let cell = self.cells().of_new(&key, source_of(&request.body)).await?;
        cell.feeds.follow_new(&key).await?;
        self.store_command(&cell, caller, Verb::Start, request, Examined::UNUSED).await
    }
}

impl SessionApi {
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

/// The request by which the composer tells whether it knows agent and model of a start. Only the names are checked, so
/// it needs none of the parts. A start that resumes another session takes its agent and model, which only the loop reads.
fn name_check(caller: &ApiCaller, start: &Start) -> Option<ComposeRequest> {
    start.resume_from.is_none().then(|| ComposeRequest {
        include_tools: false,
        include_shared: false,
        only_tools: None,
        ..ComposeRequest::of_start(caller.tenant.clone(), start, Vec::new())
    })
}
