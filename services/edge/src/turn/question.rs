//! A question of the model to a person.

use serde::Deserialize;

/// The arguments of the tool that asks.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GateQuestion {
    pub(crate) question: String,
    #[serde(default)]
    pub(crate) choices: Vec<String>,
}
