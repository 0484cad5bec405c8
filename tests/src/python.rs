//! A Python with nats-py for tests: the one of this machine where it has the library, else one below `target`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// What is installed where it is missing.
const LIBRARY: &str = "nats-py==2.11.0";

/// A Python that can `import nats.micro`. Blocks, for as long as an installation takes.
pub fn with_nats() -> anyhow::Result<PathBuf> {
    let system = PathBuf::from("python3");
    if has_nats(&system) {
        return Ok(system);
    }
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test executable stands in target/<profile>/deps")?;
    let home = target.join("python");
    let python = home.join("bin/python");
    if !has_nats(&python) {
        install(&home, &python).with_context(|| {
            format!(
                "tests of Python tools need python3 with {LIBRARY}; pip could not install it into {}",
                home.display()
            )
        })?;
    }
    Ok(python)
}

fn install(home: &Path, python: &Path) -> anyhow::Result<()> {
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
    let found = Command::new(python).args(["-c", "import nats.micro"]).stdin(Stdio::null()).output();
    found.is_ok_and(|output| output.status.success())
}
