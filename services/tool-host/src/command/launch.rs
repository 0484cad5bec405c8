//! Starts a program in a session of its own, with an environment of its own, and not before its limits are set.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cap_std::fs::Dir;
use rustix::process::{Pid, Resource, Rlimit, getpriority_process, getrlimit, getuid, prlimit, setpriority_process};
use tokio::process::{Child, Command};

use super::config::{CommandConfig, CommandUser, setting};
use super::namespace::{NamespaceHolder, Namespaces, SHELL, child_pid};
use super::procfs;
use crate::connect::CONCURRENCY;
use crate::error::HostError;

/// Runs first: waits for a line, then becomes the program. The program and its arguments are passed as arguments, which
/// no shell parses.
const WAIT_SCRIPT: &str = r#"read -r go && exec "$@""#;
/// Directories with the programs of util-linux.
const TOOL_DIRECTORIES: [&str; 2] = ["/usr/bin", "/bin"];
/// Environment variable that names the command of a process.
pub(super) const MARK_VARIABLE: &str = "AILOOP_COMMAND";
/// The line for which the script waits.
pub(super) const START_LINE: &[u8] = b"\n";
/// Niceness of a command above ours: this process must still be able to watch it on a busy machine.
const NICENESS_ADDED: i32 = 10;
/// Greatest niceness of the kernel.
const NICENESS_MAX: i32 = 19;

/// A started program that waits for [`START_LINE`].
#[derive(Debug)]
pub(super) struct SpawnedCommand {
    pub(super) child: Child,
    /// Holder of the PID namespace in which it will run.
    pub(super) holder: Option<NamespaceHolder>,
    /// PID of the process from which all others of the command descend.
    pub(super) root: i32,
}

/// Starts programs as the configuration says.
#[derive(Debug)]
pub(super) struct Launcher {
    setsid: PathBuf,
    setpriv: PathBuf,
    environment: Vec<(OsString, OsString)>,
    user: Option<CommandUser>,
    /// `None` where commands share the PID namespace of this process.
    namespaces: Option<Namespaces>,
    memory_bytes_max: u64,
    processes_max: usize,
    cpu_seconds_max: u64,
    file_bytes_max: u64,
}

impl Launcher {
    pub(super) fn new(config: &CommandConfig) -> Result<Self, HostError> {
        let tool = |name: &str| TOOL_DIRECTORIES.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
        let (Some(setsid), Some(setpriv), true) = (tool("setsid"), tool("setpriv"), Path::new(SHELL).exists()) else {
            return Err(setting(
                "allow",
                "commands need /bin/sh, and setsid and setpriv of util-linux, on this machine",
            ));
        };
        let user = match (getuid().is_root(), config.user) {
            // Neither permissions nor the limit on processes apply to root.
            (true, None) => return Err(setting("user", "this process is root: say as whom commands run")),
            (false, Some(_)) => return Err(setting("user", "only root can run commands as somebody else")),
            (true, user @ Some(_)) | (false, user @ None) => user,
        };
        let namespaces = match (config.pid_namespace, getuid().is_root()) {
            (Some(false), _) | (None, false) => None,
            (Some(true), false) => {
                return Err(setting("pid_namespace", "only root can give commands PID namespaces: leave it out"));
            }
            (Some(true), true) => Some(Namespaces::new(&tool).map_err(|why| {
                setting("pid_namespace", format!("this process may not make one: {why}. It needs CAP_SYS_ADMIN"))
            })?),
            (None, true) => Namespaces::new(&tool)
                .inspect_err(|why| tracing::info!(%why, "commands have no PID namespace, and are found one by one"))
                .ok(),
        };
        let path = std::env::join_paths(&config.path).map_err(|error| setting("path", error.to_string()))?;
        let mut environment = vec![(OsString::from("PATH"), path)];
        for name in &config.env_from {
            environment.extend(configuration::env(name).map(|value| (name.into(), value.into())));
        }
        for (name, value) in &config.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.expose().contains('\0') {
                return Err(setting("env", format!("{name:?} is no variable")));
            }
            environment.push((name.into(), value.expose().into()));
        }
        Ok(Self {
            setsid,
            setpriv,
            environment,
            user,
            namespaces,
            memory_bytes_max: config.memory_bytes_max,
            processes_max: config.processes_max,
            cpu_seconds_max: config.cpu_seconds_max,
            file_bytes_max: config.file_bytes_max,
        })
    }

    /// Starts a program that waits for [`START_LINE`] on its standard input.
    pub(super) fn start(
        &self,
        program: &Path,
        arguments: &[String],
        dir: &Dir,
        mark: &str,
    ) -> io::Result<SpawnedCommand> {
        // By the open directory and not by its path, which may lead elsewhere by now.
        let cwd = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        // A process that changes its user could no longer be killed by this one.
        let mut become_user = vec!["--no-new-privs".to_owned()];
        if let Some(user) = self.user {
            become_user.push("--clear-groups".to_owned());
            become_user.extend([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)]);
        }
        let (holder, enter) = match &self.namespaces {
            Some(namespaces) => {
                let holder = namespaces.create()?;
                let enter = namespaces.build_enter_command(holder.pid()?);
                (Some(holder), enter)
            }
            None => (None, Vec::new()),
        };
        let child = Command::new(&self.setsid)
            .args([SHELL, "-c", WAIT_SCRIPT, "sh"])
            .args(enter)
            .arg(&self.setpriv)
            .args(become_user)
            .arg(program)
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(MARK_VARIABLE, mark)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let root = child_pid(&child)?;
        Ok(SpawnedCommand { child, holder, root })
    }

    /// Sets the limits of a program that waits; its children inherit them.
    pub(super) fn set_limits(&self, root: i32) -> io::Result<()> {
        let pid = Pid::from_raw(root).ok_or_else(|| io::Error::other("no process has the number 0"))?;
        let niceness = getpriority_process(None)?.saturating_add(NICENESS_ADDED).min(NICENESS_MAX);
        setpriority_process(Some(pid), niceness)?;
        let mut limits = vec![
            (Resource::Data, cap_limit(Resource::Data, self.memory_bytes_max, self.memory_bytes_max)),
            // The soft limit signals the program, and the hard one kills it a second later.
            (Resource::Cpu, cap_limit(Resource::Cpu, self.cpu_seconds_max, self.cpu_seconds_max.saturating_add(1))),
            (Resource::Fsize, cap_limit(Resource::Fsize, self.file_bytes_max, self.file_bytes_max)),
            (Resource::Core, cap_limit(Resource::Core, 0, 0)),
        ];
        // The kernel counts all threads of the user, so the limit adds those that run already and those of all calls
        // together. It does not count for root. The watch is the real limit; this one reacts faster.
        let own_max = self.processes_max.saturating_mul(CONCURRENCY) as u64;
        let user = self.user.map_or(getuid().as_raw(), |user| user.uid);
        let user_max = procfs::count_threads(user)?.saturating_add(own_max);
        limits.push((Resource::Nproc, cap_limit(Resource::Nproc, user_max, user_max)));
        for (resource, limit) in limits {
            prlimit(Some(pid), resource, limit)?;
        }
        Ok(())
    }
}

/// Builds a limit that is not above that of this process.
fn cap_limit(resource: Resource, soft: u64, hard: u64) -> Rlimit {
    let now = getrlimit(resource);
    let lower = |now: Option<u64>, wanted: u64| Some(now.map_or(wanted, |now| now.min(wanted)));
    Rlimit { current: lower(now.current, soft), maximum: lower(now.maximum, hard) }
}
