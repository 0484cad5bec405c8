//! The manifest of a backup, and the checks before a restore.

use std::io;
use std::path::Path;

use bus::nats::StreamState;
use contract::{ErrorCode, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use terminal::failure::CommandFailure;

use super::directory::{FileEntry, MANIFEST, read_entry};
use super::source::Source;

/// The format that this version writes, and the newest one that it reads.
pub(super) const FORMAT: u32 = 1;

/// Content of a backup, by stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub(crate) format: u32,
    /// Identifies the backup, also in the marks of its restore.
    pub(crate) id: String,
    /// The version of ailoop that made it.
    pub(crate) ailoop: String,
    /// The version of nats-server that made the snapshots.
    pub(crate) nats_server: String,
    /// Time at which the backup began.
    pub(crate) began: Timestamp,
    /// Time at which the backup was complete.
    pub(crate) ended: Timestamp,
    /// Only some streams were asked for.
    pub partial: bool,
    /// The streams in the order in which they were read.
    pub streams: Vec<StreamEntry>,
}

/// One stream of a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamEntry {
    pub(crate) name: String,
    /// Time at which its snapshot began.
    pub(crate) at: Timestamp,
    /// Its settings, as nats-server names them.
    pub(crate) config: Map<String, Value>,
    /// Its state when the snapshot began.
    pub(crate) state: StreamState,
    /// Messages that are in the snapshot for certain; the others of `state` may have left the stream meanwhile.
    pub(crate) messages_min: u64,
    pub(crate) snapshot: FileEntry,
    pub(crate) tail: Option<TailEntry>,
}

/// Messages that were stored while the snapshot was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TailEntry {
    pub(crate) messages: u64,
    #[serde(flatten)]
    pub(crate) file: FileEntry,
}

/// The only field that every format has.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl Manifest {
    /// Returns the time at which the log was read: later commits are not in the backup.
    pub fn log_read_at(&self) -> Timestamp {
        let log = Source::Stream(contract::streams::Stream::Log).name();
        self.streams.iter().find(|entry| entry.name == log).map_or(self.began, |entry| entry.at)
    }

    /// Bytes of all files but the manifest.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(StreamEntry::bytes).sum()
    }
}

impl StreamEntry {
    pub(crate) fn source(&self) -> Result<Source, CommandFailure> {
        Source::by_name(&self.name).ok_or_else(|| damaged(format!("{:?} is no stream of ailoop", self.name)))
    }

    /// Whether messages leave the stream by their age, so that a restore may find fewer of them.
    pub(super) fn expires(&self) -> bool {
        let has_age = self.config.get("max_age").and_then(Value::as_u64).is_some_and(|age| age > 0);
        has_age || self.config.get("allow_msg_ttl").and_then(Value::as_bool).unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        self.snapshot.bytes + self.tail.as_ref().map_or(0, |tail| tail.file.bytes)
    }
}

/// The file with the snapshot of a stream. Its name follows from the stream, so that no manifest can name other files.
pub(super) fn snapshot_file(source: Source) -> String {
    format!("{}.snapshot", source.name())
}

/// The file with the messages after the snapshot, one line of JSON for each.
pub(super) fn tail_file(source: Source) -> String {
    format!("{}.tail.jsonl", source.name())
}

/// Reads the manifest of a backup.
pub fn read_manifest(directory: &Path) -> Result<Manifest, CommandFailure> {
    let path = directory.join(MANIFEST);
    let text = std::fs::read(&path).map_err(|error| {
        let message = if error.kind() == io::ErrorKind::NotFound {
            format!("{} is no backup: it has no {MANIFEST}", directory.display())
        } else {
            format!("{} cannot be read: {error}", path.display())
        };
        CommandFailure::usage(ErrorCode::BadRequest, message).help("pass a directory that `ailoop backup` made")
    })?;
    let malformed = |error: serde_json::Error| damaged(format!("{} is not valid: {error}", path.display()));
    let FormatOnly { format } = serde_json::from_slice(&text).map_err(malformed)?;
    if format > FORMAT {
        let message =
            format!("{} has format {format}, and this version of ailoop reads format {FORMAT}", path.display());
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message).help("use the version that made the backup"));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(malformed)?;
    let mut names = std::collections::BTreeSet::new();
    for entry in &manifest.streams {
        entry.source()?;
        if !names.insert(&entry.name) {
            return Err(damaged(format!("{} names {} twice", path.display(), entry.name)));
        }
    }
    if let Some(missing) =
        Source::ORDER.iter().find(|source| !names.contains(&source.name())).filter(|_| !manifest.partial)
    {
        return Err(damaged(format!("{} lacks {}", path.display(), missing.name())));
    }
    Ok(manifest)
}

/// Compares every file of a backup with its size and checksum. A file is as long as its stream, so this takes a while.
pub fn check_files(directory: &Path, manifest: &Manifest) -> Result<(), CommandFailure> {
    for entry in &manifest.streams {
        let source = entry.source()?;
        check_file(&directory.join(snapshot_file(source)), &entry.snapshot)?;
        if let Some(tail) = &entry.tail {
            check_file(&directory.join(tail_file(source)), &tail.file)?;
        }
    }
    Ok(())
}

fn check_file(path: &Path, expected: &FileEntry) -> Result<(), CommandFailure> {
    let shown = path.display();
    let found = read_entry(path).map_err(|error| damaged(format!("{shown} cannot be read: {error}")))?;
    if found.bytes != expected.bytes {
        let (found, expected) = (found.bytes, expected.bytes);
        return Err(damaged(format!("{shown} has {found} bytes, and the manifest says {expected}")));
    }
    if found.sha256 != expected.sha256 {
        return Err(damaged(format!("{shown} has another checksum than the manifest says")));
    }
    Ok(())
}

fn damaged(message: String) -> CommandFailure {
    CommandFailure::usage(ErrorCode::BadRequest, message)
        .help("the backup is damaged: use another one; nothing was changed")
}
