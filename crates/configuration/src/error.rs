//! Errors of reading and checking the configuration.

use std::path::{Path, PathBuf};

use contract::{Coded, ErrorCode};

/// Reason why the configuration cannot be used. Correct what it names; a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration directory that was named is not there.
    #[error("the configuration directory {0:?} does not exist")]
    NoDirectory(PathBuf),
    /// A file or directory was there when it was last read, and no longer is.
    #[error("{0:?} is gone: put it back, or restart to go on without it")]
    Lost(PathBuf),
    /// A directory that was used has changed, and its user has not said yet that it is still trusted.
    #[error("{0:?} has changed and needs trust: read it, then `ailoop config trust`, or restart to go on without it")]
    TrustLost(PathBuf),
    /// A file is neither in the configuration directory nor shipped.
    #[error("{name:?} is neither in the configuration directory nor shipped with ailoop")]
    Missing {
        /// Path below the configuration directory.
        name: String,
    },
    /// A name that leads out of its directory.
    #[error("{name:?} must be a path below its directory, without `..`")]
    Outside {
        /// The path as it was given.
        name: String,
    },
    /// A link of a directory that nobody named leads to a file of somebody who did not offer it.
    #[error("{path:?} is not read: a link leads out of {root:?}; remove it, or name {root:?} with {variable}")]
    LeadsOut {
        /// Path of the file.
        path: PathBuf,
        /// Directory that the file seems to be in.
        root: PathBuf,
        /// Variable that names such a directory.
        variable: &'static str,
    },
    /// A file that is there but cannot be read.
    #[error("{path:?} cannot be read: {source}")]
    Unreadable {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file that cannot be written.
    #[error("{path:?} cannot be written: {source}")]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The user has no directory for configuration.
    #[error("there is no directory for the configuration of this user: set HOME or XDG_CONFIG_HOME")]
    NoUserDirectory,
    /// A file that says what it must not.
    #[error("{origin}:{line}:{column}: {message}")]
    Bad {
        /// Path of the file, or `shipped:<name>`.
        origin: String,
        /// From 1; 0 where unknown.
        line: u64,
        /// From 1; 0 where unknown.
        column: u64,
        /// Description of the mistake, and of the allowed values.
        message: String,
    },
    /// The layers do not fit together.
    #[error("{0}")]
    Layers(Box<config::ConfigError>),
    /// A section that only the environment makes wrong.
    #[error("{reason}; its variables are {variables}")]
    Environment {
        /// Description of the mistake, and of the allowed values.
        reason: Box<config::ConfigError>,
        /// The variables that are set for the section, by name.
        variables: String,
    },
    /// A variable outside the sections that has no meaning.
    #[error("{name} is {value:?}: it must be {allowed}")]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// Value that it has now.
        value: String,
        /// The values that have a meaning.
        allowed: &'static str,
    },
    /// A key or password that should be there is not.
    #[error("{0}")]
    NoSecret(String),
}

impl ConfigError {
    /// Makes the error of a path that was there when it was last read. A directory that still is there lost its trust.
    pub fn lost(path: &Path) -> Self {
        if path.is_dir() { Self::TrustLost(path.to_owned()) } else { Self::Lost(path.to_owned()) }
    }
}

impl Coded for ConfigError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadConfig
    }
}

impl From<config::ConfigError> for ConfigError {
    fn from(error: config::ConfigError) -> Self {
        Self::Layers(Box::new(error))
    }
}
