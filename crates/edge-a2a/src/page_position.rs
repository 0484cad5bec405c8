//! Position at which a page of `ListTasks` ends: the newest status comes first.

use std::cmp::Reverse;

use contract::Timestamp;

use super::errors::A2aError;

/// Position of a task in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PagePosition {
    changed: Reverse<u64>,
    /// Orders tasks that changed at the same time.
    key: Reverse<String>,
}

impl PagePosition {
    pub(super) fn new(changed: Timestamp, key: String) -> Self {
        Self { changed: Reverse(changed.as_millis()), key: Reverse(key) }
    }

    /// Parses the token of a page; an empty one means the first page.
    pub(super) fn parse_token(token: &str) -> Result<Option<Self>, A2aError> {
        if token.is_empty() {
            return Ok(None);
        }
        let parts = token.split_once('.').and_then(|(changed, key)| Some((changed.parse().ok()?, key)));
        let (changed, key) = parts
            .ok_or_else(|| A2aError::invalid("`pageToken` is none that this server gave: begin again without one"))?;
        Ok(Some(Self { changed: Reverse(changed), key: Reverse(key.to_owned()) }))
    }

    pub(super) fn to_token(&self) -> String {
        format!("{}.{}", self.changed.0, self.key.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_parsed_back_and_newer_positions_come_first() {
        let at = |ms, key: &str| PagePosition::new(Timestamp::from_millis(ms), key.to_owned());
        assert_eq!(PagePosition::parse_token(&at(7, "s").to_token()).unwrap(), Some(at(7, "s")));
        assert!(at(8, "a") < at(7, "z") && at(7, "z") < at(7, "a"));
        assert_eq!(PagePosition::parse_token("").unwrap(), None);
        assert!(PagePosition::parse_token("x.y").is_err() && PagePosition::parse_token("7").is_err());
    }
}
