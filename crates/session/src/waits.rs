//! Waits of a session, for people who ask why it does not move.

use contract::Timestamp;
use contract::client_tool::OpenClientCall;
use contract::commit::OpenGate;
use contract::event::GateKind;
use contract::ids::{CallId, SessionId, ToolName};
use contract::limits::{CLIENT_CALL_SHOWN_BYTES, CLIENT_CALLS_SHOWN_MAX, GATE_SHOWN_BYTES, GATES_SHOWN_MAX};
use contract::tool::EffectClass;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::state::{Activity, CallStage, Lifecycle, ModelCall, RunsAt, State, ToolCallState};

/// Something that a session waits for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Wait {
    /// For the next message of its user.
    User,
    /// For `resume`, since it was paused.
    Resume {
        /// Time at which the session was paused.
        since: Option<Timestamp>,
    },
    /// For the answer of a person.
    #[serde(serialize_with = "serialize_gate")]
    #[schemars(with = "GateWait<'static>")]
    Gate(OpenGate),
    /// For a gateway and a model.
    ModelCall {
        /// Id of the call.
        call: CallId,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Id of the model that is asked.
        model: String,
        /// `step`, `summary` or `judge`.
        purpose: &'static str,
        /// The slot of the log that opened it.
        slot: u64,
        /// Time at which the loop gives up the call.
        deadline: Timestamp,
    },
    /// For the time of the next attempt of a model call.
    Retry {
        /// The call that failed.
        call: CallId,
        /// The attempt that failed.
        attempt: u32,
        /// Time at which the next attempt begins.
        at: Timestamp,
    },
    /// For an executor and a tool, or for a child session.
    ToolCall {
        /// Id of the call.
        call: CallId,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The tool that is called.
        tool: ToolName,
        /// Effect class of the tool: the consequence of a second execution.
        effect: EffectClass,
        /// The session that performs it; none of a tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
        /// The slot of the log that opened it.
        slot: u64,
        /// Time at which the loop gives up the call, unless it reports progress.
        deadline: Timestamp,
    },
    /// For the answer of a client.
    ClientCall(OpenClientCall),
    /// For other calls of the same reply, before these calls begin.
    PendingCalls {
        /// Number of calls that have not begun.
        count: usize,
    },
}

/// A gate as a wait, with what it asks as `gate_kind`, because `kind` is that of the wait.
#[derive(Serialize, JsonSchema)]
struct GateWait<'a> {
    /// Id of the gate.
    gate: &'a CallId,
    /// Kind of the gate: the question that it asks.
    gate_kind: &'a GateKind,
    /// The tool that is called, where the gate is about a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a ToolName>,
    /// The call's arguments, or the beginning of their text where it is long.
    arguments: &'a str,
    /// Whether `arguments` is only the beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shortened: bool,
    /// SHA-256 in hex of the arguments; an answer must name the same.
    arguments_sha256: &'a str,
    /// Time at which the gate closes by itself.
    expires: Timestamp,
}

fn serialize_gate<S: Serializer>(gate: &OpenGate, serializer: S) -> Result<S::Ok, S::Error> {
    let OpenGate { gate, kind, tool, arguments, shortened, arguments_sha256, expires } = gate;
    let (shortened, expires, tool) = (*shortened, *expires, tool.as_ref());
    GateWait { gate, gate_kind: kind, tool, arguments, shortened, arguments_sha256, expires }.serialize(serializer)
}

impl State {
    /// Lists everything that the session waits for. Empty if it has ended, or if an orchestrator has to take the next
    /// step.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        if self.life != Lifecycle::Alive {
            return Vec::new();
        }
        let mut waits = Vec::new();
        if self.paused {
            waits.push(Wait::Resume { since: self.paused_at });
        }
        let Some(turn) = &self.turn else {
            if !self.paused {
                waits.push(Wait::User);
            }
            return waits;
        };
        waits.extend(self.open_gates(GATE_SHOWN_BYTES, GATES_SHOWN_MAX).into_iter().map(Wait::Gate));
        let model = self.model().map(|model| model.id.clone()).unwrap_or_default();
        match &turn.activity {
            Activity::AwaitingModel(call) => waits.push(model_call(call, model, "step")),
            Activity::Summarising { model: call, .. } => waits.push(model_call(call, model, "summary")),
            Activity::Judging { judge, model } => waits.push(model_call(judge, model.clone(), "judge")),
            Activity::Backoff { call, attempt, retry_at, .. } => {
                waits.push(Wait::Retry { call: call.clone(), attempt: *attempt, at: *retry_at });
            }
            Activity::RunningTools(calls) => {
                let waiting = self.open_client_calls(CLIENT_CALL_SHOWN_BYTES, CLIENT_CALLS_SHOWN_MAX);
                waits.extend(waiting.into_iter().map(Wait::ClientCall));
                waits.extend(calls.iter().filter_map(tool_call));
                let count = calls.iter().filter(|call| matches!(call.stage, CallStage::Pending(_))).count();
                waits.extend((count > 0).then_some(Wait::PendingCalls { count }));
            }
            Activity::Ready | Activity::Deciding | Activity::AwaitingUser { .. } => {}
        }
        waits
    }
}

fn model_call(call: &ModelCall, model: String, purpose: &'static str) -> Wait {
    let ModelCall { call, attempt, slot, deadline, .. } = call.clone();
    Wait::ModelCall { call, attempt, model, purpose, slot, deadline }
}

fn tool_call(state: &ToolCallState) -> Option<Wait> {
    let CallStage::Open { request, attempt, slot, deadline, .. } = &state.stage else { return None };
    let child = match state.runs_at()? {
        RunsAt::Executor => None,
        RunsAt::Child(child) => Some(child.session_id.clone()),
        RunsAt::Client => return None,
    };
    Some(Wait::ToolCall {
        call: state.call.clone(),
        attempt: *attempt,
        tool: request.tool.clone(),
        effect: request.effect,
        child,
        slot: *slot,
        deadline: *deadline,
    })
}
