//! A small disk that a test can fill: a tmpfs in a mount namespace, which only the process under test sees. It needs no
//! privileges where the system permits user namespaces, and disappears when the value is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// A mounted tmpfs. A helper process keeps its namespace as long as stdin of the helper is open.
#[derive(Debug)]
pub struct Disk {
    helper: Child,
    at: PathBuf,
}

impl Disk {
    /// Creates a directory and mounts a disk of `bytes` bytes at it.
    pub fn mount(at: &Path, bytes: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(at)?;
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && echo mounted && exec cat > /dev/null";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(bytes.to_string()).arg(at);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut disk = Self { helper: command.spawn().context("unshare")?, at: at.to_owned() };
        let mut line = String::new();
        BufReader::new(disk.helper.stdout.take().context("stdout is not piped")?).read_line(&mut line)?;
        ensure!(line == "mounted\n", "a tmpfs cannot be mounted in a user namespace: {}", disk.stderr());
        Ok(disk)
    }

    /// A command that runs in the namespace of the disk.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "--user", "--mount", "--target"]).arg(self.helper.id().to_string());
        command.arg(program);
        command
    }

    /// Fills the remaining space with one file.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = std::fs::File::create(self.ballast())?;
        while ballast.write_all(&[0; 4_096]).is_ok() {}
        Ok(())
    }

    /// Removes the file that [`Disk::fill`] wrote.
    pub fn free(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.helper.id()));
        root.join(self.at.strip_prefix("/").unwrap_or(&self.at)).join("ballast")
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.helper.stderr.take() {
            // Part of an error text only, so a failed read is ignored.
            drop(std::io::Read::read_to_string(&mut stderr, &mut text));
        }
        text
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.helper.kill());
        drop(self.helper.wait());
    }
}
