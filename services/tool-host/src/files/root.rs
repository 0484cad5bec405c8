//! The directory that may be read: every path is opened below it, symbolic links included.

use std::io;
use std::path::{Component, Path, PathBuf};

use ailoop_tool::ToolError;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, MetadataExt};

/// Why a file is not read.
const HARD_LINK_TEXT: &str = "it has a hard link, which may be outside of the directory: copy it instead";

/// A directory and what keeps accesses within it.
#[derive(Debug)]
pub(super) struct RootDirectory {
    /// Opens nothing outside, whatever links say.
    pub(super) dir: Dir,
    /// For walking names only, never for reading.
    pub(super) path: PathBuf,
    /// Its last component, for people.
    pub(super) name: String,
}

impl RootDirectory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        let name = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { dir, path, name })
    }
}

impl RootDirectory {
    /// Resolves links, and refuses those that lead out; whether it is a directory comes with it.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<(PathBuf, bool)> {
        let real = self.dir.canonicalize(path)?;
        let is_dir = self.dir.metadata(&real)?.is_dir();
        Ok((real, is_dir))
    }

    /// Opens a regular file; none where the path leads to something else. Pipes and devices would block or never end. A
    /// file with several names is refused: the other one may be outside, and nothing tells which was there first.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        if !self.dir.metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = self.dir.open(path)?;
        // Of the file that was opened: the name may lead to another one by now.
        let opened = file.metadata()?;
        if opened.nlink() > 1 {
            return Err(io::Error::other(HARD_LINK_TEXT));
        }
        Ok(opened.is_file().then_some(file))
    }
}

/// A path as a model gives it, without `.` components; empty for the directory itself.
pub(crate) fn parse_relative(text: &str) -> Result<PathBuf, ToolError> {
    let mut path = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(ToolError::new(format!(
                    "{text:?} is refused: give a path below the directory, without .."
                )));
            }
        }
    }
    Ok(path)
}

/// What to say of a failed access.
pub(crate) fn access_error(path: &str, error: &io::Error) -> ToolError {
    let kind = error.kind();
    ToolError::new(if kind == io::ErrorKind::NotFound {
        format!("{path:?} does not exist")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("{path:?} is refused: it may not be read, or it leads out of the directory")
    } else {
        format!("{path:?} cannot be used: {error}")
    })
}
