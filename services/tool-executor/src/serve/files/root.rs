//! The directory that may be read: every path is opened below it, symbolic links included.

use std::io;
use std::path::{Component, Path, PathBuf};

use ailoop_tool::ToolError;
use cap_std::ambient_authority;
use cap_std::fs::Dir;

/// A directory and what keeps accesses within it.
#[derive(Debug)]
pub(super) struct Root {
    /// Opens nothing outside, whatever links say.
    pub(super) dir: Dir,
    /// For walking names only, never for reading.
    pub(super) path: PathBuf,
    /// Its last component, for people.
    pub(super) name: String,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        let name = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { dir, path, name })
    }
}

/// A path as a model gives it, without `.` components; empty for the directory itself.
pub(in crate::serve) fn relative(text: &str) -> Result<PathBuf, ToolError> {
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
pub(in crate::serve) fn failed(path: &str, error: &io::Error) -> ToolError {
    let kind = error.kind();
    ToolError::new(if kind == io::ErrorKind::NotFound {
        format!("{path:?} does not exist")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("{path:?} is refused: it may not be read, or it leads out of the directory")
    } else {
        format!("{path:?} cannot be used: {error}")
    })
}
