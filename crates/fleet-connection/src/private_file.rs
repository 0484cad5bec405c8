//! Files that are replaced as a whole, and those with secrets.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Mode of a file that only its user may read.
const PRIVATE_FILE: u32 = 0o600;

/// Writes a file by a rename, so that a reader sees the old one or the new one.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// Writes a file that only its user may read, by a rename, so that readers never see half of it.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // One that is left of a killed process may have another mode.
    let _absent = fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(&new)?;
    file.write_all(content)?;
    fs::rename(new, path)
}
