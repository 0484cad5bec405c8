//! Reads of the log of a session that its caller reaches.

use bus::Read;
use contract::commit::{Commit, SessionSummary};

use super::{ReachedSession, SessionApi};
use crate::api_error::ApiError;

impl SessionApi {
    /// Returns the line of a session in the index, which may lag behind its log.
    pub async fn summary_of(&self, session: &ReachedSession) -> Result<Option<SessionSummary>, ApiError> {
        Ok(self.cell_of(session).await?.bus.summary(session.key()).await?)
    }

    /// Returns the slot of the last commit.
    pub async fn last_slot(&self, session: &ReachedSession) -> Result<Option<u64>, ApiError> {
        let head = self.cell_of(session).await?.bus.head(session.key(), Read::Leader).await?;
        Ok(head.map(|head| head.slot))
    }

    /// Returns one commit; `None` where there is none, or none any more.
    pub async fn commit_at(&self, session: &ReachedSession, slot: u64) -> Result<Option<Commit>, ApiError> {
        Ok(self.cell_of(session).await?.bus.commit_at(session.key(), slot).await?)
    }

    /// Returns the commits from page `page` on, each with its slot.
    pub async fn commits_from(&self, session: &ReachedSession, page: u64) -> Result<Vec<(u64, Commit)>, ApiError> {
        Ok(self.cell_of(session).await?.bus.history(session.key(), page).await?)
    }

    /// Returns the commits of one page up to slot `last`, each with its slot; none of a page that the archive has lost.
    pub async fn page_until(&self, session: &ReachedSession, last: u64) -> Result<Vec<(u64, Commit)>, ApiError> {
        Ok(self.cell_of(session).await?.bus.page_until(session.key(), last).await?.unwrap_or_default())
    }
}
