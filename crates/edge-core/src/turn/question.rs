//! A question of the model to a person.

use serde::Deserialize;

/// The arguments of the tool that asks.
#[derive(Debug, Default, Deserialize)]
pub struct GateQuestion {
    /// Text of the question.
    pub question: String,
    /// Answers that it proposes; empty for a free text.
    #[serde(default)]
    pub choices: Vec<String>,
}
