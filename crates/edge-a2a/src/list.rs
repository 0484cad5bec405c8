//! `ListTasks`: all turns of one session, or the last turn of each session.

use std::sync::Arc;

use contract::commit::{Phase, SessionSummary};
use contract::limits::TRANSCRIPT_BYTES_MAX;
use contract::{SessionId, Timestamp};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::fair_queue::RequestCost;
use edge_core::params;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use session_api::Method;

use super::errors::A2aError;
use super::loaded_task::LoadedTask;
use super::page_position::PagePosition;
use super::requests::{ListTasksParams, parse_history_length};
use super::send::choose_agent;
use super::task::{AgentTask, TaskPhase};

/// Tasks of a page: as many if the client says nothing, and at most so many.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 100;
/// Logs that are read at once for a page.
const READS_AT_ONCE: usize = 4;

/// Filter, page and level of detail of a `ListTasks` request.
struct TaskFilter {
    phase: Option<TaskPhase>,
    after: Option<Timestamp>,
    page_size: usize,
    from: Option<PagePosition>,
    history: usize,
    has_artifacts: bool,
}

impl TaskFilter {
    fn parse(params: &ListTasksParams) -> Result<Self, A2aError> {
        let phase = match params.status.as_deref().filter(|status| !matches!(*status, "" | "TASK_STATE_UNSPECIFIED")) {
            None => None,
            Some(status) => {
                let known = TaskPhase::ALL.into_iter().find(|phase| phase.as_str() == status);
                let status: String = status.chars().take(40).collect();
                Some(known.ok_or_else(|| A2aError::invalid(format!("no task has the `status` {status:?}")))?)
            }
        };
        let page_size = match params.page_size {
            None => PAGE_DEFAULT,
            Some(size) => match usize::try_from(size) {
                Ok(size @ 1..) => size.min(PAGE_MAX),
                _ => return Err(A2aError::invalid(format!("`pageSize` must be 1 to {PAGE_MAX}"))),
            },
        };
        Ok(Self {
            phase,
            after: params.status_timestamp_after,
            page_size,
            from: PagePosition::parse_token(params.page_token.as_deref().unwrap_or_default())?,
            history: parse_history_length(params.history_length)?.unwrap_or(0),
            has_artifacts: params.include_artifacts == Some(true),
        })
    }

    fn selects(&self, phase: TaskPhase, changed: Timestamp) -> bool {
        self.phase.is_none_or(|wanted| wanted == phase) && self.after.is_none_or(|after| changed >= after)
    }

    /// Sorts what was found, and returns the page with the number of all.
    fn cut<T>(&self, mut found: Vec<(PagePosition, T)>) -> (Vec<(PagePosition, T)>, usize, bool) {
        let total = found.len();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found.retain(|(position, _)| self.from.as_ref().is_none_or(|from| position > from));
        let has_more = found.len() > self.page_size;
        found.truncate(self.page_size);
        (found, total, has_more)
    }

    fn to_json(&self, task: &AgentTask) -> Value {
        task.to_json(Some(self.history), self.has_artifacts)
    }
}

/// A page, which takes no more tasks once it is large.
#[derive(Default)]
struct TaskPage {
    tasks: Vec<Value>,
    bytes: usize,
    last: Option<PagePosition>,
    is_full: bool,
}

impl TaskPage {
    /// Adds the task of a position; one without a task is passed over.
    fn push(&mut self, position: PagePosition, task: Option<Value>) {
        let bytes = task.as_ref().map_or(0, |task| task.to_string().len());
        if self.is_full || self.bytes + bytes > TRANSCRIPT_BYTES_MAX && !self.tasks.is_empty() {
            self.is_full = true;
            return;
        }
        self.bytes += bytes;
        self.tasks.extend(task);
        self.last = Some(position);
    }

    fn into_json(self, filter: &TaskFilter, total: usize, has_more: bool) -> Value {
        let next = self.last.filter(|_| has_more || self.is_full).map(|last| last.to_token()).unwrap_or_default();
        json!({
            "tasks": self.tasks, "nextPageToken": next, "pageSize": filter.page_size, "totalSize": total,
        })
    }
}

/// Lists tasks, the newest status first.
pub(super) async fn list(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    params: &ListTasksParams,
) -> Result<Value, A2aError> {
    let filter = TaskFilter::parse(params)?;
    let agent = match agent {
        Some(named) => Some(choose_agent(&api.list_agents(caller).await?, Some(named))?.id.clone()),
        None => None,
    };
    let context = params.context_id.as_deref().filter(|context| !context.is_empty());
    let Some(context) = context else {
        api.authorize(caller, Method::ListSessions, None).await?;
        return list_sessions(api, caller, agent.as_ref().map(contract::AgentId::as_str), &filter).await;
    };
    let session: SessionId = params::parse("contextId", context)?;
    let session = match api.authorize_session(caller, Method::GetTranscript, &session).await {
        Ok(session) => session,
        // A context that is not there has no tasks.
        Err(error) if error.code == contract::ErrorCode::UnknownSession => return Ok(empty(&filter)),
        Err(error) => return Err(error.into()),
    };
    let summary = api.summary_of(&session).await?;
    if summary.is_some_and(|found| agent.is_some_and(|agent| found.agent != agent.as_str())) {
        return Ok(empty(&filter));
    }
    list_turns(api, caller, &session, &filter).await
}

fn empty(filter: &TaskFilter) -> Value {
    TaskPage::default().into_json(filter, 0, false)
}

/// Lists the turns of one session from its log.
async fn list_turns(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &ReachedSession,
    filter: &TaskFilter,
) -> Result<Value, A2aError> {
    let _permit = api.acquire_permit(caller, RequestCost::Scan).await?;
    let commits = api.commits_from(session, 0).await?;
    let mut begun: Vec<LoadedTask> = Vec::new();
    for (slot, commit) in &commits {
        let open = begun.iter_mut().filter(|loaded| !loaded.task.phase().is_final());
        open.for_each(|loaded| loaded.push(session.key(), *slot, commit));
        begun.extend(LoadedTask::begin(session.key(), *slot, commit));
    }
    let tasks = begun.into_iter().filter(LoadedTask::is_task).map(|loaded| loaded.task);
    let selected = tasks.filter(|task| filter.selects(task.phase(), task.changed));
    let found = selected.map(|task| (PagePosition::new(task.changed, format!("{:020}", task.id.slot)), task));
    let (found, total, has_more) = filter.cut(found.collect());
    let mut page = TaskPage::default();
    for (position, task) in found {
        page.push(position, Some(filter.to_json(&task)));
    }
    Ok(page.into_json(filter, total, has_more))
}

/// Lists the last turn of each session: the index says which they are, and the logs the rest.
async fn list_sessions(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    filter: &TaskFilter,
) -> Result<Value, A2aError> {
    let (sessions, _) = api.list_all_sessions(caller).await?;
    let is_listed = |summary: &Arc<SessionSummary>| {
        agent.is_none_or(|agent| summary.agent == agent)
            && summary.parent.is_none()
            && summary.turn > 0
            && filter.selects(phase_of(summary), summary.updated)
    };
    let listed = sessions.into_iter().filter(is_listed);
    let found = listed.filter_map(|summary| {
        let position = PagePosition::new(summary.updated, summary.session_id.to_string());
        Some((position, ReachedSession::of_summary(caller, &summary)?))
    });
    let (found, total, has_more) = filter.cut(found.collect());
    let _permit = api.acquire_permit(caller, RequestCost::Scan).await?;
    let loads = stream::iter(found)
        .map(|(position, session)| async move { (position, LoadedTask::load_newest(api, &session).await) });
    let mut loads = std::pin::pin!(loads.buffered(READS_AT_ONCE));
    let mut page = TaskPage::default();
    while let Some((position, loaded)) = loads.next().await {
        let task = loaded?.map(|loaded| filter.to_json(&loaded.task));
        page.push(position, task);
        if page.is_full {
            break;
        }
    }
    Ok(page.into_json(filter, total, has_more))
}

/// Returns the state of the last turn of a session.
fn phase_of(summary: &SessionSummary) -> TaskPhase {
    let is_open = summary.step > 0 || summary.phase == Phase::Running;
    if summary.phase == Phase::Ended || !is_open {
        return summary.stop_reason.map_or(TaskPhase::Canceled, TaskPhase::of_end);
    }
    if summary.waits_for_answer() { TaskPhase::InputRequired } else { TaskPhase::Working }
}
