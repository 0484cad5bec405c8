//! A backup: every stream, bucket and object store of ailoop as files in a directory, and the way back.
//!
//! The directory has a manifest, and for each stream the snapshot that nats-server made of it, unread. Messages that
//! were stored while the snapshot was made follow in a second file, see `source`.

mod directory;
mod manifest;
mod restore;
mod source;
mod write;

pub use directory::PartialDirectory;
pub use manifest::{Manifest, check_files, read_manifest};
pub use restore::{BackupRestore, Existing};
pub use source::Source;
pub use write::write_backup;
