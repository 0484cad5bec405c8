//! Answers what operators ask about tools: which processes serve them, and what one call outside of a session gives.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, SubscriptionEvent};
use bytes::Bytes;
use contract::limits::TRIAL_TIME_MAX;
use contract::tool::{Outcome, ToolSpec, header};
use contract::tool_request::{ToolReplicaStats, ToolRequest, ToolResponse, ToolTrial, TrialResult};
use contract::{Coded as _, ErrorCode, TenantId, ToolName, subject};
use futures::{FutureExt, StreamExt};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::call::tool_reply::{ToolAnswer, ToolReply, parse_reply, truncate};
use crate::schemas::Schemas;

/// Bytes of the last error of a replica that are passed on.
const LAST_ERROR_BYTES_MAX: usize = 1_000;
/// The agent that tools see as the caller.
const CALLER: &str = "user";

/// Statistics of a service in the NATS services protocol.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceStats {
    id: String,
    version: String,
    started: Option<String>,
    endpoints: Option<Vec<EndpointStats>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointStats {
    subject: String,
    num_requests: u64,
    num_errors: u64,
    last_error: String,
    /// Mean time of a call since the service started, in nanoseconds.
    average_processing_time: u64,
}

/// Handler of the requests of operators.
#[derive(Clone)]
pub(crate) struct OperatorRequests {
    pub(crate) bus: Bus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) schemas: Schemas,
}

impl OperatorRequests {
    /// Answers requests until the end.
    pub(crate) async fn run(self, ending: CancellationToken) {
        let serve = || {
            let this = self.clone();
            self.bus.serve_tool_requests(move |request| {
                let this = this.clone();
                async move { this.answer(request).await }.boxed()
            })
        };
        bus::rpc::serve_until_cancelled(&ending, serve).await;
    }

    async fn answer(&self, request: ToolRequest) -> ToolResponse {
        let answered = match request {
            ToolRequest::Replicas { tenant } => self.gather_stats(&tenant).await.map(ToolResponse::Replicas),
            ToolRequest::Try(trial) => self.try_tool(*trial).await,
        };
        answered.unwrap_or_else(|error| ToolResponse::Refused { code: error.code(), message: error.to_string() })
    }

    /// Asks all services for their statistics, and picks the tools of the tenant.
    async fn gather_stats(&self, tenant: &TenantId) -> Result<Vec<ToolReplicaStats>, BusError> {
        let tools: Vec<ToolName> = self.bus.tools(tenant).await?.into_iter().map(|spec| spec.name).collect();
        let mut found = Vec::new();
        for message in self.bus.query_services(subject::services_stats()).await? {
            let Ok(stats) = serde_json::from_slice::<ServiceStats>(&message.payload) else { continue };
            for endpoint in stats.endpoints.into_iter().flatten() {
                let served = |tool: &&ToolName| subject::tool(tenant, tool).as_str() == endpoint.subject;
                let Some(tool) = tools.iter().find(served) else { continue };
                let end = endpoint.last_error.floor_char_boundary(LAST_ERROR_BYTES_MAX);
                let last_error = Some(endpoint.last_error[..end].to_owned()).filter(|text| !text.is_empty());
                let average = Duration::from_nanos(endpoint.average_processing_time).as_secs_f64() * 1_000.0;
                found.push(ToolReplicaStats {
                    tool: tool.clone(),
                    instance: stats.id.clone(),
                    version: stats.version.clone(),
                    started: stats.started.clone(),
                    calls: endpoint.num_requests,
                    errors: endpoint.num_errors,
                    average_ms: (endpoint.num_requests > 0).then_some(average),
                    last_error,
                });
            }
        }
        found.sort_by(|one, other| (&one.tool, &one.instance).cmp(&(&other.tool, &other.instance)));
        Ok(found)
    }

    /// Calls a tool once. A call that may change something, or that a person must approve, needs an approval.
    async fn try_tool(&self, trial: ToolTrial) -> Result<ToolResponse, BusError> {
        let refuse = |code, message: String| Ok(ToolResponse::Refused { code, message });
        let ToolTrial { tenant, tool, arguments, is_approved } = &trial;
        let Some(spec) = self.bus.tools(tenant).await?.into_iter().find(|spec| spec.name == *tool) else {
            return refuse(ErrorCode::UnknownTool, format!("there is no tool {:?}", tool.as_str()));
        };
        if spec.needs_approval_outside_sessions() && !is_approved {
            return refuse(ErrorCode::ApprovalNeeded, format!("a call of {tool} needs an approval of its arguments"));
        }
        if let Err(error) = self.schemas.check(&(tenant.clone(), tool.clone()), arguments).await {
            return refuse(error.code, error.text);
        }
        let began = Instant::now();
        let answer = self.call(&trial, &spec).await?;
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ToolAnswer { outcome, content, code } = answer;
        tracing::info!(%tenant, %tool, outcome = outcome.as_str(), duration_ms, "tool tried by an operator");
        let content = truncate(&content, spec.output_bytes_max(), None);
        Ok(ToolResponse::Tried(TrialResult { outcome, content, code, duration_ms }))
    }

    /// Sends the call once, and waits for its answer. It is never sent again.
    async fn call(&self, trial: &ToolTrial, spec: &ToolSpec) -> Result<ToolAnswer, BusError> {
        let (tenant, tool) = (&trial.tenant, &trial.tool);
        let timeout = spec.timeout().min(TRIAL_TIME_MAX);
        let session = format!("try-{}", uuid::Uuid::now_v7());
        let call = format!("{session}-c1-1-1");
        let headers = vec![
            (header::CALL.to_owned(), call.clone()),
            (header::SESSION.to_owned(), session),
            (header::AGENT.to_owned(), CALLER.to_owned()),
            (header::ATTEMPT.to_owned(), "1.1".to_owned()),
            (header::DEADLINE.to_owned(), self.clock.now().after(timeout).to_string()),
        ];
        let body = Bytes::copy_from_slice(trial.arguments.get().as_bytes());
        let end = Instant::now() + timeout;
        let no_tool = || ToolAnswer::error(ErrorCode::NoToolAvailable, format!("no process serves {tool} now"));
        let mut replies = match self.bus.transport().request_many(&subject::tool(tenant, tool), headers, body).await {
            Ok(replies) => replies,
            Err(BusError::NoResponders { .. }) => return Ok(no_tool()),
            Err(error) => return Err(error),
        };
        let mut has_received = false;
        loop {
            match timeout_at(end, replies.next()).await {
                Ok(Some(SubscriptionEvent::Message(message))) => match parse_reply(&message, spec.effect) {
                    ToolReply::Final(answer) => return Ok(answer),
                    ToolReply::Progress { .. } => has_received = true,
                },
                Ok(Some(SubscriptionEvent::Gap)) => return Ok(lost(spec, "the connection to NATS was lost")),
                Ok(None) if has_received => return Ok(lost(spec, "the connection to the tool was lost")),
                Ok(None) => return Ok(no_tool()),
                Err(_late) => {
                    let headers = vec![(header::CALL.to_owned(), call)];
                    let cancel = subject::tool_cancel(tenant, tool);
                    if let Err(error) = self.bus.transport().publish(&cancel, headers, Bytes::new()).await {
                        tracing::debug!(%tool, %error, "the cancel was not sent to the tool");
                    }
                    return Ok(lost(spec, &format!("no answer within {} s", timeout.as_secs_f64().ceil())));
                }
            }
        }
    }
}

/// The answer of a call whose reply did not come.
fn lost(spec: &ToolSpec, why: &str) -> ToolAnswer {
    ToolAnswer::new(Outcome::Timeout, why).or_unknown(spec.effect)
}
