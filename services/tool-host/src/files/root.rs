//! A directory that confines all accesses: every path is opened below it, symbolic links included.

use std::io;
use std::path::{Component, Path, PathBuf};

use ailoop_tool::ToolError;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, MetadataExt};

/// Reason why a file with a hard link is refused.
const HARD_LINK_TEXT: &str = "it has a hard link, which may be outside of the directory: copy it instead";

/// A directory outside of which nothing is opened.
#[derive(Debug)]
pub(super) struct RootDirectory {
    /// Opens nothing outside of the directory, even through links.
    pub(super) dir: Dir,
    /// For listing names only, never for reading.
    pub(super) path: PathBuf,
    /// Last component of the path, for people.
    pub(super) name: String,
}

impl RootDirectory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        let name = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { dir, path, name })
    }

    /// Resolves links, and refuses those that lead out; the second value says whether it is a directory.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<(PathBuf, bool)> {
        let real = self.dir.canonicalize(path)?;
        let is_dir = self.dir.metadata(&real)?.is_dir();
        Ok((real, is_dir))
    }

    /// Opens a regular file; `None` where the path leads to something else, such as a pipe or a device, which would
    /// block. A file with several names is refused: the other name may be outside of the directory.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<Option<File>> {
        if !self.dir.metadata(path)?.is_file() {
            return Ok(None);
        }
        let file = self.dir.open(path)?;
        // Checked on the open file, since the name may lead to another one by now.
        let opened = file.metadata()?;
        if opened.nlink() > 1 {
            return Err(io::Error::other(HARD_LINK_TEXT));
        }
        Ok(opened.is_file().then_some(file))
    }
}

/// Parses the path that a model gave, without `.` components; empty for the directory itself.
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

/// Describes a failed access for the model.
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

/// Converts bytes to text; `None` where they are not text.
pub(super) fn to_text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}
