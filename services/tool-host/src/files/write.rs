//! `write_file`: text files below the output directory, never over what somebody else put there.

use std::collections::BTreeSet;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ailoop_tool::ToolError;
use cap_std::fs::OpenOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use super::root::{Root, failed, relative};
use super::walk::{shown, slashed};
use super::workspace::Workspace;

/// The list of files that were written here, one path a line: it outlives this process, as the files do.
const WRITTEN: &str = ".ailoop-written";
/// What a file is called while it is written.
const UNFINISHED: &str = ".ailoop-unfinished";
/// Locked while one of the tool-hosts that share the directory writes.
const LOCK: &str = ".ailoop-lock";
/// Files that the list names, since each call of a read tool reads it.
const WRITTEN_MAX: usize = 20_000;
/// Bytes of that list.
const WRITTEN_BYTES_MAX: u64 = 8 << 20;
/// How long a write waits for that of another tool-host.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two looks at the lock.
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// The output directory.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) root: Root,
    /// One write of this process at a time, since each looks at the list first.
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
        Ok(Self { root: Root::open(path)?, writing: Mutex::new(()) })
    }

    /// The paths that were written, also of files that are gone. What is no path below the directory is left out.
    pub(super) fn list(&self) -> io::Result<BTreeSet<String>> {
        let list = match self.root.dir.open(WRITTEN) {
            Ok(list) => list,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        list.take(WRITTEN_BYTES_MAX).read_to_string(&mut text)?;
        let clean = |line: &&str| relative(line).is_ok_and(|path| slashed(&path).as_deref() == Some(*line));
        Ok(text.lines().filter(clean).take(WRITTEN_MAX).map(str::to_owned).collect())
    }

    /// Bytes of a regular file that is no link; none where there is something else or nothing.
    pub(super) fn len_of(&self, path: &Path) -> Option<u64> {
        let there = self.root.dir.symlink_metadata(path).ok()?;
        there.is_file().then(|| there.len())
    }

    fn remember(&self, path: &str) -> io::Result<()> {
        let mut list = self.root.dir.open_with(WRITTEN, OpenOptions::new().append(true).create(true))?;
        writeln!(list, "{path}")
    }

    /// Whole or not at all: written aside, then moved.
    fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        self.root.dir.write(UNFINISHED, content)?;
        self.root.dir.rename(UNFINISHED, &self.root.dir, path)
    }

    /// Waits until nobody else writes: neither this process nor another tool-host that shares the directory.
    fn lock(&self) -> io::Result<(MutexGuard<'_, ()>, std::fs::File)> {
        let one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.root.dir.open_with(LOCK, OpenOptions::new().write(true).create(true))?.into_std();
        let end = Instant::now() + LOCK_TIME_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok((one, file)),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOCK_EVERY),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another tool-host writes into this directory: try again"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// The right to write, which one call at a time has.
pub(crate) struct Writing<'a> {
    workspace: &'a Workspace,
    out: &'a Out,
    /// Dropping them lets the next one write.
    _locks: (MutexGuard<'a, ()>, std::fs::File),
}

impl Workspace {
    /// Waits for the right to write; `text` is the path that an error names.
    pub(crate) fn writing(&self, text: &str) -> Result<Writing<'_>, ToolError> {
        let Some(out) = &self.out else { return Err(ToolError::new("nothing can be written here")) };
        Ok(Writing { workspace: self, out, _locks: out.lock().map_err(|error| failed(text, &error))? })
    }
}

impl Writing<'_> {
    /// Writes a whole file and gives the path by which it is read back. The same text again changes nothing, also where
    /// the list was lost.
    pub(crate) fn put(&self, text: &str, content: &str) -> Result<String, ToolError> {
        let path = relative(text)?;
        let name = shown(&path);
        let hidden = name.split('/').any(|part| part.starts_with(".ailoop-"));
        if path.as_os_str().is_empty() || hidden || name.contains(['\n', '\r', '\0']) || text.ends_with('/') {
            return Err(ToolError::new(format!("{text:?} is not a name for a file")));
        }
        if let Some(clash) = self.workspace.clash(&path) {
            return Err(ToolError::new(clash));
        }
        let failed = |error: io::Error| failed(text, &error);
        let (dir, list) = (&self.out.root.dir, self.out.list().map_err(failed)?);
        let is_listed = list.contains(&name);
        if !is_listed && list.len() >= WRITTEN_MAX {
            let full =
                format!("{WRITTEN_MAX} files were written here, which is the most: write into one that is there");
            return Err(ToolError::new(full));
        }
        match dir.symlink_metadata(&path) {
            Ok(there) if there.is_file() => {
                let same = || dir.read_to_string(&path).is_ok_and(|text| text == content);
                if !is_listed && !same() {
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
            self.out.remember(&name).map_err(failed)?;
        }
        self.out.replace(&path, content).map_err(failed)?;
        Ok(name)
    }
}

/// Writes a file; its path is the one by which the read tools find it.
pub(super) fn write(workspace: &Workspace, arguments: &Arguments) -> Result<Value, ToolError> {
    let name = workspace.writing(&arguments.path)?.put(&arguments.path, &arguments.content)?;
    Ok(json!({"path": name, "bytes": arguments.content.len()}))
}
