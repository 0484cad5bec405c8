//! TLS in front of a server without it, as an ingress has it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Ends TLS on a port of its own and passes the bytes on. Its certificate is for `localhost`, and is its own authority.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    files: TempDir,
    _tasks: JoinSet<()>,
}

impl TlsFront {
    /// Starts it in front of a server that speaks HTTP/2.
    pub async fn before(server: SocketAddr) -> anyhow::Result<Self> {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let files = TempDir::with_prefix("ailoop-tls-")?;
        std::fs::write(files.path().join("ca.pem"), certified.cert.pem())?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = config.with_single_cert(vec![certified.cert.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a port for TLS")?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // A client that does not trust the certificate ends here.
                    let Ok(mut inside) = acceptor.accept(stream).await else { return };
                    let Ok(mut outside) = TcpStream::connect(server).await else { return };
                    let _ended = copy_bidirectional(&mut inside, &mut outside).await;
                });
            }
        });
        Ok(Self { address, files, _tasks: tasks })
    }

    /// Its address for clients.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// The PEM file of the authority that signed its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.files.path().join("ca.pem")
    }
}
