//! `search_text`: finds lines that match a regular expression.

use std::time::Instant;

use ailoop_tool::ToolError;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::root::access_error;
use super::walk::{self, WorkspaceFile};
use super::workspace::Workspace;
use crate::truncate::take_fitting;

/// Default of the argument `max`.
const MATCHES_DEFAULT: usize = 100;
/// Greatest number of matches in a result.
const MATCHES_MAX: usize = 1_000;
/// Bytes of the largest file that is searched; larger ones are rarely written by people.
const FILE_BYTES_MAX: usize = 2 << 20;
/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 4 << 10;
/// Bytes of a compiled pattern.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Bytes of a line in the result.
const LINE_BYTES_MAX: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArguments {
    pattern: String,
    path: Option<String>,
    max: Option<usize>,
}

/// Searches files: the totals count all matches found in time, and the list is capped.
pub(super) fn search(workspace: &Workspace, arguments: &SearchArguments) -> Result<Value, ToolError> {
    let pattern = compile(&arguments.pattern)?;
    let given = arguments.path.as_deref().unwrap_or_default();
    let found = workspace.find(given)?;
    let end = Instant::now() + walk::TIME_MAX;
    let (files, mut is_incomplete) = if found.is_dir {
        workspace.list_files(&found.path, end).map_err(|error| access_error(given, &error))?
    } else {
        (vec![WorkspaceFile { path: walk::display_path(&found.path), bytes: 0, is_written: found.is_written }], false)
    };
    let max = arguments.max.unwrap_or(MATCHES_DEFAULT).min(MATCHES_MAX);
    let (mut matches, mut total, mut files_hit) = (Vec::new(), 0_usize, 0_usize);
    for file in &files {
        if Instant::now() > end {
            is_incomplete = true;
            break;
        }
        // One that is too large, not text, gone, or must not be read, is left out.
        let Ok(Some(text)) = workspace.read_text_of(file, FILE_BYTES_MAX) else { continue };
        let before = total;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| pattern.is_match(line)) {
            total += 1;
            if matches.len() < max {
                let line = &line[..line.floor_char_boundary(LINE_BYTES_MAX)];
                matches.push(json!({"path": file.path, "line": index + 1, "text": line}));
            }
        }
        files_hit += usize::from(total > before);
    }
    let matches = take_fitting(matches);
    Ok(json!({
        "pattern": arguments.pattern,
        "truncated": is_incomplete || matches.len() < total,
        "matches": matches,
        "total": total,
        "files": files_hit,
    }))
}

fn compile(pattern: &str) -> Result<Regex, ToolError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(ToolError::new(format!("the pattern has over {PATTERN_BYTES_MAX} bytes")));
    }
    let regex = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build();
    regex.map_err(|error| ToolError::new(format!("the pattern cannot be used: {error}")))
}
