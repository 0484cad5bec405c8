//! The documented JSON-RPC parameters of `continuation.progress`.

use serde::Serialize;

use crate::event::{ContinuationProgress, DecisionSource, Progress, Spent};
use crate::ids::SessionId;
use crate::timestamp::Timestamp;

/// Parameters as the loop's design documents them, plus `session_id`, `seq`, `turn` and the decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgressParams {
    /// Id of the session.
    #[serde(rename = "sessionId")]
    pub session_id: SessionId,
    /// The session once more, under the name that every other notification uses.
    #[serde(rename = "session_id")]
    pub session: SessionId,
    /// Id of the agent that works.
    pub agent_id: String,
    /// The step's number within its turn.
    pub iteration: u32,
    /// Steps that the turn may have.
    pub max_iterations: u32,
    /// Estimated progress of the work.
    pub progress: Progress,
    /// The tools that the reply called.
    pub current_tools: Vec<String>,
    /// Time of the decision.
    pub timestamp: Timestamp,
    /// Public sequence number of the event.
    pub seq: u64,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Whether another step follows.
    pub continues: bool,
    /// Source of the decision.
    pub source: DecisionSource,
    /// Reason for the decision, in the words of the model or of the loop.
    pub reason: String,
    /// The signal's status, or `UNKNOWN`.
    pub status: String,
    /// Confidence of the model in its signal, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Message from the loop to the model at the start of the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// Tokens and money that a judge used.
    #[serde(skip_serializing_if = "Spent::is_nothing")]
    pub spent: Spent,
}

impl ProgressParams {
    /// The documented form of a committed decision.
    pub fn new(session_id: SessionId, seq: u64, timestamp: Timestamp, event: &ContinuationProgress) -> Self {
        Self {
            session: session_id.clone(),
            session_id,
            agent_id: event.agent_id.clone(),
            iteration: event.iteration,
            max_iterations: event.max_iterations,
            progress: event.progress.clone(),
            current_tools: event.current_tools.clone(),
            timestamp,
            seq,
            turn: event.turn,
            continues: event.continues,
            source: event.source.clone(),
            reason: event.reason.clone(),
            status: event.status.clone(),
            confidence: event.confidence,
            nudge: event.nudge.clone(),
            spent: event.spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_serialises_to_the_documented_shape() {
        let event = ContinuationProgress {
            agent_id: "e".into(),
            turn: 1,
            iteration: 2,
            max_iterations: 10,
            progress: Progress {
                current_step: Some(2),
                total_steps: Some(4),
                completion_percentage: Some(50.0),
                steps_completed: vec!["Listed plans".into(), "Read plan".into()],
                steps_remaining: vec!["Decompose plan".into(), "Analyze dependencies".into()],
            },
            current_tools: vec!["decompose_plan".into()],
            continues: true,
            source: DecisionSource::Pattern("continuation:next i will".into()),
            reason: "The reply announces a step.".into(),
            status: "UNKNOWN".into(),
            confidence: Some(0.5),
            excerpt: String::new(),
            call_ids: vec![],
            nudge: Some("Go on.".into()),
            spent: Spent::default(),
        };
        let at = Timestamp::parse("2024-01-15T10:30:45.123Z").unwrap();
        let params = ProgressParams::new(SessionId::new("s").unwrap(), 7, at, &event);
        let value = serde_json::to_value(params).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "sessionId": "s", "session_id": "s", "agent_id": "e", "iteration": 2, "max_iterations": 10,
                "progress": {
                    "current_step": 2, "total_steps": 4, "completion_percentage": 50,
                    "steps_completed": ["Listed plans", "Read plan"],
                    "steps_remaining": ["Decompose plan", "Analyze dependencies"]
                },
                "current_tools": ["decompose_plan"], "timestamp": "2024-01-15T10:30:45.123Z", "seq": 7,
                "turn": 1, "continues": true, "source": "pattern:continuation:next i will",
                "reason": "The reply announces a step.", "status": "UNKNOWN", "confidence": 0.5, "nudge": "Go on."
            })
        );
    }
}
