//! Puts the transcript of a call together: a work item names the parts that the log has, and this gateway keeps parts.

use std::sync::Arc;

use bus::{Bus, BusError};
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

#[derive(Debug, Clone)]
struct PartWeight;

impl Weighter<PartKey, Arc<TranscriptPart>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<TranscriptPart>) -> u64 {
        (ENTRY_BYTES + part.before.len() * MESSAGE_BYTES + part.messages.len() * MESSAGE_BYTES + bytes_of(part)) as u64
    }
}

/// Cache of parts of transcripts, bounded by their bytes.
#[derive(Debug)]
pub(crate) struct TranscriptParts {
    bus: Bus,
    cached: Cache<PartKey, Arc<TranscriptPart>, PartWeight>,
}

impl TranscriptParts {
    pub(crate) fn new(bus: Bus, bytes_max: usize) -> Self {
        /// Mean bytes of a part, from which the cache makes room for its entries.
        const MEAN_BYTES: usize = contract::limits::TRANSCRIPT_PART_BYTES;
        let cached = Cache::with_weighter(bytes_max / MEAN_BYTES, bytes_max as u64, PartWeight);
        Self { bus, cached }
    }

    /// Replaces the name of the parts in an item by their messages. Returns the bytes of these.
    pub(crate) async fn fill(&self, key: &SessionKey, item: &mut ModelItem) -> Result<usize, BusError> {
        let Some(AfterPart { part, system, messages: rest }) = item.after.take() else { return Ok(0) };
        let mut last = self.parts(key, std::slice::from_ref(&part)).await?;
        let before = last.first().map_or(&[][..], |last| &last.before);
        let mut parts = self.parts(key, before).await?;
        parts.append(&mut last);
        let bytes = parts.iter().map(|part| bytes_of(part)).sum();
        let count: usize = parts.iter().map(|part| part.messages.len()).sum();
        item.messages = Vec::with_capacity(1 + count + rest.len());
        item.messages.push(system);
        item.messages.extend(parts.iter().flat_map(|part| part.messages.iter().cloned()));
        item.messages.extend(rest);
        Ok(bytes)
    }

    /// Parts from the cache, or from the log.
    async fn parts(&self, key: &SessionKey, parts: &[PartRef]) -> Result<Vec<Arc<TranscriptPart>>, BusError> {
        let name = |part: &PartRef| PartKey { session: key.clone(), commit: part.commit.clone() };
        let mut found: Vec<Option<Arc<TranscriptPart>>> =
            parts.iter().map(|part| self.cached.get(&name(part))).collect();
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
                let read = Arc::new(read.next().flatten().ok_or_else(unseen)?);
                self.cached.insert(name(part), read.clone());
                *found = Some(read);
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

fn bytes_of(part: &TranscriptPart) -> usize {
    part.messages.iter().map(|message| message.get().len()).sum()
}
