//! The file as a source of credentials for a connection.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use async_nats::{Auth, AuthError, ConnectOptions};

use crate::claims::format_time;
use crate::{Credentials, ParseError};

/// Advice to get another credential.
const REMEDY: &str = "make another one with `ailoop nats-auth user add` and put it in the place of this file";

/// Reason why a connection cannot use its credentials file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("the NATS credentials file {} cannot be read: {reason}; correct the path, or {REMEDY}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        reason: String,
    },
    /// The file is no credentials file.
    #[error("{} is not a NATS credentials file: {reason}; {REMEDY}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the mistake in the file.
        reason: ParseError,
    },
}

/// A credentials file that is read at each connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialsFile {
    path: PathBuf,
}

impl CredentialsFile {
    /// The file at a path. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file as it is now.
    pub fn read(&self) -> Result<Credentials, CredentialsError> {
        let unreadable =
            |error: std::io::Error| CredentialsError::Unreadable { path: self.path.clone(), reason: error.to_string() };
        let text = std::fs::read_to_string(&self.path).map_err(unreadable)?;
        Credentials::parse(&text).map_err(|reason| CredentialsError::Damaged { path: self.path.clone(), reason })
    }

    /// Options of a connection that reads the file at the first connect and at each reconnect.
    pub fn connect_options(&self) -> ConnectOptions {
        let file = self.clone();
        // A blocking read: the file is small and local, and it happens once for each connect.
        ConnectOptions::with_auth_callback(move |nonce| std::future::ready(file.authenticate(&nonce)))
    }

    fn authenticate(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let credentials = self.read().map_err(AuthError::new)?;
        let mut auth = Auth::new();
        auth.signature = Some(credentials.key.sign(nonce).map_err(AuthError::new)?);
        auth.jwt = Some(credentials.jwt);
        Ok(auth)
    }

    /// Explains why a nats-server refuses a connection that uses this file, as far as the file shows it.
    pub fn explain_refusal(&self) -> String {
        let credentials = match self.read() {
            Ok(credentials) => credentials,
            Err(error) => return error.to_string(),
        };
        let (claims, path) = (&credentials.claims, self.path.display());
        if claims.is_expired(now()) {
            let expired = format_time(claims.expires_at);
            return format!("the credential of {:?} in {path} expired at {expired}; {REMEDY}", claims.name);
        }
        format!(
            "the credential of {:?} in {path} (user {}, issued {}, account {}) is revoked, or that nats-server belongs to \
             another `ailoop nats-auth init`; {REMEDY}",
            claims.name,
            claims.public_key,
            format_time(claims.issued_at),
            claims.account(),
        )
    }
}

/// Seconds since 1970 by the clock of this machine, only to explain a refusal.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
