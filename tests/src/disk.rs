//! A small disk of a server's own, which can be filled: memory that is mounted where no other process sees it. It needs no
//! privileges where the system lets users have namespaces, and is gone with the value that stands for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// A mounted disk, kept by a process that lives as long as its input is open.
#[derive(Debug)]
pub struct Disk {
    keeper: Child,
    at: PathBuf,
}

impl Disk {
    /// Mounts a disk of so many bytes at a directory, which is made.
    pub fn mount(at: &Path, bytes: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(at)?;
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && echo mounted && exec cat > /dev/null";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(bytes.to_string()).arg(at);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut disk = Self { keeper: command.spawn().context("unshare")?, at: at.to_owned() };
        let mut said = String::new();
        BufReader::new(disk.keeper.stdout.take().context("its output")?).read_line(&mut said)?;
        ensure!(said == "mounted\n", "this system lets nobody mount a disk of his own: {}", disk.complaint());
        Ok(disk)
    }

    /// A command that sees the disk.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "--user", "--mount", "--target"]).arg(self.keeper.id().to_string());
        command.arg(program);
        command
    }

    /// Fills what is left, with a file of its own.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = std::fs::File::create(self.ballast())?;
        while ballast.write_all(&[0; 4_096]).is_ok() {}
        Ok(())
    }

    /// Takes that file away.
    pub fn free(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.at.strip_prefix("/").unwrap_or(&self.at)).join("ballast")
    }

    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut said) = self.keeper.stderr.take() {
            // Only for people.
            drop(std::io::Read::read_to_string(&mut said, &mut text));
        }
        text
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}
