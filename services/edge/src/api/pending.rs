//! Gates that wait for a person, and calls that wait for a client: both are outside of the fleet.

use std::sync::Arc;

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, SessionSummary};
use contract::{CellName, SessionId, Timestamp};
use serde::Serialize;
use session::Session;
use session_api::ListPendingParams;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params::clamp_limit;
use crate::session_index::SessionIndex;

/// Gate or call that waits, with its session.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Pending<T> {
    pub(crate) session_id: SessionId,
    pub(crate) agent: String,
    /// Beginning of the first message of the session.
    pub(crate) title: String,
    #[serde(flatten)]
    pub(crate) item: T,
}

/// Gates or calls that wait, and the cells that did not report theirs.
#[derive(Debug)]
pub(crate) struct PendingList<T> {
    pub(crate) pending: Vec<Pending<T>>,
    pub(crate) missing_cells: Vec<CellName>,
}

/// Kind of items that wait, gates or calls, and the places where they are found.
pub(crate) trait PendingKind: Clone {
    /// Finds it in a session, whole.
    fn of_session(session: &Session) -> Vec<Self>;

    /// Finds it in the summary of a session, where long arguments are shortened.
    fn of_summary(summary: &SessionSummary) -> &[Self];

    /// Lists the sessions that have some; `None` while the index is not in memory.
    fn sessions(index: &SessionIndex) -> Option<Vec<Arc<SessionSummary>>>;

    /// Returns the time at which it ends by itself.
    fn ends(&self) -> Timestamp;
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
    /// Lists what waits, the most urgent first: of one session from its log, or of all sessions from the index, where
    /// long arguments are shortened.
    pub(crate) async fn list_pending<T: PendingKind>(
        &self,
        caller: &ApiCaller,
        params: &ListPendingParams,
    ) -> Result<PendingList<T>, ApiError> {
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
        Ok(PendingList { pending, missing_cells })
    }
}
