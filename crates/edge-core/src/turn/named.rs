//! The session of a name, for a protocol that has to look at it before it begins a turn.

use contract::ErrorCode;

use super::begin::{GENERATIONS_MAX, session_of_name};
use crate::access::ApiCaller;
use crate::api::{ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::params;

/// Finds the session that the next request of a name meets: the last of the name that has started, or the one of this
/// id. It may have ended. None is found if no request has named it, or if the caller cannot reach it.
pub async fn find_named(api: &SessionApi, caller: &ApiCaller, name: &str) -> Result<Option<ReachedSession>, ApiError> {
    let mut found = None;
    match params::parse_session_id(name) {
        Ok(session) if api.is_session_known(caller, &session).await? => found = Some(session),
        Ok(_) | Err(_) => {
            for generation in 0..GENERATIONS_MAX {
                let session = params::parse_session_id(&session_of_name(caller, name, generation))?;
                if !api.is_session_known(caller, &session).await? {
                    break;
                }
                found = Some(session);
            }
        }
    }
    let Some(session) = found else { return Ok(None) };
    match api.reach(caller, &session).await {
        Ok(session) => Ok(Some(session)),
        Err(error) if error.code == ErrorCode::UnknownSession => Ok(None),
        Err(error) => Err(error),
    }
}
