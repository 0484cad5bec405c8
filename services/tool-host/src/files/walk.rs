//! Lists the files of the project: sorted, without hidden and ignored files and build output.

use std::path::Path;
use std::time::{Duration, Instant};

use ignore::{DirEntry, WalkBuilder};

use super::root::RootDirectory;

/// Time of one call for listing and reading.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(20);
/// Files that one call lists.
const FILES_MAX: usize = 200_000;
const SKIPPED_DIRECTORIES: &[&str] = &[".git", "target", "node_modules"];

/// A file of the project, or one that an agent wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceFile {
    /// Relative to the project, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) is_written: bool,
}

/// Lists the files below `prefix`, until `end`; the second value says whether the list is incomplete.
pub(super) fn list_files(root: &RootDirectory, prefix: &Path, end: Instant) -> (Vec<WorkspaceFile>, bool) {
    // The walk begins at the root also for a part of it, so that the ignore files above that part apply, and none above
    // the root.
    let start = root.path.join(prefix);
    let wanted = move |entry: &DirEntry| {
        let skipped = entry.depth() > 0 && SKIPPED_DIRECTORIES.iter().any(|name| entry.file_name() == *name);
        !skipped && (entry.path().starts_with(&start) || start.starts_with(entry.path()))
    };
    let walk = WalkBuilder::new(&root.path)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_path(Path::cmp)
        .filter_entry(wanted)
        .build();
    let mut files = Vec::new();
    for entry in walk.filter_map(Result::ok) {
        if Instant::now() > end || files.len() >= FILES_MAX {
            return (files, true);
        }
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Some(path) = entry.path().strip_prefix(&root.path).ok().and_then(to_slash_path) else { continue };
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        files.push(WorkspaceFile { path, bytes, is_written: false });
    }
    (files, false)
}

/// Converts a path to text with `/`; `None` where it is not UTF-8, since no model could name it.
pub(super) fn to_slash_path(path: &Path) -> Option<String> {
    let parts: Option<Vec<&str>> = path.components().map(|part| part.as_os_str().to_str()).collect();
    parts.map(|parts| parts.join("/"))
}

/// Converts a path to text for a message; `.` for the directory itself.
pub(super) fn display_path(path: &Path) -> String {
    let text = to_slash_path(path).unwrap_or_default();
    if text.is_empty() { ".".to_owned() } else { text }
}
