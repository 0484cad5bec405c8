//! Cost of calls in tokens and money.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// Tokens and money that calls have cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub struct Spent {
    /// Tokens of requests and replies.
    pub usage: Usage,
    /// Cost in US dollars.
    pub cost_usd: f64,
}

impl Spent {
    /// Sum of both, field by field.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { usage: self.usage.plus(other.usage), cost_usd: self.cost_usd + other.cost_usd }
    }

    /// Whether it is nothing at all.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
