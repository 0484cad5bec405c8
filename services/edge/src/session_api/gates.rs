//! Open gates.

use std::sync::Arc;

use contract::SessionId;
use contract::commit::{OpenGate, SessionSummary};
use serde::Serialize;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params;

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

impl SessionApi {
    /// Lists the open gates, the most urgent first: of one session from its log, or of all sessions from the index,
    /// where long arguments are shortened.
    pub(crate) async fn list_gates(
        &self,
        caller: &ApiCaller,
        params: &params::ListPendingParams,
    ) -> Result<Vec<PendingGate>, ApiError> {
        let mut gates: Vec<PendingGate> = if let Some(session) = &params.session_id {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            let session = self.load_session(caller, session.clone()).await?;
            let summary = session.summary();
            session.gates().into_iter().map(|gate| PendingGate::new(&summary, gate)).collect()
        } else {
            let known = {
                let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
                self.tenant(caller).index.list_with_gates()
            };
            let summaries = match known {
                Some(summaries) => summaries,
                None => self.read_index(caller).await?,
            };
            let of = |summary: &Arc<SessionSummary>| {
                summary.gates.iter().map(|gate| PendingGate::new(summary, gate.clone())).collect::<Vec<_>>()
            };
            let reached = summaries.iter().filter(|summary| caller.grant.allows_agent(&summary.agent));
            reached.flat_map(of).collect()
        };
        gates.sort_by(|a, b| (a.gate.expires, &a.session_id).cmp(&(b.gate.expires, &b.session_id)));
        gates.truncate(params.effective_limit());
        Ok(gates)
    }
}
