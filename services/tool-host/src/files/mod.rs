//! The file tools, confined to one directory.

mod config;
mod list;
mod output;
mod read;
mod root;
mod search;
#[cfg(test)]
mod tests;
pub(crate) mod walk;
mod workspace;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, Tool, ToolError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::HostError;
pub use config::FilesConfig;
#[cfg(target_os = "linux")]
pub(super) use root::{access_error, parse_relative};
pub(super) use workspace::Workspace;
pub(super) use write::WriteLock;

/// Timeout of one call of a file tool; the work itself stops at [`walk::TIME_MAX`].
const TIMEOUT: Duration = Duration::from_secs(30);

/// Builds `list_files`, `read_file`, `search_text` and, with an `out`, `write_file`.
pub(super) fn tools(workspace: &Arc<Workspace>) -> Vec<Tool> {
    let mut tools = vec![list_files(workspace), read_file(workspace), search_text(workspace)];
    tools.extend(workspace.is_writable().then(|| write_file(workspace)));
    tools
}

/// Finds directories that cannot be used; creates none.
pub(super) fn find_mistakes(config: &FilesConfig) -> Vec<HostError> {
    let refused = |field, path: &PathBuf| {
        std::fs::read_dir(path).err().map(|source| HostError::Directory { field, path: path.clone(), source })
    };
    let out = config.out.as_ref().filter(|out| out.exists()).and_then(|out| refused("files.out", out));
    refused("files.root", &config.root).into_iter().chain(out).collect()
}

/// Builds a tool that calls a blocking function.
pub(super) fn tool<A, S>(
    name: &str,
    effect: Effect,
    state: &Arc<S>,
    work: fn(&S, &A) -> Result<Value, ToolError>,
) -> Tool
where
    A: DeserializeOwned + Send + 'static,
    S: Send + Sync + 'static,
{
    let state = state.clone();
    Tool::new(name).effect(effect).timeout(TIMEOUT).handler(move |call: Call| {
        let state = state.clone();
        async move {
            let arguments: A = call.arguments()?;
            Ok(Reply::from(tokio::task::spawn_blocking(move || work(&state, &arguments)).await??))
        }
    })
}

fn list_files(workspace: &Arc<Workspace>) -> Tool {
    tool("list_files", Effect::Pure, workspace, list::list)
        .description(
            "Lists the files below a directory of the project, with their sizes and the number of files by extension. \
             Hidden and ignored files and build output are left out. Files that write_file wrote are listed too, with \
             written=true.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "A directory, relative to the project. Default: all of it."},
            "max": {"type": "integer", "minimum": 1, "description": "Files to list at most; all are counted. Default 500."},
        }}))
}

fn read_file(workspace: &Arc<Workspace>) -> Tool {
    tool("read_file", Effect::Pure, workspace, read::read)
        .description(
            "Reads a text file of the project, or one that write_file wrote, whole or a range of its lines. A result with \
             truncated=true goes on with offset=next_offset.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "The file, relative to the project."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to read. Default 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "Lines to read. Default: all."},
        }, "required": ["path"]}))
}

fn search_text(workspace: &Arc<Workspace>) -> Tool {
    tool("search_text", Effect::Pure, workspace, search::search)
        .description(
            "Finds the lines that match a regular expression, in the project's text files and in those that write_file \
             wrote.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "pattern": {"type": "string", "description": "A regular expression (Rust regex syntax); (?i) ignores case."},
            "path": {"type": "string", "description": "A directory or file, relative to the project. Default: all of it."},
            "max": {"type": "integer", "minimum": 1, "description": "Matches to show at most; all are counted. Default 100."},
        }, "required": ["pattern"]}))
}

fn write_file(workspace: &Arc<Workspace>) -> Tool {
    tool("write_file", Effect::Idempotent, workspace, write::write)
        .description(
            "Writes a text file. The project itself is never changed: the file is kept beside it, and read_file, list_files \
             and search_text find it by the path in the result, in every session and before a file of the project of the \
             same path. Files that were not written by this tool are never overwritten.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "The file, relative to the project."},
            "content": {"type": "string", "description": "The whole text."},
        }, "required": ["path", "content"]}))
}
