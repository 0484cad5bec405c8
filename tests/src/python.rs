//! A Python with nats-py for tests: the one of this machine if it has the library, else a virtual environment below
//! `target`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::install;

/// Requirement that is installed into the virtual environment.
const LIBRARY: &str = "nats-py[nkeys]==2.11.0";

/// A Python that can `import nats.micro`, and use credentials files. Blocks while pip installs.
pub fn with_nats() -> anyhow::Result<PathBuf> {
    let system = PathBuf::from("python3");
    if has_nats(&system) {
        return Ok(system);
    }
    let home = install::target()?.join("python");
    let python = home.join("bin/python");
    install::exclusively(|| {
        if has_nats(&python) {
            return Ok(());
        }
        let context = || {
            let home = home.display();
            format!("tests of Python tools need python3 with {LIBRARY}; pip could not install it into {home}")
        };
        make(&home, &python).with_context(context)
    })?;
    Ok(python)
}

fn make(home: &Path, python: &Path) -> anyhow::Result<()> {
    run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
    run(Command::new(python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", LIBRARY]))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn has_nats(python: &Path) -> bool {
    let found = Command::new(python).args(["-c", "import nats.micro, nkeys"]).stdin(Stdio::null()).output();
    found.is_ok_and(|output| output.status.success())
}
