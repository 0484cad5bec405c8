//! Detects changes of files without reading them, by their metadata in the file system.
//!
//! A pass notes every path before it reads it, those that are not there too, since they may come. Symbolic links are
//! followed: a `ConfigMap` is changed by exchanging one link, after which every file has another inode.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::trust;

/// One reading of a set of files; clones are the same pass.
#[derive(Debug, Clone, Default)]
pub struct Pass(Arc<Mutex<Marks>>);

/// State of every path of a pass before it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<(PathBuf, PathKind), Mark>);

/// Property of a path whose change matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathKind {
    /// The contents of the file.
    File,
    /// Names of the texts in the directory.
    Texts,
    /// Existence of the directory.
    Directory,
    /// Existence of the directory, and its trust if no setting names it.
    TrustedDirectory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    Gone,
    Directory,
    Texts(BTreeSet<String>),
    /// The time of the last change of any kind is among them: a copy may keep length and time of modification.
    File {
        place: (u64, u64),
        length: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    },
}

impl Pass {
    /// Notes a path, which is to be read right after this. Of two looks in one pass the first counts, so that a change
    /// between them is seen.
    pub(crate) fn note(&self, path: &Path, kind: PathKind) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.0.entry((path.to_owned(), kind)).or_insert_with(|| Mark::of(path, kind));
    }

    /// Everything that was noted.
    pub fn marks(&self) -> Marks {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Marks {
    /// The same paths as they are now.
    #[must_use]
    pub fn now(&self) -> Self {
        let again = |((path, kind), _): (&(PathBuf, PathKind), _)| ((path.clone(), *kind), Mark::of(path, *kind));
        Self(self.0.iter().map(again).collect())
    }

    /// A path that was there at an earlier pass, and was looked for in vain at this one.
    pub fn lost_since(&self, earlier: &Self) -> Option<&Path> {
        let was_there = |path: &(PathBuf, PathKind)| earlier.0.get(path).is_some_and(|mark| *mark != Mark::Gone);
        let mut gone = self.0.iter().filter(|(path, mark)| **mark == Mark::Gone && was_there(path));
        gone.next().map(|((path, _), _)| path.as_path())
    }
}

impl Mark {
    /// Reads the mark of a path. A path that cannot be examined counts as gone; its reader gets the error.
    fn of(path: &Path, kind: PathKind) -> Self {
        match kind {
            PathKind::Directory if path.is_dir() => Self::Directory,
            PathKind::TrustedDirectory if path.is_dir() && trust::find_untrusted(path).is_none() => Self::Directory,
            PathKind::Directory | PathKind::TrustedDirectory => Self::Gone,
            PathKind::Texts => texts_in(path).map_or(Self::Gone, |names| names.map_or(Self::Gone, Self::Texts)),
            PathKind::File => std::fs::metadata(path).map_or(Self::Gone, |data| Self::File {
                place: (data.dev(), data.ino()),
                length: data.len(),
                modified: (data.mtime(), data.mtime_nsec()),
                changed: (data.ctime(), data.ctime_nsec()),
            }),
        }
    }
}

/// The names of a directory's Markdown files, hidden ones aside; none when there is no such directory.
pub(crate) fn texts_in(dir: &Path) -> io::Result<Option<BTreeSet<String>>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let is_text = |name: &String| {
            !name.starts_with('.') && Path::new(name).extension().is_some_and(|extension| extension == "md")
        };
        names.extend(entry?.file_name().into_string().ok().filter(is_text));
    }
    Ok(Some(names))
}
