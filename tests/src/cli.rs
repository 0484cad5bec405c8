//! The `ailoop` binary, run as a user runs it: in a directory of its own, without the environment of the test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::nats;
use crate::wait::PATIENCE;

/// Path of the binary: `AILOOP_UNDER_TEST`, else what cargo puts beside the directory of the test executables.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = configuration::env("AILOOP_UNDER_TEST").filter(|path| !path.is_empty()) {
        return Ok(std::path::absolute(path)?);
    }
    let test = std::env::current_exe()?;
    let dir = test.parent().and_then(Path::parent).context("a test executable is in target/<profile>/deps")?;
    let path = dir.join(format!("ailoop-under-test{}", std::env::consts::EXE_SUFFIX));
    ensure!(path.is_file(), "{} is missing: run `cargo build --workspace --all-targets`", path.display());
    Ok(path)
}

/// A command of `ailoop` without the environment of this process, but for `PATH` and the path of the nats-server.
pub fn command(dir: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    command.current_dir(dir).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.env("PATH", configuration::env("PATH").unwrap_or_default());
    command.env("HOME", dir).env("AILOOP_NATS_SERVER", nats::binary()?);
    Ok(command)
}

/// A directory in which commands run.
#[derive(Debug)]
pub struct WorkDir {
    dir: TempDir,
    environment: Vec<(String, String)>,
}

/// The result of a command that has ended.
#[derive(Debug, Clone)]
pub struct CliOutput {
    /// Exit code; -1 when a signal ended the command.
    pub code: i32,
    /// Everything that the command printed to stdout.
    pub stdout: String,
    /// Everything that the command printed to stderr.
    pub stderr: String,
}

impl WorkDir {
    /// A new empty directory, removed with the value.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { dir: TempDir::with_prefix("ailoop-cli-")?, environment: Vec::new() })
    }

    /// Sets a variable for every command.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Path of the temporary directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command to its end.
    pub async fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> anyhow::Result<CliOutput> {
        self.run_with(args, Stdio::null()).await
    }

    /// As [`WorkDir::run`], with a file as stdin.
    pub async fn run_with<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        stdin: impl Into<Stdio>,
    ) -> anyhow::Result<CliOutput> {
        let mut command = command(self.path())?;
        command.args(args).envs(self.environment.iter().cloned()).stdin(stdin);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = tokio::time::timeout(PATIENCE, output).await.context("the command does not end")??;
        Ok(CliOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// Starts a command and returns at once; it is killed when the returned value is dropped.
    pub fn spawn<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> anyhow::Result<Child> {
        let mut command = command(self.path())?;
        command.args(args).envs(self.environment.iter().cloned());
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }
}

impl CliOutput {
    /// The stable code of the error in `stderr`; fails unless there is exactly one.
    pub fn error(&self) -> anyhow::Result<&str> {
        let errors: Vec<&str> = self.stderr.lines().filter_map(|line| line.strip_prefix("error[")).collect();
        let [line] = errors.as_slice() else { anyhow::bail!("{} errors, 1 expected: {}", errors.len(), self.stderr) };
        line.split_once(']').map(|(code, _)| code).with_context(|| self.stderr.clone())
    }

    /// The lines of JSON of `--json`.
    pub fn events(&self) -> anyhow::Result<Vec<Value>> {
        self.stdout.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }
}
