//! TLS of listeners: a certificate and its key in files, which are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_rustls::TlsAcceptor;

use crate::contents;
use crate::http_version::HttpVersion;

/// Bytes of each file.
const FILE_BYTES_MAX: usize = 256 << 10;
/// Certificates of one chain.
const CHAIN_MAX: usize = 16;

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "tls")]
pub struct TlsConfig {
    /// PEM file of the certificate, followed by those of the authorities between it and the root.
    pub certificate: PathBuf,
    /// PEM file of the private key, without a passphrase.
    pub key: PathBuf,
}

/// The certificate of some listeners, as it was last read. Clones share it.
#[derive(Debug, Clone)]
pub struct Tls {
    files: Arc<Files>,
    /// A lock since it is held for the copy of a pointer only.
    current: Arc<RwLock<Configs>>,
}

#[derive(Debug)]
struct Files {
    /// Section of the configuration that names the files.
    section: &'static str,
    config: TlsConfig,
}

/// Contents of the certificate file and of the key file.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// One configuration for each version of HTTP, since a listener offers only the one that it serves.
#[derive(Debug, Clone)]
struct Configs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files for the first time. `section` is where they stand in the configuration: `edge.tls`.
    pub fn load(section: &'static str, config: &TlsConfig) -> Result<Self, String> {
        let files = Files { section, config: config.clone() };
        let configs = files.parse(&files.read()?)?;
        Ok(Self { files: Arc::new(files), current: Arc::new(RwLock::new(configs)) })
    }

    /// Returns the acceptor of a new connection.
    pub(crate) fn acceptor(&self, protocol: HttpVersion) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let config = match protocol {
            HttpVersion::Http1 => &current.http1,
            HttpVersion::Http2 { .. } => &current.http2,
        };
        TlsAcceptor::from(config.clone())
    }

    /// Reads the files again and again, until the task ends. A new pair is for new connections; while the files cannot
    /// be used, the last pair stays, and `warn` gets the reason, or none once they can.
    pub async fn follow(self, warn: impl Fn(Option<&str>)) {
        let files = self.files.clone();
        let take = move |found: &Contents| -> Result<(), String> {
            let configs = self.files.parse(found)?;
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = configs;
            tracing::info!(certificate = %self.files.config.certificate.display(), "certificate is in use");
            Ok(())
        };
        contents::follow(move || files.read(), take, warn).await;
    }
}

impl Files {
    fn read(&self) -> Result<Contents, String> {
        let TlsConfig { certificate, key } = &self.config;
        Ok(Contents { certificate: self.read_file("certificate", certificate)?, key: self.read_file("key", key)? })
    }

    fn read_file(&self, field: &str, path: &Path) -> Result<Vec<u8>, String> {
        contents::read_at_most(path, FILE_BYTES_MAX).map_err(|why| self.error(field, path, &why))
    }

    fn parse(&self, contents: &Contents) -> Result<Configs, String> {
        let TlsConfig { certificate, key } = &self.config;
        let wrong_chain = |why: &dyn std::fmt::Display| self.error("certificate", certificate, why);
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents.certificate).take(CHAIN_MAX).collect();
        let chain = chain.map_err(|error| wrong_chain(&error))?;
        if chain.is_empty() {
            return Err(wrong_chain(&"it holds no certificate: it must begin with -----BEGIN CERTIFICATE-----"));
        }
        let private = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|_| self.error("key", key, &"it holds no private key in PEM without a passphrase"))?;
        let unusable = |error: rustls::Error| wrong_chain(&format!("it cannot be used with the key: {error}"));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(unusable)?;
        let offer = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Configs { http1: offer(b"http/1.1"), http2: offer(b"h2") })
    }

    fn error(&self, field: &str, path: &Path, why: &dyn std::fmt::Display) -> String {
        format!("{}.{field}: {}: {why}", self.section, path.display())
    }
}
