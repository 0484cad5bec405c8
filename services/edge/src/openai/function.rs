//! Functions that the client brings: the tools that they are, and the ids of their calls.

use contract::client_tool::ClientTool;
use contract::tool::EffectClass;
use contract::{CallId, Json, SessionId};
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::params;

/// Beginning of the ids of calls that are given to clients.
const CALL_PREFIX: &str = "call_";

/// Returns the id of a call for the client, which names the session too.
pub(super) fn call_id(session: &SessionId, call: &CallId) -> String {
    format!("{CALL_PREFIX}{session}_{call}")
}

/// Parses the id of a call; `field` is named in the error.
pub(super) fn parse_call_id(field: &str, id: &str) -> Result<(SessionId, CallId), ApiError> {
    let Some((session, call)) = id.strip_prefix(CALL_PREFIX).and_then(|rest| rest.rsplit_once('_')) else {
        let id: String = id.chars().take(80).collect();
        return Err(ApiError::bad_request(format!("{field} {id:?} is of no call of a session")));
    };
    Ok((params::parse_session_id(session)?, params::parse(field, call)?))
}

/// Makes a tool of a function of the client; `field` is that of the name.
pub(super) fn to_client_tool(
    field: &'static str,
    name: &str,
    description: Option<&String>,
    parameters: Option<&Value>,
) -> Result<ClientTool, ApiError> {
    Ok(ClientTool {
        name: params::parse(field, name)?,
        description: description.cloned().unwrap_or_default(),
        parameters: parameters.map_or_else(|| Json::of(&json!({"type": "object"})), Json::of),
        effect: EffectClass::default(),
        timeout_ms: None,
        max_output: None,
    })
}
