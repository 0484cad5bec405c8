//! Walking the files of the project: sorted, without hidden and ignored ones and build output.

use std::path::Path;
use std::time::{Duration, Instant};

use ignore::{DirEntry, WalkBuilder};

use super::root::RootDirectory;

/// How long one call may walk and read.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(20);
/// Files that one call looks at.
const FILES_MAX: usize = 200_000;
/// Directories that are never entered.
const SKIPPED_DIRECTORIES: &[&str] = &[".git", "target", "node_modules"];

/// A file of the project, or one that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceFile {
    /// Relative to the project, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Whether an agent wrote it.
    pub(crate) is_written: bool,
}

/// The files below `prefix`, until `end`; the second value says whether some are is_incomplete.
pub(super) fn list_files(root: &RootDirectory, prefix: &Path, end: Instant) -> (Vec<WorkspaceFile>, bool) {
    // From the root also for a part of it, so that the ignore files above that part count, and none above the root.
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

/// A path with `/`; none where it is not UTF-8, since no model could name it.
pub(super) fn to_slash_path(path: &Path) -> Option<String> {
    let parts: Option<Vec<&str>> = path.components().map(|part| part.as_os_str().to_str()).collect();
    parts.map(|parts| parts.join("/"))
}

/// The path of a file or directory as a model gave it, for a message.
pub(super) fn display_path(path: &Path) -> String {
    let text = to_slash_path(path).unwrap_or_default();
    if text.is_empty() { ".".to_owned() } else { text }
}
