//! Processes that end with the value that stands for them, and what the kernel says that they use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{Instant, sleep};

/// Longest time until a process works.
const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Ticks of a second in `/proc/<pid>/stat`: what Linux shows to processes on every machine.
const TICKS_PER_S: f64 = 100.0;
const KIB_PER_MIB: f64 = 1024.0;

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Resource usage of a process since its start, and the memory that it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU in seconds, its own and the kernel's for it.
    pub(crate) cpu_s: f64,
    /// Resident memory now, in MiB.
    pub(crate) rss_mb: f64,
    /// The most that it ever was, in MiB.
    pub(crate) rss_mb_max: f64,
}

/// Announces to the parent process that this one works, and its address.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub(crate) fn announce(line: &str) {
    println!("{line}");
}

impl Usage {
    /// Adds up two usages.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_s: self.cpu_s + other.cpu_s,
            rss_mb: self.rss_mb + other.rss_mb,
            rss_mb_max: self.rss_mb_max + other.rss_mb_max,
        }
    }
}

impl Process {
    /// Starts a process; its output goes to a file below `dir`.
    pub(crate) fn start(name: &str, mut command: Command, dir: &Path) -> anyhow::Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// This very binary in another part.
    pub(crate) fn part(arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Ok(command)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `find` finds something in the output of the process.
    pub(crate) async fn says<T>(&mut self, find: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let log = self.log();
            if let Some(found) = find(&log) {
                return Ok(found);
            }
            let ended = self.child.try_wait()?.is_some();
            ensure!(!ended && Instant::now() < deadline, "{} does not come up: {log}", self.name);
            sleep(LOOK_EVERY).await;
        }
    }

    /// The output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        usage_of(self.id()).with_context(|| format!("usage of {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the resource usage of this process.
pub(crate) fn own_usage() -> anyhow::Result<Usage> {
    usage("self")
}

/// Returns the resource usage of another process.
pub(crate) fn usage_of(id: u32) -> anyhow::Result<Usage> {
    usage(&id.to_string())
}

fn usage(pid: &str) -> anyhow::Result<Usage> {
    let read = |file: &str| {
        fs::read_to_string(format!("/proc/{pid}/{file}"))
            .context("the usage of a process is read from /proc, which only Linux has")
    };
    let (stat, status) = (read("stat")?, read("status")?);
    // After the name, which may hold anything: fields 14 and 15 are the twelfth and thirteenth.
    let (_, fields) = stat.rsplit_once(')').context("/proc stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let cpu_s = ticks.sum::<Result<f64, _>>()? / TICKS_PER_S;
    Ok(Usage { cpu_s, rss_mb: memory(&status, "VmRSS:")?, rss_mb_max: memory(&status, "VmHWM:")? })
}

/// A line of `/proc/<pid>/status`, in MiB.
fn memory(status: &str, field: &str) -> anyhow::Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()).with_context(|| format!("/proc status {field}"))?;
    Ok(kib.parse::<f64>()? / KIB_PER_MIB)
}
