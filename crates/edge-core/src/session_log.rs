//! Reads the state of a session from the commits of its log.

use contract::ErrorCode;
use contract::commit::Commit;
use contract::subject::SessionKey;
use session::Session;

use crate::api_error::ApiError;

/// Folds commits into the state of a session.
pub(crate) fn fold_session(key: &SessionKey, commits: &[(u64, Commit)]) -> Result<Session, ApiError> {
    Session::replay(key.clone(), commits).map_err(|error| {
        tracing::error!(session = %key, %error, "the log cannot be folded");
        ApiError::new(ErrorCode::Internal, format!("the log of session {} cannot be read", key.session))
    })
}
