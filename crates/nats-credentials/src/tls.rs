//! The files with which a connection is encrypted.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions};

/// The files of a TLS connection. They are read again at every connect, so that they can be replaced without a restart.
///
/// If any is set, a connection in clear is refused. Without any, a `tls://` address uses the certificates that the
/// system trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Certificates of the authorities that may sign the certificate of nats-server, in PEM; no others are trusted then.
    pub ca: Option<PathBuf>,
    /// The certificate of this side, in PEM, where nats-server verifies clients.
    pub certificate: Option<PathBuf>,
    /// The key of `certificate`, in PEM.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns why the files cannot be used, as far as it shows without a connection.
    pub fn find_problem(&self) -> Option<String> {
        let Self { ca, certificate, key } = self;
        match (certificate, key) {
            (Some(_), None) => return Some("certificate is set without key: set both or none".to_owned()),
            (None, Some(_)) => return Some("key is set without certificate: set both or none".to_owned()),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let files = [("ca", ca), ("certificate", certificate), ("key", key)];
        files.into_iter().find_map(|(name, path)| find_file_problem(name, path.as_deref()?))
    }

    /// Adds the files to the options of a connection.
    pub fn apply(&self, mut options: ConnectOptions) -> ConnectOptions {
        let Self { ca, certificate, key } = self;
        if let Some(ca) = ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let (Some(certificate), Some(key)) = (certificate, key) {
            options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
        }
        options
    }
}

fn find_file_problem(name: &str, path: &Path) -> Option<String> {
    let error = match std::fs::read(path) {
        Ok(text) if text.windows(10).any(|window| window == b"-----BEGIN") => return None,
        Ok(_) => "it is no PEM file".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!("{name} {} cannot be read: {error}", path.display()))
}

/// Whether a connection failed since both sides did not agree on its encryption: another try fails as well.
pub fn is_tls_failure(error: &ConnectError) -> bool {
    // A failed handshake is an error of IO to async-nats.
    let is_handshake = || {
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        source.is_some_and(|source| source.kind() == io::ErrorKind::InvalidData)
    };
    error.kind() == ConnectErrorKind::Tls || error.kind() == ConnectErrorKind::Io && is_handshake()
}
