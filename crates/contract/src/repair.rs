//! `ai_rpc.session.repair`: performs a session's outstanding effects again after its streams lost messages.

use serde::{Deserialize, Serialize};

use crate::{ErrorCode, SessionId, TenantId};

/// Request to repair a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRequest {
    /// Tenant that owns the session.
    pub tenant: TenantId,
    /// Id of the session.
    pub session: SessionId,
}

/// Response to a [`RepairRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairReply {
    /// Effects that were performed again, one short line each. A repeated effect does no harm.
    Repaired(Vec<String>),
    /// The action was refused and changed nothing.
    Refused {
        /// Stable error code of the refusal.
        code: ErrorCode,
        /// Explanation for people: what failed, and what to do.
        message: String,
    },
}
