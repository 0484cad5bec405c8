//! A user of NATS, as data.

use std::time::Duration;

use contract::subject::inbox_prefix;

/// A NATS user with its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name of the user, which is also the prefix of its inboxes: [`User::inbox`].
    pub name: &'static str,
    /// Description for people, which is a comment of the configuration.
    pub about: &'static str,
    /// Subjects and filters that it may publish to. If the list is empty, it may publish nothing.
    pub publish: Vec<String>,
    /// Subjects and filters that it may subscribe to; `<subject> <queue group>` only within that group.
    pub subscribe: Vec<String>,
    /// Limit of its answers to requests, which need no entry in `publish`. `None` if it may not answer.
    pub answers: Option<Answers>,
}

/// Limit of the answers to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Maximum number of messages.
    pub max: u32,
    /// Longest time from the request to the last message.
    pub within: Duration,
}

impl User {
    /// Returns the filter of the inboxes to which replies to this user go. No other user may subscribe to it.
    pub fn inbox(&self) -> String {
        inbox(self.name)
    }

    /// Returns the environment variable from which nats-server reads the password.
    pub fn password_variable(&self) -> String {
        format!("AILOOP_NATS_{}_PASSWORD", self.name.to_uppercase())
    }
}

/// Returns the filter of a user's inboxes, whose prefix `nats::connect` sets.
pub(crate) fn inbox(user: &str) -> String {
    format!("{}.>", inbox_prefix(user))
}
