//! Writes of the session index by comparison: of the lines of several replicas the one of the latest commit stays,
//! whichever of them writes last.

use std::time::Duration;

use bytes::Bytes;
use contract::commit::{SessionSummary, SummaryVersion};
use contract::streams::Bucket;
use contract::subject::SessionKey;

use crate::json::encode;
use crate::kv::summary_key;
use crate::verify::{Verified, Write};
use crate::written::WrittenLine;
use crate::{Bus, BusError, Read};

/// Most rounds of compare and write if other writers are faster: a session does not wait for the index.
const ROUNDS_MAX: u32 = 3;

/// A line as it is written.
struct Line<'a> {
    key: &'a SessionKey,
    name: &'a str,
    version: SummaryVersion,
    body: Bytes,
    ttl: Option<Duration>,
}

impl Bus {
    /// Writes a session's line of the index, unless the index has one of a later commit. It expires after `ttl`, if one
    /// is given: the line of an archived session goes with what is left of it.
    pub async fn advance_summary(&self, summary: &SessionSummary, ttl: Option<Duration>) -> Result<(), BusError> {
        let key = SessionKey { tenant: summary.tenant.clone(), session: summary.session_id.clone() };
        let (name, version) = (summary_key(&key.tenant, &key.session), summary.version());
        let line = Line { key: &key, name: &name, version, body: encode(summary)?, ttl };
        let generation = self.transport().generation();
        let before = self.written_lines.get(&key, generation).filter(|before| before.version <= version);
        let stored = match before {
            Some(WrittenLine { revision, .. }) => self.write_over(&line, Some(revision)).await?,
            // After its first commit a session usually has no line.
            None if summary.started == summary.updated => self.write_over(&line, None).await?,
            None => None,
        };
        let stored = if stored.is_some() {
            stored
        } else {
            // Each try reads the current line first.
            let compared = Verified { what: &name, salt: &name, rounds: ROUNDS_MAX };
            compared.repeat(|_| self.write_over_older(&line)).await?
        };
        if let Some(revision) = stored {
            self.written_lines.note(&key, generation, WrittenLine { version, revision });
        }
        Ok(())
    }

    /// Writes a line over what the index has now, unless that is of a later commit. Returns its revision if it was
    /// stored.
    async fn write_over_older(&self, line: &Line<'_>) -> Result<Write<Option<u64>>, BusError> {
        let found = self.transport().kv_entry(Bucket::Sessions, line.name).await?;
        if let Some((_, found)) = &found
            && self.is_of_later_commit(found, line).await?
        {
            return Ok(Write::Known(None));
        }
        let stored = self.write_over(line, found.map(|(revision, _)| revision)).await?;
        Ok(stored.map_or_else(|| Write::beaten(line.name), |revision| Write::Known(Some(revision))))
    }

    /// Whether a line of the index is newer than `line`, and the log, as the leader has it, reaches the commit that it
    /// shows. It does not where the log was put back to an older state and the index was not. A log that is gone does
    /// not tell.
    async fn is_of_later_commit(&self, found: &[u8], line: &Line<'_>) -> Result<bool, BusError> {
        // What cannot be read was written by another version, and is replaced.
        let Ok(found) = serde_json::from_slice::<SummaryVersion>(found) else { return Ok(false) };
        if found <= line.version {
            return Ok(false);
        }
        let head = self.head(line.key, Read::Leader).await?;
        Ok(head.is_none_or(|head| head.meta.time >= found.updated))
    }

    /// Writes a line over the entry of a revision, or where there is no entry.
    async fn write_over(&self, line: &Line<'_>, revision: Option<u64>) -> Result<Option<u64>, BusError> {
        let Line { name, body, ttl, .. } = line;
        match revision {
            Some(revision) => self.transport().kv_update(Bucket::Sessions, name, body.clone(), revision, *ttl).await,
            None => self.transport().kv_create(Bucket::Sessions, name, body.clone(), *ttl).await,
        }
    }
}
