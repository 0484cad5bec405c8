//! Sessions: lists, statistics and repair.

use std::sync::Arc;

use contract::CellName;
use contract::commit::SessionSummary;
use contract::repair::RepairReply;
use session_api::{ListCursor, ListSessionsParams, RepairReport, SessionPage, StatsList, StatsParams};

use super::SessionApi;
use super::reach::ReachedSession;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers};
use crate::clock;
use crate::fair_queue::RequestCost;
use crate::params;
use crate::session_index::SessionIndex;
use crate::stats::{self, Intervals};

/// Sessions of a tenant, and the cells that did not answer.
pub(crate) type TenantSessions = (Vec<Arc<SessionSummary>>, Vec<CellName>);

impl SessionApi {
    /// Returns a session from its log, since the index may lag behind.
    pub async fn get_session(&self, caller: &ApiCaller, reached: &ReachedSession) -> Result<SessionSummary, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        Ok(self.load_session(reached).await?.summary())
    }

    /// Lets an orchestrator perform the effects of a session again, after a stream lost messages.
    pub async fn repair_session(&self, caller: &ApiCaller, reached: &ReachedSession) -> Result<RepairReport, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let (cell, key) = (self.cell_of(reached).await?, reached.key());
        if cell.load_head(key).await?.is_none() {
            return Err(Self::unknown_session(key));
        }
        match cell.bus.repair_session(key).await {
            Ok(RepairReply::Repaired(performed)) => Ok(RepairReport { session_id: reached.id().clone(), performed }),
            Ok(RepairReply::Refused { code, message }) => Err(ApiError::new(code, message)),
            Err(error) => Err(ApiError::of_request("orchestrator", error)),
        }
    }

    /// Lists the sessions of the tenant from the index, newest first.
    pub async fn list_sessions(
        &self,
        caller: &ApiCaller,
        params: &ListSessionsParams,
    ) -> Result<SessionPage, ApiError> {
        // One more than the limit shows whether there is another page.
        let (count, after) = (params::clamp_limit(params.limit), params.cursor.as_ref());
        let selects = |summary: &SessionSummary| caller.grant.allows_agent(&summary.agent) && params.selects(summary);
        let list = |cell: Arc<Cell>| async move {
            let in_memory = {
                let _permit = self.acquire_permit(caller, RequestCost::Light).await?;
                let index = &cell.tenant(&caller.tenant).index;
                let total = params.has_total.then(|| index.count(selects));
                index.list_newest(after, selects, count + 1).map(|sessions| (sessions, total.flatten()))
            };
            if let Some(found) = in_memory {
                return Ok(found);
            }
            let mut all = self.read_index(caller, &cell).await?;
            all.retain(|summary| selects(summary));
            let total = params.has_total.then_some(all.len());
            all.sort_by_cached_key(|summary| summary.place());
            let after = after.map(ListCursor::position);
            all.retain(|summary| after.as_ref().is_none_or(|after| summary.place() > *after));
            all.truncate(count + 1);
            Ok((all.into_iter().map(Arc::unwrap_or_clone).collect(), total))
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, list).await?;
        let total = answers.iter().filter_map(|(_, (_, total))| *total).reduce(|sum, more| sum + more);
        let mut sessions: Vec<SessionSummary> = answers.into_iter().flat_map(|(_, (sessions, _))| sessions).collect();
        if self.cells().are_several() {
            sessions.sort_by_cached_key(SessionSummary::place);
            // The index of a cell from which a session was moved may lag behind.
            sessions.dedup_by(|later, earlier| later.session_id == earlier.session_id);
            sessions.truncate(count + 1);
        }
        let has_more = sessions.len() > count;
        sessions.truncate(count);
        let end = sessions.last().filter(|_| has_more);
        let next_cursor =
            end.map(|end| ListCursor { started: end.started, session: end.session_id.clone() }.to_string());
        Ok(SessionPage { sessions, next_cursor, total, missing_cells: missing })
    }

    /// Returns statistics of the tenant's sessions by agent and model, and by the time at which they started.
    pub async fn get_stats(&self, caller: &ApiCaller, params: &StatsParams) -> Result<StatsList, ApiError> {
        let intervals = Intervals::of(params, clock::now())?;
        let (summaries, missing_cells) = self.list_all_sessions(caller).await?;
        let is_counted =
            |summary: &&SessionSummary| caller.grant.allows_agent(&summary.agent) && params.selects(summary);
        let counted = || summaries.iter().map(|summary| &**summary).filter(is_counted);
        let intervals = intervals.map(|intervals| stats::summarize_intervals(counted(), &intervals));
        Ok(StatsList { stats: stats::summarize(counted()), intervals, missing_cells })
    }

    /// Lists every session of the tenant in no order, also those of agents out of the caller's reach; with the cells that
    /// did not answer.
    pub async fn list_all_sessions(&self, caller: &ApiCaller) -> Result<TenantSessions, ApiError> {
        self.list_indexed(caller, RequestCost::Read, SessionIndex::list_all).await
    }

    /// Lists the sessions that `list` finds in the index of each cell, and all of a cell whose index is not in memory.
    pub(super) async fn list_indexed(
        &self,
        caller: &ApiCaller,
        cost: RequestCost,
        list: fn(&SessionIndex) -> Option<Vec<Arc<SessionSummary>>>,
    ) -> Result<TenantSessions, ApiError> {
        let list = |cell: Arc<Cell>| async move {
            let known = {
                let _permit = self.acquire_permit(caller, cost).await?;
                list(&cell.tenant(&caller.tenant).index)
            };
            match known {
                Some(summaries) => Ok(summaries),
                None => self.read_index(caller, &cell).await,
            }
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, list).await?;
        Ok((answers.into_iter().flat_map(|(_, summaries)| summaries).collect(), missing))
    }

    /// Reads the index of a cell from its bucket, for when it is not in memory.
    async fn read_index(&self, caller: &ApiCaller, cell: &Cell) -> Result<Vec<Arc<SessionSummary>>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        Ok(cell.bus.summaries(&caller.tenant).await?.into_iter().map(Arc::new).collect())
    }
}
