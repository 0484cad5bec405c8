//! Parts of a session's transcript, which later commits and model calls name instead of repeating them.

use std::collections::BTreeMap;

use contract::commit::{Commit, CommitPart, PartRef, TranscriptPart};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey, Subject};

use crate::json::parse;
use crate::slots::slot_of;
use crate::transport::ReadMany;
use crate::{Bus, BusError, Read};

/// Parts that are asked for in one read; the server takes up to 1 024 subjects.
const PARTS_OF_A_READ: usize = 256;

impl Bus {
    /// A part of a transcript that the log has. `None` where the leader does not have that very commit.
    pub async fn transcript_part(&self, key: &SessionKey, part: &PartRef) -> Result<Option<TranscriptPart>, BusError> {
        for read in [Read::Any, Read::Leader] {
            let Some(stored) = self.slot_message(key, part.slot, read).await? else { continue };
            let body = self.open(Objects::Blobs, stored.payload).await?;
            if let Some(found) = part_of(&body, key, part)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Fills in the parts before that of the first commit, so that a state can be folded from it.
    pub(crate) async fn with_earlier_parts(
        &self,
        key: &SessionKey,
        commits: Option<Vec<(u64, Commit)>>,
    ) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(mut commits) = commits else { return Ok(None) };
        if let Some((_, first)) = commits.first_mut() {
            self.fill_earlier_parts(key, first).await?;
        }
        Ok(Some(commits))
    }

    /// Fills in the parts before that of a commit with a snapshot. Where one is gone, none is filled in: the events can be
    /// read all the same.
    pub async fn fill_earlier_parts(&self, key: &SessionKey, commit: &mut Commit) -> Result<(), BusError> {
        let Some(part) = commit.transcript.as_mut().filter(|_| commit.snapshot.is_some()) else { return Ok(()) };
        let mut found = self.transcript_parts(key, &part.before).await?;
        for (found, part) in found.iter_mut().zip(&part.before) {
            if found.is_none() {
                *found = self.archived_part(key, part).await?;
            }
        }
        part.earlier = found.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
        Ok(())
    }

    /// Parts of a transcript, each as [`Bus::transcript_part`], with one read for many of them.
    pub async fn transcript_parts(
        &self,
        key: &SessionKey,
        parts: &[PartRef],
    ) -> Result<Vec<Option<TranscriptPart>>, BusError> {
        let mut bodies = BTreeMap::new();
        for some in parts.chunks(PARTS_OF_A_READ) {
            let slots: Vec<Subject> = some.iter().map(|part| subject::log_slot(key, part.slot)).collect();
            if let ReadMany::Messages(messages) = self.transport().last_many(Stream::Log, &slots).await? {
                for stored in messages {
                    bodies.insert(slot_of(&stored)?, stored.payload);
                }
            }
        }
        let mut found = Vec::with_capacity(parts.len());
        for part in parts {
            let read = match bodies.remove(&part.slot) {
                Some(body) => part_of(&self.open(Objects::Blobs, body).await?, key, part)?,
                None => None,
            };
            // A replica may be late, or of another history.
            found.push(match read {
                Some(read) => Some(read),
                None => self.transcript_part(key, part).await?,
            });
        }
        Ok(found)
    }

    /// A part that has left the log.
    async fn archived_part(&self, key: &SessionKey, part: &PartRef) -> Result<Option<TranscriptPart>, BusError> {
        for read in [Read::Any, Read::Leader] {
            let page = self.archived(key, part.slot / SLOTS_PER_PAGE, read).await?;
            if let Some(message) = page.and_then(|mut messages| messages.remove(&part.slot)) {
                return part_of(&self.open_commit(message).await?, key, part);
            }
        }
        Ok(None)
    }
}

/// The part in the body of a commit; `None` where it is another commit.
fn part_of(body: &[u8], key: &SessionKey, part: &PartRef) -> Result<Option<TranscriptPart>, BusError> {
    let found: CommitPart = parse(body)?;
    if found.meta.commit != part.commit {
        return Ok(None);
    }
    match found.transcript {
        Some(found) if found.messages.len() == part.messages => Ok(Some(found)),
        Some(_) | None => {
            let why = format!("slot {} of {key} does not have {} messages of the transcript", part.slot, part.messages);
            Err(BusError::Malformed(why))
        }
    }
}
