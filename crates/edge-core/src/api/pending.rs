//! Gates that wait for a person, and calls that wait for a client: both are outside of the fleet.

use std::sync::Arc;

use contract::commit::SessionSummary;
use contract::{CellName, SessionId, Timestamp};
use session::Session;
use session_api::{CallList, GateList, ListPendingParams, PendingCall, PendingGate};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params::clamp_limit;
use crate::session_index::SessionIndex;

/// Kind of items that wait, gates or calls: the places where they are found, and the entries that lists have of them.
struct PendingKind<Item, Entry> {
    /// Finds them in a session, whole.
    of_session: fn(&Session) -> Vec<Item>,
    /// Finds them in the summary of a session, where long arguments are shortened.
    of_summary: fn(&SessionSummary) -> &[Item],
    /// Lists the sessions that have some; `None` while the index is not in memory.
    sessions: fn(&SessionIndex) -> Option<Vec<Arc<SessionSummary>>>,
    /// Makes the entry of an item of a session.
    to_entry: fn(&SessionSummary, Item) -> Entry,
    /// Returns the place of an entry in a list: by the time at which it ends by itself.
    place: fn(&Entry) -> (Timestamp, &SessionId),
}

impl SessionApi {
    /// Lists the open gates of one session or of all.
    pub async fn list_gates(&self, caller: &ApiCaller, params: &ListPendingParams) -> Result<GateList, ApiError> {
        let kind = PendingKind {
            of_session: Session::gates,
            of_summary: |summary| &summary.gates,
            sessions: SessionIndex::list_with_gates,
            to_entry: |session, gate| {
                let (session_id, agent) = (session.session_id.clone(), session.agent.clone());
                PendingGate { session_id, agent, title: session.title.clone(), gate }
            },
            place: |entry| (entry.gate.expires, &entry.session_id),
        };
        let (gates, missing_cells) = self.list_pending(caller, params, kind).await?;
        Ok(GateList { gates, missing_cells })
    }

    /// Lists the calls of one session or of all that wait for clients.
    pub async fn list_client_calls(
        &self,
        caller: &ApiCaller,
        params: &ListPendingParams,
    ) -> Result<CallList, ApiError> {
        let kind = PendingKind {
            of_session: Session::client_calls,
            of_summary: |summary| &summary.client_calls,
            sessions: SessionIndex::list_with_client_calls,
            to_entry: |session, call| {
                let (session_id, agent) = (session.session_id.clone(), session.agent.clone());
                PendingCall { session_id, agent, title: session.title.clone(), call }
            },
            place: |entry| (entry.call.deadline, &entry.session_id),
        };
        let (calls, missing_cells) = self.list_pending(caller, params, kind).await?;
        Ok(CallList { calls, missing_cells })
    }

    /// Lists what waits, the most urgent first: of one session from its log, or of all sessions from the index, where
    /// long arguments are shortened.
    async fn list_pending<Item: Clone, Entry>(
        &self,
        caller: &ApiCaller,
        params: &ListPendingParams,
        kind: PendingKind<Item, Entry>,
    ) -> Result<(Vec<Entry>, Vec<CellName>), ApiError> {
        let PendingKind { of_session, of_summary, sessions, to_entry, place } = kind;
        let mut missing_cells = Vec::new();
        let mut pending: Vec<Entry> = if let Some(session) = &params.session_id {
            let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
            let session = self.load_session(&self.reach(caller, session).await?).await?;
            let summary = session.summary();
            of_session(&session).into_iter().map(|item| to_entry(&summary, item)).collect()
        } else {
            let (summaries, missing) = self.list_indexed(caller, RequestCost::Light, sessions).await?;
            missing_cells = missing;
            let reached = summaries.iter().filter(|summary| caller.grant.allows_agent(&summary.agent));
            reached
                .flat_map(|summary| of_summary(summary).iter().map(move |item| to_entry(summary, item.clone())))
                .collect()
        };
        pending.sort_by(|a, b| place(a).cmp(&place(b)));
        pending.truncate(clamp_limit(params.limit));
        Ok((pending, missing_cells))
    }
}
