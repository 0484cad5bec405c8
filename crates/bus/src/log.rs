//! The log of a session: read from any replica, written create-only, every doubt settled by the leader.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;

use bytes::Bytes;
use contract::commit::{Commit, CommitHead, CommitMeta};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::tool::header;
use futures::future::try_join_all;

use crate::transport::{Appended, ReadMany};
use crate::{Bus, BusError, Read, Stored, retry};

/// The last commit of a session, as far as workers and viewers need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Its slot.
    pub slot: u64,
    /// What stands first in it.
    pub meta: CommitMeta,
}

/// Whose commit a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The one that was offered.
    Ours,
    /// Another one: reload and decide again.
    Theirs,
}

impl Bus {
    /// The session's last commit; `None` when the read shows none, which only [`Read::Leader`] proves.
    pub async fn head(&self, key: &SessionKey, read: Read) -> Result<Option<Head>, BusError> {
        let Some(stored) = self.transport().last(Stream::Log, &subject::log_session(key), read).await? else {
            return Ok(None);
        };
        let head: CommitHead = parse(&stored.payload)?;
        Ok(Some(Head { slot: slot_of(&stored)?, meta: head.meta }))
    }

    /// The head's page, from its first slot on and without a hole; `None` when the leader knows no such session. It
    /// may be stale: then the next commit loses its slot.
    pub async fn load(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.load_from(key, 0).await
    }

    /// As [`Bus::load`], with slot `at_least` in it or before it: for whoever knows that the log reaches that far.
    pub async fn load_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.head_from(key, at_least).await? else { return Ok(None) };
        self.page(key, head.slot / SLOTS_PER_PAGE, head.slot).await.map(Some)
    }

    /// As [`Bus::load`], up to the head that the leader has now.
    pub async fn load_latest(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.head(key, Read::Leader).await? else { return Ok(None) };
        self.page(key, head.slot / SLOTS_PER_PAGE, head.slot).await.map(Some)
    }

    /// The page of slot `at`, or of the head where the log ends earlier or none is given, up to that slot: what a state
    /// is folded from.
    pub async fn load_until(&self, key: &SessionKey, at: Option<u64>) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.head_from(key, 0).await? else { return Ok(None) };
        let last = at.map_or(head.slot, |at| at.min(head.slot));
        let mut commits = self.page(key, last / SLOTS_PER_PAGE, last).await?;
        // A page is read whole, also what came since.
        commits.retain(|(slot, _)| *slot <= last);
        Ok(Some(commits))
    }

    /// These slots, in their order; `None` when one of them is not there, which means that nobody wrote it yet or that it
    /// left the log.
    pub async fn slots(
        &self,
        key: &SessionKey,
        slots: RangeInclusive<u64>,
    ) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let read = async |slot: u64| {
            let subject = subject::log_slot(key, slot);
            let any = self.transport().last(Stream::Log, &subject, Read::Any).await?;
            let found = match any {
                Some(stored) => Some(stored),
                None => self.transport().last(Stream::Log, &subject, Read::Leader).await?,
            };
            match found {
                Some(stored) => self.read_commit(stored).await.map(|commit| Some((slot, commit))),
                None => Ok(None),
            }
        };
        let found = try_join_all(slots.map(read)).await?;
        Ok(found.into_iter().collect())
    }

    /// Every commit from page `from_page` to the head, without a hole; empty when there is no such session.
    pub async fn history(&self, key: &SessionKey, from_page: u64) -> Result<Vec<(u64, Commit)>, BusError> {
        let Some(head) = self.head_from(key, 0).await? else { return Ok(Vec::new()) };
        let mut commits = Vec::new();
        for page in from_page..=head.slot / SLOTS_PER_PAGE {
            let last = ((page + 1) * SLOTS_PER_PAGE - 1).min(head.slot);
            commits.extend(self.page(key, page, last).await?);
        }
        Ok(commits)
    }

    /// Offers `body`, whose `meta.commit` is `commit_id`, for a slot. Whatever the server says, the slot itself tells
    /// whose it is; [`BusError::Timeout`] and [`BusError::Unavailable`] mean that nobody could be asked: unknown;
    /// [`BusError::Full`] that the stream has no room for it.
    pub async fn commit(
        &self,
        key: &SessionKey,
        slot: u64,
        commit_id: &str,
        body: Bytes,
    ) -> Result<Committed, BusError> {
        let subject = subject::log_slot(key, slot);
        let body = self.seal(Objects::Blobs, body).await?;
        let headers = trace_headers();
        let mut doubt = BusError::Timeout { what: format!("commit of slot {slot}") };
        for round in 1..=retry::ROUNDS_MAX {
            match self.transport().append(&subject, true, headers.clone(), body.clone()).await {
                Ok(Appended::Stored(_)) => return Ok(Committed::Ours),
                Ok(Appended::Doubtful(why)) => doubt = refused(why),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => doubt = error,
            }
            match self.transport().last(Stream::Log, &subject, Read::Leader).await {
                Ok(Some(stored)) => {
                    let found: CommitHead = parse(&stored.payload)?;
                    if found.meta.commit == commit_id {
                        return Ok(Committed::Ours);
                    }
                    telemetry::metric::refused_commit();
                    return Ok(Committed::Theirs);
                }
                // Empty: the same body may be offered again, and at most one copy of it will ever stand there.
                Ok(None) => {}
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => doubt = error,
            }
            retry::wait(round, commit_id).await;
        }
        Err(doubt)
    }

    async fn head_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<Head>, BusError> {
        match self.head(key, Read::Any).await? {
            Some(head) if head.slot >= at_least => Ok(Some(head)),
            Some(_) | None => self.head(key, Read::Leader).await,
        }
    }

    /// The slots of a page up to `last`. A replica may show holes and an old end: it is asked again, then the leader
    /// is asked for what is missing.
    async fn page(&self, key: &SessionKey, page: u64, last: u64) -> Result<Vec<(u64, Commit)>, BusError> {
        let first = page * SLOTS_PER_PAGE;
        let mut found: BTreeMap<u64, Commit> = BTreeMap::new();
        for round in 0..2 {
            if round > 0 {
                retry::wait(round, key.session.as_str()).await;
            }
            let ReadMany::Messages(messages) =
                self.transport().last_many(Stream::Log, &subject::log_page(key, page)).await?
            else {
                return Err(BusError::Malformed(format!("page {page} of {key} has too many slots")));
            };
            for stored in messages {
                if let Entry::Vacant(entry) = found.entry(slot_of(&stored)?) {
                    entry.insert(self.read_commit(stored).await?);
                }
            }
            if (first..=last).all(|slot| found.contains_key(&slot)) {
                break;
            }
        }
        for slot in first..=last {
            if let Entry::Vacant(entry) = found.entry(slot) {
                let subject = subject::log_slot(key, slot);
                let stored = self.transport().last(Stream::Log, &subject, Read::Leader).await?;
                let stored = stored.ok_or_else(|| BusError::Unavailable(format!("slot {slot} of {key} is gone")))?;
                entry.insert(self.read_commit(stored).await?);
            }
        }
        // A newer slot may stand behind a hole of this read; what follows the hole is not part of the answer.
        Ok(found.into_iter().zip(first..).take_while(|((slot, _), n)| slot == n).map(|(entry, _)| entry).collect())
    }

    /// Reads a commit out of its message.
    pub async fn read_commit(&self, stored: Stored) -> Result<Commit, BusError> {
        parse(&self.open(Objects::Blobs, stored.payload).await?)
    }
}

fn slot_of(stored: &Stored) -> Result<u64, BusError> {
    let parsed = subject::parse_log(&stored.subject);
    parsed.map(|s| s.slot).ok_or_else(|| BusError::Malformed(format!("{} is no slot", stored.subject)))
}

/// What a doubt means where nothing was stored: the stream is full, or a write is under way that nobody sees yet.
pub(crate) fn refused(why: String) -> BusError {
    let is_full = why.starts_with("error 10077") && !why.contains("per subject");
    if is_full { BusError::Full(why) } else { BusError::Unavailable(why) }
}

/// Parses JSON; the error names the place, never the content.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, BusError> {
    serde_json::from_slice(body).map_err(|e| BusError::Malformed(e.to_string()))
}

/// Serialises a value.
pub(crate) fn encode<T: serde::Serialize>(value: &T) -> Result<Bytes, BusError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|e| BusError::Malformed(e.to_string()))
}

/// Whether asking again cannot help.
pub(crate) fn is_final(error: &BusError) -> bool {
    match error {
        BusError::TooLarge { .. } | BusError::Unusable { .. } | BusError::Malformed(_) => true,
        BusError::NoResponders { .. } | BusError::Timeout { .. } | BusError::Unavailable(_) | BusError::Full(_) => {
            false
        }
    }
}

/// The headers of a message in a stream: the trace that it belongs to, where there is one.
pub(crate) fn trace_headers() -> crate::Headers {
    telemetry::trace::current().map(|parent| (header::TRACEPARENT.to_owned(), parent)).into_iter().collect()
}
