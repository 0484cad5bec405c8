//! The tool of an agent: a turn of a new session, or of one that goes on.

use contract::model::Content;
use contract::{AgentId, ErrorCode};
use edge_core::api_error::ApiError;
use edge_core::params;
use edge_core::turn::{self, BegunTurn, NewTurn, SessionChoice, TurnStart};
use rmcp::model::{CallToolResponse, InputResponses};
use serde_json::{Map, Value};
use session_api::Method;

use super::arguments::AgentArguments;
use super::elicitation::{self, CallState};
use super::results;
use super::turn_follower::McpCall;

/// Runs a turn of an agent from its prompt to its answer.
pub(super) async fn run(
    call: &McpCall,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<CallToolResponse, ApiError> {
    let agent: AgentId = params::parse("name", name)?;
    if !call.caller.grant.allows_agent(agent.as_str()) {
        return Err(unknown_agent(&agent));
    }
    let AgentArguments { prompt, session_id } = match params::parse_object(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // The arguments of a tool that is not there are nobody's fault.
            check_known(call, &agent).await?;
            return Err(error);
        }
    };
    call.api.authorize(&call.caller, Method::StartSession, None).await?;
    let choice = match session_id {
        // Most calls are single ones: a session that waited for more would stay open for a week.
        None => SessionChoice::New { interactive: false },
        Some(session) => {
            let reached = call.api.reach(&call.caller, &session).await?;
            let of = call.api.get_session(&call.caller, &reached).await?.agent;
            if of != agent.as_str() {
                let message = format!("the session {session} is of the agent {of}: call the tool {of}");
                return Err(ApiError::bad_request(message));
            }
            SessionChoice::Continued(session)
        }
    };
    let begun = begin(call, agent, prompt, choice).await?;
    call.follow(begun).await
}

async fn check_known(call: &McpCall, agent: &AgentId) -> Result<(), ApiError> {
    let agents = call.api.list_agents(&call.caller).await?;
    if agents.iter().any(|known| known.id == *agent || known.aliases.contains(agent)) {
        return Ok(());
    }
    Err(unknown_agent(agent))
}

fn unknown_agent(agent: &AgentId) -> ApiError {
    ApiError::new(ErrorCode::UnknownAgent, format!("there is no agent {agent}"))
}

/// Begins a turn. A call that is repeated with its key finds the turn of the first one.
pub(super) async fn begin(
    call: &McpCall,
    agent: AgentId,
    prompt: String,
    choice: SessionChoice,
) -> Result<BegunTurn, ApiError> {
    let request = NewTurn { agent, prompt: Content::Text(prompt), history: Vec::new(), client_tools: Vec::new() };
    turn::begin_turn(&call.api, &call.caller, request, choice, &call.identity).await
}

/// Goes on with a call whose forms were filled in.
pub(super) async fn go_on(
    call: &McpCall,
    state: CallState,
    responses: InputResponses,
) -> Result<CallToolResponse, ApiError> {
    let CallState { session_id, seq, .. } = state;
    let session = call.api.authorize_session(&call.caller, Method::WatchSession, &session_id).await?;
    let gates = call.api.load_session(&session).await?.gates();
    let mut open = gates.clone();
    for (gate, response) in responses {
        // An answer that came before is not repeated: its gate is closed.
        let Some(gate) = gates.iter().find(|open| open.gate.as_str() == gate) else { continue };
        let response = serde_json::from_value(response).map_err(ApiError::bad_request_by_parser)?;
        let Some(answer) = elicitation::to_answer(gate, &response) else { continue };
        match turn::answer_gate(&call.api, &call.caller, &session_id, answer).await {
            Ok(_) => {}
            Err(error) if error.code == ErrorCode::GateClosed => {}
            Err(error) => return Err(error),
        }
        open.retain(|other| other.gate != gate.gate);
    }
    if !open.is_empty() {
        return Ok(results::of_gates(&session_id, &open).into());
    }
    // The turn runs, so it is not looked for in the log.
    call.follow(BegunTurn { session_id, slot: 0, seq, start: TurnStart::Running }).await
}
