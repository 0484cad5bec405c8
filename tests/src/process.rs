//! Signals to processes that a test started.

use std::process::{Child, Command};

use anyhow::ensure;

/// Sends a process a signal, such as `-STOP`.
pub fn signal(child: &Child, signal: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").arg(signal).arg(child.id().to_string()).status()?;
    ensure!(status.success(), "kill {signal} {} failed", child.id());
    Ok(())
}
