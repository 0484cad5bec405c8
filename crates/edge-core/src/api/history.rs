//! The contents of a session: transcript, replay of its log, and whole results.

use contract::commit::Commit;
use contract::limits::TRANSCRIPT_BYTES_MAX;
use contract::streams::Objects;
use contract::subject::SessionKey;
use contract::tool::FullResultRef;
use contract::{ErrorCode, Json};
use session::readable;
use session_api::{
    FullResult, History, ReplayParams, ReplayReport, ReplayedCommit, ToolResultParams, TranscriptPage, TranscriptParams,
};

use super::SessionApi;
use super::reach::ReachedSession;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;
use crate::params;
use crate::session_log::fold_session;

/// The whole transcript of a session, as people read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    pub turns: Vec<readable::ReadableTurn>,
    /// Whether the archive has removed parts of the session because of their age.
    pub(crate) is_incomplete: bool,
}

impl Transcript {
    /// Returns at most so many of the last turns, and at least the last one, as many as fit into a page.
    pub fn last_turns(&self, count: usize) -> &[readable::ReadableTurn] {
        let mut bytes = 0;
        let fits = |turn: &&readable::ReadableTurn| {
            let is_first = bytes == 0;
            bytes += Json::of(*turn).get().len();
            is_first || bytes <= TRANSCRIPT_BYTES_MAX
        };
        let fitting = self.turns.iter().rev().take(count).take_while(fits).count();
        &self.turns[self.turns.len() - fitting..]
    }
}

fn replayed_commit((slot, commit): &(u64, Commit)) -> ReplayedCommit {
    let events = commit.events.iter().map(|event| event.name().to_owned()).collect();
    ReplayedCommit { slot: *slot, time: commit.meta.time, phase: commit.meta.phase, events }
}

impl SessionApi {
    /// Returns the messages of a session, as a model reads them.
    pub async fn get_history(&self, caller: &ApiCaller, reached: &ReachedSession) -> Result<History, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let mut session = self.load_session(reached).await?;
        if session.is_archived() {
            // The head of an archived session has no transcript, so its whole log is loaded.
            let (cell, key) = (self.cell_of(reached).await?, reached.key());
            let commits = cell.bus.load_until(key, None).await?.ok_or_else(|| Self::history_gone(key))?;
            session = fold_session(key, &commits)?;
        }
        let summary = session.summary();
        Ok(History { session_id: summary.session_id, messages: session.messages(), seq: session.seq() })
    }

    /// Returns a page of the transcript, as people read it.
    pub async fn get_transcript(
        &self,
        caller: &ApiCaller,
        reached: &ReachedSession,
        params: &TranscriptParams,
    ) -> Result<TranscriptPage, ApiError> {
        debug_assert_eq!(params.session_id, *reached.id(), "the session that was checked");
        let count = params::clamp_limit(params.limit);
        let Transcript { turns: all, is_incomplete } = self.read_transcript(caller, reached).await?;
        let mut rest = all.into_iter().filter(|turn| turn.turn > params.after).peekable();
        let (mut turns, mut bytes) = (Vec::new(), 0);
        while turns.len() < count
            && let Some(turn) = rest.next_if(|turn| {
                bytes += Json::of(turn).get().len();
                bytes <= TRANSCRIPT_BYTES_MAX || turns.is_empty()
            })
        {
            turns.push(turn);
        }
        let next_after = rest.peek().and_then(|_| turns.last()).map(|turn| turn.turn);
        Ok(TranscriptPage { session_id: reached.id().clone(), turns, next_after, is_incomplete })
    }

    /// Reads the whole transcript of a session, as people read it. It reads the whole log, so a caller that wants several
    /// pages takes them from one result.
    pub async fn read_transcript(&self, caller: &ApiCaller, reached: &ReachedSession) -> Result<Transcript, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let key = reached.key();
        let commits = self.commits_from(reached, 0).await?;
        if commits.is_empty() {
            return Err(Self::unknown_session(key));
        }
        let turns = readable::turns(commits.iter().map(|(_, commit)| commit));
        let is_incomplete = (0..).zip(&commits).any(|(expected, (slot, _))| expected != *slot);
        Ok(Transcript { turns, is_incomplete })
    }

    /// Folds the whole log of a session again, and compares the state with what its writers stored.
    pub async fn replay_session(
        &self,
        caller: &ApiCaller,
        reached: &ReachedSession,
        params: &ReplayParams,
    ) -> Result<ReplayReport, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        debug_assert_eq!(params.session_id, *reached.id(), "the session that was checked");
        let key = reached.key().clone();
        let commits = self.commits_from(reached, 0).await?;
        let Some((last, _)) = commits.last() else { return Err(Self::unknown_session(&key)) };
        if let Some(at) = params.at.filter(|at| at > last) {
            let message = format!("there is no slot {at}: the log of session {} ends with slot {last}", key.session);
            return Err(ApiError::new(ErrorCode::NotNow, message));
        }
        let slot = params.at.unwrap_or(*last);
        if let Some((_, commit)) = commits.iter().find(|(_, commit)| commit.is_newer()) {
            let message = format!(
                "the log was written by a newer version (fold {}): send the request to an edge of that version",
                commit.meta.fold
            );
            return Err(ApiError::new(ErrorCode::NotNow, message));
        }
        let audit = session::audit::audit(key.clone(), &commits, Some(slot));
        Ok(ReplayReport {
            session_id: key.session,
            slot,
            last_slot: *last,
            phase: audit.session.phase(),
            seq: audit.session.seq(),
            commits: (!params.no_commits).then(|| commits.iter().map(replayed_commit).collect()),
            differs: audit.differs,
            state: audit.session.snapshot(),
        })
    }

    /// Returns the whole result of a tool call of which the model read only parts.
    pub async fn get_full_result(
        &self,
        caller: &ApiCaller,
        reached: &ReachedSession,
        params: &ToolResultParams,
    ) -> Result<FullResult, ApiError> {
        debug_assert_eq!(params.session_id, *reached.id(), "the session that was checked");
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let cell = self.cell_of(reached).await?;
        let (session_id, id) = (reached.id(), &params.call);
        let started = cell.bus.summary(reached.key()).await?.map(|summary| summary.started);
        let object = FullResultRef::id(&caller.tenant, session_id, started, id);
        let Some(found) = cell.bus.transport().get_object(Objects::Results, &object).await? else {
            let message = format!(
                "no result of call {id} of session {session_id} is stored: the model has read all of it, or it is too old"
            );
            return Err(ApiError::new(ErrorCode::UnknownCall, message));
        };
        let content = String::from_utf8_lossy(&found).into_owned();
        Ok(FullResult { session_id: session_id.clone(), call: id.clone(), content })
    }

    fn history_gone(key: &SessionKey) -> ApiError {
        let message =
            format!("the history of session {} is gone: the archive has removed it because of its age", key.session);
        ApiError::new(ErrorCode::Resync, message)
    }
}
