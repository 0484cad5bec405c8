//! A PID namespace for one command: when its first process ends, the kernel kills all others and starts no new one.
//!
//! Only a superuser makes one here. Others could make one only in a user namespace, in which a command would be another
//! user, and many systems refuse that.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The shell that runs the scripts of these modules.
pub(super) const SHELL: &str = "/bin/sh";
/// Starts the first process of a namespace, a program that ignores its children, so that the kernel reaps orphans. It
/// ends when its standard input does: with the process that started it, however that ends.
const INIT_SCRIPT: &str = "echo && exec env --ignore-signal=CHLD cat";
/// Time in which the first process must be running.
const READY_MAX: Duration = Duration::from_secs(10);

/// The programs that make namespaces and enter them.
#[derive(Debug)]
pub(super) struct Namespaces {
    setsid: PathBuf,
    unshare: PathBuf,
    nsenter: PathBuf,
}

/// The process that holds a namespace; dropping it ends the namespace.
#[derive(Debug)]
pub(super) struct NamespaceHolder(Child);

impl Namespaces {
    /// Finds the programs, and makes a namespace to check the permission for it.
    pub(super) fn new(tool: &dyn Fn(&str) -> Option<PathBuf>) -> Result<Self, String> {
        let find = |name| tool(name).ok_or_else(|| format!("{name} of util-linux is not on this machine"));
        let found = Self { setsid: find("setsid")?, unshare: find("unshare")?, nsenter: find("nsenter")? };
        let made = std::process::Command::new(&found.unshare)
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", SHELL, "-c", INIT_SCRIPT])
            .env_clear()
            .stdin(Stdio::null())
            .output();
        let made = made.map_err(|error| format!("{} cannot be started: {error}", found.unshare.display()))?;
        if !made.status.success() {
            let stderr = String::from_utf8_lossy(&made.stderr);
            return Err(stderr.lines().next().unwrap_or("unshare gives no reason").to_owned());
        }
        Ok(found)
    }

    pub(super) fn create(&self) -> io::Result<NamespaceHolder> {
        let child = Command::new(&self.setsid)
            .arg(&self.unshare)
            .args(["--pid", "--fork", "--kill-child", SHELL, "-c", INIT_SCRIPT])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(NamespaceHolder(child))
    }

    /// Builds the command that starts a program in a namespace, with a `/proc` that shows its processes only.
    pub(super) fn build_enter_command(&self, holder: i32) -> Vec<OsString> {
        let mut namespace = OsString::from("--pid=");
        namespace.push(Path::new("/proc").join(holder.to_string()).join("ns/pid_for_children"));
        let tail: [&Path; 3] = [&self.setsid, &self.unshare, Path::new("--mount-proc")];
        [self.nsenter.clone().into(), namespace].into_iter().chain(tail.map(Into::into)).collect()
    }
}

impl NamespaceHolder {
    pub(super) fn pid(&self) -> io::Result<i32> {
        child_pid(&self.0)
    }

    pub(super) async fn wait_until_ready(&mut self) -> io::Result<()> {
        let Some(output) = self.0.stdout.as_mut() else { return Ok(()) };
        match timeout(READY_MAX, output.read_u8()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("its PID namespace cannot be made: {error}"))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "its PID namespace was not made in time")),
        }
    }

    /// Waits until the holder is reaped; it was killed with the command.
    pub(super) async fn wait_until_reaped(&mut self, time: Duration) {
        let _late = timeout(time, self.0.wait()).await.is_err();
    }
}

/// PID of a process that was not waited for yet.
pub(super) fn child_pid(child: &Child) -> io::Result<i32> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    pid.ok_or_else(|| io::Error::other("it was over before it began"))
}
