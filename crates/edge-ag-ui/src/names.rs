//! The names of a run, which its events repeat.

use std::collections::BTreeSet;

use edge_core::turn::name_for_client;

use super::events::{PROTOCOL_VERSION, UiEvent};
use super::input::RunInput;

/// Ids, protocol version and tool names that a client sends with its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunNames {
    pub(super) thread_id: String,
    pub(super) run_id: String,
    pub(super) parent_run_id: Option<String>,
    /// Whether the client knows what 1.0 added: pending calls and the outcome `cancelled`.
    pub(super) is_version_1: bool,
    /// Names of the tools that the client brings.
    pub(super) client_tools: BTreeSet<String>,
}

impl RunNames {
    pub(super) fn of(input: &RunInput) -> Self {
        Self {
            thread_id: input.thread_id.clone(),
            run_id: input.run_id.clone(),
            parent_run_id: input.parent_run_id.clone(),
            is_version_1: input.protocol_version.is_some(),
            client_tools: input.tool_names().map(str::to_owned).collect(),
        }
    }

    /// Returns the name of a tool as the client knows it.
    pub(super) fn tool<'a>(&self, name: &'a str) -> &'a str {
        let known = name_for_client(name);
        if self.client_tools.contains(known) { known } else { name }
    }

    /// Returns the event with which the run begins.
    pub(super) fn started(&self) -> UiEvent {
        UiEvent::RunStarted {
            thread_id: self.thread_id.clone(),
            run_id: self.run_id.clone(),
            protocol_version: self.is_version_1.then_some(PROTOCOL_VERSION),
            parent_run_id: self.parent_run_id.clone(),
        }
    }
}
