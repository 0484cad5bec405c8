//! A tool held against the protocol: one line for each thing that it owes, and what to do where it does not hold.

pub mod examine;
pub mod judge;
pub mod show;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// As it should be.
    Pass,
    /// Worth a look.
    Note,
    /// The tool breaks the protocol.
    Fail,
    /// Could not be seen, or is not asked of such a tool.
    Skip,
}

impl Mark {
    /// As `--json` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Note => "note",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it came out.
    pub mark: Mark,
    /// What was seen.
    pub told: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Check {
    fn pass(name: &'static str, told: impl Into<String>) -> Self {
        Self { name, mark: Mark::Pass, told: told.into(), hint: None }
    }

    fn skip(name: &'static str, told: impl Into<String>) -> Self {
        Self { name, mark: Mark::Skip, told: told.into(), hint: None }
    }

    fn note(name: &'static str, told: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, mark: Mark::Note, told: told.into(), hint: Some(hint.into()) }
    }

    fn fail(name: &'static str, told: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, mark: Mark::Fail, told: told.into(), hint: Some(hint.into()) }
    }
}

/// Whether the tool may be used: nothing failed.
pub fn holds(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.mark != Mark::Fail)
}
