//! What the read tools see: the project, and over it the files that agents have written.
//!
//! A file that was written stands in for the project's file of the same path. Only what these tools wrote is seen of the
//! output directory: it may hold other files, and it may even be a directory above the project.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ailoop_tool::ToolError;

use super::read::text;
use super::root::{Root, failed, relative};
use super::walk::{self, File};
use super::write::Out;
use super::{FilesConfig, HostError};

/// The project, and the output directory where there is one.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(super) project: Root,
    pub(super) out: Option<Out>,
    /// Where the output directory is within the project, with `/`; none where it is elsewhere.
    out_within: Option<String>,
}

/// A file or directory that a path leads to.
#[derive(Debug)]
pub(super) struct Found {
    /// Relative to the project or the output directory, links resolved; empty for the project itself.
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    /// Whether it is a file that was written, below the output directory.
    pub(super) is_written: bool,
}

impl Workspace {
    /// Opens both directories, and makes the output directory where it is missing.
    pub(crate) fn open(config: &FilesConfig) -> Result<Self, HostError> {
        let directory = |field, path: &PathBuf| {
            let path = path.clone();
            move |source| HostError::Directory { field, path, source }
        };
        let project = Root::open(&config.root).map_err(directory("files.root", &config.root))?;
        let out = config.out.as_ref().map(|path| Out::open(path).map_err(directory("files.out", path))).transpose()?;
        Ok(Self::of(project, out))
    }

    pub(super) fn of(project: Root, out: Option<Out>) -> Self {
        let within = out.as_ref().and_then(|out| out.root.path.strip_prefix(&project.path).ok());
        let out_within = within.and_then(walk::slashed);
        Self { project, out, out_within }
    }

    /// Whether files can be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.out.is_some()
    }

    /// Finds what a path leads to; a path that leads out of the directories is refused.
    pub(super) fn find(&self, text: &str) -> Result<Found, ToolError> {
        let found = self.look(&relative(text)?).map_err(|error| failed(text, &error))?;
        found.ok_or_else(|| failed(text, &ErrorKind::NotFound.into()))
    }

    /// What is at a path; none where nothing is.
    fn look(&self, path: &Path) -> io::Result<Option<Found>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(Found { path: path.to_owned(), is_dir: true, is_written: false }));
        }
        if self.is_written(path)? {
            return Ok(Some(Found { path: path.to_owned(), is_dir: false, is_written: true }));
        }
        match self.project.resolve(path) {
            // Through a link within the project, it may be a file that was written since.
            Ok((path, is_dir)) => Ok(Some(Found { is_written: !is_dir && self.is_written(&path)?, path, is_dir })),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let is_dir = !self.written(path)?.is_empty();
                Ok(is_dir.then(|| Found { path: path.to_owned(), is_dir, is_written: false }))
            }
            Err(error) => Err(error),
        }
    }

    /// The text of a file, as the read tools find it; none where there is no file.
    pub(crate) fn text(&self, path: &str, bytes_max: usize) -> Result<Option<String>, ToolError> {
        let found = self.look(&relative(path)?).map_err(|error| failed(path, &error))?;
        let Some(found) = found.filter(|found| !found.is_dir) else { return Ok(None) };
        self.text_at(&found.path, found.is_written, bytes_max).map_err(|error| failed(path, &error))
    }

    /// The text of a file that [`Self::files`] has found; none where it is gone.
    pub(crate) fn text_of(&self, file: &File, bytes_max: usize) -> Result<Option<String>, ToolError> {
        let text = self.text_at(Path::new(&file.path), file.is_written, bytes_max);
        text.map_err(|error| failed(&file.path, &error))
    }

    fn text_at(&self, path: &Path, is_written: bool, bytes_max: usize) -> io::Result<Option<String>> {
        let Some(file) = self.open_file(path, is_written)? else { return Ok(None) };
        let size = file.metadata()?.len();
        if size > bytes_max as u64 {
            return Err(io::Error::other(format!("it has {size} bytes, and {bytes_max} are the most")));
        }
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        text(bytes).map(Some).ok_or_else(|| io::Error::other("it is not text"))
    }

    /// Opens a regular file; none where the path leads to something else.
    pub(super) fn open_file(&self, path: &Path, is_written: bool) -> io::Result<Option<cap_std::fs::File>> {
        match &self.out {
            Some(out) if is_written => out.root.open_file(path),
            Some(_) | None => self.project.open_file(path),
        }
    }

    /// The files below `prefix`, until `end`; the second value says whether some are missing.
    pub(crate) fn files(&self, prefix: &Path, end: Instant) -> io::Result<(Vec<File>, bool)> {
        let (mut files, missing) = walk::files(&self.project, prefix, end);
        let written = self.written(prefix)?;
        if !written.is_empty() {
            let twice = |path: &str| match &self.out_within {
                Some(within) if !within.is_empty() => {
                    let below = path.strip_prefix(within.as_str()).and_then(|path| path.strip_prefix('/'));
                    below.is_some_and(|path| written.iter().any(|file| file.path == path))
                }
                Some(_) | None => false,
            };
            let names: BTreeSet<&str> = written.iter().map(|file| file.path.as_str()).collect();
            files.retain(|file| !names.contains(file.path.as_str()) && !twice(&file.path));
            files.extend(written);
            files.sort_by(|a, b| Path::new(&a.path).cmp(Path::new(&b.path)));
        }
        Ok((files, missing))
    }

    /// The files below `prefix` that were written and are still there.
    fn written(&self, prefix: &Path) -> io::Result<Vec<File>> {
        let Some(out) = &self.out else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        for path in out.list()?.into_iter().filter(|path| Path::new(path).starts_with(prefix)) {
            if let Some(bytes) = out.len_of(Path::new(&path)) {
                files.push(File { path, bytes, is_written: true });
            }
        }
        Ok(files)
    }

    fn is_written(&self, path: &Path) -> io::Result<bool> {
        let Some(out) = &self.out else { return Ok(false) };
        Ok(out.len_of(path).is_some() && out.list()?.contains(&walk::shown(path)))
    }

    /// Why a file of this path would meet something else in the project; none where it would not.
    pub(super) fn clash(&self, path: &Path) -> Option<String> {
        let is = |path: &Path, is_dir: bool| {
            self.project.dir.metadata(path).is_ok_and(|there| if is_dir { there.is_dir() } else { !there.is_dir() })
        };
        if is(path, true) {
            return Some(format!("{:?} is a directory of the project: choose another name", walk::shown(path)));
        }
        let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        let file = above.into_iter().find(|above| is(above, false))?;
        Some(format!("{:?} is a file of the project, not a directory: choose another name", walk::shown(file)))
    }
}
