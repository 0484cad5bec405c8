//! Commands between a session and its child, which performs one of its calls.
//!
//! The id of the child follows from the call. The parent sends `start`, and later `pause`, `resume` or `stop`. Each
//! command has a number, so that a late command does not undo a later one. The end of the child is the result of the
//! call. Any replica may run either session.

use std::time::Duration;

use contract::Timestamp;
use contract::command::{Command, CommandMeta, ControlReason, Parent, Start, Verb};
use contract::commit::VERSION;
use contract::event::{Child, Configured, EndReason, InputKind, InputRef, Requests, SessionEnded, StopReason};
use contract::ids::{AgentId, CallAttempt, CallId, CommandId, SessionId};
use contract::limits::{JUDGE_MAX, MODEL_CALL_MAX, PAUSE_SEEN_MAX, SUMMARY_MAX};
use contract::model::{Content, ResultMeta, StreamingOverride};
use contract::subject::SessionKey;
use contract::tool::{ChildUsage, Outcome, ToolResult};
use serde_json::json;
use std::sync::Arc;

use crate::state::{Activity, CallStage, ClientToolSet, ParentCommand, Report, RunsAt, Setup, State, ToolCallState};

/// A command for the inbox of another session. It may be sent twice.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboundCommand<T> {
    /// The session that receives the command.
    pub to: SessionKey,
    /// Verb of the command, such as `start`.
    pub verb: Verb,
    /// Id of the command, the same each time it is sent.
    pub id: CommandId,
    /// The payload of the command.
    pub body: T,
}

/// The id of a result that the loop sends itself, as an executor would name it.
fn report_id(call: &CallId) -> Option<CommandId> {
    CommandId::new(&format!("{call}-1")).ok()
}

impl State {
    /// Records a command of the parent, or that a child has reported its result and needs no further commands.
    pub(crate) fn record_parent_command(&mut self, input: &InputRef, number: Option<u64>) {
        match (input.kind, number) {
            (InputKind::Control(Verb::ProvideToolResult), _) => {
                self.children.retain(|call, _| report_id(call).as_ref() != Some(&input.id));
            }
            (InputKind::Control(verb), Some(number)) => {
                if self.last_parent_command.as_ref().is_none_or(|last| last.number < number) {
                    self.last_parent_command = Some(ParentCommand { number, verb });
                }
            }
            (InputKind::Control(_) | InputKind::Timer, _) => {}
        }
    }

    /// The report for the parent when the session ends.
    pub(crate) fn reported(&self, at: Timestamp, ended: &SessionEnded) -> Option<Report> {
        let parent = self.setup.as_ref()?.parent.clone()?;
        let outcome = match (ended.reason, ended.stop_reason) {
            (EndReason::Completed, Some(StopReason::Completed) | None) => Outcome::Ok,
            (EndReason::Stopped | EndReason::Expired, _) => Outcome::Cancelled,
            (EndReason::Completed | EndReason::Error, _) => Outcome::Error,
        };
        let status = ended.stop_reason.map_or(ended.reason.as_str(), StopReason::as_str);
        let content = json!({
            "session_id": self.session(),
            "status": status,
            "response": ended.final_response,
        });
        let used = ChildUsage { spent: self.spent, tool_calls: self.tally.tool_calls };
        let duration_ms = u64::try_from(at.since(self.started).as_millis()).unwrap_or(u64::MAX);
        Some(Report { parent, outcome, content: content.to_string(), used, duration_ms })
    }

    /// Moves deadlines after a pause of the length `stood`. The calls of children move by it, since children were
    /// paused too, and so do those that wait for a client. Any other open call has its whole timeout again, but no longer
    /// than its turn: calls that did not begin before the pause begin now, and the session does not know which did.
    pub(crate) fn shift_deadlines(&mut self, at: Timestamp, stood: Duration) {
        let Some(turn) = &mut self.turn else { return };
        let end = turn.clock.deadline_from(at);
        match &mut turn.activity {
            Activity::AwaitingModel(model) => model.deadline = model.deadline.max(end.min(at.after(MODEL_CALL_MAX))),
            Activity::Summarising { model, .. } => {
                model.deadline = model.deadline.max(end.min(at.after(SUMMARY_MAX)));
            }
            Activity::Judging { judge, .. } => {
                judge.deadline = judge.deadline.max(end.min(at.after(JUDGE_MAX)));
            }
            Activity::RunningTools(calls) => {
                for state in calls {
                    let is_published_again = match state.runs_at() {
                        Some(RunsAt::Executor) => true,
                        Some(RunsAt::Child(_) | RunsAt::Client) | None => false,
                    };
                    let CallStage::Open { request, deadline, .. } = &mut state.stage else { continue };
                    *deadline = if is_published_again {
                        let whole = PAUSE_SEEN_MAX + Duration::from_millis(request.timeout_ms);
                        (*deadline).max(end.min(at.after(whole)))
                    } else {
                        deadline.after(stood)
                    };
                }
            }
            Activity::Ready | Activity::Backoff { .. } | Activity::Deciding | Activity::AwaitingUser { .. } => {}
        }
    }

    /// Applies new settings at once.
    pub(crate) fn configured(&mut self, configured: &Configured) {
        let Some(setup) = self.setup.as_deref() else { return };
        if let Some(turn) = &mut self.turn {
            turn.clock.limit(configured.agent.continuation.turn_timeout());
            if setup.model.id != configured.model.id {
                turn.fallback = 0;
            }
        }
        let kept = || Requests {
            parameters: setup.parameters.clone(),
            tool_choice: setup.tool_choice.clone(),
            ai_config: setup.ai_config.clone(),
            streaming: None,
            own_streaming: StreamingOverride::default(),
        };
        if let Some(tools) = &configured.client_tools {
            self.client_tools = Arc::new(ClientToolSet::new(tools.clone()));
        }
        let Requests { parameters, tool_choice, ai_config, streaming, own_streaming } =
            configured.requests.clone().unwrap_or_else(kept);
        self.setup = Some(Arc::new(Setup {
            agent: configured.agent.clone(),
            model: configured.model.clone(),
            fallbacks: configured.fallbacks.clone(),
            features: configured.features.clone(),
            overrides: configured.overrides.clone(),
            only_tools: setup.only_tools.clone(),
            interactive: setup.interactive,
            parameters,
            tool_choice,
            ai_config,
            own_streaming: if streaming.is_some() { Some(own_streaming) } else { setup.own_streaming },
            streaming: streaming.unwrap_or_else(|| setup.streaming.clone()),
            parent: setup.parent.clone(),
        }));
    }

    /// The agents from the first session down to this one.
    pub(crate) fn lineage(&self) -> Vec<AgentId> {
        let Some(setup) = &self.setup else { return Vec::new() };
        let above = setup.parent.iter().flat_map(|parent| parent.agents.iter().cloned());
        above.chain([setup.agent.id.clone()]).collect()
    }

    fn key_of(&self, session: SessionId) -> SessionKey {
        SessionKey { tenant: self.tenant().clone(), session }
    }

    fn meta(&self, number: Option<u64>) -> CommandMeta {
        let agent = self.setup.as_ref().map(|setup| format!("{} of {}", setup.agent.id, self.session()));
        CommandMeta { by: agent, parent_command_number: number, ..CommandMeta::new(self.updated) }
    }

    /// The `start` of the child that performs an open call.
    pub(crate) fn child_start(&self, call: &CallAttempt) -> Option<OutboundCommand<Command<Start>>> {
        let state = self.turn.as_ref()?.call(&call.call)?;
        let CallStage::Open { child: Some(child), slot, .. } = &state.stage else { return None };
        let Child { session_id, agent, task, share } = (**child).clone();
        let parent = Parent {
            session_id: self.session().clone(),
            call: call.call.clone(),
            slot: *slot,
            agents: self.lineage(),
            share,
        };
        let start =
            Start { agent: Some(agent), prompt: Some(Content::Text(task)), parent: Some(parent), ..Start::default() };
        Some(OutboundCommand {
            to: self.key_of(session_id),
            verb: Verb::Start,
            id: CommandId::new("start").ok()?,
            body: Command { meta: self.meta(None), body: start },
        })
    }

    /// The last command to the child of a call.
    pub(crate) fn child_command(&self, call: &CallId) -> Option<OutboundCommand<Command<ControlReason>>> {
        let ParentCommand { number, verb } = self.children.get(call)?;
        let reason = Some(format!("session {}", self.session()));
        Some(OutboundCommand {
            to: self.key_of(SessionId::child(self.tenant(), self.session(), call)),
            verb: *verb,
            id: CommandId::new(&format!("told-{number}")).ok()?,
            body: Command { meta: self.meta(Some(*number)), body: ControlReason { reason } },
        })
    }

    /// The result for the parent's call.
    pub(crate) fn parent_report(&self) -> Option<OutboundCommand<ToolResult>> {
        let Report { parent, outcome, content, used, duration_ms } = self.report.clone()?;
        let Parent { session_id, call, slot, .. } = *parent;
        let id = report_id(&call)?;
        let meta = ResultMeta { v: VERSION, slot, call, attempt: 1, opened_by: String::new() };
        let body = ToolResult { meta, outcome, content, code: None, duration_ms, whole: None, used: Some(used) };
        Some(OutboundCommand { to: self.key_of(session_id), verb: Verb::ProvideToolResult, id, body })
    }
}

impl ToolCallState {
    /// Whether a child session performs it now.
    pub(crate) fn is_child(&self) -> bool {
        matches!(self.runs_at(), Some(RunsAt::Child(_)))
    }
}
