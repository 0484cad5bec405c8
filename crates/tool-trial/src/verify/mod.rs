//! Checks a tool against the protocol: one finding for each rule, with a hint where the tool breaks it.

pub mod examine;
mod judge;
pub mod show;

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mark {
    Pass,
    /// Allowed, but worth a look.
    Note,
    /// The tool breaks the protocol.
    Fail,
    /// Not checked, or not required of such a tool.
    Skip,
}

/// One checked rule of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
    pub(crate) finding: String,
    /// Advice about the finding; none if nothing is to be done.
    pub(crate) hint: Option<String>,
}

impl Check {
    fn pass(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, mark: Mark::Pass, finding: finding.into(), hint: None }
    }

    fn skip(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, mark: Mark::Skip, finding: finding.into(), hint: None }
    }

    fn note(name: &'static str, finding: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, mark: Mark::Note, finding: finding.into(), hint: Some(hint.into()) }
    }

    fn fail(name: &'static str, finding: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, mark: Mark::Fail, finding: finding.into(), hint: Some(hint.into()) }
    }
}

/// Whether no check failed.
pub fn has_passed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.mark != Mark::Fail)
}
