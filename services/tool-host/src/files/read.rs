//! `read_file`: a text file, whole or a range of its lines.

use std::io::Read;

use ailoop_tool::ToolError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::root::{access_error, to_text};
use super::walk;
use super::workspace::{FoundPath, Workspace};
use crate::truncate::{RESULT_BYTES_MAX, escaped_len};

/// Bytes of the largest file that is read, since its lines must be counted.
const FILE_BYTES_MAX: u64 = 32 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// Reads a file: of one that is not text only the size is returned, and content that does not fit continues at
/// `next_offset`.
pub(super) fn read(workspace: &Workspace, arguments: &ReadArguments) -> Result<Value, ToolError> {
    let found = workspace.find(&arguments.path)?;
    if found.is_dir {
        return Err(ToolError::new(format!("{:?} is a directory: use list_files", arguments.path)));
    }
    let name = walk::display_path(&found.path);
    let Some(bytes) = read_bytes(workspace, &found, &arguments.path)? else {
        return Err(ToolError::new(format!("{name:?} has over {FILE_BYTES_MAX} bytes: find lines with search_text")));
    };
    let size = bytes.len();
    let Some(text) = to_text(bytes) else {
        return Ok(json!({"path": name, "lines": 0, "bytes": size, "content": "", "truncated": false, "binary": true}));
    };
    let first = arguments.offset.unwrap_or(1).max(1);
    let wanted = text.split_inclusive('\n').skip(first - 1).take(arguments.limit.unwrap_or(usize::MAX));
    let (mut content, mut budget, mut next, mut truncated) = (String::new(), RESULT_BYTES_MAX, first, false);
    for line in wanted {
        if let Some(left) = budget.checked_sub(escaped_len(line)) {
            content.push_str(line);
            (budget, next) = (left, next + 1);
            continue;
        }
        truncated = true;
        if content.is_empty() {
            // A single line that does not fit: return its beginning. In the worst case each byte takes six.
            content.push_str(&line[..line.floor_char_boundary(RESULT_BYTES_MAX / 6)]);
            next += 1;
        }
        break;
    }
    let mut result = json!({"path": name, "lines": text.lines().count(), "bytes": size, "content": content,
        "truncated": truncated});
    if found.is_written {
        result["written"] = json!(true);
    }
    if truncated {
        result["next_offset"] = json!(next);
    }
    Ok(result)
}

/// Reads the content of a file; `None` where it is too large.
fn read_bytes(workspace: &Workspace, found: &FoundPath, given: &str) -> Result<Option<Vec<u8>>, ToolError> {
    let failed = |error: std::io::Error| access_error(given, &error);
    let Some(file) = workspace.open_file(&found.path, found.is_written).map_err(failed)? else {
        return Err(ToolError::new(format!("{given:?} is not a regular file")));
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes))
}
