//! Parts of a transcript: the log has each message once, and later commits and work items refer to it.

use serde::{Deserialize, Serialize};

use crate::Json;

/// Messages of a transcript that later commits and work items name instead of repeating them.
///
/// Parts and the messages after the last one are the transcript, without the system prompt. A part is never changed:
/// where the session changes its messages, it begins again with a first part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TranscriptPart {
    /// The parts before it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PartRef>,
    /// Its messages, each as a model is given it.
    pub messages: Vec<Json>,
    /// The turn, step and kind of each message, which only the loop reads.
    pub positions: Json,
    /// The parts of `before`, where a reader has filled them in. They are not stored with it.
    #[serde(skip)]
    pub earlier: Vec<TranscriptPart>,
}

impl TranscriptPart {
    /// Whether another part is the same in the log.
    pub fn is_stored_as(&self, other: &Self) -> bool {
        let stored = |part: &Self| (part.before.clone(), part.positions.clone());
        self.messages == other.messages && stored(self) == stored(other)
    }
}

/// The commit of the same session that has a part of its transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// Slot of the commit.
    pub slot: u64,
    /// Id of the commit: the history that it belongs to.
    pub commit: String,
    /// Number of messages in the part.
    pub messages: usize,
}
