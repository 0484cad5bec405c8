//! The files that the read tools see: the project, overlaid by the files that agents have written.
//!
//! A written file replaces the project's file of the same path. Of the output directory only the files that these tools
//! wrote are visible: it may contain others, and it may even be a parent directory of the project.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ailoop_tool::ToolError;

use super::config::FilesConfig;
use super::output::OutputDirectory;
use super::root::{RootDirectory, access_error, parse_relative, to_text};
use super::walk::{self, WorkspaceFile};
use crate::error::HostError;

/// Name of the directory of a fleet. It has the credentials of the fleet, which no model may read.
const FLEET_DIRECTORY: &str = ".ailoop";

/// The project, and the output directory where there is one.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(super) project: RootDirectory,
    pub(super) output: Option<OutputDirectory>,
    /// Path of the output directory within the project, with `/`; `None` where it is elsewhere.
    output_within_project: Option<String>,
}

/// The file or directory at a path.
#[derive(Debug)]
pub(super) struct FoundPath {
    /// Relative to the project or the output directory, links resolved; empty for the project itself.
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    /// Whether it is a written file, below the output directory.
    pub(super) is_written: bool,
}

impl Workspace {
    /// Opens both directories, and creates the output directory where it is missing.
    pub(crate) fn open(config: &FilesConfig) -> Result<Self, HostError> {
        let directory = |field, path: &PathBuf| {
            let path = path.clone();
            move |source| HostError::Directory { field, path, source }
        };
        let project = RootDirectory::open(&config.root).map_err(directory("files.root", &config.root))?;
        let out = config
            .out
            .as_ref()
            .map(|path| OutputDirectory::open(path).map_err(directory("files.out", path)))
            .transpose()?;
        Ok(Self::with_output(project, out))
    }

    pub(super) fn with_output(project: RootDirectory, output: Option<OutputDirectory>) -> Self {
        let within = output.as_ref().and_then(|output| output.root.path.strip_prefix(&project.path).ok());
        let output_within_project = within.and_then(walk::to_slash_path);
        Self { project, output, output_within_project }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.output.is_some()
    }

    /// Finds the file or directory at a path; one that leads out of the directories is refused.
    pub(super) fn find(&self, text: &str) -> Result<FoundPath, ToolError> {
        let found = self.locate(&parse_relative(text)?).map_err(|error| access_error(text, &error))?;
        found.ok_or_else(|| access_error(text, &ErrorKind::NotFound.into()))
    }

    /// Finds the file or directory at a path; `None` where there is none.
    fn locate(&self, path: &Path) -> io::Result<Option<FoundPath>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(FoundPath { path: path.to_owned(), is_dir: true, is_written: false }));
        }
        if self.is_written(path)? {
            return Ok(Some(FoundPath { path: path.to_owned(), is_dir: false, is_written: true }));
        }
        match self.project.resolve(path) {
            Ok((path, _)) if self.is_private(&path) => Err(ErrorKind::PermissionDenied.into()),
            // A link within the project may lead to a file that was written since.
            Ok((path, is_dir)) => Ok(Some(FoundPath { is_written: !is_dir && self.is_written(&path)?, path, is_dir })),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let is_dir = !self.list_written(path)?.is_empty();
                Ok(is_dir.then(|| FoundPath { path: path.to_owned(), is_dir, is_written: false }))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a path leads to the directory of a fleet, which has its credentials. Files that were written there are not
    /// private.
    fn is_private(&self, path: &Path) -> bool {
        let is_written = self.output_within_project.as_ref().is_some_and(|written| path.starts_with(written));
        !is_written && path.components().any(|part| part.as_os_str() == FLEET_DIRECTORY)
    }

    /// Reads the text of a file; `None` where there is none.
    pub(crate) fn read_text(&self, path: &str, bytes_max: usize) -> Result<Option<String>, ToolError> {
        let found = self.locate(&parse_relative(path)?).map_err(|error| access_error(path, &error))?;
        let Some(found) = found.filter(|found| !found.is_dir) else { return Ok(None) };
        self.read_text_at(&found.path, found.is_written, bytes_max).map_err(|error| access_error(path, &error))
    }

    /// Reads the text of a file from [`Self::list_files`]; `None` where it is gone.
    pub(crate) fn read_text_of(&self, file: &WorkspaceFile, bytes_max: usize) -> Result<Option<String>, ToolError> {
        let text = self.read_text_at(Path::new(&file.path), file.is_written, bytes_max);
        text.map_err(|error| access_error(&file.path, &error))
    }

    fn read_text_at(&self, path: &Path, is_written: bool, bytes_max: usize) -> io::Result<Option<String>> {
        let Some(file) = self.open_file(path, is_written)? else { return Ok(None) };
        let size = file.metadata()?.len();
        if size > bytes_max as u64 {
            return Err(io::Error::other(format!("it has {size} bytes, and {bytes_max} are the most")));
        }
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        to_text(bytes).map(Some).ok_or_else(|| io::Error::other("it is not text"))
    }

    /// Opens a regular file; `None` where the path leads to something else.
    pub(super) fn open_file(&self, path: &Path, is_written: bool) -> io::Result<Option<cap_std::fs::File>> {
        match &self.output {
            Some(output) if is_written => output.root.open_file(path),
            Some(_) | None => self.project.open_file(path),
        }
    }

    /// Lists the files below `prefix`, until `end`; the second value says whether the list is incomplete.
    pub(crate) fn list_files(&self, prefix: &Path, end: Instant) -> io::Result<(Vec<WorkspaceFile>, bool)> {
        let (mut files, is_incomplete) = walk::list_files(&self.project, prefix, end);
        let written = self.list_written(prefix)?;
        if !written.is_empty() {
            let is_duplicate = |path: &str| match &self.output_within_project {
                Some(within) if !within.is_empty() => {
                    let below = path.strip_prefix(within.as_str()).and_then(|path| path.strip_prefix('/'));
                    below.is_some_and(|path| written.iter().any(|file| file.path == path))
                }
                Some(_) | None => false,
            };
            let names: BTreeSet<&str> = written.iter().map(|file| file.path.as_str()).collect();
            files.retain(|file| !names.contains(file.path.as_str()) && !is_duplicate(&file.path));
            files.extend(written);
            files.sort_by(|a, b| Path::new(&a.path).cmp(Path::new(&b.path)));
        }
        Ok((files, is_incomplete))
    }

    /// Lists the written files below `prefix` that still exist.
    fn list_written(&self, prefix: &Path) -> io::Result<Vec<WorkspaceFile>> {
        let Some(output) = &self.output else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for path in output.read_list()?.into_iter().filter(|path| Path::new(path).starts_with(prefix)) {
            if let Some(bytes) = output.file_len(Path::new(&path)) {
                files.push(WorkspaceFile { path, bytes, is_written: true });
            }
        }
        Ok(files)
    }

    fn is_written(&self, path: &Path) -> io::Result<bool> {
        let Some(output) = &self.output else { return Ok(false) };
        Ok(output.file_len(path).is_some() && output.read_list()?.contains(&walk::display_path(path)))
    }

    /// Finds an entry of the project that conflicts with a file of this path.
    pub(super) fn find_conflict(&self, path: &Path) -> Option<String> {
        let exists = |path: &Path, is_dir: bool| {
            self.project.dir.metadata(path).is_ok_and(|metadata| metadata.is_dir() == is_dir)
        };
        if exists(path, true) {
            return Some(format!("{:?} is a directory of the project: choose another name", walk::display_path(path)));
        }
        let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        let file = above.into_iter().find(|above| exists(above, false))?;
        Some(format!("{:?} is a file of the project, not a directory: choose another name", walk::display_path(file)))
    }
}
