//! `write_file`: writes text files below the output directory, and overwrites no file that it did not write.

use std::io::{self, ErrorKind};
use std::sync::MutexGuard;

use ailoop_tool::ToolError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::output::{OutputDirectory, WRITTEN_MAX};
use super::root::{access_error, parse_relative};
use super::walk::display_path;
use super::workspace::Workspace;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    path: String,
    content: String,
}

/// The exclusive right to write, which one call at a time has.
pub(crate) struct WriteLock<'a> {
    workspace: &'a Workspace,
    output: &'a OutputDirectory,
    /// Dropping them lets the next call write.
    _locks: (MutexGuard<'a, ()>, std::fs::File),
}

impl Workspace {
    /// Waits for the right to write; `text` is the path for an error.
    pub(crate) fn lock_for_writing(&self, text: &str) -> Result<WriteLock<'_>, ToolError> {
        let Some(output) = &self.output else { return Err(ToolError::new("nothing can be written here")) };
        Ok(WriteLock { workspace: self, output, _locks: output.lock().map_err(|error| access_error(text, &error))? })
    }
}

impl WriteLock<'_> {
    /// Writes a whole file and returns the path by which it is read back. The same text again changes nothing, even
    /// where the list was lost.
    pub(crate) fn write_file(&self, text: &str, content: &str) -> Result<String, ToolError> {
        let path = parse_relative(text)?;
        let name = display_path(&path);
        let is_hidden = name.split('/').any(|part| part.starts_with(".ailoop-"));
        if path.as_os_str().is_empty() || is_hidden || name.contains(['\n', '\r', '\0']) || text.ends_with('/') {
            return Err(ToolError::new(format!("{text:?} is not a name for a file")));
        }
        if let Some(conflict) = self.workspace.find_conflict(&path) {
            return Err(ToolError::new(conflict));
        }
        let failed = |error: io::Error| access_error(text, &error);
        let (dir, list) = (&self.output.root.dir, self.output.read_list().map_err(failed)?);
        let is_listed = list.contains(&name);
        if !is_listed && list.len() >= WRITTEN_MAX {
            let full =
                format!("{WRITTEN_MAX} files were written here, which is the most: write into one that is there");
            return Err(ToolError::new(full));
        }
        match dir.symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => {
                let is_same = || dir.read_to_string(&path).is_ok_and(|text| text == content);
                if !is_listed && !is_same() {
                    let text = "was not written by this tool, and is not overwritten: choose another name";
                    return Err(ToolError::new(format!("{name:?} {text}")));
                }
            }
            Ok(_) => return Err(ToolError::new(format!("{name:?} is a directory or a link: choose another name"))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                    dir.create_dir_all(parent).map_err(failed)?;
                }
            }
            Err(error) => return Err(failed(error)),
        }
        if !is_listed {
            self.output.append_to_list(&name).map_err(failed)?;
        }
        self.output.replace(&path, content).map_err(failed)?;
        Ok(name)
    }
}

/// Writes a file; the path of the result is the one by which the read tools find it.
pub(super) fn write(workspace: &Workspace, arguments: &WriteArguments) -> Result<Value, ToolError> {
    let name = workspace.lock_for_writing(&arguments.path)?.write_file(&arguments.path, &arguments.content)?;
    Ok(json!({"path": name, "bytes": arguments.content.len()}))
}
