//! `.ailoop/`: who holds this directory's fleet, and where it is.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use contract::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// `.ailoop/run.json`: where a running fleet is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// The process that holds the fleet.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// gRPC, such as `http://127.0.0.1:7071`.
    pub grpc: String,
    /// WebSocket, such as `ws://127.0.0.1:7070/ws`.
    pub ws: String,
    /// NATS, such as `nats://127.0.0.1:4222`.
    pub nats: String,
    /// It ends with the session for which `ailoop run` started it, and takes no other one.
    #[serde(default)]
    pub one_session: bool,
    /// Variables of models.yaml that hold keys, and that were not set when it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_keys: Vec<String>,
}

/// The directory in which a fleet keeps what it has.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// `.ailoop` below `parent`.
    pub fn below(parent: &Path) -> Self {
        Self { dir: parent.join(".ailoop") }
    }

    /// Where the private nats-server keeps its data.
    pub fn nats(&self) -> PathBuf {
        self.dir.join("nats")
    }

    /// Where the file tools write, unless told otherwise.
    pub fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// Takes the directory for one fleet. It is free again when the lock is dropped, or its process ends in any way.
    pub fn lock(&self) -> Result<Lock, Failure> {
        let path = self.dir.join("lock");
        let cannot = |error: io::Error| {
            Failure::new(ErrorCode::BadConfig, format!("{} cannot be used: {error}", path.display()))
                .help("run in a directory that can be written")
        };
        fs::create_dir_all(&self.dir).map_err(cannot)?;
        let ignore = self.dir.join(".gitignore");
        if !ignore.exists() {
            // Nothing here belongs into a repository: data, and what tools wrote. Without the file all works the same.
            let _unwritten = fs::write(&ignore, "*\n");
        }
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { home: self.clone(), _file: file }),
            Err(TryLockError::WouldBlock) => Err(self.held()),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }

    fn held(&self) -> Failure {
        let (who, help) = match self.read() {
            Some(run) if !run.one_session => (
                format!("the fleet of process {} uses {} already", run.pid, self.dir.display()),
                "use that one with `ailoop run`, end it with Ctrl-C, or work in another directory",
            ),
            Some(_) | None => (
                format!("another ailoop uses {} already", self.dir.display()),
                "wait for it; to have several sessions at once, start the fleet with `ailoop up`",
            ),
        };
        Failure::new(ErrorCode::NotNow, who).help(help)
    }

    /// Where the fleet that holds this directory is; none when nobody holds it, whatever a dead one has left behind.
    pub fn running(&self) -> Option<RunFile> {
        let file = File::options().write(true).open(self.dir.join("lock")).ok()?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => self.read(),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }

    fn run_file(&self) -> PathBuf {
        self.dir.join("run.json")
    }

    fn read(&self) -> Option<RunFile> {
        serde_json::from_slice(&fs::read(self.run_file()).ok()?).ok()
    }
}

/// The directory is ours.
#[derive(Debug)]
pub struct Lock {
    home: Home,
    _file: File,
}

impl Lock {
    /// Removes what a fleet that died has left behind.
    pub fn forget(&self) {
        let _absent = fs::remove_file(self.home.run_file());
    }

    /// Tells where our fleet is, at once and wholly: readers never see half a file.
    pub fn announce(&self, run: &RunFile) -> io::Result<()> {
        let path = self.home.run_file();
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec_pretty(run)?)?;
        fs::rename(new, path)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.forget();
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
    fn a_directory_has_one_fleet() {
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
    fn what_a_dead_fleet_left_is_not_believed() {
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
