//! Pages that leave the log: each becomes one message of the archive, and the log lets go of it when that is proven.

use std::sync::atomic::{AtomicU64, Ordering};

use std::collections::BTreeMap;

use bytes::Bytes;
use contract::commit::CommitHead;
use contract::limits::SLOTS_PER_PAGE;
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::{ErrorCode, Json};
use serde::{Deserialize, Serialize};

use crate::json::{encode, parse};
use crate::log::slot_of;
use crate::transport::{EXPECTED_LAST, ReadMany};
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Read, Stored, body};

/// Version of an archived page.
const VERSION: u32 = 1;

/// An archived page: the messages that were in the log, as they were, from the page's first slot on.
#[derive(Debug, Serialize, Deserialize)]
struct Page {
    meta: PageMeta,
    commits: Vec<Json>,
}

/// The first field of a page, which is read alone.
#[derive(Debug, Serialize, Deserialize)]
struct PageMeta {
    v: u32,
    page: u64,
    /// `seq` of its first commit's first public event.
    seq: u64,
}

#[derive(Deserialize)]
struct PageHead {
    meta: PageMeta,
}

/// Where the session is whose page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageOwner {
    /// The session is in the log.
    Log,
    /// The session is not in the log: it is imported.
    Import,
}

impl Bus {
    /// Moves what the log still has of a session below slot `below` to the archive: a page is written there, and only
    /// when it is proven to stand there do its messages leave the log, the oldest first. Doing it twice, or by two at
    /// once, is harmless. An error leaves whatever is not done in the log.
    pub async fn archive(&self, key: &SessionKey, below: u64) -> Result<(), BusError> {
        let Some(last) = below.checked_sub(1).map(|slot| slot / SLOTS_PER_PAGE) else { return Ok(()) };
        // Pages leave in their order, so below one that is gone there is none.
        let mut first = last;
        while first > 0 && self.is_in_log(key, first - 1).await? {
            first -= 1;
        }
        for page in first..=last {
            self.archive_page(key, page, below).await?;
        }
        Ok(())
    }

    /// Writes a page that was never in this server's log to the archive, of a session that is not in it either. Another
    /// page in its place is of one that had the id before; where the log has such a session it is
    /// [`ErrorCode::SessionExists`]. `bodies` are commits as they were written, from the page's first slot on.
    pub async fn put_archived(&self, key: &SessionKey, page: u64, bodies: Vec<Bytes>) -> Result<(), BusError> {
        let mut offloaded = Vec::with_capacity(bodies.len());
        for body in bodies {
            offloaded.push(self.offload_body(Objects::Archive, body).await?);
        }
        self.write_page(key, page, &offloaded, PageOwner::Import).await
    }

    /// The messages of an archived page by slot; `None` where there is none.
    pub(crate) async fn archived(
        &self,
        key: &SessionKey,
        page: u64,
        read: Read,
    ) -> Result<Option<BTreeMap<u64, Bytes>>, BusError> {
        let Some(stored) = self.transport().last(Stream::Archive, &subject::archive_page(key, page), read).await?
        else {
            return Ok(None);
        };
        let body = self.open(Objects::Archive, stored.payload).await?;
        let commits = parse::<Page>(&body)?.commits.into_iter().map(|commit| Bytes::from(commit.get().to_owned()));
        Ok(Some((page * SLOTS_PER_PAGE..).zip(commits).collect()))
    }

    /// The `seq` with which an archived page begins.
    pub(crate) async fn archived_seq(&self, key: &SessionKey, page: u64) -> Result<Option<u64>, BusError> {
        let found = self.transport().last(Stream::Archive, &subject::archive_page(key, page), Read::Any).await?;
        found.map(|stored| parse::<PageHead>(&stored.payload).map(|page| page.meta.seq)).transpose()
    }

    /// Whether a page is in the log. That it is gone is believed of the leader only: what stays behind would stay for
    /// ever.
    async fn is_in_log(&self, key: &SessionKey, page: u64) -> Result<bool, BusError> {
        let page = subject::log_page(key, page);
        for read in [Read::Any, Read::Leader] {
            if self.transport().last(Stream::Log, &page, read).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn archive_page(&self, key: &SessionKey, page: u64, below: u64) -> Result<(), BusError> {
        let first = page * SLOTS_PER_PAGE;
        let end = (first + SLOTS_PER_PAGE).min(below);
        let held = self.held(key, page, first, end).await?;
        if held.is_empty() {
            return Ok(());
        }
        // What is no longer in the log was proven to be in the archive before it went.
        let archived = if (held.len() as u64) < end - first {
            self.archived(key, page, Read::Leader).await?.unwrap_or_default()
        } else {
            BTreeMap::new()
        };
        let mut messages = Vec::with_capacity(held.len());
        for slot in first..end {
            if let Some(stored) = held.get(&slot) {
                self.copy_blob(&stored.payload).await?;
                messages.push(stored.payload.clone());
            } else if let Some(body) = archived.get(&slot) {
                messages.push(body.clone());
            } else {
                let why = format!("slot {slot} of {key} is neither in the log nor in the archive");
                return Err(BusError::Unavailable(why));
            }
        }
        self.write_page(key, page, &messages, PageOwner::Log).await?;
        for stored in held.values() {
            if let Some(blob) = body::blob(&stored.payload) {
                self.transport().delete_object(Objects::Blobs, &blob).await?;
            }
            self.transport().delete(Stream::Log, stored.seq).await?;
        }
        Ok(())
    }

    /// The messages that the log still has of these slots of a page.
    async fn held(&self, key: &SessionKey, page: u64, first: u64, end: u64) -> Result<BTreeMap<u64, Stored>, BusError> {
        let ReadMany::Messages(messages) =
            self.transport().last_many(Stream::Log, &subject::log_page(key, page)).await?
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
            match self.transport().last(Stream::Log, &subject::log_slot(key, slot), Read::Leader).await? {
                Some(stored) => drop(held.insert(slot, stored)),
                None => break,
            }
        }
        Ok(held)
    }

    /// Copies the large body of a message to the store of the archive, unless it is there.
    async fn copy_blob(&self, message: &[u8]) -> Result<(), BusError> {
        let Some(blob) = body::blob(message) else { return Ok(()) };
        if let Some(found) = self.transport().get_object(Objects::Blobs, &blob).await? {
            return self.transport().put_object(Objects::Archive, &blob, found).await;
        }
        // An earlier run may have copied it and stopped later.
        match self.transport().get_object(Objects::Archive, &blob).await? {
            Some(_) => Ok(()),
            None => Err(BusError::Unavailable(format!("blob {blob} is not there yet"))),
        }
    }

    /// Writes a page so that it is proven to stand in the archive. Another one in its place is of a session that had
    /// this id before: the log has the page itself, or has no such session.
    async fn write_page(
        &self,
        key: &SessionKey,
        page: u64,
        messages: &[Bytes],
        owner: PageOwner,
    ) -> Result<(), BusError> {
        let commits = messages.iter().map(|message| parse::<Json>(message)).collect::<Result<Vec<_>, _>>()?;
        let head: CommitHead = match messages.first() {
            Some(message) => parse(message)?,
            None => return Ok(()),
        };
        let meta = PageMeta { v: VERSION, page, seq: head.meta.seq };
        let body = self.offload_body(Objects::Archive, encode(&Page { meta, commits })?).await?;
        let subject = subject::archive_page(key, page);
        let expected = AtomicU64::new(0);
        Verified::at(&subject)
            .write(
                |_| async {
                    let expected = expected.load(Ordering::Relaxed);
                    let is_taken = async || {
                        // Where the log says only that another cell has the session, it is about to come here.
                        let head = self.head(key, Read::Leader).await?;
                        Ok::<_, BusError>(head.is_some_and(|head| head.meta.moved.is_none()))
                    };
                    if expected > 0 && owner == PageOwner::Import && is_taken().await? {
                        let message = format!("there is a session {} already", key.session);
                        return Err(BusError::Unusable { code: ErrorCode::SessionExists, message });
                    }
                    let headers = vec![(EXPECTED_LAST.to_owned(), expected.to_string())];
                    let appended = self.transport().append(&subject, false, headers, body.clone()).await?;
                    Ok(Write::of(appended, |_| ()))
                },
                || async {
                    let found = self.transport().last(Stream::Archive, &subject, Read::Leader).await?;
                    let (seq, is_ours) = found.map_or((0, false), |found| (found.seq, found.payload == body));
                    expected.store(seq, Ordering::Relaxed);
                    Ok(is_ours.then_some(()))
                },
            )
            .await
    }
}
