//! `list_files`: files with their sizes, and counts by extension.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use ailoop_tool::ToolError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::root::access_error;
use super::walk::{self, WorkspaceFile};
use super::workspace::Workspace;
use crate::truncate::take_fitting;

/// Default of the argument `max`.
const FILES_DEFAULT: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    path: Option<String>,
    max: Option<usize>,
}

/// Lists files: the totals count all of them, and the list is capped.
pub(super) fn list(workspace: &Workspace, arguments: &ListArguments) -> Result<Value, ToolError> {
    let text = arguments.path.as_deref().unwrap_or_default();
    let found = workspace.find(text)?;
    if !found.is_dir {
        return Err(ToolError::new(format!("{text:?} is a file: read it with read_file")));
    }
    let files = workspace.list_files(&found.path, Instant::now() + walk::TIME_MAX);
    let (files, is_incomplete) = files.map_err(|error| access_error(text, &error))?;
    let mut by_extension: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &files {
        let extension = Path::new(&file.path).extension().and_then(|text| text.to_str()).unwrap_or("(none)");
        *by_extension.entry(extension).or_default() += 1;
    }
    let total_bytes: u64 = files.iter().map(|file| file.bytes).sum();
    let max = arguments.max.unwrap_or(FILES_DEFAULT);
    let listed = take_fitting(files.iter().take(max).map(build_entry));
    Ok(json!({
        "root": workspace.project.name,
        "truncated": is_incomplete || listed.len() < files.len(),
        "files": listed,
        "total": files.len(),
        "total_bytes": total_bytes,
        "by_extension": by_extension,
    }))
}

fn build_entry(file: &WorkspaceFile) -> Value {
    let mut entry = json!({"path": file.path, "bytes": file.bytes});
    if file.is_written {
        entry["written"] = json!(true);
    }
    entry
}
