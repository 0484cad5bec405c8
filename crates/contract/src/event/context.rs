//! The transcript is cut or cleared.

use serde::{Deserialize, Serialize};

use crate::spent::Spent;

/// Messages that the model no longer reads. All of them stay in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextPruned {
    /// The turn in which it was done.
    pub turn: u32,
    /// Results of which head and tail are left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// Bytes of such a result, half of them its head.
    #[serde(default)]
    pub keep_bytes: usize,
    /// Turns before this one are gone; 0 and 1: none, the history that came with the start aside.
    #[serde(default)]
    pub before_turn: u32,
    /// Replies and results of this turn's steps before this one are gone; 0 and 1: none.
    #[serde(default)]
    pub before_step: u32,
    /// Summary of the dropped turns, by the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Tokens of the request before, as far as that is known.
    pub tokens_before: u64,
    /// Estimated tokens of the request afterwards.
    pub tokens_after: u64,
    /// Tokens and money that the summary used.
    #[serde(default)]
    pub spent: Spent,
}

/// The transcript was cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCleared {
    /// Turns whose messages went.
    pub turns: u32,
    /// Client that sent the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason, in the words of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
