//! `delegate`: calls that the loop performs itself, by child sessions.

use contract::command::{Budget, Verb};
use contract::event::{CallCancelled, Child, ChildCommanded, Event};
use contract::ids::{AgentId, CallId, SessionId, ToolName};
use contract::limits::{DELEGATE_DEPTH_MAX, MESSAGE_BYTES_MAX, TOOL_TIMEOUT_MAX};
use contract::tool::{ApprovalPolicy, DELEGATE, EffectClass, ToolSpec};
use contract::{ErrorCode, Json, Timestamp};
use serde::Deserialize;

use super::builder::DecisionBuilder;
use crate::state::{Activity, CallStage, RunsAt, ToolCallState};

/// Arguments of `delegate` as the model writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    agent: AgentId,
    task: String,
}

/// `delegate` as it is listed with the tools.
pub fn delegate_spec() -> ToolSpec {
    let parameters = serde_json::json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "The agent's key or first name, in lower case."},
            "task": {
                "type": "string",
                "description": "What it should do. It knows nothing of this conversation: say all that it needs."
            }
        },
        "required": ["agent", "task"],
        "additionalProperties": false
    });
    ToolSpec {
        name: ToolName::new(DELEGATE).unwrap_or_else(|_| unreachable!("a valid name")),
        description: "Gives a task to another agent, waits for it, and returns its answer.".to_owned(),
        parameters: Json::of(&parameters),
        effect: EffectClass::Idempotent,
        approval: ApprovalPolicy::Never,
        timeout_ms: u64::try_from(TOOL_TIMEOUT_MAX.as_millis()).ok(),
        max_output: None,
        instructions: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

impl DecisionBuilder<'_> {
    /// Whether the call can be performed at all; what only the composer knows is found out by the child.
    pub(super) fn delegable(&self, arguments: &str) -> Result<(), (ErrorCode, String)> {
        let Arguments { agent, task } =
            serde_json::from_str(arguments).map_err(|error| (ErrorCode::InvalidArguments, error.to_string()))?;
        if task.trim().is_empty() {
            return Err((ErrorCode::InvalidArguments, "the task is empty; say what the agent should do".to_owned()));
        }
        if task.len() > MESSAGE_BYTES_MAX {
            let message = format!("the task has {} bytes; at most {MESSAGE_BYTES_MAX}", task.len());
            return Err((ErrorCode::TooLarge, message));
        }
        let lineage = self.state.lineage();
        if let Some(message) = circles(&lineage, &agent) {
            return Err((ErrorCode::DelegationRefused, message));
        }
        if lineage.len() > DELEGATE_DEPTH_MAX {
            let message = format!("{DELEGATE_DEPTH_MAX} sessions stand above this one already; do the task yourself");
            return Err((ErrorCode::DelegationRefused, message));
        }
        Ok(())
    }

    /// The child of a call that opens now. `sharers`: how many calls share what is left, this one included.
    pub(super) fn child(&self, call: &CallId, arguments: &Json, sharers: u32, end: Timestamp) -> Option<Child> {
        let Arguments { agent, task } = serde_json::from_str(arguments.get()).ok()?;
        let session_id = SessionId::child(self.state.tenant(), self.state.session(), call);
        let seconds = end.since(self.at).as_secs().max(1);
        let share = Budget { timeout: Some(seconds), ..self.share(sharers) };
        Some(Child { session_id, agent, task, share })
    }

    /// The part of the turn's limits that is not reserved, divided by the number of calls that share it.
    fn share(&self, sharers: u32) -> Budget {
        let (Some(turn), Some(setup)) = (&self.state.turn, &self.state.setup) else { return Budget::default() };
        let mut left = turn.guard.left(&setup.agent.continuation, turn.spent);
        for state in turn.calls() {
            if let CallStage::Open { child: Some(child), .. } = &state.stage {
                left.tokens = less(left.tokens, child.share.tokens, u64::saturating_sub);
                left.tool_calls = less(left.tool_calls, child.share.tool_calls, u32::saturating_sub);
                left.cost_usd = less(left.cost_usd, child.share.cost_usd, |left, taken| (left - taken).max(0.0));
            }
        }
        let sharers = sharers.max(1);
        Budget {
            tokens: left.tokens.map(|tokens| tokens / u64::from(sharers)),
            cost_usd: left.cost_usd.map(|usd| usd / f64::from(sharers)),
            tool_calls: left.tool_calls.map(|calls| calls / sharers),
            timeout: None,
        }
    }

    /// Passes a command to every child that runs.
    pub(super) fn command_children(&mut self, verb: Verb) {
        let calls: Vec<CallId> = match self.state.turn.as_ref().map(|turn| &turn.activity) {
            Some(Activity::RunningTools(calls)) => {
                calls.iter().filter(|state| state.is_child()).map(|state| state.call.clone()).collect()
            }
            Some(_) | None => Vec::new(),
        };
        for call in calls {
            self.command_child(call, verb);
        }
    }

    /// A call that runs is no longer wanted.
    pub(super) fn call_off(&mut self, state: &ToolCallState, attempt: u32, tool: ToolName) {
        match state.runs_at() {
            Some(RunsAt::Child(_)) => self.command_child(state.call.clone(), Verb::Stop),
            Some(RunsAt::Executor) => {
                self.emit(Event::CallCancelled(CallCancelled { call: state.call.clone(), attempt, tool: Some(tool) }));
            }
            // No worker has it, and its result tells the client.
            Some(RunsAt::Client) | None => {}
        }
    }

    fn command_child(&mut self, call: CallId, verb: Verb) {
        self.emit(Event::ChildCommanded(ChildCommanded { call, number: self.state.child_commands + 1, verb }));
    }
}

/// Refusal of a delegation by which an agent would wait for itself.
pub(super) fn circles(lineage: &[AgentId], agent: &AgentId) -> Option<String> {
    lineage.contains(agent).then(|| {
        let names: Vec<&str> = lineage.iter().map(AgentId::as_str).collect();
        format!("agent {agent} waits for this very answer ({}); ask another one or do it yourself", names.join(" → "))
    })
}

fn less<T: Copy>(left: Option<T>, taken: Option<T>, minus: impl Fn(T, T) -> T) -> Option<T> {
    match (left, taken) {
        (Some(left), Some(taken)) => Some(minus(left, taken)),
        (left, _) => left,
    }
}
