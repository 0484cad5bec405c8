//! Pages that leave the log: each becomes one message of the archive, and the log lets go of it when that is proven.

use std::collections::BTreeMap;

use bytes::Bytes;
use contract::ErrorCode;
use contract::commit::CommitHead;
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::archived_page;
use crate::json::parse;
use crate::log::begins_log;
use crate::slots::slot_of;
use crate::transport::ReadMany;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Head, Headers, Read, Stored, body};

/// Commits that stay in the log when their pages move to the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staying<'a> {
    /// The commits with parts of the transcript.
    Parts {
        /// Slots of the commits that stay.
        kept: &'a [u64],
        /// Slots that leave now, also where their page moved before.
        leaving: &'a [u64],
    },
    /// Every commit that may have a part: the session is to be read by whoever takes it over.
    AnyPart,
    /// The log begins anew, or the session has ended.
    Nothing,
}

impl Staying<'_> {
    /// Whether a message stays in the log. One whose body is elsewhere may have a part.
    fn keeps(self, slot: u64, message: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Beside {
            #[serde(default)]
            snapshot: Option<IgnoredAny>,
            #[serde(default)]
            transcript: Option<IgnoredAny>,
        }
        match self {
            Self::Parts { kept, .. } => kept.contains(&slot),
            Self::AnyPart => {
                let is_part = |read: Beside| read.transcript.is_some() && read.snapshot.is_none();
                body::object_of(message).is_some() || serde_json::from_slice(message).is_ok_and(is_part)
            }
            Self::Nothing => false,
        }
    }
}

/// Place of the session whose page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageOwner {
    /// The session is in the log.
    Log,
    /// The session is not in the log: it is imported.
    Import,
}

/// The objects that have large bodies of a page's commits, by the page's own body; none where it is damaged.
pub fn objects_of_page(body: &[u8]) -> Result<Vec<String>, BusError> {
    let messages = match archived_page::messages(body) {
        Err(BusError::Malformed(_)) => Vec::new(),
        read => read?,
    };
    Ok(messages.iter().filter_map(|message| body::object_of(message)).collect())
}

impl Bus {
    /// Moves what the log still has of a session below slot `below` to the archive: a page is written there, and only
    /// when it is proven to stand there do its messages leave the log, the oldest first. Doing it twice, or by two at
    /// once, is harmless. An error leaves whatever is not done in the log.
    pub async fn archive(&self, key: &SessionKey, below: u64, stay: Staying<'_>) -> Result<(), BusError> {
        let Some(last) = below.checked_sub(1).map(|slot| slot / SLOTS_PER_PAGE) else { return Ok(()) };
        // Pages leave in their order, so below one that is gone there is none.
        let mut first = last;
        while first > 0 && self.is_in_log(key, first - 1).await? {
            first -= 1;
        }
        for page in first..=last {
            self.archive_page(key, page, below, stay).await?;
        }
        match stay {
            Staying::Parts { leaving, .. } => {
                for slot in leaving.iter().filter(|slot| **slot < below) {
                    if let Some(stored) = self.slot_message(key, *slot, Read::Leader).await? {
                        self.remove(&stored).await?;
                    }
                }
                Ok(())
            }
            Staying::AnyPart => Ok(()),
            Staying::Nothing => self.remove_parts(key, below).await,
        }
    }

    /// Removes what stayed in the log when its page moved to the archive.
    async fn remove_parts(&self, key: &SessionKey, below: u64) -> Result<(), BusError> {
        if let ReadMany::Messages(messages) =
            self.transport().last_many(Stream::Log, &[subject::log_session(key)]).await?
        {
            for stored in messages {
                if slot_of(&stored)? < below {
                    self.remove(&stored).await?;
                }
            }
            return Ok(());
        }
        // Too many for one answer.
        for page in 0..below.div_ceil(SLOTS_PER_PAGE) {
            let first = page * SLOTS_PER_PAGE;
            for stored in self.held(key, page, first, (first + SLOTS_PER_PAGE).min(below)).await?.values() {
                self.remove(stored).await?;
            }
        }
        Ok(())
    }

    /// Removes a message of the log, and its body before it.
    async fn remove(&self, stored: &Stored) -> Result<(), BusError> {
        if let Some(blob) = body::object_of(&stored.payload) {
            self.transport().delete_object(Objects::Blobs, &blob, stored.generation).await?;
        }
        self.transport().delete(Stream::Log, stored).await
    }

    /// Writes a page that was never in this server's log to the archive, of a session that is not in it either. Another
    /// page in its place is of one that had the id before; where the log has such a session it is
    /// [`ErrorCode::SessionExists`]. `bodies` are commits of one page as they were written, from slot `first` on.
    pub async fn put_archived(&self, key: &SessionKey, first: u64, bodies: Vec<Bytes>) -> Result<(), BusError> {
        let mut offloaded = BTreeMap::new();
        for (slot, body) in (first..).zip(bodies) {
            offloaded.insert(slot, self.offload_body(Objects::Archive, body).await?);
        }
        self.write_page(key, first / SLOTS_PER_PAGE, &offloaded, PageOwner::Import, true).await
    }

    /// The messages of an archived page by slot; `None` where there is none.
    pub(crate) async fn archived(
        &self,
        key: &SessionKey,
        page: u64,
        read: Read,
    ) -> Result<Option<BTreeMap<u64, Bytes>>, BusError> {
        let Some(stored) = self.page_message(key, page, read).await? else { return Ok(None) };
        self.unpack_page(page, &stored).await.map(Some)
    }

    async fn page_message(&self, key: &SessionKey, page: u64, read: Read) -> Result<Option<Stored>, BusError> {
        self.transport().last(Stream::Archive, &subject::archive_page(key, page), read).await
    }

    async fn unpack_page(&self, page: u64, stored: &Stored) -> Result<BTreeMap<u64, Bytes>, BusError> {
        archived_page::unpack(page, &self.open(Objects::Archive, stored.payload.clone()).await?)
    }

    /// The `seq` with which an archived page begins.
    pub(crate) async fn archived_seq(&self, key: &SessionKey, page: u64) -> Result<Option<u64>, BusError> {
        let found = self.page_message(key, page, Read::Any).await?;
        found.map(|stored| archived_page::first_seq(&stored.payload)).transpose()
    }

    /// Whether a finished page is in the log: its last slot leaves last, and never stays. That it is gone is believed of
    /// the leader only: what stays behind would stay for ever.
    async fn is_in_log(&self, key: &SessionKey, page: u64) -> Result<bool, BusError> {
        for read in [Read::Any, Read::Leader] {
            if self.slot_message(key, (page + 1) * SLOTS_PER_PAGE - 1, read).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn archive_page(&self, key: &SessionKey, page: u64, below: u64, stay: Staying<'_>) -> Result<(), BusError> {
        let first = page * SLOTS_PER_PAGE;
        let end = (first + SLOTS_PER_PAGE).min(below);
        let held = self.held(key, page, first, end).await?;
        // The last slot of a page never stays, so nothing else of this one is in the log either.
        let leaving: Vec<&Stored> = held
            .iter()
            .filter(|(slot, stored)| !stay.keeps(**slot, &stored.payload))
            .map(|(_, stored)| stored)
            .collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // What is no longer in the log was proven to be in the archive before it went.
        let is_new = held.len() as u64 == end - first;
        let archived =
            if is_new { BTreeMap::new() } else { self.archived(key, page, Read::Leader).await?.unwrap_or_default() };
        let mut messages = BTreeMap::new();
        for slot in (first..end).rev() {
            if let Some(stored) = held.get(&slot) {
                self.copy_blob(&stored.payload).await?;
                messages.insert(slot, stored.payload.clone());
            } else if let Some(body) = archived.get(&slot) {
                messages.insert(slot, body.clone());
            } else if begins_log(&messages)? {
                // The archive kept what was before for as long as it keeps anything.
                break;
            } else {
                let why = format!("slot {slot} of {key} is neither in the log nor in the archive");
                return Err(BusError::Unavailable(why));
            }
        }
        self.write_page(key, page, &messages, PageOwner::Log, is_new).await?;
        for stored in leaving {
            self.remove(stored).await?;
        }
        Ok(())
    }

    /// The messages that the log still has of these slots of a page.
    async fn held(&self, key: &SessionKey, page: u64, first: u64, end: u64) -> Result<BTreeMap<u64, Stored>, BusError> {
        let ReadMany::Messages(messages) =
            self.transport().last_many(Stream::Log, &[subject::log_page(key, page)]).await?
        else {
            return Err(BusError::Malformed(format!("page {page} of {key} has too many slots")));
        };
        let mut held = BTreeMap::new();
        for stored in messages {
            held.insert(slot_of(&stored)?, stored);
        }
        held.retain(|slot, _| (first..end).contains(slot));
        // From the last one on, since the oldest go first: below one that is gone there is none.
        for slot in (first..end).rev() {
            if held.contains_key(&slot) {
                continue;
            }
            match self.slot_message(key, slot, Read::Leader).await? {
                Some(stored) => drop(held.insert(slot, stored)),
                None => break,
            }
        }
        Ok(held)
    }

    /// Copies the large body of a message to the store of the archive, unless it is there.
    async fn copy_blob(&self, message: &[u8]) -> Result<(), BusError> {
        let Some(blob) = body::object_of(message) else { return Ok(()) };
        if let Some(found) = self.transport().get_object(Objects::Blobs, &blob).await? {
            return self.transport().put_object(Objects::Archive, &blob, found).await;
        }
        // An earlier run may have copied it and stopped later.
        match self.transport().get_object(Objects::Archive, &blob).await? {
            Some(_) => Ok(()),
            None => Err(BusError::Unavailable(format!("blob {blob} is not there yet"))),
        }
    }

    /// Writes a page so that it is proven to stand in the archive. What stands in its place already is kept if it is of
    /// the same history: a log that is compacted several times within a page moves the page part by part, and a slow
    /// replica must not replace a longer page by its shorter one. Anything else there is of a session that had this id
    /// before: the log has the page itself, or has no such session. `is_new` says that probably nothing stands there.
    async fn write_page(
        &self,
        key: &SessionKey,
        page: u64,
        messages: &BTreeMap<u64, Bytes>,
        owner: PageOwner,
        is_new: bool,
    ) -> Result<(), BusError> {
        let subject = subject::archive_page(key, page);
        Verified::at(&subject)
            .repeat(|round| async move {
                let is_asked = round > 1 || !is_new;
                let stored = if is_asked { self.page_message(key, page, Read::Leader).await? } else { None };
                match stored {
                    None => self.append_page(key, page, messages, 0).await,
                    Some(stored) => self.replace_page(key, page, messages, &stored, owner).await,
                }
            })
            .await
    }

    /// Replaces the page that stands in a place of the archive. One that cannot be read has no messages.
    async fn replace_page(
        &self,
        key: &SessionKey,
        page: u64,
        messages: &BTreeMap<u64, Bytes>,
        stored: &Stored,
        owner: PageOwner,
    ) -> Result<Write<()>, BusError> {
        let there = match self.unpack_page(page, stored).await {
            Err(BusError::Malformed(why)) => {
                tracing::warn!(session = %key, page, why, "an archived page that cannot be read is replaced");
                BTreeMap::new()
            }
            read => read?,
        };
        let mut merged = messages.clone();
        if owner == PageOwner::Log && is_same_history(&there, messages)? {
            merged.extend(there.clone());
        }
        if merged == there {
            return Ok(Write::Known(()));
        }
        // Where the log says only that another cell has the session, it is about to come here.
        let is_taken = |head: Option<Head>| head.is_some_and(|head| head.meta.moved.is_none());
        if owner == PageOwner::Import && is_taken(self.head(key, Read::Leader).await?) {
            let message = format!("there is a session {} already", key.session);
            return Err(BusError::Unusable { code: ErrorCode::SessionExists, message });
        }
        let written = self.append_page(key, page, &merged, stored.seq).await?;
        if let (Write::Known(()), Some(object)) = (&written, body::object_of(&stored.payload)) {
            // A failure leaves it in its store until it expires.
            if let Err(error) = self.transport().delete_object(Objects::Archive, &object, stored.generation).await {
                tracing::warn!(%error, object, "the body of a page that was replaced stays in its store");
            }
        }
        Ok(written)
    }

    /// Writes a page over the message with sequence `expected`, 0 for none.
    async fn append_page(
        &self,
        key: &SessionKey,
        page: u64,
        messages: &BTreeMap<u64, Bytes>,
        expected: u64,
    ) -> Result<Write<()>, BusError> {
        let Some(packed) = archived_page::pack(page, messages)? else { return Ok(Write::Known(())) };
        let body = self.offload_body(Objects::Archive, packed).await?;
        let appended = self.append_over(&subject::archive_page(key, page), expected, Headers::new(), body).await?;
        Ok(Write::of(appended, |_| ()))
    }
}

/// Whether two parts of a page, each without a hole, are parts of one log: they share a commit, or one follows the
/// other.
fn is_same_history(one: &BTreeMap<u64, Bytes>, other: &BTreeMap<u64, Bytes>) -> Result<bool, BusError> {
    let meta = |message: &Bytes| parse::<CommitHead>(message).map(|head| head.meta);
    for (slot, message) in one {
        if let Some(same) = other.get(slot) {
            return Ok(meta(message)?.commit == meta(same)?.commit);
        }
    }
    for (before, after) in [(one, other), (other, one)] {
        if let (Some((last, message)), Some((first, next))) = (before.last_key_value(), after.first_key_value())
            && last + 1 == *first
        {
            return Ok(meta(next)?.follows(&meta(message)?.commit));
        }
    }
    Ok(false)
}
