//! Calls that wait for a client.

use contract::SessionId;
use contract::client_tool::OpenClientCall;
use contract::commit::SessionSummary;
use serde::Serialize;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params;

/// A call that waits for a client, with its session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PendingClientCall {
    pub(crate) session_id: SessionId,
    pub(crate) agent: String,
    /// Beginning of the first message of the session.
    pub(crate) title: String,
    #[serde(flatten)]
    pub(crate) call: OpenClientCall,
}

impl PendingClientCall {
    fn all(summary: &SessionSummary, calls: Vec<OpenClientCall>) -> Vec<Self> {
        let SessionSummary { session_id, agent, title, .. } = summary;
        let of = |call| Self { session_id: session_id.clone(), agent: agent.clone(), title: title.clone(), call };
        calls.into_iter().map(of).collect()
    }
}

impl SessionApi {
    /// Lists the calls that wait for a client, the most urgent first: of one session from its log, or of all sessions
    /// from the index, where long arguments are shortened.
    pub(crate) async fn list_client_calls(
        &self,
        caller: &ApiCaller,
        params: &params::ListPendingParams,
    ) -> Result<Vec<PendingClientCall>, ApiError> {
        let mut calls: Vec<PendingClientCall> = if let Some(session) = &params.session_id {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            let session = self.load_session(caller, session.clone()).await?;
            PendingClientCall::all(&session.summary(), session.client_calls())
        } else {
            let known = {
                let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
                self.tenant(caller).index.list_with_client_calls()
            };
            let summaries = match known {
                Some(summaries) => summaries,
                None => self.read_index(caller).await?,
            };
            let reached = summaries.iter().filter(|summary| caller.grant.allows_agent(&summary.agent));
            reached.flat_map(|summary| PendingClientCall::all(summary, summary.client_calls.clone())).collect()
        };
        calls.sort_by(|a, b| (a.call.deadline, &a.session_id).cmp(&(b.call.deadline, &b.session_id)));
        calls.truncate(params.effective_limit());
        Ok(calls)
    }
}
