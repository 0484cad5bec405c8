//! The cursor of the list of sessions.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use contract::commit::ListPlace;
use contract::{SessionId, Timestamp};
use serde::Deserialize;

/// Position after a session in the list of sessions. It stays valid when sessions are added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ListCursor {
    /// Start of the session.
    pub started: Timestamp,
    /// Id of that session.
    pub session: SessionId,
}

impl ListCursor {
    /// Returns the place in the list after which it goes on.
    pub fn position(&self) -> ListPlace {
        (Reverse(self.started), Reverse(self.session.clone()))
    }
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.started, self.session)
    }
}

impl FromStr for ListCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('~').and_then(|(started, session)| {
            Some(Self { started: Timestamp::parse(started)?, session: SessionId::new(session).ok()? })
        });
        parts.ok_or_else(|| "it is no cursor of an earlier list: send `next_cursor` as it came".to_owned())
    }
}

impl TryFrom<String> for ListCursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
