//! Opens whatever may be opened now: a turn for a waiting message, the next step, calls that wait for their turn.

use std::collections::BTreeSet;

use contract::client_tool::Performer;
use contract::event::{
    ClientCallOpened, Event, ModelCallOpened, StopReason, ToolCallOpened, ToolsResolved, TurnStarted,
};
use contract::ids::{CallId, CommandId};
use contract::limits::{JSON_DEPTH_MAX, MODEL_CALL_MAX};
use contract::settings::ToolFilter;
use contract::subject::SessionKey;
use contract::tool::{DELEGATE, ToolSpec, sha256_hex};
use contract::trace::TraceContext;

use super::builder::DecisionBuilder;
use crate::state::{Activity, CallStage, Lifecycle, ToolCallState, ToolRequest};

impl DecisionBuilder<'_> {
    pub(super) fn advance(&mut self) {
        // Each round opens or ends something; the bound is for the day when one does not.
        for _ in 0..contract::limits::QUEUED_MESSAGES_MAX + 4 {
            if self.state.paused || self.state.life != Lifecycle::Alive || !self.advance_once() {
                return;
            }
        }
    }

    fn advance_once(&mut self) -> bool {
        let Some(turn) = &self.state.turn else { return self.start_turn() };
        match &turn.activity {
            Activity::Ready => self.next_step(),
            Activity::Backoff { call, attempt, retry_at, .. } if *retry_at <= self.at => {
                let (call, attempt, step) = (call.clone(), *attempt, turn.step);
                self.open_model_call(call, attempt, step);
                false
            }
            Activity::RunningTools(calls) => {
                let ready = self.dispatchable(calls);
                self.dispatch(&ready);
                false
            }
            Activity::Deciding => {
                self.decide_after_pause();
                true
            }
            Activity::AwaitingModel(_)
            | Activity::Backoff { .. }
            | Activity::Summarising { .. }
            | Activity::Judging { .. }
            | Activity::AwaitingUser { .. } => false,
        }
    }

    /// Messages that steered too late come first, together; else the first one that was queued.
    fn start_turn(&mut self) -> bool {
        let steering: Vec<CommandId> =
            self.state.waiting.iter().filter(|waiting| waiting.steers).map(|waiting| waiting.id.clone()).collect();
        let first = self.state.waiting.first().map(|waiting| waiting.id.clone());
        let messages = match (steering.is_empty(), first) {
            (false, _) => steering,
            (true, Some(first)) => vec![first],
            (true, None) => return false,
        };
        self.resolve_tools();
        let traceparent = self.input.traceparent.clone().or_else(|| self.next_traceparent());
        let nudged = self.state.waiting.iter().any(|waiting| waiting.nudges && messages.contains(&waiting.id));
        let premature = nudged && self.state.last_stop == Some(StopReason::Completed);
        self.emit(Event::TurnStarted(TurnStarted { turn: self.state.turns + 1, traceparent, messages, premature }));
        true
    }

    /// The trace of a turn that no client's request begins: one of its own, which the last one begot.
    fn next_traceparent(&self) -> Option<String> {
        let last: TraceContext = self.state.traceparent.as_deref()?.parse().ok()?;
        let key = SessionKey { tenant: self.state.tenant().clone(), session: self.state.session().clone() };
        Some(last.next_beginning(&key, self.state.turns + 1).to_string())
    }

    pub(super) fn resolve_tools(&mut self) {
        let (Some(catalogue), Some(setup)) = (&self.input.tools, &self.state.setup) else { return };
        let tools = permitted(catalogue, &setup.agent.tools);
        let sha256 = sha256_hex(contract::Json::of(&tools).get().as_bytes());
        if sha256 != self.state.tools.resolved.sha256 {
            self.emit(Event::ToolsResolved(ToolsResolved { sha256, tools }));
        }
    }

    fn next_step(&mut self) -> bool {
        let (Some(turn), Some(setup)) = (&self.state.turn, &self.state.setup) else { return false };
        let limit = match turn.last_step {
            Some(last) => last.opened.then_some(last.limit),
            None => turn.limit(&setup.agent.continuation, self.at),
        };
        if let Some(limit) = limit {
            self.at_limit(limit);
            return true;
        }
        let (number, step) = (turn.number, turn.step + 1);
        if self.fit(number, step) {
            return false;
        }
        self.open_model_call(CallId::model(number, step), 1, step);
        false
    }

    pub(super) fn open_model_call(&mut self, call: CallId, attempt: u32, step: u32) {
        let Some(turn) = &self.state.turn else { return };
        let deadline = turn.clock.deadline_from(self.at).min(self.at.after(MODEL_CALL_MAX));
        let turn = turn.number;
        self.emit(Event::ModelCallOpened(ModelCallOpened { call, attempt, turn, step, deadline }));
    }

    fn dispatchable(&self, calls: &[ToolCallState]) -> Vec<(CallId, Performer, ToolRequest)> {
        let parallel = self.state.model().map_or(1, |model| model.max_parallel_tools.max(1));
        let open = calls.iter().filter(|state| state.is_open()).count();
        let free = usize::try_from(parallel).unwrap_or(usize::MAX).saturating_sub(open);
        calls
            .iter()
            .filter_map(|state| match &state.stage {
                CallStage::Pending(request) => Some((state.call.clone(), state.performer, (**request).clone())),
                CallStage::Announced | CallStage::Gated { .. } | CallStage::Open { .. } | CallStage::Done(_) => None,
            })
            .take(free)
            .collect()
    }

    fn dispatch(&mut self, calls: &[(CallId, Performer, ToolRequest)]) {
        let Some(turn) = &self.state.turn else { return };
        let end = turn.clock.deadline_from(self.at);
        for (call, performer, request) in calls {
            let whole = self.at.after(std::time::Duration::from_millis(request.timeout_ms));
            if !performer.is_fleet() {
                self.emit(Event::ClientCallOpened(ClientCallOpened {
                    call: call.clone(),
                    tool: request.tool.clone(),
                    arguments: request.arguments.clone(),
                    effect: request.effect,
                    max_output: request.max_output,
                    deadline: whole,
                }));
                continue;
            }
            let deadline = whole.min(end);
            let child = (request.tool.as_str() == DELEGATE)
                .then(|| self.child(call, &request.arguments, self.delegates_waiting(), deadline))
                .flatten();
            self.emit(Event::ToolCallOpened(ToolCallOpened { call: call.clone(), attempt: 1, deadline, child }));
        }
    }

    /// Calls for children that are not open yet: they share the rest of the budget.
    fn delegates_waiting(&self) -> u32 {
        let waits = |state: &&ToolCallState| match &state.stage {
            CallStage::Pending(request) | CallStage::Gated { request, .. } => request.tool.as_str() == DELEGATE,
            CallStage::Announced | CallStage::Open { .. } | CallStage::Done(_) => false,
        };
        let calls = self.state.turn.as_ref().map_or(&[][..], |turn| turn.calls());
        u32::try_from(calls.iter().filter(waits).count()).unwrap_or(u32::MAX)
    }
}

/// The tools of a tenant that an agent may use, by name.
pub(super) fn permitted(catalogue: &[ToolSpec], filter: &ToolFilter) -> Vec<ToolSpec> {
    let mut seen = BTreeSet::new();
    let mut tools: Vec<ToolSpec> = catalogue
        .iter()
        // A schema is embedded in the log and in requests to models.
        .filter(|spec| spec.parameters.size().depth <= JSON_DEPTH_MAX)
        .filter(|spec| filter.permits(&spec.name) && seen.insert(spec.name.clone()))
        .cloned()
        .collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}
