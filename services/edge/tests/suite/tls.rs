//! TLS of the listeners, over every protocol.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use configuration::Secret;
use contract::{Coded as _, ErrorCode};
use edge::{Edge, EdgeConfig};
use service::connections::ConnectionLimits;
use service::tls::TlsConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Message;
use tonic::Request;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use futures::{SinkExt, StreamExt};
use proto::sessions_client::SessionsClient;

use crate::support::http::open;
use crate::support::{Fixture, TEST_TIMEOUT, config, wait_until};

/// An edge with TLS, and the files of its certificate.
struct Secured {
    fixture: Fixture,
    directory: tempfile::TempDir,
    authority: CertificateDer<'static>,
}

impl Secured {
    async fn new(limits: ConnectionLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = write_certificate(directory.path());
        let config = EdgeConfig {
            token: Some(Secret::new("s3cret")),
            tls: Some(files(directory.path())),
            connections: limits,
            ..config()
        };
        Self { fixture: Fixture::with(config).await, directory, authority }
    }

    fn ws(&self) -> SocketAddr {
        self.fixture.edge.addresses().ws
    }

    fn grpc(&self) -> SocketAddr {
        self.fixture.edge.addresses().grpc
    }

    async fn connect(&self, protocols: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.ws(), &self.authority, protocols).await
    }

    /// Whether the edge shows this certificate.
    async fn shows(&self, authority: &CertificateDer<'static>) -> bool {
        connect(self.ws(), authority, &[]).await.is_ok()
    }

    fn warnings(&self) -> String {
        let warnings: Vec<String> = self.fixture.edge.readiness().warnings().map(|(_, warning)| warning).collect();
        warnings.join("\n")
    }
}

pub(crate) fn files(directory: &Path) -> TlsConfig {
    TlsConfig { certificate: directory.join("tls.crt"), key: directory.join("tls.key") }
}

/// Writes a new certificate of `localhost`, which is its own authority.
pub(crate) fn write_certificate(directory: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = files(directory);
    std::fs::write(files.certificate, made.cert.pem()).unwrap();
    std::fs::write(files.key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

pub(crate) async fn connect(
    address: SocketAddr,
    authority: &CertificateDer<'static>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// Reads until the server closes; returns what came before.
async fn read_to_close(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is a close too.
    let _ = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.expect("it stays open");
    rest
}

#[tokio::test]
async fn every_protocol_is_served_over_tls() {
    let secured = Secured::new(ConnectionLimits::default()).await;
    let mut http = secured.connect(&["h2", "http/1.1"]).await.unwrap();
    assert_eq!(http.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let request =
        "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer s3cret\r\nconnection: close\r\n\r\n";
    http.write_all(request.as_bytes()).await.unwrap();
    let answer = String::from_utf8(read_to_close(&mut http).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"sessions\":[]"), "{answer}");

    let mut request = "wss://localhost/ws".into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    let stream = secured.connect(&["http/1.1"]).await.unwrap();
    let (mut ws, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    ws.send(Message::Text(r#"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#.into())).await.unwrap();
    let answer = tokio::time::timeout(TEST_TIMEOUT, ws.next()).await.unwrap().unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("\"sessions\":[]"), "{answer}");

    let authority = std::fs::read(files(secured.directory.path()).certificate).unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", secured.grpc())).unwrap().tls_config(tls).unwrap();
    let mut grpc = SessionsClient::new(endpoint.connect().await.unwrap());
    let mut request = Request::new(proto::ListSessionsRequest::default());
    request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    grpc.list_sessions(request).await.unwrap();

    assert!(secured.connect(&["h2"]).await.is_err(), "the HTTP listener speaks HTTP/1.1 only");
    assert!(connect(secured.grpc(), &secured.authority, &["http/1.1"]).await.is_err(), "gRPC needs HTTP/2");
}

#[tokio::test]
async fn client_of_another_protocol_is_refused_and_harms_nobody() {
    let secured = Secured::new(ConnectionLimits::default()).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let rows: [(SocketAddr, &[u8]); 4] = [
        (secured.ws(), b"GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer s3cret\r\n\r\n"),
        (secured.grpc(), preface),
        (secured.ws(), &[0xFF; 4_096]),
        (secured.ws(), b"SSH-2.0-OpenSSH_9.9\r\n"),
    ];
    for (address, bytes) in rows {
        let answer = read_to_close(&mut open(address, bytes).await).await;
        assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    }
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    assert!(!secured.shows(stranger.cert.der()).await, "a client that does not trust the certificate");
    assert!(secured.shows(&secured.authority).await);
}

#[tokio::test]
async fn handshake_that_does_not_end_in_time_is_closed() {
    let secured = Secured::new(ConnectionLimits { handshake_ms: 200, ..ConnectionLimits::default() }).await;
    // A TLS record that promises 512 bytes.
    for bytes in [&b""[..], &[0x16, 3, 1, 2, 0, 1, 0]] {
        for address in [secured.ws(), secured.grpc()] {
            read_to_close(&mut open(address, bytes).await).await;
        }
    }
    // The time of the handshake and that of the credentials are one.
    let mut silent = secured.connect(&[]).await.unwrap();
    read_to_close(&mut silent).await;
}

#[tokio::test]
async fn connection_in_its_handshake_counts_as_pending() {
    let limits = ConnectionLimits { pending_per_address_max: 2, handshake_ms: 60_000, ..ConnectionLimits::default() };
    let secured = Secured::new(limits).await;
    let mut oldest = open(secured.ws(), &[0x16, 3, 1]).await;
    let _others = [open(secured.ws(), &[0x16]).await, open(secured.grpc(), b"").await];
    read_to_close(&mut oldest).await;
    assert!(secured.shows(&secured.authority).await);
}

#[tokio::test]
async fn new_certificate_is_used_and_a_broken_one_is_not() {
    let secured = Secured::new(ConnectionLimits::default()).await;
    let paths = files(secured.directory.path());
    let mut before = secured.connect(&[]).await.unwrap();
    let second = write_certificate(secured.directory.path());
    wait_until("the new certificate is shown", async || secured.shows(&second).await).await;
    assert!(!secured.shows(&secured.authority).await);
    before.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(read_to_close(&mut before).await.starts_with(b"HTTP/1.1 200"), "open connections go on");

    std::fs::write(&paths.key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    wait_until("there is a warning", async || secured.warnings().contains("edge.tls.certificate")).await;
    std::fs::write(&paths.certificate, "no certificate").unwrap();
    wait_until("there is another warning", async || secured.warnings().contains("it holds no certificate")).await;
    assert!(secured.fixture.edge.readiness().is_ready() && secured.shows(&second).await);
    let third = write_certificate(secured.directory.path());
    wait_until("the third certificate is shown", async || secured.shows(&third).await).await;
    wait_until("the warning ends", async || secured.warnings().is_empty()).await;
}

#[tokio::test]
async fn certificate_that_cannot_be_used_is_refused_at_the_start() {
    let server = bus_memory::MemoryServer::new();
    let directory = tempfile::tempdir().unwrap();
    let paths = files(directory.path());
    let start = async || {
        let config = EdgeConfig { tls: Some(files(directory.path())), ..config() };
        let refused = Edge::start(config, server.bus()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::BadConfig);
        refused.to_string()
    };
    let missing = start().await;
    assert!(missing.contains("edge.tls.certificate: ") && missing.contains("tls.crt"), "{missing}");
    write_certificate(directory.path());
    let (key, certificate) = (std::fs::read(&paths.key).unwrap(), std::fs::read(&paths.certificate).unwrap());
    std::fs::write(&paths.key, &certificate).unwrap();
    let no_key = start().await;
    assert!(no_key.contains("edge.tls.key: ") && no_key.contains("no private key"), "{no_key}");
    write_certificate(directory.path());
    std::fs::write(&paths.key, &key).unwrap();
    let foreign = start().await;
    assert!(foreign.contains("cannot be used with the key"), "{foreign}");
    std::fs::write(&paths.certificate, vec![b'x'; 300 << 10]).unwrap();
    let long = start().await;
    assert!(long.contains("more than 262144 bytes"), "{long}");
    assert!(!long.contains("BEGIN"), "{long}");
}
