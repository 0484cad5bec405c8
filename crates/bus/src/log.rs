//! The log of a session: read from any replica, written create-only, every doubt settled by the leader.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use contract::commit::{Commit, CommitHead, CommitMeta};
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey, Subject};
use contract::tool::header;
use futures::future::try_join_all;

use crate::transport::{Appended, EXPECTED_LAST, EXPECTED_OF, ReadMany, ttl};
use crate::{Bus, BusError, Read, Stored, body, retry};

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
        read_head(&stored).map(Some)
    }

    /// What the session's state is folded from: the head's page without a hole, its snapshot first; of an archived
    /// session the head alone. `None` when the leader knows no such session. It may be stale: then the next commit loses
    /// its slot.
    pub async fn load(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.load_from(key, 0).await
    }

    /// As [`Bus::load`], with slot `at_least` in it or before it: for whoever knows that the log reaches that far.
    pub async fn load_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.head_from(key, at_least).await? else { return Ok(None) };
        self.stretch(key, head.first_slot(), head.slot).await
    }

    /// As [`Bus::load`], up to the head that the leader has now.
    pub async fn load_latest(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.tail(key, Read::Leader).await? else { return Ok(None) };
        self.stretch(key, head.first_slot(), head.slot).await
    }

    /// What the state at slot `at` was folded from, or that at the log's end where it is earlier or none is given: its
    /// page up to that slot. Of an archived session the end is before it was archived. `None` also where the page is
    /// gone from the archive.
    pub async fn load_until(&self, key: &SessionKey, at: Option<u64>) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(head) = self.head_from(key, 0).await? else { return Ok(None) };
        let end = head.end();
        let last = at.map_or(end, |at| at.min(end));
        let mut commits = self.stretch(key, page_start(last), last).await?;
        // A page is read whole, also what came since.
        if let Some(commits) = &mut commits {
            commits.retain(|(slot, _)| *slot <= last);
        }
        Ok(commits)
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
            let Some(stored) = found else { return Ok(None) };
            self.tails.note(key, slot, stored.seq);
            parse(&self.open_commit(stored.payload).await?).map(|commit| Some((slot, commit)))
        };
        let found = try_join_all(slots.map(read)).await?;
        Ok(found.into_iter().collect())
    }

    /// The whole page of the head that the leader has now, wherever it lies; empty when there is no such session.
    pub async fn head_page(&self, key: &SessionKey) -> Result<Vec<(u64, Commit)>, BusError> {
        let Some(head) = self.head(key, Read::Leader).await? else { return Ok(Vec::new()) };
        Ok(self.stretch(key, page_start(head.slot), head.slot).await?.unwrap_or_default())
    }

    /// Every commit from page `from_page` to the head, wherever it lies, without a hole; empty when there is no such
    /// session. Pages that the archive kept for as long as it keeps anything are left out.
    pub async fn history(&self, key: &SessionKey, from_page: u64) -> Result<Vec<(u64, Commit)>, BusError> {
        let Some(head) = self.head_from(key, 0).await? else { return Ok(Vec::new()) };
        let mut commits = Vec::new();
        for page in from_page..=head.slot / SLOTS_PER_PAGE {
            let last = ((page + 1) * SLOTS_PER_PAGE - 1).min(head.slot);
            commits.extend(self.stretch(key, page * SLOTS_PER_PAGE, last).await?.unwrap_or_default());
        }
        Ok(commits)
    }

    /// A finished page, wherever it lies; `None` when it is gone from the archive.
    pub async fn page(&self, key: &SessionKey, page: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.stretch(key, page * SLOTS_PER_PAGE, (page + 1) * SLOTS_PER_PAGE - 1).await
    }

    /// The `seq` with which a page begins; `None` where it is not to be seen.
    pub async fn page_seq(&self, key: &SessionKey, page: u64) -> Result<Option<u64>, BusError> {
        let first = subject::log_slot(key, page * SLOTS_PER_PAGE);
        match self.transport().last(Stream::Log, &first, Read::Any).await? {
            Some(stored) => parse::<CommitHead>(&stored.payload).map(|head| Some(head.meta.seq)),
            None => self.archived_seq(key, page).await,
        }
    }

    /// One commit, wherever it lies; `None` where it is not to be seen.
    pub async fn commit_at(&self, key: &SessionKey, slot: u64) -> Result<Option<Commit>, BusError> {
        let stored = self.transport().last(Stream::Log, &subject::log_slot(key, slot), Read::Any).await?;
        let message = if let Some(stored) = stored {
            Some(stored.payload)
        } else {
            let page = self.archived(key, slot / SLOTS_PER_PAGE, Read::Any).await?;
            page.and_then(|mut messages| messages.remove(&slot))
        };
        match message {
            Some(message) => Ok(Some(parse(&self.open_commit(message).await?)?)),
            None => Ok(None),
        }
    }

    /// Commits as they were written, from slot `first` to slot `last` of one page, wherever they lie, and what has
    /// come since. `None` when they are gone from the archive.
    pub async fn bodies(&self, key: &SessionKey, first: u64, last: u64) -> Result<Option<Vec<(u64, Bytes)>>, BusError> {
        let Some(found) = self.messages(key, first, last).await? else { return Ok(None) };
        let mut bodies = Vec::with_capacity(found.len());
        for (slot, message) in found {
            bodies.push((slot, self.open_commit(message).await?));
        }
        Ok(Some(bodies))
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
        self.commit_for(key, slot, commit_id, body, None).await
    }

    /// As [`Bus::commit`]; where a life is given, the commit leaves the log by itself after that.
    pub async fn commit_for(
        &self,
        key: &SessionKey,
        slot: u64,
        commit_id: &str,
        body: Bytes,
        life: Option<Duration>,
    ) -> Result<Committed, BusError> {
        // A slot whose page left the log is free again: only what stands before it tells a late writer.
        let after = match slot.checked_sub(1) {
            None => After { filter: subject::log_session(key), seq: 0 },
            Some(before) => {
                let filter = subject::log_slot(key, before);
                let seq = match self.tails.seq(key, before) {
                    Some(seq) => Some(seq),
                    None => self.transport().last(Stream::Log, &filter, Read::Leader).await?.map(|stored| stored.seq),
                };
                let Some(seq) = seq else { return Ok(Committed::Theirs) };
                After { filter, seq }
            }
        };
        self.offer(key, slot, commit_id, body, life, &after).await
    }

    /// As [`Bus::commit_for`], for a log that begins with this slot: what is before it is in the archive. It is theirs
    /// where the log has anything of such a session.
    pub async fn commit_first(
        &self,
        key: &SessionKey,
        slot: u64,
        commit_id: &str,
        body: Bytes,
        life: Option<Duration>,
    ) -> Result<Committed, BusError> {
        let after = After { filter: subject::log_session(key), seq: 0 };
        self.offer(key, slot, commit_id, body, life, &after).await
    }

    async fn offer(
        &self,
        key: &SessionKey,
        slot: u64,
        commit_id: &str,
        body: Bytes,
        life: Option<Duration>,
        after: &After,
    ) -> Result<Committed, BusError> {
        let subject = subject::log_slot(key, slot);
        // What has an end must not leave anything behind.
        let store = if life.is_some() { Objects::Archive } else { Objects::Blobs };
        let body = self.seal(store, body).await?;
        let mut headers = trace_headers();
        headers.push((EXPECTED_LAST.to_owned(), after.seq.to_string()));
        headers.push((EXPECTED_OF.to_owned(), after.filter.to_string()));
        headers.extend(life.map(ttl));
        let mut doubt = BusError::Timeout { what: format!("commit of slot {slot}") };
        for round in 1..=retry::ROUNDS_MAX {
            match self.transport().append(&subject, false, headers.clone(), body.clone()).await {
                Ok(Appended::Stored(seq)) => {
                    self.tails.note(key, slot, seq);
                    return Ok(Committed::Ours);
                }
                Ok(Appended::Doubtful(why)) => doubt = refused(why),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => doubt = error,
            }
            match self.whose(&subject, commit_id, after).await {
                Ok(Some((seq, true))) => {
                    self.tails.note(key, slot, seq);
                    return Ok(Committed::Ours);
                }
                Ok(Some((_, false))) => {
                    telemetry::metric::refused_commit();
                    self.forget(store, &body).await;
                    return Ok(Committed::Theirs);
                }
                // Empty: the same body may be offered again, and at most one copy of it will ever stand there.
                Ok(None) => {}
                Err(error) if error.is_final() => return Err(error),
                Err(error) => doubt = error,
            }
            retry::wait(round, commit_id).await;
        }
        Err(doubt)
    }

    /// Whether a slot holds our commit, as the leader knows it; `None` while it is empty and may be ours still.
    async fn whose(&self, slot: &Subject, commit_id: &str, after: &After) -> Result<Option<(u64, bool)>, BusError> {
        if let Some(stored) = self.transport().last(Stream::Log, slot, Read::Leader).await? {
            let found: CommitHead = parse(&stored.payload)?;
            return Ok(Some((stored.seq, found.meta.commit == commit_id)));
        }
        let before = self.transport().last(Stream::Log, &after.filter, Read::Leader).await?.map_or(0, |last| last.seq);
        Ok((before != after.seq).then_some((before, false)))
    }

    /// Throws away what a commit that lost its slot refers to. What cannot be thrown away now stays.
    async fn forget(&self, store: Objects, body: &[u8]) {
        let Some(blob) = body::blob(body) else { return };
        if let Err(error) = self.transport().delete_object(store, &blob).await {
            tracing::warn!(%error, blob, "the body of a commit that was not taken stays in its store");
        }
    }

    async fn head_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<Head>, BusError> {
        match self.tail(key, Read::Any).await? {
            Some(head) if head.slot >= at_least => Ok(Some(head)),
            Some(_) | None => self.tail(key, Read::Leader).await,
        }
    }

    /// As [`Bus::head`], for whoever may write behind it: workers and viewers only look, and need not remember where it is.
    async fn tail(&self, key: &SessionKey, read: Read) -> Result<Option<Head>, BusError> {
        let Some(stored) = self.transport().last(Stream::Log, &subject::log_session(key), read).await? else {
            return Ok(None);
        };
        let head = read_head(&stored)?;
        self.tails.note(key, head.slot, stored.seq);
        Ok(Some(head))
    }

    /// As [`Bus::bodies`], parsed.
    async fn stretch(&self, key: &SessionKey, first: u64, last: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(bodies) = self.bodies(key, first, last).await? else { return Ok(None) };
        bodies.into_iter().map(|(slot, body)| Ok((slot, parse(&body)?))).collect::<Result<_, _>>().map(Some)
    }

    /// The messages of a page from slot `first` on, at least to slot `last`. What leaves the log is in the archive
    /// before: so the log is read first. A replica may show holes and an old end: both are asked again, then their leaders
    /// are asked for what is missing. `None` when none of it is left.
    async fn messages(
        &self,
        key: &SessionKey,
        first: u64,
        last: u64,
    ) -> Result<Option<BTreeMap<u64, Bytes>>, BusError> {
        let page = first / SLOTS_PER_PAGE;
        let mut found: BTreeMap<u64, Bytes> = BTreeMap::new();
        let whole = |found: &BTreeMap<u64, Bytes>| (first..=last).all(|slot| found.contains_key(&slot));
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
                found.entry(slot_of(&stored)?).or_insert(stored.payload);
            }
            if whole(&found) {
                break;
            }
            self.add_archived(&mut found, key, page, Read::Any).await?;
            if whole(&found) {
                break;
            }
        }
        for slot in first..=last {
            if let Entry::Vacant(entry) = found.entry(slot)
                && let Some(stored) =
                    self.transport().last(Stream::Log, &subject::log_slot(key, slot), Read::Leader).await?
            {
                entry.insert(stored.payload);
            }
        }
        if !whole(&found) {
            self.add_archived(&mut found, key, page, Read::Leader).await?;
        }
        found.retain(|slot, _| *slot >= first);
        if found.range(..=last).next().is_none() {
            return Ok(None);
        }
        if let Some(slot) = (first..=last).find(|slot| !found.contains_key(slot)) {
            return Err(BusError::Unavailable(format!("slot {slot} of {key} is gone")));
        }
        // A newer slot may stand behind a hole of this read; what follows the hole is not part of the answer.
        Ok(Some(
            found.into_iter().zip(first..).take_while(|((slot, _), n)| slot == n).map(|(entry, _)| entry).collect(),
        ))
    }

    async fn add_archived(
        &self,
        found: &mut BTreeMap<u64, Bytes>,
        key: &SessionKey,
        page: u64,
        read: Read,
    ) -> Result<(), BusError> {
        for (slot, message) in self.archived(key, page, read).await?.unwrap_or_default() {
            found.entry(slot).or_insert(message);
        }
        Ok(())
    }

    /// The commit itself, also where it is elsewhere: it moves when its page does.
    async fn open_commit(&self, message: Bytes) -> Result<Bytes, BusError> {
        self.open_in(&[Objects::Blobs, Objects::Archive], message).await
    }
}

/// What must be the last message under a filter for a commit to be taken: the slot before it, or none at all.
struct After {
    filter: Subject,
    seq: u64,
}

impl Head {
    /// The first slot of those that the state after it is folded from.
    fn first_slot(&self) -> u64 {
        if self.meta.is_archived() { self.slot } else { page_start(self.slot).max(self.meta.archived.unwrap_or(0)) }
    }

    /// The last slot of what the session itself was.
    pub fn end(&self) -> u64 {
        let archived = self.meta.archived.filter(|_| self.meta.is_archived());
        archived.map_or(self.slot, |archived| archived.saturating_sub(1))
    }
}

fn read_head(stored: &Stored) -> Result<Head, BusError> {
    let head: CommitHead = parse(&stored.payload)?;
    Ok(Head { slot: slot_of(stored)?, meta: head.meta })
}

fn page_start(slot: u64) -> u64 {
    slot / SLOTS_PER_PAGE * SLOTS_PER_PAGE
}

pub(crate) fn slot_of(stored: &Stored) -> Result<u64, BusError> {
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

/// The headers of a message in a stream: the trace that it belongs to, where there is one.
pub(crate) fn trace_headers() -> crate::Headers {
    telemetry::trace::current().map(|parent| (header::TRACEPARENT.to_owned(), parent)).into_iter().collect()
}
