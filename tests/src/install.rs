//! What tests install themselves, one at a time: tests run beside each other, in threads and in processes.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;

/// Does it while nobody else installs anything.
pub fn alone<T>(install: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let lock = File::create(target()?.join("tests-install.lock"))?;
    // Given back when the file is closed.
    lock.lock()?;
    install()
}

/// The directory in which everything is that is built.
pub fn target() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test executable stands in target/<profile>/deps")?;
    Ok(target.to_owned())
}
