//! The check that a caller reaches a session. Its result is what functions that read a session take.

use std::sync::Arc;

use contract::commit::SessionSummary;
use contract::subject::SessionKey;
use contract::{ErrorCode, SessionId};
use session::Session;
use session_api::Method;
use tokio::time::Instant;

use super::SessionApi;
use crate::access::{self, ApiCaller};
use crate::api_error::ApiError;
use crate::cells::Cell;
use crate::inbox::{START_CHECK_BACKOFF, is_start_waiting};
use crate::params;
use crate::session_log::fold_session;

/// A session that its caller reaches: of the caller's tenant, and of an agent that its credential does not leave out.
/// Only this module makes it, so no session is read for a caller without the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedSession(SessionKey);

impl ReachedSession {
    /// Checks a session by its entry in the index of the caller's tenant.
    pub fn of_summary(caller: &ApiCaller, summary: &SessionSummary) -> Option<Self> {
        let key = || SessionKey { tenant: caller.tenant.clone(), session: summary.session_id.clone() };
        caller.grant.allows_agent(&summary.agent).then(|| Self(key()))
    }

    /// Returns tenant and id.
    pub fn key(&self) -> &SessionKey {
        &self.0
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.0.session
    }
}

impl SessionApi {
    /// Checks that a caller may use a method now, and reaches the session that it names, which is returned. A command is
    /// checked where it is sent, and a new session by its agent.
    pub async fn authorize(
        &self,
        caller: &ApiCaller,
        method: Method,
        session: Option<&str>,
    ) -> Result<Option<ReachedSession>, ApiError> {
        access::authorize(caller, method, session)?;
        match session {
            Some(session) if !method.is_command() => {
                self.reach(caller, &params::parse_session_id(session)?).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Checks that a caller may use a method now for a session that it reaches.
    pub async fn authorize_session(
        &self,
        caller: &ApiCaller,
        method: Method,
        session: &SessionId,
    ) -> Result<ReachedSession, ApiError> {
        access::authorize(caller, method, Some(session.as_str()))?;
        self.reach(caller, session).await
    }

    /// Loads the current state of a session, which includes every command that was answered with `done`.
    pub async fn load_session(&self, session: &ReachedSession) -> Result<Session, ApiError> {
        let (cell, key) = (self.cell_of(session).await?, session.key());
        let commits = cell.bus.load_latest(key).await?.ok_or_else(|| Self::unknown_session(key))?;
        let session = fold_session(key, &commits)?;
        // A log may have nothing but refused commands; such a session never started.
        if session.seq() == 0 { Err(Self::unknown_session(key)) } else { Ok(session) }
    }

    /// Returns the cell of a session that is there, or that may be there.
    pub(crate) async fn cell_of(&self, session: &ReachedSession) -> Result<Arc<Cell>, ApiError> {
        self.cells().of_session(session.key()).await
    }

    /// Checks that a caller reaches a session. A session of an agent out of its reach is answered as one that is not
    /// there. A caller of all agents reaches every session of its tenant, so nothing is read for that.
    pub async fn reach(&self, caller: &ApiCaller, session: &SessionId) -> Result<ReachedSession, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: session.clone() };
        self.reach_or_absent(caller, session).await?.ok_or_else(|| Self::unknown_session(&key))
    }

    /// As [`SessionApi::reach`], but returns nothing for a session that is not there, which the caller may start.
    pub async fn reach_or_absent(
        &self,
        caller: &ApiCaller,
        session: &SessionId,
    ) -> Result<Option<ReachedSession>, ApiError> {
        let key = SessionKey { tenant: caller.tenant.clone(), session: session.clone() };
        if caller.grant.agents.is_none() {
            return Ok(Some(ReachedSession(key)));
        }
        // Few callers come here, and the future is large.
        let Some(agent) = Box::pin(self.find_agent(&key)).await? else { return Ok(None) };
        if caller.grant.allows_agent(&agent) { Ok(Some(ReachedSession(key))) } else { Err(Self::unknown_session(&key)) }
    }

    /// Finds the agent of a session in the index, or in its log, since the index may lag behind. A session whose start
    /// is stored has no agent until the start is handled, which this waits for.
    async fn find_agent(&self, key: &SessionKey) -> Result<Option<String>, ApiError> {
        let cell = self.cells().of_session(key).await?;
        let deadline = Instant::now() + self.command_wait();
        let mut checks = 0;
        loop {
            if let Some(summary) = cell.bus.summary(key).await? {
                return Ok(Some(summary.agent));
            }
            // This check comes before the log is read, so that a start that is handled in between is found in the log.
            let is_waiting = is_start_waiting(&cell.bus, key).await?;
            if let Some(commits) = cell.bus.load_latest(key).await? {
                let session = fold_session(key, &commits)?;
                // A log may have nothing but refused commands; such a session never started.
                if session.seq() > 0 {
                    return Ok(Some(session.summary().agent));
                }
            }
            if !is_waiting {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                let message = format!("the start of session {} is stored and not handled yet: try again", key.session);
                let pause = START_CHECK_BACKOFF.pause(checks);
                return Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(pause));
            }
            tokio::time::sleep(START_CHECK_BACKOFF.pause(checks)).await;
            checks += 1;
        }
    }
}
