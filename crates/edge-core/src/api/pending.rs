//! Gates that wait for a person, and calls that wait for a client: both are outside of the fleet.

use std::sync::Arc;

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, SessionSummary};
use contract::{CellName, SessionId, Timestamp};
use session::Session;
use session_api::{CallList, GateList, ListPendingParams, PendingCall, PendingGate};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params::clamp_limit;
use crate::session_index::SessionIndex;

/// Kind of items that wait, gates or calls, and the places where they are found.
trait PendingKind: Clone {
    /// Finds it in a session, whole.
    fn of_session(session: &Session) -> Vec<Self>;

    /// Finds it in the summary of a session, where long arguments are shortened.
    fn of_summary(summary: &SessionSummary) -> &[Self];

    /// Lists the sessions that have some; `None` while the index is not in memory.
    fn sessions(index: &SessionIndex) -> Option<Vec<Arc<SessionSummary>>>;

    /// Returns the time at which it ends by itself.
    fn ends(&self) -> Timestamp;
}

/// Gate or call that waits, with its session.
struct Pending<T> {
    session_id: SessionId,
    agent: String,
    /// Beginning of the first message of the session.
    title: String,
    item: T,
}

impl PendingKind for OpenGate {
    fn of_session(session: &Session) -> Vec<Self> {
        session.gates()
    }

    fn of_summary(summary: &SessionSummary) -> &[Self] {
        &summary.gates
    }

    fn sessions(index: &SessionIndex) -> Option<Vec<Arc<SessionSummary>>> {
        index.list_with_gates()
    }

    fn ends(&self) -> Timestamp {
        self.expires
    }
}

impl PendingKind for OpenClientCall {
    fn of_session(session: &Session) -> Vec<Self> {
        session.client_calls()
    }

    fn of_summary(summary: &SessionSummary) -> &[Self] {
        &summary.client_calls
    }

    fn sessions(index: &SessionIndex) -> Option<Vec<Arc<SessionSummary>>> {
        index.list_with_client_calls()
    }

    fn ends(&self) -> Timestamp {
        self.deadline
    }
}

impl<T> Pending<T> {
    fn all(summary: &SessionSummary, items: impl IntoIterator<Item = T>) -> Vec<Self> {
        let SessionSummary { session_id, agent, title, .. } = summary;
        let of = |item| Self { session_id: session_id.clone(), agent: agent.clone(), title: title.clone(), item };
        items.into_iter().map(of).collect()
    }
}

impl SessionApi {
    /// Lists the open gates of one session or of all.
    pub async fn list_gates(&self, caller: &ApiCaller, params: &ListPendingParams) -> Result<GateList, ApiError> {
        let (pending, missing_cells) = self.list_pending::<OpenGate>(caller, params).await?;
        let gate = |Pending { session_id, agent, title, item }| PendingGate { session_id, agent, title, gate: item };
        Ok(GateList { gates: pending.into_iter().map(gate).collect(), missing_cells })
    }

    /// Lists the calls of one session or of all that wait for clients.
    pub async fn list_client_calls(
        &self,
        caller: &ApiCaller,
        params: &ListPendingParams,
    ) -> Result<CallList, ApiError> {
        let (pending, missing_cells) = self.list_pending::<OpenClientCall>(caller, params).await?;
        let call = |Pending { session_id, agent, title, item }| PendingCall { session_id, agent, title, call: item };
        Ok(CallList { calls: pending.into_iter().map(call).collect(), missing_cells })
    }

    /// Lists what waits, the most urgent first: of one session from its log, or of all sessions from the index, where
    /// long arguments are shortened.
    async fn list_pending<T: PendingKind>(
        &self,
        caller: &ApiCaller,
        params: &ListPendingParams,
    ) -> Result<(Vec<Pending<T>>, Vec<CellName>), ApiError> {
        let mut missing_cells = Vec::new();
        let mut pending = if let Some(session) = &params.session_id {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            let session = self.load_session(&self.reach(caller, session).await?).await?;
            Pending::all(&session.summary(), T::of_session(&session))
        } else {
            let (summaries, missing) = self.list_indexed(caller, RequestCost::Light, T::sessions).await?;
            missing_cells = missing;
            let reached = summaries.iter().filter(|summary| caller.grant.allows_agent(&summary.agent));
            reached.flat_map(|summary| Pending::all(summary, T::of_summary(summary).iter().cloned())).collect()
        };
        pending.sort_by(|a, b| (a.item.ends(), &a.session_id).cmp(&(b.item.ends(), &b.session_id)));
        pending.truncate(clamp_limit(params.limit));
        Ok((pending, missing_cells))
    }
}
