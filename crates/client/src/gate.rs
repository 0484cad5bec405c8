//! Answers to gates: places where a session waits for the decision of a person.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::event::GateRequest;

/// The answer to a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateDecision {
    pub(crate) decision: &'static str,
    pub(crate) arguments: Option<Value>,
    pub(crate) content: Option<String>,
    pub(crate) note: Option<String>,
}

impl GateDecision {
    /// The call runs, or the turn goes on.
    pub fn approve() -> Self {
        Self { decision: "approve", arguments: None, content: None, note: None }
    }

    /// The call runs with other arguments, a JSON object.
    pub fn approve_with(arguments: impl Into<Value>) -> Self {
        Self { arguments: Some(arguments.into()), ..Self::approve() }
    }

    /// The call does not run, or the question stays without an answer.
    pub fn deny() -> Self {
        Self { decision: "deny", ..Self::approve() }
    }

    /// Answers the question of a model.
    pub fn answer(text: impl Into<String>) -> Self {
        Self { decision: "answer", content: Some(text.into()), ..Self::approve() }
    }

    /// The reason of a denial, which the model reads.
    #[must_use]
    pub fn note(self, text: impl Into<String>) -> Self {
        Self { note: Some(text.into()), ..self }
    }
}

/// Reference to a gate and its arguments. An answer to other arguments is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRef {
    pub(crate) gate: String,
    pub(crate) arguments_sha256: String,
}

impl From<&GateRequest> for GateRef {
    fn from(gate: &GateRequest) -> Self {
        Self { gate: gate.gate.clone(), arguments_sha256: gate.arguments_sha256.clone() }
    }
}

impl From<&proto::PendingGate> for GateRef {
    fn from(gate: &proto::PendingGate) -> Self {
        Self { gate: gate.gate.clone(), arguments_sha256: gate.arguments_sha256.clone() }
    }
}

/// Decides about gates while a turn is followed; none leaves the gate open.
pub(crate) type GateHandler = Arc<dyn Fn(GateRequest) -> BoxFuture<'static, Option<GateDecision>> + Send + Sync>;
