//! Puts the transcript of a call together: a work item names the parts that the log has, and this gateway keeps parts.
//!
//! A part is also kept in the form in which a provider wants it, because each call of a session sends it again.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bus::{Bus, BusError};
use configuration::models::Quirks;
use contract::Json;
use contract::commit::{PartRef, TranscriptPart};
use contract::model::{AfterPart, ModelItem};
use contract::subject::SessionKey;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Bytes of a cached part besides its messages, and of each message besides its text.
const ENTRY_BYTES: usize = 512;
const MESSAGE_BYTES: usize = 64;

/// A part is never changed, so the session and the commit name it for ever.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PartKey {
    session: SessionKey,
    commit: String,
}

/// A part of a transcript that a gateway keeps.
#[derive(Debug)]
pub struct StoredPart {
    part: TranscriptPart,
    /// Its messages for chat completions, with the quirks of the server that they were first sent to.
    chat: OnceLock<(Quirks, Vec<Json>)>,
}

impl StoredPart {
    pub(crate) fn new(part: TranscriptPart) -> Self {
        Self { part, chat: OnceLock::new() }
    }

    /// Its messages as `convert` makes them, which depends on the quirks alone.
    pub(crate) fn chat_messages<E>(
        &self,
        quirks: &Quirks,
        convert: impl Fn(&Json) -> Result<Json, E>,
    ) -> Result<Cow<'_, [Json]>, E> {
        let converted = || self.part.messages.iter().map(&convert).collect::<Result<Vec<Json>, E>>();
        match self.chat.get() {
            Some((same, messages)) if same == quirks => Ok(Cow::Borrowed(messages)),
            Some(_) => converted().map(Cow::Owned),
            None => {
                let messages = converted()?;
                Ok(Cow::Borrowed(&self.chat.get_or_init(|| (quirks.clone(), messages)).1))
            }
        }
    }

    /// Number of its messages.
    pub(crate) fn count(&self) -> usize {
        self.part.messages.len()
    }

    fn bytes(&self) -> usize {
        self.part.messages.iter().map(|message| message.get().len()).sum()
    }
}

#[derive(Debug, Clone)]
struct PartWeight;

impl Weighter<PartKey, Arc<StoredPart>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<StoredPart>) -> u64 {
        // A message may be kept in two forms.
        let entries = part.part.before.len() + 2 * part.count();
        (ENTRY_BYTES + entries * MESSAGE_BYTES + 2 * part.bytes()) as u64
    }
}

/// Cache of parts of transcripts, bounded by their bytes.
#[derive(Debug)]
pub(crate) struct TranscriptParts {
    bus: Bus,
    cached: Cache<PartKey, Arc<StoredPart>, PartWeight>,
}

impl TranscriptParts {
    pub(crate) fn new(bus: Bus, bytes_max: usize) -> Self {
        /// Mean bytes of a part, from which the cache makes room for its entries.
        const MEAN_BYTES: usize = contract::limits::TRANSCRIPT_PART_BYTES;
        let cached = Cache::with_weighter(bytes_max / MEAN_BYTES, bytes_max as u64, PartWeight);
        Self { bus, cached }
    }

    /// Replaces the name of the parts in an item by their messages, which stand behind the system prompt. Returns the
    /// parts.
    pub(crate) async fn fill(&self, key: &SessionKey, item: &mut ModelItem) -> Result<Vec<Arc<StoredPart>>, BusError> {
        let Some(AfterPart { part, system, messages: rest }) = item.after.take() else { return Ok(Vec::new()) };
        let mut last = self.parts(key, std::slice::from_ref(&part)).await?;
        let before = last.first().map_or(&[][..], |last| &last.part.before);
        let mut parts = self.parts(key, before).await?;
        parts.append(&mut last);
        let count: usize = parts.iter().map(|part| part.count()).sum();
        item.messages = Vec::with_capacity(1 + count + rest.len());
        item.messages.push(system);
        item.messages.extend(parts.iter().flat_map(|part| part.part.messages.iter().cloned()));
        item.messages.extend(rest);
        Ok(parts)
    }

    /// Parts from the cache, or from the log.
    async fn parts(&self, key: &SessionKey, parts: &[PartRef]) -> Result<Vec<Arc<StoredPart>>, BusError> {
        let name = |part: &PartRef| PartKey { session: key.clone(), commit: part.commit.clone() };
        let mut found: Vec<Option<Arc<StoredPart>>> = parts.iter().map(|part| self.cached.get(&name(part))).collect();
        let missing: Vec<PartRef> =
            parts.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(part, _)| part.clone()).collect();
        if !missing.is_empty() {
            let mut read = self.bus.transcript_parts(key, &missing).await?.into_iter();
            for (part, found) in parts.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                // The log has the call as open, so that the part cannot be gone for good.
                let unseen = || {
                    let slot = part.slot;
                    BusError::Unavailable(format!("the log of {key} does not show the transcript in slot {slot}"))
                };
                let read = Arc::new(StoredPart::new(read.next().flatten().ok_or_else(unseen)?));
                self.cached.insert(name(part), read.clone());
                *found = Some(read);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Bytes of the messages in some parts.
pub(crate) fn bytes_of(parts: &[Arc<StoredPart>]) -> usize {
    parts.iter().map(|part| part.bytes()).sum()
}
