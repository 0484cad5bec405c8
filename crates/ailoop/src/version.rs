//! Build of this binary, and the versions of data that it can read.

use contract::commit::{FOLD, FOLD_OLDEST};
use serde_json::{Value, json};

/// Version, commit and date, as `ailoop --version` shows them: `0.1.0 (a96bb824 2026-11-25)`.
pub(crate) const TEXT: &str = env!("AILOOP_BUILD_TEXT");

/// The full commit, with `-dirty` behind it if the sources differed from it. None if it was unknown.
pub(crate) fn commit() -> Option<&'static str> {
    Some(env!("AILOOP_BUILD_COMMIT")).filter(|commit| !commit.is_empty())
}

/// Tells logs and metrics of this process which build it is.
pub(crate) fn announce() {
    let commit = commit().unwrap_or(telemetry::build::UNKNOWN_COMMIT);
    telemetry::build::set(telemetry::build::BuildInfo { version: env!("CARGO_PKG_VERSION"), commit });
}

/// Everything, as lines for people.
pub(crate) fn describe() -> String {
    format!(
        "ailoop {TEXT}\n\
         built by {} for {}, profile {}\n\
         sessions: reads fold {FOLD_OLDEST} to {FOLD}, writes fold {FOLD}\n\
         messages: reads and writes version {}\n",
        env!("AILOOP_BUILD_RUSTC"),
        env!("AILOOP_BUILD_TARGET"),
        env!("AILOOP_BUILD_PROFILE"),
        contract::commit::VERSION,
    )
}

/// Everything, for programs. A field keeps its name and meaning.
pub(crate) fn to_json() -> Value {
    let date = Some(env!("AILOOP_BUILD_COMMIT_DATE")).filter(|date| !date.is_empty());
    let range = |oldest: u32, newest: u32| json!({"reads_min": oldest, "reads_max": newest, "writes": newest});
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": commit(),
        "commit_date": date,
        "rustc": env!("AILOOP_BUILD_RUSTC"),
        "target": env!("AILOOP_BUILD_TARGET"),
        "profile": env!("AILOOP_BUILD_PROFILE"),
        "fold": range(FOLD_OLDEST, FOLD),
        "protocol": range(contract::commit::VERSION, contract::commit::VERSION),
    })
}
