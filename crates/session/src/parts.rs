//! Commits of the log that hold parts of the transcript, so that later commits and work items need not repeat them.
//!
//! A part stays in the log when its page moves to the archive, as long as the transcript begins with it.

use contract::commit::{PartRef, TranscriptPart};
use serde::{Deserialize, Serialize};

/// The parts of a transcript that the log has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredParts {
    /// The parts with which the transcript begins. Each snapshot has them beside it.
    #[serde(skip)]
    all: Vec<PartRef>,
    /// Slots of parts that the transcript does not begin with any more, since this page began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    released: Vec<u64>,
    /// The same, until this page began: they leave the log with the pages that move to the archive now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    leaving: Vec<u64>,
}

impl StoredParts {
    /// Whether nothing of it would be stored.
    pub(crate) fn is_plain(&self) -> bool {
        self.released.is_empty() && self.leaving.is_empty()
    }

    pub(crate) fn all(&self) -> &[PartRef] {
        &self.all
    }

    pub(crate) fn last(&self) -> Option<&PartRef> {
        self.all.last()
    }

    /// Number of messages in the parts.
    pub(crate) fn messages(&self) -> usize {
        self.all.iter().map(|part| part.messages).sum()
    }

    /// Slots that stay in the log when their page moves to the archive.
    pub(crate) fn kept_slots(&self) -> Vec<u64> {
        self.all.iter().map(|part| part.slot).collect()
    }

    /// Slots that leave the log now, also where their page moved before.
    pub(crate) fn leaving_slots(&self) -> &[u64] {
        &self.leaving
    }

    pub(crate) fn set(&mut self, all: Vec<PartRef>) {
        self.all = all;
    }

    /// Takes note of the commit that has the next part. If the parts are not what the transcript of so many messages
    /// begins with, none is believed, and the transcript is stored anew.
    pub(crate) fn add(&mut self, slot: u64, commit: &str, part: &TranscriptPart, messages: usize) {
        if self.all != part.before || self.messages() + part.messages.len() != messages {
            self.release();
            return;
        }
        if part.messages.is_empty() {
            // The commit is not needed to read the transcript.
            return;
        }
        self.all.push(PartRef { slot, commit: commit.to_owned(), messages: part.messages.len() });
    }

    /// The transcript was changed: no part is its beginning any more.
    pub(crate) fn release(&mut self) {
        self.released.extend(self.all.drain(..).map(|part| part.slot));
    }

    /// Another page begins, with which older ones move to the archive.
    pub(crate) fn begin_page(&mut self) {
        self.leaving = std::mem::take(&mut self.released);
    }

    /// The log begins anew with this commit: it has none of the parts.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
