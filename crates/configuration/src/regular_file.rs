//! Reads files that somebody else may have written or linked.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a regular file of at most [`FILE_BYTES_MAX`]: a device or a pipe may have no end.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    // A file of /proc has more bytes than it says.
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// As [`read_bytes`], for a text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// Resolves the place of a directory: its path without links above it. A link that is the directory itself is not
/// followed.
pub fn place_of(directory: &Path) -> io::Result<PathBuf> {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(parent.canonicalize()?.join(directory.file_name().unwrap_or_default()))
}

/// Whether a path leads out of a directory above it, by a link of the directory itself or below it. A path that does
/// not exist leads nowhere.
pub(crate) fn leads_out(root: &Path, path: &Path) -> io::Result<bool> {
    let root = place_of(root)?;
    match path.canonicalize() {
        Ok(path) => Ok(!path.starts_with(root)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
