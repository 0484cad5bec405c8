//! The log of a session: read from any replica, written create-only, with every doubt settled by a read from the
//! leader.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use contract::commit::{Commit, CommitHead, CommitMeta};
use contract::ids::may_be_same_commit;
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey, Subject};
use futures::future::try_join_all;

use crate::headers::trace_headers;
use crate::json::parse;
use crate::seq_cache::Tail;
use crate::slots::{page_start, slot_of};
use crate::transport::{EXPECTED_OF, ReadMany, ttl_header};
use crate::two_histories::HistoryBreak;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Read, Stored, body, retry};

/// The last commit of a session, as far as workers and viewers need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Its slot in the log, from 0; of a session that another cell has, the last slot that it had here.
    pub slot: u64,
    /// The meta data of the commit.
    pub meta: CommitMeta,
}

/// A commit that is offered for a slot.
#[derive(Debug, Clone)]
pub struct Offer<'a> {
    /// The slot that it is offered for, from 0.
    pub slot: u64,
    /// The id of the commit in the slot before, on which this one was decided; empty in slot 0, and where it is
    /// unknown.
    pub prev: &'a str,
    /// The id of this commit.
    pub commit: &'a str,
    /// Its body, whose `meta.commit` is `commit`.
    pub body: Bytes,
    /// Time to live of the commit in the log; without an end if none is given.
    pub ttl: Option<Duration>,
}

/// The owner of the commit in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The slot holds the offered commit.
    Ours,
    /// The slot holds another commit: reload and decide again.
    Theirs,
}

impl Bus {
    /// The session's last commit; `None` when the read shows none, which only [`Read::Leader`] proves.
    pub async fn head(&self, key: &SessionKey, read: Read) -> Result<Option<Head>, BusError> {
        let Some(stored) = self.last_message(key, read).await? else { return Ok(None) };
        let head = read_head(&stored)?;
        Ok(Some(Head { slot: head.last_slot(), ..head }))
    }

    /// Loads the commits from which the state of the session is folded: the page of the head without a gap, its
    /// snapshot first. Of a compacted log it loads the commits since the compaction, and of an archived session only
    /// the head. Returns `None` if the leader knows no such session. The result may be stale: then the next commit
    /// loses its slot.
    pub async fn load(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.load_from(key, 0).await
    }

    /// As [`Bus::load`], for a caller that knows that the log has slot `at_least`.
    pub async fn load_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(read) = self.head_from(key, at_least).await? else { return Ok(None) };
        self.load_of(key, read).await
    }

    /// As [`Bus::load`], up to the head that the leader has now.
    pub async fn load_latest(&self, key: &SessionKey) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(read) = self.tail(key, Read::Leader).await? else { return Ok(None) };
        self.load_of(key, read).await
    }

    /// Loads the commits from which the state is folded, up to a head that was read. A head that begins its log is
    /// returned alone.
    async fn load_of(&self, key: &SessionKey, read: HeadRead) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let HeadRead { head, message } = read;
        let commits = if head.first_slot() == head.slot {
            // What stands before a commit that begins its log is in the archive.
            if head.meta.first_slot() != head.slot {
                self.check_before(key, head.slot, &head.meta.prev, Read::Any).await?;
            }
            Some(vec![(head.slot, self.read_commit(message).await?)])
        } else {
            self.load_range(key, head.first_slot(), head.slot).await?
        };
        self.with_earlier_parts(key, commits).await
    }

    /// Loads the commits from which the state at slot `at` was folded: its page up to that slot, or the part of it that
    /// the log has. If `at` is absent or past the end of the log, the state is the one at the end, which for an
    /// archived session is before it was archived. Returns `None` also if the page is gone from the archive.
    pub async fn load_until(&self, key: &SessionKey, at: Option<u64>) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(HeadRead { head, .. }) = self.head_from(key, 0).await? else { return Ok(None) };
        let end = head.end();
        let last = at.map_or(end, |at| at.min(end));
        let log_start = head.meta.log_start.filter(|start| *start <= last);
        let commits = self.commits(key, page_start(last).max(log_start.unwrap_or(0)), last).await?;
        self.with_earlier_parts(key, commits).await
    }

    /// These slots, in their order; `None` when one of them is not there, which means that it was not written yet or
    /// that it left the log.
    pub async fn slots(
        &self,
        key: &SessionKey,
        slots: RangeInclusive<u64>,
    ) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let generation = self.transport().generation();
        let read = async |slot: u64| {
            let found = match self.slot_message(key, slot, Read::Any).await? {
                Some(stored) => Some(stored),
                None => self.slot_message(key, slot, Read::Leader).await?,
            };
            let Some(stored) = found else { return Ok(None) };
            let commit = self.read_commit(stored.payload).await?;
            self.note(key, slot, stored.seq, &commit.meta.commit, generation, Read::Any);
            Ok(Some((slot, commit)))
        };
        let found = try_join_all(slots.map(read)).await?;
        Ok(found.into_iter().collect())
    }

    /// The session's last commit and its slot, from any replica; `None` when the read shows none, which proves nothing.
    pub async fn last_commit(&self, key: &SessionKey) -> Result<Option<(u64, Commit)>, BusError> {
        let Some(stored) = self.last_message(key, Read::Any).await? else { return Ok(None) };
        Ok(Some((slot_of(&stored)?, self.read_commit(stored.payload).await?)))
    }

    /// The whole page of the head that the leader has now, wherever it lies; empty when there is no such session.
    pub async fn head_page(&self, key: &SessionKey) -> Result<Vec<(u64, Commit)>, BusError> {
        let Some(stored) = self.last_message(key, Read::Leader).await? else { return Ok(Vec::new()) };
        let head = read_head(&stored)?;
        let last = head.last_slot();
        if head.slot == last && page_start(last) == last {
            // It is all of its page.
            return Ok(vec![(last, self.read_commit(stored.payload).await?)]);
        }
        Ok(self.load_range(key, page_start(last), last).await?.unwrap_or_default())
    }

    /// Every commit from page `from_page` to the head, wherever it lies, without a hole; empty when there is no such
    /// session. Pages that the archive kept for as long as it keeps anything are left out.
    pub async fn history(&self, key: &SessionKey, from_page: u64) -> Result<Vec<(u64, Commit)>, BusError> {
        let Some(HeadRead { head, .. }) = self.head_from(key, 0).await? else { return Ok(Vec::new()) };
        let end = head.last_slot();
        let mut commits = Vec::new();
        for page in from_page..=end / SLOTS_PER_PAGE {
            let last = ((page + 1) * SLOTS_PER_PAGE - 1).min(end);
            commits.extend(self.load_range(key, page * SLOTS_PER_PAGE, last).await?.unwrap_or_default());
        }
        if head.meta.moved.is_some() {
            // What says that another cell has it is no part of the session.
            commits.retain(|(slot, _)| *slot <= end);
        }
        // What later pages name is in the pages before them.
        Ok(self.with_earlier_parts(key, Some(commits)).await?.unwrap_or_default())
    }

    /// The commits of one page up to slot `last`, which was written, wherever they lie; `None` when they are gone from the
    /// archive.
    pub async fn page_until(&self, key: &SessionKey, last: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.commits(key, page_start(last), last).await
    }

    /// The commits of one page from slot `first` to slot `last`, which was written, wherever they lie; `None` when they
    /// are gone from the archive.
    pub async fn commits(
        &self,
        key: &SessionKey,
        first: u64,
        last: u64,
    ) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let mut commits = self.load_range(key, first, last).await?;
        // A page is read whole, also what came since.
        if let Some(commits) = &mut commits {
            commits.retain(|(slot, _)| *slot <= last);
        }
        Ok(commits)
    }

    /// A finished page, wherever it lies; `None` when it is gone from the archive.
    pub async fn page(&self, key: &SessionKey, page: u64) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        self.load_range(key, page * SLOTS_PER_PAGE, (page + 1) * SLOTS_PER_PAGE - 1).await
    }

    /// The `seq` with which a page begins; `None` where it is not to be seen.
    pub async fn page_seq(&self, key: &SessionKey, page: u64) -> Result<Option<u64>, BusError> {
        match self.slot_message(key, page * SLOTS_PER_PAGE, Read::Any).await? {
            Some(stored) => parse::<CommitHead>(&stored.payload).map(|head| Some(head.meta.seq)),
            None => self.archived_seq(key, page).await,
        }
    }

    /// One commit, wherever it lies; `None` where it is not to be seen.
    pub async fn commit_at(&self, key: &SessionKey, slot: u64) -> Result<Option<Commit>, BusError> {
        let message = if let Some(stored) = self.slot_message(key, slot, Read::Any).await? {
            Some(stored.payload)
        } else {
            let page = self.archived(key, slot / SLOTS_PER_PAGE, Read::Any).await?;
            page.and_then(|mut messages| messages.remove(&slot))
        };
        match message {
            Some(message) => self.read_commit(message).await.map(Some),
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

    /// Offers `body`, whose `meta.commit` is `commit_id`, for a slot, whatever stands before it. As
    /// [`Bus::commit_for`].
    pub async fn commit(
        &self,
        key: &SessionKey,
        slot: u64,
        commit_id: &str,
        body: Bytes,
    ) -> Result<Committed, BusError> {
        self.commit_for(key, Offer { slot, prev: "", commit: commit_id, body, ttl: None }).await
    }

    /// Offers a commit for its slot. The slot itself shows whose it is, whatever the server answered;
    /// [`BusError::Timeout`] and [`BusError::Unavailable`] mean that the outcome is unknown;
    /// [`BusError::Full`] that the stream has no room for it; [`BusError::TwoHistories`] that it stands behind a commit
    /// on which it was not decided, and is no part of the session.
    ///
    /// It is taken only behind the commit on which it was decided. The server compares the sequence of that commit's
    /// message. A server with an older store gives sequences out again, so a sequence is believed only while the
    /// connection stands by which it was learned, and otherwise learned anew from the leader together with the commit's
    /// id.
    pub async fn commit_for(&self, key: &SessionKey, offer: Offer<'_>) -> Result<Committed, BusError> {
        let Some(before) = offer.slot.checked_sub(1) else { return self.commit_first(key, offer).await };
        let generation = self.transport().generation();
        // A slot whose page left the log is free again: only what stands before it tells a late writer.
        let seq = match self.seq_cache.seq(key, before, offer.prev, generation) {
            Some(seq) => Some(seq),
            None => self.seq_of(key, before, offer.prev).await?,
        };
        let Some(seq) = seq else { return Ok(Committed::Theirs) };
        self.offer(key, &offer, &After { filter: subject::log_slot(key, before), seq, generation }).await
    }

    /// As [`Bus::commit_for`], for a log that begins with this slot: what is before it is in the archive. It is theirs
    /// where the log has anything of such a session.
    pub async fn commit_first(&self, key: &SessionKey, offer: Offer<'_>) -> Result<Committed, BusError> {
        let generation = self.transport().generation();
        let after = After { filter: subject::log_session(key), seq: 0, generation };
        self.offer(key, &offer, &after).await
    }

    /// As [`Bus::commit_for`], but the commit is taken only while `head` is the id of the session's last commit, in whatever
    /// slot that is. For a session that is in another cell: when it comes back, its log goes on with another slot, and
    /// nothing that was decided before may follow it there.
    pub async fn commit_behind_head(
        &self,
        key: &SessionKey,
        offer: Offer<'_>,
        head: &str,
    ) -> Result<Committed, BusError> {
        let generation = self.transport().generation();
        let Some(stored) = self.last_message(key, Read::Leader).await? else { return Ok(Committed::Theirs) };
        let found: CommitHead = parse(&stored.payload)?;
        if found.meta.commit == offer.commit {
            // An earlier try whose outcome was unknown.
            return Ok(Committed::Ours);
        }
        if found.meta.commit != head {
            return Ok(Committed::Theirs);
        }
        let after = After { filter: subject::log_session(key), seq: stored.seq, generation };
        self.offer(key, &Offer { prev: "", ..offer }, &after).await
    }

    /// The sequence of the message that holds this commit in this slot, as the leader knows it; `None` where the slot
    /// holds none, or another one.
    async fn seq_of(&self, key: &SessionKey, slot: u64, commit: &str) -> Result<Option<u64>, BusError> {
        let Some(stored) = self.slot_message(key, slot, Read::Leader).await? else { return Ok(None) };
        let head: CommitHead = parse(&stored.payload)?;
        Ok((commit.is_empty() || head.meta.commit == commit).then_some(stored.seq))
    }

    async fn offer(&self, key: &SessionKey, offer: &Offer<'_>, after: &After) -> Result<Committed, BusError> {
        let subject = subject::log_slot(key, offer.slot);
        // What has an end must not leave anything behind.
        let store = if offer.ttl.is_some() { Objects::Archive } else { Objects::Blobs };
        let body = self.offload_body(store, offer.body.clone()).await?;
        let mut headers = trace_headers();
        headers.push((EXPECTED_OF.to_owned(), after.filter.to_string()));
        headers.extend(offer.ttl.map(ttl_header));
        let what = format!("commit of slot {}", offer.slot);
        // Where the slot is empty the same body may be offered again, and at most one copy of it will ever stand there.
        let holder = Verified::new(&what, offer.commit)
            .write(
                |_| async {
                    let appended = self.append_over(&subject, after.seq, headers.clone(), body.clone()).await?;
                    Ok(Write::of(appended, Holder::Ours))
                },
                || self.slot_owner(&subject, offer.commit, after),
            )
            .await?;
        match holder {
            Holder::Ours(seq) => {
                // The sequence counts for the connection by which the one before it was learned: over a later one, the
                // next commit reads it from the leader.
                self.note(key, offer.slot, seq, offer.commit, after.generation, Read::Leader);
                if self.transport().generation() != after.generation {
                    // The server may have another history before this slot, whose sequences happen to be the same.
                    self.check_before(key, offer.slot, offer.prev, Read::Leader).await?;
                }
                Ok(Committed::Ours)
            }
            Holder::Theirs => {
                telemetry::metric::refused_commit();
                self.forget(store, &body).await;
                Ok(Committed::Theirs)
            }
        }
    }

    /// Reads from the leader the owner of the commit in a slot; `None` if the slot is empty and may still become ours.
    async fn slot_owner(&self, slot: &Subject, commit_id: &str, after: &After) -> Result<Option<Holder>, BusError> {
        if let Some(holder) = self.holder(slot, commit_id).await? {
            return Ok(Some(holder));
        }
        let before = self.transport().last(Stream::Log, &after.filter, Read::Leader).await?.map_or(0, |last| last.seq);
        if before == after.seq {
            return Ok(None);
        }
        // What stands before it changed, so it can be taken no more; but ours may have been taken between the two
        // reads.
        Ok(Some(self.holder(slot, commit_id).await?.unwrap_or(Holder::Theirs)))
    }

    async fn holder(&self, slot: &Subject, commit_id: &str) -> Result<Option<Holder>, BusError> {
        let Some(stored) = self.transport().last(Stream::Log, slot, Read::Leader).await? else { return Ok(None) };
        let found: CommitHead = parse(&stored.payload)?;
        Ok(Some(if found.meta.commit == commit_id { Holder::Ours(stored.seq) } else { Holder::Theirs }))
    }

    fn note(&self, key: &SessionKey, slot: u64, seq: u64, commit: &str, generation: u64, read: Read) {
        self.seq_cache.note(key, Tail { slot, seq, commit: commit.to_owned() }, generation, read);
    }

    /// Deletes the large body of a commit that lost its slot. A failure leaves the body in its store.
    pub(crate) async fn forget(&self, store: Objects, body: &[u8]) {
        let Some(blob) = body::object_of(body) else { return };
        // No other message has the body of this commit.
        let generation = self.transport().generation();
        if let Err(error) = self.transport().delete_object(store, &blob, generation).await {
            tracing::warn!(%error, blob, "the body of a commit that was not taken stays in its store");
        }
    }

    async fn head_from(&self, key: &SessionKey, at_least: u64) -> Result<Option<HeadRead>, BusError> {
        match self.tail(key, Read::Any).await? {
            Some(read) if read.head.slot >= at_least => Ok(Some(read)),
            Some(_) | None => self.tail(key, Read::Leader).await,
        }
    }

    /// The message of the commit in a slot.
    pub(crate) async fn slot_message(
        &self,
        key: &SessionKey,
        slot: u64,
        read: Read,
    ) -> Result<Option<Stored>, BusError> {
        self.transport().last(Stream::Log, &subject::log_slot(key, slot), read).await
    }

    /// The message of the session's last commit.
    pub(crate) async fn last_message(&self, key: &SessionKey, read: Read) -> Result<Option<Stored>, BusError> {
        self.transport().last(Stream::Log, &subject::log_session(key), read).await
    }

    /// As [`Bus::head`], and caches its sequence for the next commit: workers and viewers only read, and need no cache.
    async fn tail(&self, key: &SessionKey, read: Read) -> Result<Option<HeadRead>, BusError> {
        let generation = self.transport().generation();
        let Some(stored) = self.last_message(key, read).await? else { return Ok(None) };
        let head = read_head(&stored)?;
        self.note(key, head.slot, stored.seq, &head.meta.commit, generation, read);
        Ok(Some(HeadRead { head, message: stored.payload }))
    }

    /// As [`Bus::bodies`], parsed, with a check that the commits are of one history.
    async fn load_range(
        &self,
        key: &SessionKey,
        first: u64,
        last: u64,
    ) -> Result<Option<Vec<(u64, Commit)>>, BusError> {
        let Some(bodies) = self.bodies(key, first, last).await? else { return Ok(None) };
        let mut commits: Vec<(u64, Commit)> = Vec::with_capacity(bodies.len());
        for (slot, body) in bodies {
            let commit: Commit = parse(&body)?;
            if let Some((_, before)) = commits.last() {
                self.check_history(key, slot, &commit.meta.prev, &before.meta.commit).await?;
            }
            commits.push((slot, commit));
        }
        Ok(Some(commits))
    }

    /// Checks that a commit of this slot which names `prev` follows what the log has before it. An empty slot proves
    /// nothing: its page left the log for the archive.
    async fn check_before(&self, key: &SessionKey, slot: u64, prev: &str, read: Read) -> Result<(), BusError> {
        let Some(before) = slot.checked_sub(1).filter(|_| !prev.is_empty()) else { return Ok(()) };
        let Some(stored) = self.slot_message(key, before, read).await? else { return Ok(()) };
        self.check_history(key, slot, prev, &read_head(&stored)?.meta.commit).await
    }

    /// Checks that the commit `prev`, which that of a slot names, is the one that was `found` before it.
    async fn check_history(&self, key: &SessionKey, slot: u64, prev: &str, found: &str) -> Result<(), BusError> {
        if may_be_same_commit(prev, found) {
            return Ok(());
        }
        let (prev, found) = (prev.to_owned(), found.to_owned());
        Err(self.two_histories(key, &HistoryBreak { slot, prev, found }).await)
    }

    /// The messages of a page from slot `first` on, at least to slot `last`. A replica may show holes and an old end:
    /// it is asked again, and then the leader about what is missing. What the leader does not have left the log, and is
    /// in the archive. `None` when none of it is left. A log that was compacted may outlive what the archive has of its
    /// page: then the answer begins where the log does. The first one of a page must follow the last one of the page
    /// before, as far as the log has that.
    ///
    /// The archive may hold a page of an earlier session of the same id. So it is asked last, and a message of it
    /// counts only where the commits beside it name it.
    ///
    /// 1. Read the page from any replica, with the slot before it, whose commit the first slot must name.
    /// 2. If a slot is missing, read the page once more after a pause, then the missing slots one by one from the
    ///    leader. Skip this if `last` has left the log: it leaves last, so the others are in the archive.
    /// 3. Add missing slots from the archive, as any replica has it and then as the leader has it.
    /// 4. Check that the first slot follows the one before it in the same history.
    /// 5. Return nothing if `last` is gone, and otherwise the slots up to the first hole. A hole in front is an error,
    ///    unless the log begins behind it.
    async fn messages(
        &self,
        key: &SessionKey,
        first: u64,
        last: u64,
    ) -> Result<Option<BTreeMap<u64, Bytes>>, BusError> {
        let page = first / SLOTS_PER_PAGE;
        let before = first.checked_sub(1).filter(|_| page_start(first) == first);
        let filters: Vec<Subject> = std::iter::once(subject::log_page(key, page))
            .chain(before.map(|before| subject::log_slot(key, before)))
            .collect();
        let mut stands_before = None;
        let mut found: BTreeMap<u64, Bytes> = BTreeMap::new();
        let whole = |found: &BTreeMap<u64, Bytes>| (first..=last).all(|slot| found.contains_key(&slot));
        let mut is_in_log = true;
        for round in 0..2 {
            if round > 0 {
                // The last one leaves the log last, and it was written.
                is_in_log = found.contains_key(&last) || self.slot_message(key, last, Read::Leader).await?.is_some();
                if !is_in_log {
                    // It is in the archive, or nowhere; parts of the transcript may have stayed.
                    break;
                }
                retry::wait(round, key.session.as_str()).await;
            }
            let ReadMany::Messages(messages) = self.transport().last_many(Stream::Log, &filters).await? else {
                return Err(BusError::Malformed(format!("page {page} of {key} has too many slots")));
            };
            for stored in messages {
                let slot = slot_of(&stored)?;
                if Some(slot) == before {
                    stands_before = Some(stored.payload);
                } else {
                    found.entry(slot).or_insert(stored.payload);
                }
            }
            if whole(&found) {
                break;
            }
        }
        if is_in_log {
            self.add_missing(&mut found, key, first..=last).await?;
        }
        for read in [Read::Any, Read::Leader] {
            if !whole(&found) {
                self.add_archived(&mut found, key, page, read).await?;
            }
        }
        found.retain(|slot, _| *slot >= first);
        if let (Some(before), Some(message)) = (stands_before, found.get(&first)) {
            self.check_follows(key, first, message, &before).await?;
        }
        let is_gone = !is_in_log && !found.contains_key(&last);
        if is_gone || found.range(..=last).next().is_none() {
            return Ok(None);
        }
        let mut begin = first;
        if let Some(gone) = (first..=last).rfind(|slot| !found.contains_key(slot)) {
            begin = gone + 1;
            found.retain(|slot, _| *slot >= begin);
            if begin > last || !begins_log(&found)? {
                return Err(BusError::Unavailable(format!("slot {gone} of {key} is gone")));
            }
        }
        // A newer slot may stand behind a hole of this read; what follows the hole is not part of the answer.
        Ok(Some(
            found.into_iter().zip(begin..).take_while(|((slot, _), n)| slot == n).map(|(entry, _)| entry).collect(),
        ))
    }

    /// Adds the slots that are missing, as the leader has them.
    async fn add_missing(
        &self,
        found: &mut BTreeMap<u64, Bytes>,
        key: &SessionKey,
        slots: RangeInclusive<u64>,
    ) -> Result<(), BusError> {
        for slot in slots {
            if let Entry::Vacant(entry) = found.entry(slot)
                && let Some(stored) = self.slot_message(key, slot, Read::Leader).await?
            {
                entry.insert(stored.payload);
            }
        }
        Ok(())
    }

    /// Checks that the commit of a slot names that of the slot before it, unless the log begins with it.
    async fn check_follows(
        &self,
        key: &SessionKey,
        slot: u64,
        message: &Bytes,
        before: &Bytes,
    ) -> Result<(), BusError> {
        let meta = parse::<CommitHead>(message)?.meta;
        if meta.first_slot() == slot {
            return Ok(());
        }
        let before = parse::<CommitHead>(before)?.meta.commit;
        self.check_history(key, slot, &meta.prev, &before).await
    }

    async fn add_archived(
        &self,
        found: &mut BTreeMap<u64, Bytes>,
        key: &SessionKey,
        page: u64,
        read: Read,
    ) -> Result<(), BusError> {
        let Some(archived) = self.archived(key, page, read).await? else { return Ok(()) };
        for (slot, message) in &*found {
            let meta = || parse::<CommitHead>(message).map(|head| head.meta);
            let id_of = |archived: &Bytes| parse::<CommitHead>(archived).map(|head| head.meta.commit);
            let before = slot.checked_sub(1).filter(|before| !found.contains_key(before));
            let fits = match (archived.get(slot), before.and_then(|before| archived.get(&before))) {
                (Some(same), _) => id_of(same)? == meta()?.commit,
                (None, Some(before)) => meta()?.follows(&id_of(before)?),
                (None, None) => true,
            };
            if !fits {
                tracing::warn!(session = %key, page, "the archived page is of an earlier session of this id");
                return Ok(());
            }
        }
        for (slot, message) in archived {
            found.entry(slot).or_insert(message);
        }
        Ok(())
    }

    /// The commit itself, also where it is elsewhere: it moves when its page does.
    pub(crate) async fn open_commit(&self, message: Bytes) -> Result<Bytes, BusError> {
        self.open_in(&[Objects::Blobs, Objects::Archive], message).await
    }

    /// As [`Bus::open_commit`], and parses the commit.
    async fn read_commit(&self, message: Bytes) -> Result<Commit, BusError> {
        parse(&self.open_commit(message).await?)
    }
}

/// Expected last sequence under a filter, as the condition of a commit: the sequence of the slot before it, or 0 if
/// there must be no message.
struct After {
    filter: Subject,
    seq: u64,
    /// The generation of the connection by which that was learned.
    generation: u64,
}

/// The owner of the commit in a slot; of ours the sequence.
enum Holder {
    Ours(u64),
    Theirs,
}

/// The head of a log, with its whole message.
struct HeadRead {
    head: Head,
    message: Bytes,
}

impl Head {
    /// The first slot of those that the state after it is folded from.
    fn first_slot(&self) -> u64 {
        if self.meta.is_archived() { self.slot } else { page_start(self.slot).max(self.meta.first_slot()) }
    }

    /// Its slot; of a session that another cell has, the last one that it had here.
    fn last_slot(&self) -> u64 {
        if self.meta.moved.is_some() { self.end() } else { self.slot }
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

/// Whether the first of these messages is a commit with which a log begins: nothing before it is needed.
pub(crate) fn begins_log(messages: &BTreeMap<u64, Bytes>) -> Result<bool, BusError> {
    let Some((slot, message)) = messages.first_key_value() else { return Ok(false) };
    Ok(parse::<CommitHead>(message)?.meta.first_slot() == *slot)
}
