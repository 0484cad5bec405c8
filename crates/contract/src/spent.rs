//! What calls cost.

use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// Tokens and money.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// US dollars.
    pub cost_usd: f64,
}

impl Spent {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { usage: self.usage.plus(other.usage), cost_usd: self.cost_usd + other.cost_usd }
    }

    /// Whether it is nothing at all.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
