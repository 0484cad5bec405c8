//! The fleets that a person works with, by name: `contexts.json` in the directory for configuration of this user.
//!
//! The file holds no token: only where the token is.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use configuration::env;
use configuration::trust::user_file;
use contract::ErrorCode;
use serde::{Deserialize, Serialize};
use terminal::failure::CommandFailure;

use crate::private_file::replace_file;

/// The file in the directory for configuration of this user.
const FILE: &str = "contexts.json";
/// Bytes of a token file.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// A fleet, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// The gRPC address of the edge.
    pub url: String,
    /// A file that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// An environment variable that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// The certificate of the authority that signed that of the edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// The contexts of this user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contexts {
    /// Name of the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by their names.
    pub contexts: BTreeMap<String, Context>,
}

impl Context {
    /// Reads the token; none where the context names no place of it.
    pub fn token(&self) -> Result<Option<String>, CommandFailure> {
        let wrong = |message: String| CommandFailure::usage(ErrorCode::Unauthorized, message);
        if let Some(path) = &self.token_file {
            let unreadable = |why: &str| wrong(format!("the token file {} cannot be read: {why}", path.display()));
            let size = fs::metadata(path).map_err(|error| unreadable(&error.to_string()))?.len();
            if size > TOKEN_BYTES_MAX {
                return Err(unreadable("it is too large"));
            }
            let text = fs::read_to_string(path).map_err(|error| unreadable(&error.to_string()))?;
            return Ok(Some(text.trim().to_owned()));
        }
        let Some(name) = &self.token_env else { return Ok(None) };
        env(name).map(Some).ok_or_else(|| wrong(format!("the environment variable {name} with the token is not set")))
    }
}

impl Contexts {
    /// Reads the file; no contexts where there is none.
    pub fn read() -> Result<Self, CommandFailure> {
        let Some(path) = user_file(FILE) else { return Ok(Self::default()) };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unusable(&path, &error)),
        };
        serde_json::from_str(&text).map_err(|error| unusable(&path, &error))
    }

    /// Writes the file; a reader sees the old one or the new one.
    pub fn write(&self) -> Result<(), CommandFailure> {
        let Some(path) = user_file(FILE) else {
            return Err(CommandFailure::new(
                ErrorCode::BadConfig,
                "there is no directory for the configuration of this user",
            )
            .help("set HOME or XDG_CONFIG_HOME"));
        };
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            replace_file(&path, format!("{}\n", serde_json::to_string_pretty(self)?).as_bytes())
        };
        write().map_err(|error| unusable(&path, &error))
    }

    /// Finds a context by its name.
    pub fn find(&self, name: &str) -> Result<&Context, CommandFailure> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
            CommandFailure::usage(ErrorCode::BadRequest, format!("there is no context {name:?}: {known}"))
                .help("`ailoop context set NAME --url URL` adds one")
        })
    }
}

fn unusable(path: &std::path::Path, error: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadConfig, format!("{} cannot be used: {error}", path.display()))
}
