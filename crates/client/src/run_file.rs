//! The fleet that runs in a directory, by the file `.ailoop/run.json` that it keeps there.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The directory of a fleet, below its working directory. Only its user may read it.
pub const DIRECTORY: &str = ".ailoop";
/// The file in [`DIRECTORY`] that a running fleet keeps locked.
pub const LOCK_FILE: &str = "lock";
/// The [`RunFile`] in [`DIRECTORY`].
pub const RUN_FILE: &str = "run.json";

/// The addresses and the token of a running fleet, as `ailoop up` writes them to `.ailoop/run.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Process id of the fleet.
    pub pid: u32,
    /// Version of its binary.
    pub version: String,
    /// Address for gRPC, such as `http://127.0.0.1:7071`.
    pub grpc: String,
    /// Address for HTTP, such as `http://127.0.0.1:7070`.
    #[serde(default)]
    pub http: String,
    /// Address for WebSocket, such as `ws://127.0.0.1:7070/ws`.
    pub ws: String,
    /// Address of NATS with its user and password, such as `nats://ailoop:password@127.0.0.1:4222`.
    pub nats: String,
    /// The key for gRPC, HTTP and WebSocket; none where the configuration has credentials of its own, or nobody needs
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether `ailoop run` started the fleet for its own session; the fleet ends with it and accepts no other session.
    #[serde(default)]
    pub one_session: bool,
    /// Environment variables for keys of models.yaml that were not set when the fleet started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_keys: Vec<String>,
}

/// Shows neither token nor password.
impl fmt::Debug for RunFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFile").field("pid", &self.pid).field("grpc", &self.grpc).finish_non_exhaustive()
    }
}

impl RunFile {
    /// Reads the file of a directory, whether a fleet runs there or not.
    pub fn read(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(RUN_FILE)).ok()?).ok()
    }

    /// Reads the file of the fleet that keeps a directory locked; none without such a fleet, since the file may be
    /// stale. The directory and the file must belong to this user: others could lay a file into a directory that
    /// everybody writes to, and would be sent prompts. A lock that is a link says nothing: another program may hold it.
    pub fn of_running(directory: &Path) -> Option<Self> {
        let path = directory.join(LOCK_FILE);
        if !belong_to_this_user(&[directory, &directory.join(RUN_FILE)]) || !is_plain_file(&path) {
            return None;
        }
        let lock = File::options().write(true).open(path).ok()?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Self::read(directory),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Finds a running fleet in the working directory, else in the nearest one above it; the path is that of its
    /// [`DIRECTORY`].
    pub fn find_running(is_wanted: impl Fn(&Self) -> bool) -> Option<(PathBuf, Self)> {
        let here = PathBuf::from(DIRECTORY);
        let above = std::env::current_dir().unwrap_or_default();
        let above = above.ancestors().skip(1).map(|directory| directory.join(DIRECTORY));
        let running = |path: PathBuf| Self::of_running(&path).filter(&is_wanted).map(|run| (path, run));
        std::iter::once(here).chain(above).find_map(running)
    }
}

/// Whether a path is a regular file, and no link to one.
pub fn is_plain_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Whether all of these files exist, and belong to the user of this process.
pub fn belong_to_this_user(paths: &[&Path]) -> bool {
    let user = rustix::process::geteuid().as_raw();
    paths.iter().all(|path| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user))
}
