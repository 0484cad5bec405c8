//! The directory of a backup while it is written, and files whose checksum is known when they are complete.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bus::nats::CHUNK_BYTES;
use contract::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use terminal::failure::CommandFailure;

/// Name of the manifest in its directory; it is written last.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Size and checksum of a file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub(crate) bytes: u64,
    /// SHA-256 of its bytes, in hex.
    pub(crate) sha256: String,
}

/// A directory that gets its name when everything in it is written.
#[derive(Debug)]
pub struct PartialDirectory {
    part: PathBuf,
    target: PathBuf,
}

/// A file that counts and hashes what is written to it.
pub(super) struct ChecksumFile {
    out: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl PartialDirectory {
    /// Makes the directory under another name. Only its owner may read it, since it will contain conversations.
    pub fn create(target: &Path) -> Result<Self, CommandFailure> {
        refuse_used(target)?;
        let absolute = std::path::absolute(target).map_err(|error| unwritable(target, &error))?;
        // Without a slash at its end.
        let mut part = absolute.components().collect::<PathBuf>().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        if let Some(parent) = part.parent() {
            fs::create_dir_all(parent).map_err(|error| unwritable(parent, &error))?;
        }
        DirBuilder::new().mode(0o700).create(&part).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                let message = format!("{} exists: another backup writes it, or one was interrupted", part.display());
                return CommandFailure::new(ErrorCode::BadRequest, message)
                    .help("delete it if no other backup runs, or pass another directory with --out");
            }
            unwritable(&part, &error)
        })?;
        Ok(Self { part, target: target.to_owned() })
    }

    pub(super) fn file(&self, name: &str) -> Result<ChecksumFile, CommandFailure> {
        let path = self.part.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| unwritable(&path, &error))?;
        Ok(ChecksumFile { out: BufWriter::with_capacity(CHUNK_BYTES, file), hash: Sha256::new(), bytes: 0 })
    }

    /// Gives the directory its name, once all of it is on the disk.
    pub fn complete(self) -> Result<(), CommandFailure> {
        let done = || {
            File::open(&self.part)?.sync_all()?;
            fs::rename(&self.part, &self.target)?;
            match std::path::absolute(&self.target)?.parent() {
                Some(parent) => File::open(parent)?.sync_all(),
                None => Ok(()),
            }
        };
        done().map_err(|error| unwritable(&self.target, &error))
    }

    /// Removes what was written.
    pub fn discard(self) {
        // What cannot be removed is reported by the next backup.
        let _remains = fs::remove_dir_all(&self.part);
    }
}

impl ChecksumFile {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        self.out.write_all(bytes).map_err(|error| unwritable_file(&error))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns when the file is on the disk.
    pub(super) fn complete(self) -> Result<FileEntry, CommandFailure> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).map_err(|error| unwritable_file(&error))?;
        Ok(FileEntry { bytes: self.bytes, sha256: to_hex(self.hash) })
    }
}

/// Size and checksum of a file, read in pieces.
pub(super) fn read_entry(path: &Path) -> io::Result<FileEntry> {
    let (mut file, mut hash, mut bytes) = (File::open(path)?, Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(FileEntry { bytes, sha256: to_hex(hash) }),
            read => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// An empty directory may be used; anything else may be somebody's only backup.
fn refuse_used(target: &Path) -> Result<(), CommandFailure> {
    let mut entries = match fs::read_dir(target) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(target, &error)),
    };
    let message = if target.join(MANIFEST).is_file() {
        format!("{} has a backup already", target.display())
    } else if entries.next().is_some() {
        format!("{} is not empty", target.display())
    } else {
        return Ok(());
    };
    Err(CommandFailure::usage(ErrorCode::BadRequest, message).help("pass another directory with --out"))
}

fn unwritable(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadRequest, format!("{} cannot be written: {error}", path.display()))
}

fn unwritable_file(error: &io::Error) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadRequest, format!("the backup cannot be written: {error}"))
}

fn to_hex(hash: Sha256) -> String {
    use std::fmt::Write as _;
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
