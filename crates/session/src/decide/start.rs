//! `start`: the session's beginning.

use contract::ErrorCode;
use contract::command::{ContinuationOverride, Mode, Start};
use contract::event::{Event, SessionStarted};
use contract::limits::ITERATIONS_MAX;
use contract::model::Message;
use contract::settings::{AgentSettings, ContinuationSettings, ToolFilter};

use super::{Draft, Ignored};
use crate::StartInput;
use reply::Patterns;

impl Draft<'_> {
    pub(super) fn start(&mut self, input: &StartInput) -> Result<(), Ignored> {
        let start = &input.start;
        let composed = match &input.composed {
            Ok(composed) => composed,
            Err(refusal) => return Err(Ignored::because(refusal.code.clone(), refusal.message.clone())),
        };
        if let Some(prompt) = &start.prompt {
            super::message::check_size(prompt)?;
        }
        for message in &start.messages {
            check_history(message)?;
        }
        let agent = AgentSettings {
            continuation: continuation(&composed.agent.continuation, start.continuation.as_ref())?,
            tools: tools(&composed.agent.tools, start),
            ..composed.agent.clone()
        };
        self.handled();
        self.emit(Event::SessionStarted(Box::new(SessionStarted {
            agent,
            model: composed.model.clone(),
            interactive: start.interactive || start.prompt.is_none(),
            prompt: composed.prompt.clone(),
            fingerprint: composed.fingerprint.clone(),
            messages: input.history.iter().chain(&start.messages).cloned().collect(),
            parameters: start.parameters.clone(),
            streaming: start.streaming.clone().unwrap_or_default(),
        })));
        if let Some(prompt) = &start.prompt {
            self.user_message(prompt, Mode::Queue);
        }
        Ok(())
    }
}

/// History may hold what was said; calls and results belong to the session that made them.
fn check_history(message: &Message) -> Result<(), Ignored> {
    match message {
        Message::User { .. } => Ok(()),
        Message::Assistant { tool_calls, .. } if tool_calls.is_empty() => Ok(()),
        Message::Assistant { .. } | Message::System { .. } | Message::Tool { .. } => {
            let message = "messages may hold user messages and assistant texts only";
            Err(Ignored::because(ErrorCode::BadRequest, message))
        }
    }
}

fn continuation(
    base: &ContinuationSettings,
    over: Option<&ContinuationOverride>,
) -> Result<ContinuationSettings, Ignored> {
    let mut settings = base.clone();
    if let Some(over) = over {
        let ContinuationOverride {
            require_explicit_signal,
            max_iterations,
            timeout,
            continue_on_length,
            continuation_patterns,
            termination_patterns,
            limits,
            on_limit,
        } = over.clone();
        settings.require_explicit_signal = require_explicit_signal.unwrap_or(settings.require_explicit_signal);
        settings.max_iterations = max_iterations.unwrap_or(settings.max_iterations);
        settings.timeout = timeout.unwrap_or(settings.timeout);
        settings.continue_on_length = continue_on_length.unwrap_or(settings.continue_on_length);
        settings.continuation_patterns = continuation_patterns.unwrap_or(settings.continuation_patterns);
        settings.termination_patterns = termination_patterns.unwrap_or(settings.termination_patterns);
        settings.limits = limits.unwrap_or(settings.limits);
        settings.on_limit = on_limit.unwrap_or(settings.on_limit);
    }
    if !(1..=ITERATIONS_MAX).contains(&settings.max_iterations) {
        let message = format!("max_iterations must be 1 to {ITERATIONS_MAX}, got {}", settings.max_iterations);
        return Err(Ignored::because(ErrorCode::BadRequest, message));
    }
    if settings.timeout == 0 {
        return Err(Ignored::because(ErrorCode::BadRequest, "timeout must be at least 1 second"));
    }
    Patterns::compile(&settings).map_err(|error| Ignored::because(ErrorCode::BadRequest, error.to_string()))?;
    Ok(settings)
}

/// A session narrows what its agent may use; it never widens it.
fn tools(base: &ToolFilter, start: &Start) -> ToolFilter {
    let Some(wanted) = &start.tools else { return base.clone() };
    let permitted = |name: &&String| contract::ToolName::new(name).is_ok_and(|tool| base.permits(&tool));
    ToolFilter { allow: wanted.iter().filter(permitted).cloned().collect(), deny: base.deny.clone() }
}
