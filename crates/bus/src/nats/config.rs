//! The settings of a connection.

use std::path::PathBuf;
use std::time::Duration;

use contract::limits::RETENTION;
use nats_credentials::TlsFiles;
use schemars::JsonSchema;
use serde::Deserialize;

/// Longest time in seconds that a starting service waits for NATS: longer than a server takes to read its streams.
const START_WAIT_SECONDS: u32 = 300;

/// Settings of the connection to NATS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "nats")]
pub struct NatsConfig {
    /// Addresses, separated by commas; `tls://` in place of `nats://` encrypts. One may have a user and a password:
    /// `nats://user:password@127.0.0.1:4222`.
    pub url: String,
    /// Files of an encrypted connection; where any is set, one in clear is refused.
    pub tls: NatsTls,
    /// Credentials file, where the server wants one: `ailoop nats-auth` makes it. It is read again at every connect.
    pub credentials: Option<PathBuf>,
    /// The connection's name in the server's lists.
    pub name: String,
    /// Copies of each stream where it is created: 1 on one server, 3 in a cluster.
    pub replicas: usize,
    /// Days for which the archive keeps pages that left the log, and what is left of an archived session.
    pub retention_days: u32,
    /// Seconds that a service waits for NATS when it starts, before it ends with an error; 300.
    pub start_wait_seconds: u32,
}

/// The files with which a connection to NATS is encrypted. They are read again at every connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "nats_tls")]
pub struct NatsTls {
    /// Certificates of authorities in PEM, of which one signed the server's; none: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// Certificate of this side in PEM, where nats-server verifies clients.
    pub certificate: Option<PathBuf>,
    /// Key of `certificate` in PEM.
    pub key: Option<PathBuf>,
}

impl NatsTls {
    /// The files as a connection takes them.
    pub fn files(&self) -> TlsFiles {
        let Self { ca, certificate, key } = self.clone();
        TlsFiles { ca, certificate, key }
    }
}

impl NatsConfig {
    /// Returns the addresses without users and passwords, to be shown.
    pub fn shown_url(&self) -> String {
        nats_credentials::hide_login(&self.url)
    }

    /// Retention of the archive, at least one day.
    pub(super) fn retention(&self) -> Duration {
        Duration::from_hours(24 * u64::from(self.retention_days.max(1)))
    }
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".to_owned(),
            tls: NatsTls::default(),
            credentials: None,
            name: "ailoop".to_owned(),
            replicas: 1,
            retention_days: u32::try_from(RETENTION.as_secs() / 86_400).unwrap_or(u32::MAX),
            start_wait_seconds: START_WAIT_SECONDS,
        }
    }
}
