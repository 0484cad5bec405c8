//! Configuration of the file tools.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::connect::Login;

/// Directories that the file tools may read and write.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "files")]
pub struct FilesConfig {
    /// The directory that may be read.
    pub root: PathBuf,
    /// The directory that files are written to, made where it is missing; without one nothing is written. What was
    /// written is read in place of the project's file of the same path; nothing else in there is read.
    pub out: Option<PathBuf>,
    /// The NATS user of these tools, where users have permissions.
    pub login: Option<Login>,
}
