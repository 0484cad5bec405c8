//! `start`: the session's beginning.

use contract::ErrorCode;
use contract::command::{Budget, MessageMode, Parent, Verb};
use contract::event::{Event, SessionStarted, StatusChanged};
use contract::settings::{AgentSettings, ContinuationSettings, ToolFilter};

use super::{DecisionBuilder, Rejection};
use crate::StartInput;

impl DecisionBuilder<'_> {
    pub(super) fn start(&mut self, input: &StartInput) -> Result<(), Rejection> {
        // Whoever waits for a child is told when there will be none.
        self.begin(input).map_err(|ignored| Rejection { parent: input.start.parent.clone().map(Box::new), ..ignored })
    }

    fn begin(&mut self, input: &StartInput) -> Result<(), Rejection> {
        let start = &input.start;
        let before = self.state.last_parent_command.as_ref().map(|command| command.verb);
        if before == Some(Verb::Stop) {
            return Err(Rejection::new(ErrorCode::NotNow, "the call was called off before it began"));
        }
        let composed = match &input.composed {
            Ok(composed) => composed,
            Err(refusal) => return Err(Rejection::new(refusal.code.clone(), refusal.message.clone())),
        };
        let mut continuation = super::configure::checked(start.continuation.as_ref(), &composed.agent.continuation)?;
        if let Some(parent) = &start.parent {
            if let Some(message) = super::child::circles(&parent.agents, &composed.agent.id) {
                return Err(Rejection::new(ErrorCode::DelegationRefused, message));
            }
            share(&mut continuation, parent);
        }
        let tools = narrowed(&composed.agent.tools, start.tools.as_deref());
        let agent = AgentSettings { continuation, tools, ..composed.agent.clone() };
        let own = start.own_ai_config();
        crate::check::ai_config(&own)?;
        // An older composer lays nothing over anything.
        let requests = composed.ai_config.as_ref().unwrap_or(&own).clone();
        self.handled();
        self.emit(Event::SessionStarted(Box::new(SessionStarted {
            agent,
            model: composed.model.clone(),
            interactive: start.interactive || start.prompt.is_none(),
            prompt: composed.prompt.clone(),
            fingerprint: composed.fingerprint.clone(),
            messages: input.history.iter().chain(&start.messages).cloned().collect(),
            parameters: requests.parameters.clone(),
            tool_choice: requests.tool_choice.clone(),
            ai_config: own,
            streaming: start.streaming.clone().unwrap_or_default(),
            fallbacks: composed.fallbacks.clone(),
            features: start.features.clone(),
            overrides: start.continuation.clone(),
            only_tools: start.tools.clone(),
            parent: start.parent.clone().map(Box::new),
        })));
        if let Some(prompt) = &start.prompt {
            self.user_message(prompt, MessageMode::Queue);
        }
        if before == Some(Verb::Pause) {
            self.emit(Event::StatusPaused(StatusChanged { by: self.input.by.clone(), reason: None }));
        }
        Ok(())
    }
}

/// A child uses at most what its parent reserved for it.
pub(super) fn share(settings: &mut ContinuationSettings, parent: &Parent) {
    let Budget { tokens, cost_usd, tool_calls, timeout } = parent.share;
    let limits = &mut settings.limits;
    limits.tokens = least(limits.tokens, tokens, u64::min);
    limits.cost_usd = least(limits.cost_usd, cost_usd, f64::min);
    limits.tool_calls = least(limits.tool_calls, tool_calls, u32::min);
    settings.timeout = settings.timeout.min(timeout.unwrap_or(u64::MAX));
}

fn least<T>(own: Option<T>, reserved: Option<T>, min: impl Fn(T, T) -> T) -> Option<T> {
    match (own, reserved) {
        (Some(own), Some(reserved)) => Some(min(own, reserved)),
        (own, reserved) => own.or(reserved),
    }
}

/// A session narrows what its agent may use; it never widens it.
pub(super) fn narrowed(base: &ToolFilter, wanted: Option<&[String]>) -> ToolFilter {
    let Some(wanted) = wanted else { return base.clone() };
    let permitted = |name: &&String| contract::ToolName::new(name).is_ok_and(|tool| base.permits(&tool));
    ToolFilter { allow: wanted.iter().filter(permitted).cloned().collect(), deny: base.deny.clone() }
}
