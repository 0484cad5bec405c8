//! `.ailoop/`: the lock, the addresses and the credentials of the fleet of this directory. Only its user may read it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ailoop_client::RunFile;
use ailoop_client::run_file::{DIRECTORY, LOCK_FILE, RUN_FILE, belong_to_this_user};
use contract::ErrorCode;
use tokio::time::{Instant, sleep};

use crate::failure::CommandFailure;
use crate::local_credentials::{CredentialSource, LocalCredentials};
use crate::private_file::write_private;

/// Longest wait for another process that reads the store, or for a fleet that starts or ends.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts to lock the directory.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Mode of the directory.
const PRIVATE_DIRECTORY: u32 = 0o700;

/// The directory of a fleet: its lock, run file, NATS data and written files.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    dir: PathBuf,
}

impl Home {
    /// Names `.ailoop` below `parent`.
    pub(crate) fn below(parent: &Path) -> Self {
        Self { dir: parent.join(DIRECTORY) }
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
        let path = self.dir.join(LOCK_FILE);
        let cannot = |error: io::Error| {
            CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be used: {error}", path.display()))
                .help("run in a directory that can be written")
        };
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&self.dir).map_err(cannot)?;
        if !belong_to_this_user(&[&self.dir]) {
            let message = format!("{} belongs to another user, who can read and replace its files", self.dir.display());
            return Err(CommandFailure::new(ErrorCode::BadConfig, message)
                .help("run as that user, or work in another directory"));
        }
        // An older version made it for everybody.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(PRIVATE_DIRECTORY)).map_err(cannot)?;
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

    /// Returns the run file of the fleet that holds the lock.
    pub(crate) fn running(&self) -> Option<RunFile> {
        RunFile::of_running(&self.dir)
    }

    /// Finds a running fleet in this directory, else in the nearest one above it.
    pub(crate) fn find_running(is_wanted: impl Fn(&RunFile) -> bool) -> Option<(Self, RunFile)> {
        RunFile::find_running(is_wanted).map(|(dir, run)| (Self { dir }, run))
    }

    /// Finds the store that a fleet left in this directory, else in the nearest one above it. Above, only files of this
    /// user count, as for [`RunFile::of_running`].
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
        self.dir.join(RUN_FILE)
    }

    fn read_run_file(&self) -> Option<RunFile> {
        RunFile::read(&self.dir)
    }
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

    /// Writes the run file.
    pub(crate) fn announce(&self, run: &RunFile) -> io::Result<()> {
        write_private(&self.home.run_file_path(), &serde_json::to_vec_pretty(run)?)
    }

    /// Returns the credentials of the fleet of the directory; none if it has none on request.
    pub(crate) fn credentials(&self, source: CredentialSource) -> Result<Option<LocalCredentials>, CommandFailure> {
        LocalCredentials::of(&self.home.dir, source)
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
            http: text("h"),
            ws: text("w"),
            nats: text("n"),
            token: Some(text("t")),
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

    #[test]
    fn directory_of_an_older_version_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        fs::create_dir(dir.path().join(".ailoop")).unwrap();
        fs::write(dir.path().join(".ailoop/run.json"), "{}").unwrap();
        let lock = Home::below(dir.path()).lock().unwrap();
        lock.announce(&sample()).unwrap();
        assert_eq!((mode(".ailoop"), mode(".ailoop/run.json")), (0o700, 0o600));
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "says why it tests nothing")]
    fn lock_directory_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".ailoop")).unwrap();
        if std::os::unix::fs::chown(dir.path().join(".ailoop"), Some(65_534), None).is_err() {
            println!("not tested: only root gives a directory to another user");
            return;
        }
        let refused = Home::below(dir.path()).lock().unwrap_err();
        assert!(refused.to_string().contains("belongs to another user"), "{refused}");
        assert_eq!(Home::below(dir.path()).running(), None);
    }
}
