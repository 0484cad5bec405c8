//! Answers the requests of MCP clients, whatever the revision that they speak.

use contract::ErrorCode;
use contract::trace::TraceContext;
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::turn::{self, RequestIdentity};
use edge_core::{clock, request_trace};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitResult, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, RequestId, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use session_api::Method;

use super::catalogue;
use super::elicitation::{self, CallState, Dismissals};
use super::session_tool::SessionTool;
use super::turn_follower::{ClientOutlet, FormDelivery, McpCall};
use super::{agent_tool, results, session_tools};

/// Field of `_meta` by which a client marks a call that it may repeat.
const KEY_FIELD: &str = "ailoop/idempotency-key";
/// Bytes of such a key.
const KEY_BYTES_MAX: usize = 256;
/// Time in milliseconds for which clients may cache the list of tools: the agents change with the configuration.
const TOOLS_TTL_MS: u64 = 60_000;
const INSTRUCTIONS: &str = "Each agent is a tool: it works on a task with tools of its own, which may take minutes. \
    A result has a `session_id`, with which the conversation goes on. `start_session` and `session_status` are for \
    tasks that take longer than a call may. If a result says that the session waits for a person, ask the person. \
    Only if you have the tool `answer_gate`, call it with what the person decided.";

/// The handler of one request of a caller.
#[derive(Debug, Clone)]
pub(super) struct McpHandler {
    api: SessionApi,
    caller: ApiCaller,
    trace: Option<TraceContext>,
    dismissals: Dismissals,
}

impl McpHandler {
    pub(super) fn new(api: SessionApi, caller: ApiCaller, trace: Option<TraceContext>, dismissals: Dismissals) -> Self {
        Self { api, caller, trace, dismissals }
    }

    pub(super) fn api(&self) -> &SessionApi {
        &self.api
    }

    /// Takes what an older client answers to a form; `None` if it could not show it. The call that waits for the answer
    /// may be at another replica, which follows the session.
    pub(super) async fn accept_form(&self, id: &RequestId, result: Option<Value>) -> Result<(), ApiError> {
        let Some((session, gate)) = elicitation::parse_request_id(id) else { return Ok(()) };
        let form = result.and_then(|result| serde_json::from_value::<ElicitResult>(result).ok());
        let outcome = request_trace::run("mcp.form", Some(session.as_str()), self.trace, async {
            let reached = self.api.authorize_session(&self.caller, Method::AnswerGate, &session).await?;
            let gates = self.api.load_session(&reached).await?.gates();
            let Some(open) = gates.iter().find(|open| open.gate == gate) else { return Ok(()) };
            let Some(answer) = form.and_then(|form| elicitation::to_answer(open, &form)) else {
                self.dismissals.publish(session.clone(), gate.clone());
                return Ok(());
            };
            turn::answer_gate(&self.api, &self.caller, &session, answer).await.map(drop)
        });
        match outcome.await {
            // The client could do nothing about it, and its call shows what became of the session.
            Err(error) if !edge_core::http_error::to_status(&error.code).is_server_error() => Ok(()),
            outcome => outcome,
        }
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        state: Option<CallState>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ApiError> {
        let arguments = request.arguments.unwrap_or_default();
        let call = self.begin_call(context)?;
        if let Some(tool) = SessionTool::from_name(&request.name) {
            return session_tools::run(&call, tool, arguments).await;
        }
        match state {
            Some(state) => agent_tool::go_on(&call, state, request.input_responses.unwrap_or_default()).await,
            None => agent_tool::run(&call, &request.name, arguments).await,
        }
    }

    fn begin_call(&self, context: &RequestContext<RoleServer>) -> Result<McpCall, ApiError> {
        let identity = match context.meta.get(KEY_FIELD) {
            Some(key) => RequestIdentity::of_key(&self.caller.name(), parse_key(key)?.as_bytes(), clock::now()),
            None => RequestIdentity::new(&self.api, &self.caller)?,
        };
        let progress = context.meta.get_progress_token().map(|token| (context.peer.clone(), token));
        let forms = self.form_delivery(context);
        Ok(McpCall {
            api: self.api.clone(),
            caller: self.caller.clone(),
            identity,
            forms,
            progress,
            cancelled: context.ct.clone(),
            dismissals: self.dismissals.clone(),
        })
    }

    fn form_delivery(&self, context: &RequestContext<RoleServer>) -> FormDelivery {
        let can_ask = context.client_capabilities().is_some_and(|found| elicitation::can_fill_forms(&found));
        if !can_ask || !self.caller.may_use(Method::AnswerGate) {
            return FormDelivery::Never;
        }
        let is_stateless = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match context.extensions.get::<ClientOutlet>() {
            _ if is_stateless => FormDelivery::Result,
            Some(outlet) => FormDelivery::Request(outlet.0.clone()),
            None => FormDelivery::Never,
        }
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("ailoop", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = request_trace::run("mcp.tools_list", None, self.trace, async {
            self.caller.grant.check_valid()?;
            self.caller.grant.count_request()?;
            let agents = self.api.list_agents(&self.caller).await?;
            Ok(catalogue::tools(&self.caller, &agents))
        });
        let tools = listed.await.map_err(to_error_data)?;
        Ok(ListToolsResult::with_all_items(tools)
            .with_ttl_ms(TOOLS_TTL_MS)
            .with_cache_scope(rmcp::model::CacheScope::Private))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        // A model cannot correct what its client was to send back.
        let state = request.request_state.as_deref().map(|state| CallState::parse(&self.caller, state));
        let call = self.call(request, state.transpose().map_err(to_error_data)?, &context);
        match request_trace::run("mcp.tools_call", None, self.trace, call).await {
            Ok(response) => Ok(response),
            Err(error) if is_unknown_tool(&name, &error) => {
                let name: String = name.chars().take(80).collect();
                let message = format!("there is no tool {name:?}: `tools/list` has those that you may call");
                Err(to_error_data(ApiError::new(ErrorCode::UnknownTool, message)))
            }
            Err(error) => Ok(results::of_error(&error, None).into()),
        }
    }
}

/// Whether an error says that the name of the tool is of no agent that the caller reaches.
fn is_unknown_tool(name: &str, error: &ApiError) -> bool {
    let is_agent = SessionTool::from_name(name).is_none();
    is_agent && (error.code == ErrorCode::UnknownAgent || name.parse::<contract::AgentId>().is_err())
}

/// Makes an error of the protocol. A model cannot correct it.
fn to_error_data(error: ApiError) -> ErrorData {
    let data = json!({"code": error.code});
    let code = if error.code == ErrorCode::UnknownTool {
        rmcp::model::ErrorCode::INVALID_PARAMS
    } else {
        rmcp::model::ErrorCode(error.json_rpc_code())
    };
    ErrorData::new(code, error.message, Some(data))
}

fn parse_key(value: &Value) -> Result<&str, ApiError> {
    let is_key =
        |text: &&str| (1..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(|b| (0x20..0x7F).contains(&b));
    let message = format!("`_meta` `{KEY_FIELD}` must be a text of 1 to {KEY_BYTES_MAX} bytes of visible ASCII");
    value.as_str().filter(is_key).ok_or_else(|| ApiError::bad_request(message))
}
