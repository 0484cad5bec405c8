//! `write_file`: writes text files below the output directory, and overwrites no file that it did not write.

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

use super::root::{RootDirectory, access_error, parse_relative};
use super::walk::{display_path, to_slash_path};
use super::workspace::Workspace;

/// List of the written files, one path a line: it outlives this process, as the files do.
const WRITTEN_LIST: &str = ".ailoop-written";
/// Name of a file while it is written.
const UNFINISHED_FILE: &str = ".ailoop-unfinished";
/// Lock file, held while one of the tool-hosts that share the directory writes.
const LOCK_FILE: &str = ".ailoop-lock";
/// Files on the list, since each call of a read tool reads it.
const WRITTEN_MAX: usize = 20_000;
/// Bytes of that list that are read.
const WRITTEN_BYTES_MAX: u64 = 8 << 20;
/// How long a write waits for the lock of another tool-host.
const LOCK_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause between two tries to lock.
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// Directory of the written files.
#[derive(Debug)]
pub(super) struct OutputDirectory {
    pub(super) root: RootDirectory,
    /// One write of this process at a time, since each reads the list first.
    write_lock: Mutex<()>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    path: String,
    content: String,
}

impl OutputDirectory {
    /// Opens the directory, and creates it where it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self { root: RootDirectory::open(path)?, write_lock: Mutex::new(()) })
    }

    /// Reads the list of written paths, also of files that are gone. Lines that are no path below the directory are
    /// skipped.
    pub(super) fn read_list(&self) -> io::Result<BTreeSet<String>> {
        let list = match self.root.dir.open(WRITTEN_LIST) {
            Ok(list) => list,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        list.take(WRITTEN_BYTES_MAX).read_to_string(&mut text)?;
        let is_clean =
            |line: &&str| parse_relative(line).is_ok_and(|path| to_slash_path(&path).as_deref() == Some(*line));
        Ok(text.lines().filter(is_clean).take(WRITTEN_MAX).map(str::to_owned).collect())
    }

    /// Returns the size of a regular file that is no link; `None` where there is none.
    pub(super) fn file_len(&self, path: &Path) -> Option<u64> {
        let metadata = self.root.dir.symlink_metadata(path).ok()?;
        metadata.is_file().then(|| metadata.len())
    }

    fn append_to_list(&self, path: &str) -> io::Result<()> {
        let mut list = self.root.dir.open_with(WRITTEN_LIST, OpenOptions::new().append(true).create(true))?;
        writeln!(list, "{path}")
    }

    /// Replaces a file atomically: the content is written to another name, then renamed.
    fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        self.root.dir.write(UNFINISHED_FILE, content)?;
        self.root.dir.rename(UNFINISHED_FILE, &self.root.dir, path)
    }

    /// Waits until no other write runs, neither in this process nor in another tool-host that shares the directory.
    fn lock(&self) -> io::Result<(MutexGuard<'_, ()>, std::fs::File)> {
        let guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.root.dir.open_with(LOCK_FILE, OpenOptions::new().write(true).create(true))?.into_std();
        let end = Instant::now() + LOCK_TIME_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok((guard, file)),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOCK_EVERY),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another tool-host writes into this directory: try again"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
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
