//! Version and commit of the build that this process runs, for its logs and metrics.

use std::sync::OnceLock;

/// The commit where nobody knows it.
pub const UNKNOWN_COMMIT: &str = "unknown";

static BUILD: OnceLock<BuildInfo> = OnceLock::new();

/// Version and commit of the running binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildInfo {
    /// Version of the workspace.
    pub version: &'static str,
    /// Full commit with `-dirty` behind it if the sources differed from it, or [`UNKNOWN_COMMIT`].
    pub commit: &'static str,
}

/// Sets the build of this process; later calls change nothing.
pub fn set(build: BuildInfo) {
    let _already_set = BUILD.set(build);
}

/// The build of this process. Only the command `ailoop` knows its commit: a library that knew it would be compiled again
/// with every commit, and everything above it.
pub fn current() -> BuildInfo {
    BUILD.get().copied().unwrap_or(BuildInfo { version: env!("CARGO_PKG_VERSION"), commit: UNKNOWN_COMMIT })
}
