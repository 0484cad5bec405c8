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

/// Returns the last `seq` of a session after a commit.
pub(crate) fn last_seq_after(commit: &Commit) -> u64 {
    let public = commit.events.iter().filter(|event| event.topic().is_some()).count();
    (commit.meta.seq + public as u64).saturating_sub(1)
}
