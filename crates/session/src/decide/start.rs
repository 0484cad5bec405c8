//! `start`: the session's beginning.

use std::sync::Arc;

use contract::command::{MessageMode, SendUserMessage, Verb};
use contract::event::{Event, SessionStarted, StatusChanged};
use contract::model::Streaming;
use contract::settings::AgentSettings;
use contract::tool::ToolSpec;
use contract::{ErrorCode, ToolName};

use super::builder::{DecisionBuilder, Rejection};
use super::{child, session_settings};
use crate::{StartInput, history};

impl DecisionBuilder<'_> {
    pub(super) fn start(&mut self, input: &StartInput) -> Result<(), Rejection> {
        // A parent that waits for a child that cannot start gets a result.
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
        self.check_agent(&composed.agent.id)?;
        let mut continuation = session_settings::checked(start.continuation.as_ref(), &composed.agent.continuation)?;
        if let Some(parent) = &start.parent {
            if let Some(message) = child::circles(&parent.agents, &composed.agent.id) {
                return Err(Rejection::new(ErrorCode::DelegationRefused, message));
            }
            session_settings::limit_to_budget(&mut continuation, parent);
        }
        self.check_wanted_tools(start.tools.as_deref().unwrap_or_default(), &composed.agent)?;
        let tools = session_settings::narrowed(&composed.agent.tools, start.tools.as_deref());
        let agent = AgentSettings { continuation, tools, ..composed.agent.clone() };
        self.check_tool_names(&start.client_tools, &agent.tools)?;
        let own = start.own_ai_config();
        crate::check::ai_config(&own)?;
        // An older composer lays nothing over anything.
        let requests = composed.requests().unwrap_or_else(|| own.clone());
        let streaming = own.streaming.over(&requests.streaming.over(&Streaming::default()));
        self.handled();
        self.emit(Event::SessionStarted(Box::new(SessionStarted {
            agent,
            model: composed.model.clone(),
            interactive: start.interactive || start.prompt.is_none(),
            prompt: composed.prompt.clone(),
            fingerprint: composed.fingerprint.clone(),
            messages: input.history.iter().cloned().chain(history::to_messages(&start.messages)).collect(),
            parameters: requests.parameters.clone(),
            tool_choice: requests.tool_choice.clone(),
            streaming,
            own_streaming: Some(own.streaming),
            ai_config: own.without_streaming(),
            fallbacks: composed.fallbacks.clone(),
            features: start.features.clone(),
            overrides: start.continuation.clone(),
            only_tools: start.tools.clone(),
            client_tools: start.client_tools.clone(),
            parent: start.parent.clone().map(Box::new),
            resume_from: start.resume_from.clone(),
        })));
        if let Some(prompt) = &start.prompt {
            self.user_message(&SendUserMessage::new(prompt.clone(), MessageMode::Queue));
        }
        if before == Some(Verb::Pause) {
            self.emit(Event::StatusPaused(StatusChanged { by: self.input.by.clone(), reason: None }));
        }
        Ok(())
    }

    /// Refuses a tool that the session names and never gets: its agent may not use it, or nobody knows it. A tool that
    /// the agent names is known, also while nobody serves it.
    fn check_wanted_tools(&self, wanted: &[String], agent: &AgentSettings) -> Result<(), Rejection> {
        let is_known = |name: &ToolName| {
            let is_served = |catalogue: &Arc<Vec<ToolSpec>>| catalogue.iter().any(|tool| tool.name == *name);
            agent.tools.allow.iter().any(|allowed| allowed == name.as_str())
                || self.input.tools.as_ref().is_none_or(is_served)
        };
        let is_usable =
            |name: &String| ToolName::new(name).is_ok_and(|name| agent.tools.permits(&name) && is_known(&name));
        let Some(index) = wanted.iter().position(|name| !is_usable(name)) else { return Ok(()) };
        let message = format!(
            "tools[{index}]: agent {} has no tool {:?}; `tools.list` has the names, and `tools` in agents.yaml says which \
             of them an agent has",
            agent.id, wanted[index]
        );
        Err(Rejection::new(ErrorCode::UnknownTool, message))
    }
}
