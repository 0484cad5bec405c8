//! One agent: the prompt that it gets with what it is made of, and what the loop would decide about a reply of it.

use contract::command::Features;
use contract::compose::{ComposeRequest, Composed};
use contract::limits::MESSAGE_BYTES_MAX;
use contract::model::{FinishReason, SignalForm, ToolCall};
use contract::{AgentId, ErrorCode};
use session::continuation::{SampleReply, decide_sample};
use session_api::{AgentDescription, DescribeAgentParams, ReplyDecision, TestReplyParams};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::compose::compose;
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Composes the prompt of an agent, as for a session that begins now.
    pub async fn describe_agent(
        &self,
        caller: &ApiCaller,
        params: DescribeAgentParams,
    ) -> Result<AgentDescription, ApiError> {
        let DescribeAgentParams { agent, model } = params;
        if model.as_deref().is_some_and(|model| model.trim().is_empty()) {
            return Err(ApiError::bad_request("model is empty: leave it out, or give an id"));
        }
        let Composed { prompt, fingerprint, components, warnings, agent, model, .. } =
            self.compose_agent(caller, agent, model).await?;
        Ok(AgentDescription { settings: agent, model: model.id, prompt, fingerprint, components, warnings })
    }

    /// Decides about a reply as the loop would in a session of the agent.
    pub async fn test_reply(&self, caller: &ApiCaller, params: TestReplyParams) -> Result<ReplyDecision, ApiError> {
        let TestReplyParams { agent, text, calls, is_cut, step } = params;
        if text.len() > MESSAGE_BYTES_MAX {
            let message = format!("`text` has {} bytes, at most {MESSAGE_BYTES_MAX} are allowed", text.len());
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        }
        let settings = self.compose_agent(caller, Some(agent), None).await?.agent.continuation;
        // Compiling and searching patterns may take as long as the validation of a command.
        self.run_costly_check(caller, move || {
            let calls: Vec<ToolCall> = calls.iter().map(|name| ToolCall::new("", name.as_str(), "{}")).collect();
            let finish = match (is_cut, calls.is_empty()) {
                (true, _) => FinishReason::Length,
                (false, false) => FinishReason::ToolCalls,
                (false, true) => FinishReason::Stop,
            };
            let step = step.unwrap_or(1);
            let reply = SampleReply { text: &text, calls: &calls, finish, step, signal: SignalForm::default() };
            let (verdict, visible) = decide_sample(&settings, reply)
                .map_err(|error| ApiError::new(ErrorCode::BadConfig, error.to_string()))?;
            let source = verdict.source.to_string();
            Ok(ReplyDecision { continues: verdict.continues, source, reason: verdict.reason, visible })
        })
        .await
    }

    async fn compose_agent(
        &self,
        caller: &ApiCaller,
        agent: Option<AgentId>,
        model: Option<String>,
    ) -> Result<Composed, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let cell = self.any_cell(caller)?;
        let tools = cell.bus.tools(&caller.tenant).await?;
        let features = Features::default();
        let request = ComposeRequest { agent, model, features, tools, ..ComposeRequest::new(caller.tenant.clone()) };
        let composed = compose(&cell.bus, &request).await?;
        caller.allow_agent(composed.agent.id.as_str())?;
        Ok(composed)
    }
}
