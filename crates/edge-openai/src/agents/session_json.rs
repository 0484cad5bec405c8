//! A session in the form of the Agents API, from its summary and then from its events.

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, Phase, SessionSummary};
use contract::event::GateKind;
use contract::spent::Spent;
use contract::{SessionId, Timestamp};
use serde_json::{Map, Value, json};

use super::items::{self, RequiredAction};
use super::{catalogue, turn_json};
use crate::function::SERVER_LABEL;
use crate::responses::items::usage;
use crate::responses::question;

/// State of a session, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AgentSession {
    pub(super) id: SessionId,
    pub(super) agent: String,
    model: String,
    created: Timestamp,
    pub(super) active: Timestamp,
    pub(super) spent: Spent,
    /// Number of the last turn, from 1; 0 before the first.
    pub(super) turn: u32,
    pub(super) is_running: bool,
    /// Reason why the session takes no more messages.
    pub(super) end: Option<String>,
    pub(super) actions: Vec<RequiredAction>,
    /// As the client gave them with the request; they are not stored.
    pub(super) metadata: Map<String, Value>,
}

impl AgentSession {
    /// Reads a summary. That of the index has shortened arguments.
    pub(super) fn of_summary(summary: &SessionSummary) -> Self {
        let turn = items::turn_id(&summary.session_id, summary.turn);
        let gates = summary.gates.iter().map(|gate| of_gate(&turn, gate));
        let of_call =
            |call: &OpenClientCall| RequiredAction::of_call(&turn, &call.call, call.tool.as_str(), &call.arguments);
        let is_running = match summary.phase {
            Phase::Running => true,
            Phase::Paused => summary.step > 0,
            Phase::Idle | Phase::Ended => false,
        };
        let end = (summary.phase == Phase::Ended).then(|| {
            let reason = summary.stop_reason.map_or("stopped", contract::event::StopReason::as_str);
            format!("the session has ended and takes no message any more; its last turn: {reason}")
        });
        Self {
            id: summary.session_id.clone(),
            agent: summary.agent.clone(),
            model: summary.model.clone(),
            created: summary.started,
            active: summary.updated,
            spent: summary.spent,
            turn: summary.turn,
            is_running,
            end,
            actions: gates.chain(summary.client_calls.iter().map(of_call)).collect(),
            metadata: Map::new(),
        }
    }

    /// Returns the session as it was before its first event.
    pub(super) fn at_start(self) -> Self {
        Self {
            turn: 0,
            is_running: false,
            end: None,
            actions: Vec::new(),
            spent: Spent::default(),
            active: self.created,
            ..self
        }
    }

    pub(super) fn status(&self) -> &'static str {
        match (self.end.is_some(), self.actions.is_empty(), self.is_running) {
            (true, _, _) => "failed",
            (false, false, _) => "requires_action",
            (false, true, true) => "in_progress",
            (false, true, false) => "idle",
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut agent = catalogue::settings(&self.model);
        agent["id"] = json!(self.agent);
        let actions: Vec<&Value> = self.actions.iter().map(|action| &action.body).collect();
        json!({
            "id": self.id, "object": "agent.session", "agent": agent, "status": self.status(), "error": self.end,
            "required_actions": actions, "environment": {"type": "none"}, "metadata": self.metadata,
            "created_at": turn_json::seconds(self.created), "last_active_at": turn_json::seconds(self.active),
            "usage": usage(&self.spent), "vault_ids": [],
            "spend_control": {"limit": null, "consumed": self.spent.cost_usd},
        })
    }
}

/// Makes the action for a gate: the protocol has requests for approval only, so a question is one too.
pub(super) fn of_gate(turn: &str, gate: &OpenGate) -> RequiredAction {
    let name = question::name(gate.tool.as_ref(), gate.kind);
    let message = match gate.kind {
        GateKind::Approval => format!("The agent asks whether it may call {name}."),
        GateKind::Question => question::text(&gate.arguments),
        GateKind::Limit(limit) => format!("The turn has reached its limit {}. May it go on?", limit.as_str()),
        GateKind::Error(_) => "A step failed. Try it again?".to_owned(),
    };
    let body = json!({
        "type": "mcp_approval_request", "request_id": gate.gate, "turn_id": turn,
        "request": {
            "type": "mcp_tool_call", "server_label": SERVER_LABEL, "name": name,
            "arguments": items::arguments(&gate.arguments), "message": message,
        },
    });
    RequiredAction { id: gate.gate.clone(), body }
}
