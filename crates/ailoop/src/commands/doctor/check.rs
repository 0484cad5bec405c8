//! A check and its outcome.

use serde::Serialize;

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Ok,
    Warning,
    Failed,
}

/// A check, with its outcome for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) group: &'static str,
    pub(super) outcome: Outcome,
    /// Finding of the check.
    pub(super) found: String,
    /// Advice for the person; empty if all is well.
    pub(super) advice: String,
}

impl Check {
    pub(super) fn ok(group: &'static str, found: impl Into<String>) -> Self {
        Self { group, outcome: Outcome::Ok, found: found.into(), advice: String::new() }
    }

    pub(super) fn warn(group: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { group, outcome: Outcome::Warning, found: found.into(), advice: advice.into() }
    }

    pub(super) fn fail(group: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { group, outcome: Outcome::Failed, found: found.into(), advice: advice.into() }
    }
}
