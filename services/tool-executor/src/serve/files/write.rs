//! `write_file`: text files below the output directory, never over what somebody else put there.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ailoop_tool::ToolError;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use super::root::{failed, relative};
use super::walk::shown;

/// The list of files that were written here, one path a line: it outlives this process, as the files do.
const WRITTEN: &str = ".ailoop-written";
/// What a file is called while it is written.
const UNFINISHED: &str = ".ailoop-unfinished";

/// The output directory.
#[derive(Debug)]
pub(super) struct Out {
    dir: Dir,
    /// One write at a time, since each looks at the list first.
    writing: Mutex<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    path: String,
    content: String,
}

impl Out {
    /// Opens the directory, and makes it where it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self { dir: Dir::open_ambient_dir(path, ambient_authority())?, writing: Mutex::new(()) })
    }

    fn is_ours(&self, path: &str) -> io::Result<bool> {
        match self.dir.read_to_string(WRITTEN) {
            Ok(list) => Ok(list.lines().any(|line| line == path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remember(&self, path: &str) -> io::Result<()> {
        let mut list = self.dir.open_with(WRITTEN, OpenOptions::new().append(true).create(true))?;
        writeln!(list, "{path}")
    }

    /// Whole or not at all: written aside, then moved.
    fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        self.dir.write(UNFINISHED, content)?;
        self.dir.rename(UNFINISHED, &self.dir, path)
    }
}

/// Writing the same text again changes nothing, also where the list was lost.
pub(super) fn write(out: &Out, arguments: &Arguments) -> Result<Value, ToolError> {
    let path = relative(&arguments.path)?;
    let name = shown(&path);
    let hidden = name.split('/').any(|part| part.starts_with(".ailoop-"));
    if path.as_os_str().is_empty() || hidden || name.contains(['\n', '\r', '\0']) || arguments.path.ends_with('/') {
        return Err(ToolError::new(format!("{:?} is not a name for a file", arguments.path)));
    }
    let failed = |error: io::Error| failed(&arguments.path, &error);
    let _one = out.writing.lock().unwrap_or_else(PoisonError::into_inner);
    match out.dir.symlink_metadata(&path) {
        Ok(there) if there.is_file() => {
            let same = || out.dir.read_to_string(&path).is_ok_and(|text| text == arguments.content);
            if !out.is_ours(&name).map_err(failed)? && !same() {
                let text = "was not written by this tool, and is not overwritten: choose another name";
                return Err(ToolError::new(format!("{name:?} {text}")));
            }
        }
        Ok(_) => return Err(ToolError::new(format!("{name:?} is a directory or a link: choose another name"))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                out.dir.create_dir_all(parent).map_err(failed)?;
            }
            out.remember(&name).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    out.replace(&path, &arguments.content).map_err(failed)?;
    Ok(json!({"path": name, "bytes": arguments.content.len()}))
}
