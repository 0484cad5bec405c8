//! Runs hostile parties on threads with the lowest priority, since on other machines they would take no CPU from the
//! fleet.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use tokio::sync::oneshot;

/// Starts work on a new thread; the returned future waits for its end.
pub(crate) fn run<F>(work: impl FnOnce() -> F + Send + 'static) -> impl Future<Output = anyhow::Result<()>>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let (done, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let run = || {
            give_way()?;
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work())
        };
        // The trial may have failed meanwhile.
        let _ = done.send(run());
    });
    async { ended.await.context("a hostile party's thread ended")? }
}

fn give_way() -> anyhow::Result<()> {
    let thread = std::fs::read_link("/proc/thread-self")?;
    let thread = thread.file_name().context("the thread's id")?;
    let status = Command::new("renice").args(["-n", "19", "-p"]).arg(thread).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "renice failed");
    Ok(())
}
