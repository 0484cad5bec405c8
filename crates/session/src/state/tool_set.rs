//! The tools that a session may use: those of its agent, and those that clients brought.

use std::sync::OnceLock;

use contract::Json;
use contract::event::ToolsResolved;
use contract::model::ToolDefinition;
use contract::tool::ToolSpec;
use contract::{ClientTool, ToolName};
use serde::{Deserialize, Serialize};

/// The tools that a session may use, with their definitions for models.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ToolSet {
    pub(crate) resolved: ToolsResolved,
    /// The definitions for models, built once, since each step sends them.
    #[serde(skip)]
    definitions: OnceLock<Vec<Json>>,
}

impl ToolSet {
    pub(crate) fn new(resolved: ToolsResolved) -> Self {
        Self { resolved, definitions: OnceLock::new() }
    }

    pub(crate) fn definitions(&self) -> &[Json] {
        self.definitions.get_or_init(|| self.resolved.tools.iter().map(definition).collect())
    }
}

/// The tools that clients brought, with their definitions for models.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClientToolSet {
    pub(crate) tools: Vec<ClientTool>,
    #[serde(skip)]
    definitions: OnceLock<Vec<Json>>,
}

impl ClientToolSet {
    pub(crate) fn new(tools: Vec<ClientTool>) -> Self {
        Self { tools, definitions: OnceLock::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ClientTool> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }

    pub(crate) fn has(&self, name: &ToolName) -> bool {
        self.get(name.as_str()).is_some()
    }

    pub(crate) fn definitions(&self) -> &[Json] {
        self.definitions.get_or_init(|| self.tools.iter().map(|tool| definition(&tool.spec())).collect())
    }
}

fn definition(spec: &ToolSpec) -> Json {
    Json::of(&ToolDefinition {
        name: spec.name.to_string(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
    })
}
