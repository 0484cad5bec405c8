//! Installations by tests, one at a time: tests run in parallel, in threads and in processes.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;

/// Runs an installation while no other test installs anything.
pub fn exclusively<T>(install: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let lock = File::create(target()?.join("tests-install.lock"))?;
    // Released when the file is closed.
    lock.lock()?;
    install()
}

/// The target directory of cargo.
pub fn target() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test executable is in target/<profile>/deps")?;
    Ok(target.to_owned())
}
