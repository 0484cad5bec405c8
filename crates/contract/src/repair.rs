//! `ai_rpc.session.repair`: performs a session's outstanding effects again after its streams lost messages.

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, SessionId, TenantId};

/// Which session is repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRequest {
    /// Tenant that owns the session.
    pub tenant: TenantId,
    /// Id of the session.
    pub session: SessionId,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairReply {
    /// What was performed again, one short line each; each was harmless where it had been performed before.
    Repaired(Vec<String>),
    /// The action was refused and changed nothing.
    Refused {
        /// Stable error code of the refusal.
        code: ErrorCode,
        /// Explanation for people: what failed, and what to do.
        message: String,
    },
}
