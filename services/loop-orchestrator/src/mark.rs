//! The mark of a commit: its claim that every client command of the session up to one is handled.
//!
//! A command below the mark counts as handled even where its id is forgotten, so a wrong mark loses commands without a
//! trace. Only this module creates a claim, so that no path has one that did not read the inbox.

use bus::Stored;
use contract::Timestamp;

/// Position of a client command in the control stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPosition {
    pub(crate) seq: u64,
    /// Time by the server's clock at which the stream stored it. A stream that was created again reuses sequences.
    pub(crate) stored_at: Timestamp,
}

/// Permission of a commit to claim that the commands before its own are handled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkClaim(Basis);

#[derive(Debug, Clone, Copy)]
enum Basis {
    /// The commands that wait before it are known, and are handled before it.
    Inbox,
    /// No session existed, if its commit is the first of the log.
    EmptyLog,
}

impl MarkClaim {
    /// The claim of the command at `delivered`, and of those before it, if they are handled in their order. The inbox must
    /// show that command: an older read may lack others before it.
    pub(crate) fn by_inbox(inbox: &[Stored], delivered: u64) -> Option<Self> {
        inbox.iter().any(|message| message.seq == delivered).then_some(Self(Basis::Inbox))
    }

    /// The claim of a start that is decided on an empty state. It ends where the log turns out to have a commit.
    pub(crate) fn by_empty_log() -> Self {
        Self(Basis::EmptyLog)
    }

    /// Whether a commit in this slot may have the mark.
    pub(crate) fn holds_in(self, slot: u64) -> bool {
        match self.0 {
            Basis::Inbox => true,
            Basis::EmptyLog => slot == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn stored(seq: u64) -> Stored {
        Stored {
            seq,
            stored_at: Timestamp::default(),
            generation: 1,
            subject: String::new(),
            headers: bus::Headers::default(),
            payload: Bytes::new(),
        }
    }

    #[test]
    fn claim_needs_an_inbox_that_shows_the_command_or_an_empty_log() {
        assert!(MarkClaim::by_inbox(&[stored(3), stored(5)], 4).is_none(), "the read is older than the command");
        assert!(MarkClaim::by_inbox(&[stored(3), stored(5)], 5).is_some_and(|claim| claim.holds_in(7)));
        assert!(MarkClaim::by_empty_log().holds_in(0) && !MarkClaim::by_empty_log().holds_in(1));
    }
}
