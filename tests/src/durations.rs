//! Durations that the project states. A machine that is busy with something else stretches them, so they are measured in
//! every run and hold only where `AILOOP_DURATIONS=1` is set: `make drain`, `make leaders` and `make chaos` set it.

use std::time::Duration;

use anyhow::ensure;

/// Fails if `took` reached `most` and durations hold in this run. The error names what took so long.
pub fn check(what: &str, took: Duration, most: Duration) -> anyhow::Result<()> {
    ensure!(took < most || !are_held(), "{what} took {took:?}, which must be less than {most:?}");
    Ok(())
}

fn are_held() -> bool {
    configuration::env("AILOOP_DURATIONS").as_deref() == Some("1")
}
