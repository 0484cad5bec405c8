//! A record that ailoop made a `.ailoop` directory for this user at its place. Somebody else may have written such a
//! directory, who then knows its token and its password.
//!
//! The directory has a random id, and a file of the user has the digest of the id and the path. A directory that came in
//! an archive has another id, and one that was moved or copied has another path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ailoop_client::run_file::{LOCK_FILE, is_plain_file};
use configuration::api_key::generate_key;
use configuration::place_of;
use contract::tool::sha256_hex;

use crate::private_file::write_private;

/// The file with the id in the directory of a fleet.
const ID_FILE: &str = "id";
/// Entries of a directory that no fleet has used: the lock and the data of `scripts/up-apart.sh`, which ailoop does not
/// read.
const UNUSED: [&str; 3] = [LOCK_FILE, ".gitignore", "apart"];

/// The record of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryRecord {
    directory: PathBuf,
    /// Path of the record, in the directory for configuration of this user.
    path: PathBuf,
    /// Path of the directory; a link that is the directory itself is not followed.
    place: PathBuf,
}

impl DirectoryRecord {
    /// Names the record of a directory, below the directory of all records.
    pub(crate) fn of(directory: &Path, records: &Path) -> io::Result<Self> {
        let place = place_of(directory)?;
        let path = records.join(sha256_hex(place.as_os_str().as_encoded_bytes()));
        Ok(Self { directory: directory.to_owned(), path, place })
    }

    /// Whether ailoop made the directory for this user at this place.
    pub(crate) fn matches(&self) -> bool {
        let id_file = self.directory.join(ID_FILE);
        let Ok(record) = fs::read_to_string(&self.path) else { return false };
        is_plain_file(&id_file) && fs::read(id_file).is_ok_and(|id| record == self.format(&id))
    }

    /// Whether no fleet has used the directory.
    pub(crate) fn is_unused(&self) -> bool {
        let is_unused = |entry: io::Result<fs::DirEntry>| {
            entry.is_ok_and(|entry| UNUSED.iter().any(|name| entry.file_name() == *name))
        };
        !self.directory.is_symlink() && fs::read_dir(&self.directory).is_ok_and(|mut all| all.all(is_unused))
    }

    /// Makes a new id and records it.
    pub(crate) fn write(&self) -> io::Result<()> {
        let id = generate_key();
        let records = self.path.parent().unwrap_or(&self.path);
        fs::create_dir_all(records)
            .and_then(|()| write_private(&self.path, self.format(id.as_bytes()).as_bytes()))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))?;
        write_private(&self.directory.join(ID_FILE), id.as_bytes())
    }

    fn format(&self, id: &[u8]) -> String {
        format!("{}  {}\n", sha256_hex(id), self.place.display())
    }
}
