//! Encrypted connections to a nats-server with a certificate of its own authority, which verifies clients.

use std::path::{Path, PathBuf};

use ailoop_tests::nats::NatsServer;
use anyhow::ensure;
use bus::nats::NatsTls;
use bus::{Bus, NatsConfig};
use bytes::Bytes;
use contract::streams::Objects;
use contract::{Coded as _, ErrorCode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, with a certificate of a server and one of a client, as PEM files.
struct Authority {
    directory: TempDir,
}

impl Authority {
    fn create() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("ailoop-nats-tls-")?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        std::fs::write(directory.path().join("ca.pem"), authority.as_ref().pem())?;
        for name in ["server", "client"] {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
            std::fs::write(directory.path().join(format!("{name}.pem")), certificate.pem())?;
            std::fs::write(directory.path().join(format!("{name}.key")), key.serialize_pem())?;
        }
        Ok(Self { directory })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The setting of nats-server: clients show a certificate of this authority.
    fn server_setting(&self) -> String {
        let [certificate, key, ca] =
            ["server.pem", "server.key", "ca.pem"].map(|name| self.file(name).display().to_string());
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}\n")
    }

    fn client_files(&self) -> NatsTls {
        let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|name| Some(self.file(name)));
        NatsTls { ca, certificate, key }
    }
}

async fn refusal(config: &NatsConfig) -> anyhow::Result<(ErrorCode, String)> {
    let Err(error) = Bus::connect(config).await else { anyhow::bail!("connected with {:?}", config.tls) };
    Ok((error.code(), error.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_connection_needs_the_files_of_the_servers_authority() -> anyhow::Result<()> {
    let (authority, stranger) = (Authority::create()?, Authority::create()?);
    let server = NatsServer::start_with(authority.server_setting()).await?;
    let files = authority.client_files();
    let config = NatsConfig { url: server.url().replace("nats://", "tls://"), tls: files.clone(), ..server.config() };
    let bus = Bus::connect(&config).await?;
    bus.ensure().await?;
    let body = Bytes::from(vec![7; 9 << 20]);
    bus.transport().put_object(Objects::Work, "large", body.clone()).await?;
    ensure!(bus.transport().get_object(Objects::Work, "large").await? == Some(body), "another body");
    bus.close().await;
    let tool = ailoop_tool::connect_with_tls(&config.url, "tool", None, &files.files()).await?;
    tool.flush().await?;

    let missing = Path::new("/nowhere/ca.pem").to_owned();
    let rows = [
        (NatsTls::default(), "nats.tls.ca (AILOOP__NATS__TLS__CA) names the certificates to trust"),
        (NatsTls { ca: stranger.client_files().ca, ..files.clone() }, "nats.tls.ca (AILOOP__NATS__TLS__CA) names"),
        (NatsTls { certificate: None, key: None, ..files.clone() }, "for a server that verifies clients"),
        (NatsTls { ca: Some(missing), ..files.clone() }, "nats.tls: ca /nowhere/ca.pem cannot be read"),
        (NatsTls { key: None, ..files.clone() }, "nats.tls: certificate is set without key"),
    ];
    for (tls, expect) in rows {
        let (code, message) = refusal(&NatsConfig { tls, ..config.clone() }).await?;
        ensure!(code == ErrorCode::BadConfig && message.contains(expect), "{code}: {message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_in_clear_is_refused_where_tls_is_set() -> anyhow::Result<()> {
    let server = NatsServer::start().await?;
    let tls = NatsTls { ca: Some(Authority::create()?.file("ca.pem")), ..NatsTls::default() };
    ensure!(Bus::connect(&NatsConfig { tls, ..server.config() }).await.is_err(), "connected in clear");
    Ok(())
}
