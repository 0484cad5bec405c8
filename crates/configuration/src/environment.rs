//! The environment of the process, read in one place.

/// The value of an environment variable: the only place where the environment is read.
pub fn env(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods, reason = "this is the place")]
    std::env::var(name).ok()
}
