//! Ids of calls for clients that keep nothing but an id: they name the session too, and any edge can take the answer.

use contract::{CallId, SessionId};

use crate::api_error::ApiError;
use crate::params;

/// Beginning of the ids of calls that are given to clients.
const CALL_PREFIX: &str = "call_";

/// Returns the id of a call for a client, which names the session too.
pub fn call_id(session: &SessionId, call: &CallId) -> String {
    format!("{CALL_PREFIX}{session}_{call}")
}

/// Reads the session and the call from an id that [`call_id`] made.
pub fn parse_call_id(field: &str, id: &str) -> Result<(SessionId, CallId), ApiError> {
    let parts = id.strip_prefix(CALL_PREFIX).and_then(|rest| rest.rsplit_once('_'));
    let Some((session, call)) = parts else {
        let id: String = id.chars().take(80).collect();
        return Err(ApiError::bad_request(format!("{field} {id:?} is of no call of a session")));
    };
    Ok((params::parse_session_id(session)?, params::parse(field, call)?))
}
