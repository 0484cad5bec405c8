//! `ai_rpc.model.budgets`: spending of tenants and agents, as gateways know it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ErrorCode, TenantId, Timestamp};

/// Request about the budgets of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetRequest {
    /// List all budgets of the tenant.
    List {
        /// The tenant whose budgets are listed.
        tenant: TenantId,
    },
    /// Forget what was spent and reserved in a budget: its period begins again.
    Reset {
        /// The tenant that owns the budget.
        tenant: TenantId,
        /// Its name, as [`BudgetStatus::budget`].
        budget: String,
    },
}

/// Response to a [`BudgetRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetReply {
    /// The budgets of the tenant.
    Budgets(Vec<BudgetStatus>),
    /// The action was refused and changed nothing.
    Refused {
        /// Stable error code of the refusal.
        code: ErrorCode,
        /// Explanation for people: what failed, and what to do.
        message: String,
    },
}

/// A budget in its current period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Budget")]
pub struct BudgetStatus {
    /// Its name within the tenant: the period, and the agent where it is one of an agent, as in `day` or `day.e`.
    pub budget: String,
    /// The agent; none where it is one of the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `hour`, `day` or `month`, in UTC.
    pub per: String,
    /// Limit in US dollars; none where money is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_max: Option<f64>,
    /// Limit in tokens of requests and replies; none where they are not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
    /// US dollars that were spent.
    pub usd_spent: f64,
    /// Tokens that were spent.
    pub tokens_spent: u64,
    /// US dollars that running calls may cost at most.
    pub usd_reserved: f64,
    /// Tokens that running calls may take at most.
    pub tokens_reserved: u64,
    /// Calls that hold a reservation.
    pub running: u64,
    /// Time at which the next period begins.
    pub ends: Timestamp,
}

impl BudgetStatus {
    /// The part of the limit that was spent, 0 to 1 and above; the larger one of money and tokens.
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn spent_ratio(&self) -> f64 {
        let usd = self.usd_max.filter(|max| *max > 0.0).map_or(0.0, |max| self.usd_spent / max);
        let tokens = self.tokens_max.filter(|max| *max > 0).map_or(0.0, |max| self.tokens_spent as f64 / max as f64);
        usd.max(tokens)
    }
}
