//! Puts the transcript of a call together: a work item names the parts that the log has, and this gateway keeps parts.
//!
//! A part is also kept as the text that a request has for it, because each call of a session sends it again.

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
    /// Bytes of its messages.
    bytes: usize,
    /// Its messages for chat completions, with commas between them, and the quirks of the server that they were first
    /// sent to.
    chat: OnceLock<(Quirks, Box<str>)>,
}

impl StoredPart {
    pub(crate) fn new(part: TranscriptPart) -> Self {
        let bytes = part.messages.iter().map(|message| message.get().len()).sum();
        Self { part, bytes, chat: OnceLock::new() }
    }

    pub(crate) fn messages(&self) -> &[Json] {
        &self.part.messages
    }

    /// Its messages as `join` writes them, which depends on the quirks alone.
    pub(crate) fn chat_text<E>(
        &self,
        quirks: &Quirks,
        join: impl Fn(&[Json]) -> Result<String, E>,
    ) -> Result<Cow<'_, str>, E> {
        match self.chat.get() {
            Some((same, text)) if same == quirks => Ok(Cow::Borrowed(text)),
            Some(_) => join(self.messages()).map(Cow::Owned),
            None => {
                let text = join(self.messages())?.into_boxed_str();
                Ok(Cow::Borrowed(&self.chat.get_or_init(|| (quirks.clone(), text)).1))
            }
        }
    }
}

/// The messages of an item before and behind those of the parts, which stand behind the first message.
pub(crate) fn around_parts(item: &ModelItem) -> (&[Json], &[Json]) {
    item.messages.split_at(item.messages.len().min(1))
}

/// The messages of a call.
pub(crate) fn all_messages<'a>(item: &'a ModelItem, parts: &'a [Arc<StoredPart>]) -> impl Iterator<Item = &'a Json> {
    let (first, rest) = around_parts(item);
    first.iter().chain(parts.iter().flat_map(|part| part.messages())).chain(rest)
}

#[derive(Debug, Clone)]
struct PartWeight;

impl Weighter<PartKey, Arc<StoredPart>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<StoredPart>) -> u64 {
        // The messages may be kept in two forms.
        let entries = part.part.before.len() + part.messages().len();
        (ENTRY_BYTES + entries * MESSAGE_BYTES + 2 * part.bytes) as u64
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

    /// Returns the parts that an item names. The item keeps the system prompt and the messages behind the parts.
    pub(crate) async fn take(&self, key: &SessionKey, item: &mut ModelItem) -> Result<Vec<Arc<StoredPart>>, BusError> {
        let Some(AfterPart { part, system, messages: rest }) = item.after.take() else { return Ok(Vec::new()) };
        let mut last = self.parts(key, std::slice::from_ref(&part)).await?;
        let before = last.first().map_or(&[][..], |last| &last.part.before);
        let mut parts = self.parts(key, before).await?;
        parts.append(&mut last);
        item.messages = std::iter::once(system).chain(rest).collect();
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
    parts.iter().map(|part| part.bytes).sum()
}
