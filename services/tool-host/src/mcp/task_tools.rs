//! Finds the tools of an MCP server that must be called as tasks, which the library does not parse.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::bytes::Regex;
use serde_json::Value;

use super::registration::TOOLS_MAX;

/// A list of tools without this word is not parsed.
static TASK_SUPPORT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("\"taskSupport\"").ok());
/// Names that are remembered.
const NAMES_MAX: usize = 4 * TOOLS_MAX;

#[derive(Debug, Clone, Default)]
pub(super) struct TaskTools(Arc<Mutex<BTreeSet<String>>>);

impl TaskTools {
    /// Reads the tools in a message of the server.
    pub(super) fn read(&self, message: &[u8]) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.is_empty() && !TASK_SUPPORT.as_ref().is_some_and(|word| word.is_match(message)) {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Value>(message) else { return };
        for tool in message["result"]["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            if tool["execution"]["taskSupport"] != "required" {
                names.remove(name);
            } else if names.len() < NAMES_MAX {
                names.insert(name.to_owned());
            }
        }
    }

    pub(super) fn contains(&self, tool: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }
}
