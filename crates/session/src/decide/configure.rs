//! `configure`: settings of a session that runs.

use contract::command::ContinuationOverride;
use contract::event::{Configured, Event, Prompt};
use contract::limits::ITERATIONS_MAX;
use contract::settings::{AgentSettings, Cap, ContinuationSettings, LimitsOverride};
use contract::{ErrorCode, command::Configure};
use reply::Patterns;

use super::{Draft, Ignored};
use crate::ConfigureInput;

impl Draft<'_> {
    pub(super) fn configure(&mut self, input: &ConfigureInput) -> Result<(), Ignored> {
        let Configure { continuation, features, model } = &input.configure;
        let Some(setup) = self.core.setup.clone() else { return Ok(()) };
        let is_set = |own: &ContinuationOverride| {
            let limits = own.limits.filter(|limits| *limits != LimitsOverride::default());
            ContinuationOverride { limits, ..own.clone() } != ContinuationOverride::default()
        };
        if !continuation.as_ref().is_some_and(is_set) && features.is_empty() && model.is_none() {
            let message = "nothing is to be changed; name continuation, features or model";
            return Err(Ignored::because(ErrorCode::BadRequest, message));
        }
        if let Some(both) = features.enable.iter().find(|name| features.disable.contains(name)) {
            let message = format!("feature {both:?} is both in enable and in disable; name it once");
            return Err(Ignored::because(ErrorCode::BadRequest, message));
        }
        let overrides = match (setup.overrides.clone(), continuation.clone()) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => now.or(before),
        };
        let composed = match &input.composed {
            Some(Ok(composed)) => Some(composed),
            Some(Err(refusal)) => return Err(Ignored::because(refusal.code.clone(), refusal.message.clone())),
            None => None,
        };
        let base = composed.map_or(&setup.agent.continuation, |composed| &composed.agent.continuation);
        let mut settings = checked(overrides.as_ref(), base)?;
        if let Some(parent) = &setup.parent {
            super::start::share(&mut settings, parent);
        }
        self.handled();
        let agent = composed.map_or(&setup.agent, |composed| &composed.agent);
        let prompt = composed
            .map(|composed| Prompt { text: composed.prompt.clone(), fingerprint: composed.fingerprint.clone() });
        self.emit(Event::Configured(Box::new(Configured {
            by: self.input.by.clone(),
            // What the session may use was settled when it began.
            agent: AgentSettings {
                continuation: settings,
                // What it may do stays as it was when it began.
                tools: setup.agent.tools.clone(),
                approvals: setup.agent.approvals.clone(),
                ..agent.clone()
            },
            model: composed.map_or_else(|| setup.model.clone(), |composed| composed.model.clone()),
            fallbacks: composed.map_or_else(|| setup.fallbacks.clone(), |composed| composed.fallbacks.clone()),
            prompt,
            features: setup.features.clone().and(features),
            overrides,
        })));
        Ok(())
    }
}

/// A session's own settings over its agent's, if they can be used.
pub(super) fn checked(
    over: Option<&ContinuationOverride>,
    base: &ContinuationSettings,
) -> Result<ContinuationSettings, Ignored> {
    let settings = over.map_or_else(|| base.clone(), |over| over.over(base));
    if !(1..=ITERATIONS_MAX).contains(&settings.max_iterations) {
        let message = format!("max_iterations must be 1 to {ITERATIONS_MAX}, got {}", settings.max_iterations);
        return Err(Ignored::because(ErrorCode::BadRequest, message));
    }
    if settings.timeout == 0 {
        return Err(Ignored::because(ErrorCode::BadRequest, "timeout must be at least 1 second"));
    }
    if let Some(message) = over.and_then(|over| over.limits).and_then(nothing_left) {
        return Err(Ignored::because(ErrorCode::BadRequest, message));
    }
    Patterns::compile(&settings).map_err(|error| Ignored::because(ErrorCode::BadRequest, error.to_string()))?;
    Ok(settings)
}

/// What is wrong with limits under which no turn could begin.
fn nothing_left(limits: LimitsOverride) -> Option<&'static str> {
    let LimitsOverride { tokens, cost_usd, tool_calls, repetition: _, no_progress: _ } = limits;
    if tokens == Cap::At(0) {
        Some("limits.tokens must be at least 1; null takes the limit off")
    } else if matches!(cost_usd, Cap::At(usd) if !usd.is_finite() || usd <= 0.0) {
        Some("limits.cost_usd must be a number above 0; null takes the limit off")
    } else if tool_calls == Cap::At(0) {
        Some("limits.tool_calls must be at least 1; null takes the limit off")
    } else {
        None
    }
}
