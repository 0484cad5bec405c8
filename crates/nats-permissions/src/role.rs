//! A role of NATS users, as data.

use std::time::Duration;

use contract::subject::inbox_prefix;

/// The account of nats-server that a role belongs to. Nothing crosses from one to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Account {
    /// All services, tools and viewers: one fleet.
    Ailoop,
    /// The system account, by which operators look at servers and change them.
    System,
}

/// A role: what its users may do. Each credential of a role is a user of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Name of the role, which is also the prefix of its inboxes.
    pub name: &'static str,
    /// Description of the role for people.
    pub about: &'static str,
    /// The account that its users belong to.
    pub account: Account,
    /// Permissions of the users of the role.
    pub permissions: Permissions,
}

/// Permissions of a user to publish, subscribe and answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Subjects and filters that the user may publish to. If the list is empty, it may publish nothing.
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

/// Returns the filter of the inboxes to which replies to a role go; `nats::connect` sets their prefix. No other role may
/// subscribe to it.
pub(crate) fn inbox(role: &str) -> String {
    format!("{}.>", inbox_prefix(role))
}
