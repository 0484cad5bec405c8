//! `.ailoop/`: the lock and the addresses of the fleet of this directory.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use contract::ErrorCode;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::failure::CommandFailure;

/// Longest wait for another process that reads the store, or for a fleet that starts or ends.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts to lock the directory.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// `.ailoop/run.json`: the addresses of a running fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFile {
    /// Process id of the fleet.
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// Address for gRPC, such as `http://127.0.0.1:7071`.
    pub(crate) grpc: String,
    /// Address for WebSocket, such as `ws://127.0.0.1:7070/ws`.
    pub(crate) ws: String,
    /// Address of NATS, such as `nats://127.0.0.1:4222`.
    pub(crate) nats: String,
    /// Whether `ailoop run` started the fleet for its own session; the fleet ends with it and accepts no other session.
    #[serde(default)]
    pub(crate) one_session: bool,
    /// Environment variables for keys of models.yaml that were not set when the fleet started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_keys: Vec<String>,
}

/// The directory of a fleet: its lock, run file, NATS data and written files.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    dir: PathBuf,
}

impl Home {
    /// Names `.ailoop` below `parent`.
    pub(crate) fn below(parent: &Path) -> Self {
        Self { dir: parent.join(".ailoop") }
    }

    /// Returns the directory of the private nats-server.
    pub(crate) fn nats(&self) -> PathBuf {
        self.dir.join("nats")
    }

    /// Returns the default directory in which the file tools write.
    pub(crate) fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// Locks the directory for one fleet. The lock ends when it is dropped, or when its process ends in any way.
    pub(crate) fn lock(&self) -> Result<Lock, CommandFailure> {
        let path = self.dir.join("lock");
        let cannot = |error: io::Error| {
            CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be used: {error}", path.display()))
                .help("run in a directory that can be written")
        };
        fs::create_dir_all(&self.dir).map_err(cannot)?;
        let ignore = self.dir.join(".gitignore");
        if !ignore.exists() {
            // Data and written files belong in no repository. A failed write changes nothing else.
            let _unwritten = fs::write(&ignore, "*\n");
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { home: self.clone(), _file: file }),
            Err(TryLockError::WouldBlock) => Err(self.locked_failure()),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }

    /// As [`Home::lock`], but waits up to [`LOCK_WAIT_MAX`] while the process that has the lock has no run file: it reads
    /// the store for one command, or it is a fleet that starts or ends.
    pub(crate) async fn lock_when_free(&self) -> Result<Lock, CommandFailure> {
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        loop {
            let failure = match self.lock() {
                Ok(lock) => return Ok(lock),
                Err(failure) => failure,
            };
            let may_become_free = *failure.code() == ErrorCode::NotNow && self.read_run_file().is_none();
            if !may_become_free || Instant::now() > deadline {
                return Err(failure);
            }
            sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    fn locked_failure(&self) -> CommandFailure {
        let (message, help) = match self.read_run_file() {
            Some(run) if !run.one_session => (
                format!("the fleet of process {} uses {} already", run.pid, self.dir.display()),
                "use that one with `ailoop run`, end it with Ctrl-C, or work in another directory",
            ),
            Some(_) | None => (
                format!("another ailoop uses {} already", self.dir.display()),
                "wait for it; to have several sessions at once, start the fleet with `ailoop up`",
            ),
        };
        CommandFailure::new(ErrorCode::NotNow, message).help(help)
    }

    /// Returns the run file of the fleet that holds the lock; none without such a fleet, since a run file may be stale.
    pub(crate) fn running(&self) -> Option<RunFile> {
        let file = File::options().write(true).open(self.dir.join("lock")).ok()?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => self.read_run_file(),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    /// Finds a running fleet in this directory, else in the nearest one above it. Above, only files of this user count:
    /// others could lay a file into a directory that everybody writes to, and would be sent prompts.
    pub(crate) fn find_running(is_wanted: impl Fn(&RunFile) -> bool) -> Option<(Self, RunFile)> {
        let here = Self::below(Path::new(""));
        if let Some(run) = here.running().filter(&is_wanted) {
            return Some((here, run));
        }
        let directory = std::env::current_dir().ok()?;
        let mut above = directory.ancestors().skip(1).map(Self::below).filter(Self::is_of_this_user);
        above.find_map(|home| home.running().filter(&is_wanted).map(|run| (home, run)))
    }

    fn is_of_this_user(&self) -> bool {
        belong_to_this_user(&[&self.dir, &self.run_file_path()])
    }

    /// Finds the store that a fleet left in this directory, else in the nearest one above it. Above, only files of this
    /// user count, as for [`Home::find_running`].
    pub(crate) fn find_store() -> Option<Self> {
        let here = Self::below(Path::new(""));
        if here.store().is_dir() {
            return Some(here);
        }
        let directory = std::env::current_dir().ok()?;
        let mut above = directory.ancestors().skip(1).map(Self::below);
        above.find(|home| home.store().is_dir() && belong_to_this_user(&[&home.dir, &home.nats(), &home.store()]))
    }

    /// The directory that nats-server makes for its streams when it first starts.
    fn store(&self) -> PathBuf {
        self.nats().join("jetstream")
    }

    /// Returns the directory of the fleet, in which `.ailoop` is.
    pub(crate) fn parent(&self) -> Option<&Path> {
        self.dir.parent()
    }

    fn run_file_path(&self) -> PathBuf {
        self.dir.join("run.json")
    }

    fn read_run_file(&self) -> Option<RunFile> {
        serde_json::from_slice(&fs::read(self.run_file_path()).ok()?).ok()
    }
}

/// Whether all of these files exist, and belong to the user of this process.
fn belong_to_this_user(paths: &[&Path]) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|metadata| metadata.uid());
    // The process itself belongs to its user.
    let Ok(user) = owner(Path::new("/proc/self")) else { return false };
    paths.iter().all(|path| owner(path).is_ok_and(|owner| owner == user))
}

/// The lock of the directory of a fleet.
#[derive(Debug)]
pub(crate) struct Lock {
    home: Home,
    _file: File,
}

impl Lock {
    /// Removes the run file, also one that a killed fleet has left behind.
    pub(crate) fn remove_run_file(&self) {
        let _absent = fs::remove_file(self.home.run_file_path());
    }

    /// Writes the run file by a rename, so that readers never see half of it.
    pub(crate) fn announce(&self, run: &RunFile) -> io::Result<()> {
        let path = self.home.run_file_path();
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec_pretty(run)?)?;
        fs::rename(new, path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.remove_run_file();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RunFile {
        let text = |text: &str| text.to_owned();
        RunFile {
            pid: 7,
            version: text("0"),
            grpc: text("g"),
            ws: text("w"),
            nats: text("n"),
            one_session: false,
            missing_keys: Vec::new(),
        }
    }

    #[test]
    fn lock_held_by_a_fleet_second_lock_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::below(dir.path());
        assert_eq!(home.running(), None);
        let lock = home.lock().unwrap();
        assert_eq!(home.running(), None);
        assert_eq!(fs::read_to_string(dir.path().join(".ailoop/.gitignore")).unwrap(), "*\n");
        lock.announce(&sample()).unwrap();
        assert_eq!(home.running(), Some(sample()));
        let refused = home.lock().unwrap_err();
        assert_eq!(refused.code(), &ErrorCode::NotNow);
        assert!(refused.to_string().contains("process 7"), "{refused}");
        lock.announce(&RunFile { one_session: true, ..sample() }).unwrap();
        let refused = home.lock().unwrap_err();
        assert!(refused.to_string().contains("another ailoop"), "{refused}");
        drop(lock);
        assert_eq!(home.running(), None);
        home.lock().unwrap();
    }

    #[test]
    fn running_stale_run_file_without_lock_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::below(dir.path());
        let lock = home.lock().unwrap();
        lock.announce(&sample()).unwrap();
        std::mem::forget(lock);
        fs::remove_file(dir.path().join(".ailoop/lock")).unwrap();
        fs::write(dir.path().join(".ailoop/lock"), "").unwrap();
        assert_eq!(home.running(), None);
    }
}
