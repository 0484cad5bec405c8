//! The id of a task: the session, and the slot of the commit that accepted the message. Any replica finds it in the log.

use std::fmt;
use std::str::FromStr;

use contract::SessionId;

/// Id of a task: its session and the slot of its message, as `<session>.<slot>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskId {
    pub(super) session: SessionId,
    pub(super) slot: u64,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.session, self.slot)
    }
}

impl FromStr for TaskId {
    type Err = ();

    /// Parses only what [`fmt::Display`] writes, so that a task has one id.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (session, slot) = text.split_once('.').ok_or(())?;
        let found = Self { session: SessionId::new(session).map_err(drop)?, slot: slot.parse().map_err(drop)? };
        if found.to_string() == text { Ok(found) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_id_is_parsed_back_and_has_one_form() {
        let id: TaskId = "chat-1_A.64".parse().unwrap();
        assert_eq!((id.session.as_str(), id.slot, id.to_string().as_str()), ("chat-1_A", 64, "chat-1_A.64"));
        for text in ["", ".", "s", "s.", ".1", "s.01", "s.+1", "s.-1", "s.1.2", "s t.1", "s.99999999999999999999"] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }
}
