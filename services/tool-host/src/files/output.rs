//! The output directory: the files that `write_file` wrote, their list, and its lock.

use std::collections::BTreeSet;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::fs::OpenOptions;

use super::root::{RootDirectory, parse_relative};
use super::walk::to_slash_path;

/// List of the written files, one path a line: it outlives this process, as the files do.
const WRITTEN_LIST: &str = ".ailoop-written";
/// Name of a file while it is written.
const UNFINISHED_FILE: &str = ".ailoop-unfinished";
/// Lock file, held while one of the tool-hosts that share the directory writes.
const LOCK_FILE: &str = ".ailoop-lock";
/// Files on the list, since each call of a read tool reads it.
pub(super) const WRITTEN_MAX: usize = 20_000;
/// Bytes of that list that are read.
const WRITTEN_BYTES_MAX: u64 = 8 << 20;
/// Longest wait of a write for the lock of another tool-host.
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

    pub(super) fn append_to_list(&self, path: &str) -> io::Result<()> {
        let mut list = self.root.dir.open_with(WRITTEN_LIST, OpenOptions::new().append(true).create(true))?;
        writeln!(list, "{path}")
    }

    /// Replaces a file atomically: the content is written to another name, then renamed.
    pub(super) fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        self.root.dir.write(UNFINISHED_FILE, content)?;
        self.root.dir.rename(UNFINISHED_FILE, &self.root.dir, path)
    }

    /// Waits until no other write runs, neither in this process nor in another tool-host that shares the directory.
    pub(super) fn lock(&self) -> io::Result<(MutexGuard<'_, ()>, std::fs::File)> {
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
