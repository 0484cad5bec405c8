//! Scopes: kinds of requests that a credential permits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

contract::words! {
    /// Kind of requests that a credential permits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Scope {
        /// Start and steer sessions, answer calls of the client's own tools, send mail.
        Run = "run",
        /// Start sessions without settings of their own, and talk to them; answer calls of the client's own tools.
        Converse = "converse",
        /// Read sessions, lists and the catalogue.
        Observe = "observe",
        /// Answer gates: approve and deny calls, answer questions.
        Approve = "approve",
        /// Administer a tenant: repair sessions, try tools, retry and drop dead letters.
        Administer = "administer",
        /// Operate the fleet: look at its processes, its queues and what it stores of all tenants, and reset the budgets that
        /// limit a tenant.
        Operate = "operate",
    }

    /// Returns the name in configuration, tokens and messages.
    fn as_str;
}
