//! `.ailoop/`: the lock, the addresses and the credentials of the fleet of this directory. Only its user may read it, and
//! one that ailoop did not make for this user is not used.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ailoop_client::RunFile;
use ailoop_client::run_file::{DIRECTORY, LOCK_FILE, RUN_FILE, belong_to_this_user, is_plain_file};
use configuration::ConfigError;
use configuration::trust::user_file;
use contract::ErrorCode;
use terminal::failure::CommandFailure;
use tokio::time::{Instant, sleep};

use crate::directory_record::DirectoryRecord;
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
pub struct Home {
    dir: PathBuf,
    /// The directory of the records of this user; none if the user has no directory for configuration.
    records: Option<PathBuf>,
    is_adopted: bool,
}

impl Home {
    /// Names `.ailoop` below `parent`.
    pub fn below(parent: &Path) -> Self {
        Self::of(parent.join(DIRECTORY))
    }

    fn of(dir: PathBuf) -> Self {
        Self { dir, records: user_file("directories"), is_adopted: false }
    }

    /// Uses the directory also if ailoop did not make it for this user: the user says that it is theirs.
    #[must_use]
    pub fn adopted(self) -> Self {
        Self { is_adopted: true, ..self }
    }

    /// Returns the directory of the private nats-server.
    pub fn nats(&self) -> PathBuf {
        self.dir.join("nats")
    }

    /// Returns the default directory in which the file tools write.
    pub fn out(&self) -> PathBuf {
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
        let record = self.record()?;
        let may_be_used = || self.is_adopted || record.matches() || record.is_unused();
        // A file is made in the target of a link only if the link is the user's.
        if self.dir.is_symlink() && !may_be_used() {
            return Err(self.foreign_failure());
        }
        if path.symlink_metadata().is_ok() && !is_plain_file(&path) {
            let message = format!("{} is no regular file", path.display());
            return Err(CommandFailure::new(ErrorCode::BadConfig, message).help("remove it"));
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.locked_failure()),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        if !may_be_used() {
            return Err(self.foreign_failure());
        }
        // An older version made it for everybody.
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(PRIVATE_DIRECTORY)).map_err(cannot)?;
        if !record.matches() {
            record.write().map_err(|error| {
                CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be recorded: {error}", self.dir.display()))
                    .help("set XDG_CONFIG_HOME to a directory that can be written")
            })?;
        }
        // Data and written files belong in no repository. A failed write changes nothing else.
        let ignore = File::options().create_new(true).write(true).open(self.dir.join(".gitignore"));
        let _unwritten = ignore.and_then(|mut file| file.write_all(b"*\n"));
        Ok(Lock { home: self.clone(), _file: file })
    }

    fn record(&self) -> Result<DirectoryRecord, CommandFailure> {
        let records = self.records.as_deref().ok_or(ConfigError::NoUserDirectory)?;
        DirectoryRecord::of(&self.dir, records).map_err(|error| {
            CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be used: {error}", self.dir.display()))
        })
    }

    fn foreign_failure(&self) -> CommandFailure {
        let dir = self.dir.display();
        let message = format!("{dir} was not made by you here: it came with the directory, or was moved or copied");
        CommandFailure::new(ErrorCode::BadConfig, message)
            .help(format!("if it is yours, `ailoop up --new-token` uses it with new credentials; if not, remove {dir}"))
    }

    /// As `Home::lock`, but waits up to `LOCK_WAIT_MAX` while the process that has the lock has no run file: it reads
    /// the store for one command, or it is a fleet that starts or ends.
    pub async fn lock_when_free(&self) -> Result<Lock, CommandFailure> {
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        loop {
            let failure = match self.lock() {
                Ok(lock) => return Ok(lock),
                Err(failure) => failure,
            };
            let may_become_free = *failure.code() == ErrorCode::NotNow && RunFile::read(&self.dir).is_none();
            if !may_become_free || Instant::now() > deadline {
                return Err(failure);
            }
            sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    fn locked_failure(&self) -> CommandFailure {
        let (message, help) = match RunFile::read(&self.dir) {
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
    pub fn find_running(is_wanted: impl Fn(&RunFile) -> bool) -> Option<(Self, RunFile)> {
        RunFile::find_running(is_wanted).map(|(dir, run)| (Self::of(dir), run))
    }

    /// Finds the store that a fleet left in this directory, else in the nearest one above it. Above, only files of this
    /// user count, as for [`RunFile::of_running`].
    pub fn find_store() -> Option<Self> {
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
    pub fn parent(&self) -> Option<&Path> {
        self.dir.parent()
    }

    fn run_file_path(&self) -> PathBuf {
        self.dir.join(RUN_FILE)
    }
}

/// The lock of the directory of a fleet.
#[derive(Debug)]
pub struct Lock {
    home: Home,
    _file: File,
}

impl Lock {
    /// Removes the run file, also one that a killed fleet has left behind.
    pub fn remove_run_file(&self) {
        let _absent = fs::remove_file(self.home.run_file_path());
    }

    /// Writes the run file.
    pub fn announce(&self, run: &RunFile) -> io::Result<()> {
        write_private(&self.home.run_file_path(), &serde_json::to_vec_pretty(run)?)
    }

    /// Returns the credentials of the fleet of the directory; none if it has none on request.
    pub fn credentials(&self, source: CredentialSource) -> Result<Option<LocalCredentials>, CommandFailure> {
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

    fn home_below(parent: &Path) -> Home {
        Home { records: Some(parent.join("records")), ..Home::below(parent) }
    }

    #[test]
    fn lock_of_a_link_to_another_directory_of_the_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(home_below(dir.path()).lock().unwrap());
        fs::write(dir.path().join(".ailoop/credentials.json"), "{}").unwrap();
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::symlink("../.ailoop", foreign.join(".ailoop")).unwrap();
        let home = Home { records: Some(dir.path().join("records")), ..Home::below(&foreign) };
        let refused = home.lock().unwrap_err().to_string();
        assert!(refused.contains("was not made by you here") && refused.contains("--new-token"), "{refused}");
        drop(home.adopted().lock().unwrap());
    }

    #[test]
    fn lock_of_a_directory_that_is_not_used_yet_is_granted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".ailoop/apart")).unwrap();
        fs::write(dir.path().join(".ailoop/lock"), "").unwrap();
        drop(home_below(dir.path()).lock().unwrap());
        fs::remove_file(dir.path().join(".ailoop/id")).unwrap();
        fs::create_dir(dir.path().join(".ailoop/out")).unwrap();
        let refused = home_below(dir.path()).lock().unwrap_err().to_string();
        assert!(refused.contains("was not made by you here"), "{refused}");
    }

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
        let home = home_below(dir.path());
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
        let home = home_below(dir.path());
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
        let home = home_below(dir.path());
        drop(home.lock().unwrap());
        fs::set_permissions(dir.path().join(".ailoop"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join(".ailoop/run.json"), "{}").unwrap();
        let lock = home.lock().unwrap();
        lock.announce(&sample()).unwrap();
        assert_eq!((mode(".ailoop"), mode(".ailoop/run.json")), (0o700, 0o600));
    }

    #[test]
    fn lock_that_is_a_link_is_neither_followed_nor_believed() {
        let dir = tempfile::tempdir().unwrap();
        let home = home_below(dir.path());
        let link = |target: &Path| {
            let _absent = fs::remove_file(dir.path().join(".ailoop/lock"));
            std::os::unix::fs::symlink(target, dir.path().join(".ailoop/lock")).unwrap();
        };
        fs::create_dir(dir.path().join(".ailoop")).unwrap();
        fs::write(dir.path().join(".ailoop/run.json"), serde_json::to_vec(&sample()).unwrap()).unwrap();
        let target = dir.path().join("target");
        link(&target);
        let refused = home.lock().unwrap_err();
        assert!(refused.to_string().contains(".ailoop/lock is no regular file"), "{refused}");
        assert!(!target.exists());
        // Another program may hold a lock of its own.
        let other = File::create(&target).unwrap();
        other.lock().unwrap();
        assert_eq!(home.running(), None);
        let refused = home.lock().unwrap_err();
        assert!(refused.to_string().contains(".ailoop/lock is no regular file"), "{refused}");
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
