//! Files to begin with: a configuration with one agent, and a tool.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use contract::{ErrorCode, ToolName};
use terminal::failure::CommandFailure;

const AGENTS: &str = include_str!("agents.yaml");
const AGENT_PROMPT: &str = include_str!("agent.md");
const PYTHON_TOOL: &str = include_str!("tool.py");

/// Writes a configuration with one agent of this name below a directory. Returns the written files.
pub(crate) fn write_configuration(directory: &Path, name: &str) -> Result<Vec<PathBuf>, CommandFailure> {
    let name = name.trim();
    let key: String = name.split_whitespace().next().unwrap_or_default().to_lowercase();
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let is_line = !name.contains(|c: char| c.is_control() || matches!(c, ':' | '#' | '{' | '}' | '"' | '\''));
    if !is_key || !is_line {
        let message = format!("{name:?} is no name of an agent");
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message)
            .help("use letters and digits, such as Anna or \"Anna the Archivist\""));
    }
    let fill = |template: &str| template.replace("{{key}}", &key).replace("{{name}}", name);
    let agents = (directory.join("config/agents.yaml"), fill(AGENTS));
    let prompt = (directory.join("prompts/agents").join(format!("{key}.md")), fill(AGENT_PROMPT));
    write_new(vec![agents, prompt])
}

/// Writes a tool in Python below a directory. Returns the written file.
pub(crate) fn write_python_tool(directory: &Path, name: &str) -> Result<Vec<PathBuf>, CommandFailure> {
    let is_identifier = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.starts_with(|c: char| c.is_ascii_lowercase());
    if !is_identifier || ToolName::new(name).is_err() {
        let message = format!("{name:?} is no name of a tool in Python");
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message)
            .help("use lower-case letters, digits and underscores, such as word_count"));
    }
    write_new(vec![(directory.join(format!("{name}.py")), PYTHON_TOOL.replace("{{name}}", name))])
}

/// Writes files that do not exist; if one does, none is written.
fn write_new(files: Vec<(PathBuf, String)>) -> Result<Vec<PathBuf>, CommandFailure> {
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        let message = format!("{} exists already, so nothing was written", path.display());
        return Err(CommandFailure::new(ErrorCode::BadConfig, message).help("move it away, or change it"));
    }
    let mut written = Vec::new();
    for (path, text) in files {
        let write = || -> io::Result<()> {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(text.as_bytes())
        };
        write().map_err(|error| {
            CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be written: {error}", path.display()))
        })?;
        written.push(path);
    }
    Ok(written)
}
