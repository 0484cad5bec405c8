//! The built-in file tools: ordinary NATS tools that this process serves itself, confined to one directory.

mod list;
mod read;
mod root;
mod search;
#[cfg(test)]
mod tests;
mod walk;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, ServeError, Serving, Tool, ToolError, Tools};
use bus::NatsConfig;
use contract::{ErrorCode, TenantId, ToolName};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connect::connect;
use root::Root;
use write::Out;

/// How long one call of a file tool may take; the work itself stops at [`walk::TIME_MAX`].
const TIMEOUT: Duration = Duration::from_secs(30);
/// Calls of one file tool that run at the same time: they read disks, not networks.
const CONCURRENCY: usize = 8;

/// Which directory the file tools may read, and where they may write.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "builtin")]
pub struct BuiltinConfig {
    /// The directory that may be read.
    pub root: PathBuf,
    /// The directory that may be written, made where it is missing; without one nothing is written.
    #[serde(default)]
    pub out: Option<PathBuf>,
    /// Whose sessions may use the tools.
    #[serde(default)]
    #[schemars(with = "String")]
    pub tenant: TenantId,
}

/// Why the tools of this process, the mail tools included, cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinError {
    /// A directory is not there or may not be used. Correct the configuration.
    #[error("executor.builtin.{field} {path:?} cannot be used: {source}")]
    Directory {
        /// `root` or `out`.
        field: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// NATS cannot be reached, or refuses the tools.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl BuiltinError {
    /// The code that users see.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Directory { .. } => ErrorCode::BadConfig,
            Self::Serve(_) => ErrorCode::NatsUnreachable,
        }
    }
}

/// The file tools, being served.
pub struct BuiltinTools {
    serving: Serving,
}

impl BuiltinTools {
    /// Opens the directories, connects, and serves `list_files`, `read_file`, `search_text` and, with an `out`,
    /// `write_file`.
    pub async fn start(config: &BuiltinConfig, nats: &NatsConfig) -> Result<Self, BuiltinError> {
        let directory = |field, path: &PathBuf| {
            let path = path.clone();
            move |source| BuiltinError::Directory { field, path, source }
        };
        let root = Arc::new(Root::open(&config.root).map_err(directory("root", &config.root))?);
        let out = config.out.as_ref().map(|path| Out::open(path).map_err(directory("out", path))).transpose()?;
        let tools =
            Tools::new(connect(nats, "file tools").await?).tenant(config.tenant.as_str()).concurrency(CONCURRENCY);
        let tools = [list_files(&root), read_file(&root), search_text(&root)].into_iter().fold(tools, Tools::tool);
        let tools = out.into_iter().map(|out| write_file(&Arc::new(out))).fold(tools, Tools::tool);
        Ok(Self { serving: tools.serve().await? })
    }

    /// The tools that a configuration serves.
    pub(crate) fn names(config: &BuiltinConfig) -> impl Iterator<Item = (TenantId, ToolName)> {
        let always = ["list_files", "read_file", "search_text"];
        let names = always.into_iter().chain(config.out.is_some().then_some("write_file"));
        names.filter_map(|name| Some((config.tenant.clone(), ToolName::new(name).ok()?)))
    }

    /// Takes no more calls and finishes those that run, up to `timeout`.
    pub async fn stop(self, timeout: Duration) {
        self.serving.stop(timeout).await;
    }
}

impl std::fmt::Debug for BuiltinTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BuiltinTools")
    }
}

/// A tool whose work is done by a blocking function.
fn tool<A, S>(name: &str, effect: Effect, state: &Arc<S>, work: fn(&S, &A) -> Result<Value, ToolError>) -> Tool
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

fn list_files(root: &Arc<Root>) -> Tool {
    tool("list_files", Effect::Pure, root, list::list)
        .description(
            "Lists the files below a directory of the project, with their sizes and the number of files by extension. \
             Hidden and ignored files and build output are left out.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "A directory, relative to the project. Default: all of it."},
            "max": {"type": "integer", "minimum": 1, "description": "Files to list at most; all are counted. Default 500."},
        }}))
}

fn read_file(root: &Arc<Root>) -> Tool {
    tool("read_file", Effect::Pure, root, read::read)
        .description(
            "Reads a text file of the project, whole or a range of its lines. A result with truncated=true goes on \
             with offset=next_offset.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "The file, relative to the project."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to read. Default 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "Lines to read. Default: all."},
        }, "required": ["path"]}))
}

fn search_text(root: &Arc<Root>) -> Tool {
    tool("search_text", Effect::Pure, root, search::search)
        .description("Finds the lines of the project's text files that match a regular expression.")
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "pattern": {"type": "string", "description": "A regular expression (Rust regex syntax); (?i) ignores case."},
            "path": {"type": "string", "description": "A directory or file, relative to the project. Default: all of it."},
            "max": {"type": "integer", "minimum": 1, "description": "Matches to show at most; all are counted. Default 100."},
        }, "required": ["pattern"]}))
}

fn write_file(out: &Arc<Out>) -> Tool {
    tool("write_file", Effect::Idempotent, out, write::write)
        .description(
            "Writes a text file into the output directory, which is not the project. Files that were not written by \
             this tool are never overwritten.",
        )
        .parameters(json!({"type": "object", "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": "The file, relative to the output directory."},
            "content": {"type": "string", "description": "The whole text."},
        }, "required": ["path", "content"]}))
}
