//! Scopes: kinds of requests that a credential permits.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of requests that a credential permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Start and steer sessions, answer calls of the client's own tools, send mail.
    Run,
    /// Start sessions without settings of their own, and talk to them; answer calls of the client's own tools.
    Converse,
    /// Read sessions, lists and the catalogue.
    Observe,
    /// Answer gates: approve and deny calls, answer questions.
    Approve,
    /// Administer a tenant: repair sessions, try tools, retry and drop dead letters.
    Administer,
    /// Operate the fleet: look at its processes, its queues and what it stores of all tenants, and reset the budgets that
    /// limit a tenant.
    Operate,
}

impl Scope {
    /// All scopes, in the order in which they are listed.
    pub const ALL: [Self; 6] =
        [Self::Run, Self::Converse, Self::Observe, Self::Approve, Self::Administer, Self::Operate];

    /// Returns the name in configuration, tokens and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Converse => "converse",
            Self::Observe => "observe",
            Self::Approve => "approve",
            Self::Administer => "administer",
            Self::Operate => "operate",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
