//! Tools without a session, for operators: which processes serve them, and a call to try one.

use std::sync::Arc;

use contract::limits::TRIAL_ARGUMENTS_BYTES_MAX;
use contract::tool::{ASK_USER, DELEGATE, ToolSpec, arguments_sha256};
use contract::tool_request::{ToolReplicaStats, ToolRequest, ToolResponse, ToolTrial};
use contract::{ErrorCode, ToolName};
use session_api::{Method, TriedTool, TryToolParams};

use super::SessionApi;
use crate::access::{ApiCaller, authorize_part};
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers};
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Lists the processes that serve the tools of the tenant, and how their calls went.
    pub async fn list_tool_replicas(&self, caller: &ApiCaller) -> Result<Vec<ToolReplicaStats>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let ask = |cell: Arc<Cell>| async move {
            match ask_executor(&cell, &ToolRequest::Replicas { tenant: caller.tenant.clone() }).await? {
                ToolResponse::Replicas(replicas) => Ok(replicas),
                other @ (ToolResponse::Tried(_) | ToolResponse::Refused { .. }) => Err(to_error(other)),
            }
        };
        let CellAnswers { answers, .. } = self.cells().ask_all(&caller.tenant, ask).await?;
        Ok(answers.into_iter().flat_map(|(_, replicas)| replicas).collect())
    }

    /// Calls a tool once, outside of a session. A call that may change something, or that a person must approve, runs
    /// only for a caller who may approve, with the hash of the arguments that were shown.
    pub async fn try_tool(&self, caller: &ApiCaller, params: TryToolParams) -> Result<TriedTool, ApiError> {
        let TryToolParams { tool, arguments, arguments_sha256: approved } = params;
        if !arguments.get().starts_with('{') {
            return Err(ApiError::bad_request("`arguments` must be an object"));
        }
        if arguments.get().len() > TRIAL_ARGUMENTS_BYTES_MAX {
            let bytes = arguments.get().len();
            let message = format!("`arguments` has {bytes} bytes, at most {TRIAL_ARGUMENTS_BYTES_MAX} are allowed");
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        }
        if [ASK_USER, DELEGATE].contains(&tool.as_str()) {
            let message = format!("the loop performs {tool} itself, so it cannot be called without a session");
            return Err(ApiError::new(ErrorCode::NotNow, message));
        }
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let (cell, spec) = self.find_tool(caller, &tool).await?;
        let needs_approval = spec.needs_approval_outside_sessions();
        let sha256 = arguments_sha256(&arguments);
        let mut tried =
            TriedTool { tool: tool.clone(), arguments, arguments_sha256: sha256, needs_approval, result: None };
        if needs_approval {
            authorize_part(caller, Method::AnswerGate)?;
            let Some(approved) = approved else { return Ok(tried) };
            if approved != tried.arguments_sha256 {
                let message = "`arguments_sha256` is not the hash of these arguments: approve what was shown";
                return Err(ApiError::new(ErrorCode::BadRequest, message));
            }
        }
        let (tenant, arguments) = (caller.tenant.clone(), tried.arguments.clone());
        tracing::info!(target: "audit", subject = caller.grant.subject, %tool, sha256 = tried.arguments_sha256, "tool tried");
        let trial = ToolTrial { tenant, tool, arguments, is_approved: needs_approval };
        match ask_executor(&cell, &ToolRequest::Try(Box::new(trial))).await? {
            ToolResponse::Tried(result) => tried.result = Some(result),
            other @ (ToolResponse::Replicas(_) | ToolResponse::Refused { .. }) => return Err(to_error(other)),
        }
        Ok(tried)
    }

    /// Finds a tool in the first cell that has it.
    async fn find_tool(&self, caller: &ApiCaller, tool: &ToolName) -> Result<(Arc<Cell>, ToolSpec), ApiError> {
        let find = |cell: Arc<Cell>| async move {
            let spec = cell.bus.tools(&caller.tenant).await?.into_iter().find(|spec| spec.name == *tool);
            Ok(spec.map(|spec| (cell, spec)))
        };
        let CellAnswers { answers, .. } = self.cells().ask_all(&caller.tenant, find).await?;
        answers.into_iter().find_map(|(_, found)| found).ok_or_else(|| {
            ApiError::new(ErrorCode::UnknownTool, format!("there is no tool {tool}; `tools.list` has the names"))
        })
    }
}

async fn ask_executor(cell: &Cell, request: &ToolRequest) -> Result<ToolResponse, ApiError> {
    cell.bus.ask_tools(request).await.map_err(|error| ApiError::of_request("executor", error))
}

fn to_error(response: ToolResponse) -> ApiError {
    match response {
        ToolResponse::Refused { code, message } => ApiError::new(code, message),
        ToolResponse::Replicas(_) | ToolResponse::Tried(_) => {
            ApiError::new(ErrorCode::Internal, "an executor answered another request than this one")
        }
    }
}
