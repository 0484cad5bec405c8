//! `configure`: settings of a session that runs.

use contract::command::Configure;
use contract::compose::Composed;
use contract::event::{Configured, Event, Requests, SystemPrompt};
use contract::model::{Streaming, StreamingOverride};
use contract::settings::AgentSettings;
use contract::{AiConfig, ErrorCode};

use super::builder::{DecisionBuilder, Rejection};
use super::{child, session_settings};
use crate::state::Setup;
use crate::{ConfigureInput, check};

impl DecisionBuilder<'_> {
    pub(super) fn configure(&mut self, input: &ConfigureInput) -> Result<(), Rejection> {
        let Configure { agent: to, continuation, features, model: _, ai_config, client_tools } = &input.configure;
        let Some(setup) = self.state.setup.clone() else { return Ok(()) };
        let overrides = setup.overrides_with(continuation.as_ref());
        let composed = match &input.composed {
            Some(Ok(composed)) => Some(composed),
            Some(Err(refusal)) => return Err(Rejection::new(refusal.code.clone(), refusal.message.clone())),
            None => None,
        };
        if let Some(composed) = composed {
            self.check_agent(&composed.agent.id)?;
        }
        if let (Some(_), Some(parent), Some(composed)) = (to, &setup.parent, composed)
            && let Some(message) = child::circles(&parent.agents, &composed.agent.id)
        {
            return Err(Rejection::new(ErrorCode::DelegationRefused, message));
        }
        let base = composed.map_or(&setup.agent.continuation, |composed| &composed.agent.continuation);
        let mut settings = session_settings::checked(overrides.as_ref(), base)?;
        if let Some(parent) = &setup.parent {
            session_settings::limit_to_budget(&mut settings, parent);
        }
        let features = setup.features.clone().and(features);
        let own = ai_config.over(setup.own_ai_config());
        check::features(&features)?;
        check::ai_config(&own)?;
        let requests = composed.map(|composed| requests(&setup, composed, ai_config, &own));
        let agent = composed.map_or(&setup.agent, |composed| &composed.agent);
        // What the session may use was settled when it began, and is another agent's where one takes over.
        let (tools, approvals) = match to {
            Some(_) => (session_settings::narrowed(&agent.tools, setup.only_tools.as_deref()), agent.approvals.clone()),
            None => (setup.agent.tools.clone(), setup.agent.approvals.clone()),
        };
        if to.is_some() || client_tools.is_some() {
            self.check_tool_names(client_tools.as_ref().unwrap_or(&self.state.client_tools.tools), &tools)?;
        }
        self.handled();
        let prompt = composed
            .map(|composed| SystemPrompt { text: composed.prompt.clone(), fingerprint: composed.fingerprint.clone() });
        self.emit(Event::Configured(Box::new(Configured {
            by: self.input.by.clone(),
            agent: AgentSettings { continuation: settings, tools, approvals, ..agent.clone() },
            model: composed.map_or_else(|| setup.model.clone(), |composed| composed.model.clone()),
            fallbacks: composed.map_or_else(|| setup.fallbacks.clone(), |composed| composed.fallbacks.clone()),
            prompt,
            features,
            overrides,
            requests,
            client_tools: client_tools.clone(),
        })));
        if to.is_some() {
            // Nothing of the other agent's stays on offer, in a running turn either.
            self.resolve_tools();
        }
        Ok(())
    }
}

/// Returns the requests to the model after the change; `own` is the session's own configuration of them.
fn requests(setup: &Setup, composed: &Composed, change: &AiConfig, own: &AiConfig) -> Requests {
    // An older composer lays nothing over anything: what held goes on.
    let kept = || {
        let (parameters, tool_choice) = (setup.parameters.clone(), setup.tool_choice.clone());
        let streaming = StreamingOverride::from(&setup.streaming);
        change.over(AiConfig { parameters, tool_choice, streaming, ..AiConfig::default() })
    };
    let AiConfig { parameters, tool_choice, streaming, .. } = composed.requests().unwrap_or_else(kept);
    Requests {
        parameters,
        tool_choice,
        ai_config: own.clone().without_streaming(),
        streaming: Some(own.streaming.over(&streaming.over(&Streaming::default()))),
        own_streaming: own.streaming,
    }
}
