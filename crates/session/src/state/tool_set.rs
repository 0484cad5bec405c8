//! The tools that a session may use.

use std::sync::OnceLock;

use contract::Json;
use contract::event::ToolsResolved;
use contract::model::ToolDefinition;
use contract::tool::ToolSpec;
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

fn definition(spec: &ToolSpec) -> Json {
    Json::of(&ToolDefinition {
        name: spec.name.to_string(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
    })
}
