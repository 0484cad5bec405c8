//! Connecting to NATS, with a credentials file where NATS has users.

use std::path::Path;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind};
use nats_credentials::{CredentialsFile, NatsAddress, TlsFiles};

use crate::ServeError;

/// Timeout for connecting to NATS.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Connects to NATS, for example to `nats://127.0.0.1:4222`; several servers of a cluster are separated by commas. An
/// address may have a user and a password: `nats://user:password@127.0.0.1:4222`.
///
/// `name` appears in the lists of nats-server. `credentials` is the file that `ailoop nats-auth user add` made. It is
/// read again at every connect, so that it can be replaced while the tool runs.
///
/// A `tls://` address uses the certificates that the system trusts; [`connect_with_tls`] takes others.
pub async fn connect(url: &str, name: &str, credentials: Option<&Path>) -> Result<Client, ServeError> {
    connect_with_tls(url, name, credentials, &TlsFiles::default()).await
}

/// As [`connect`], with the files of an encrypted connection.
pub async fn connect_with_tls(
    url: &str,
    name: &str,
    credentials: Option<&Path>,
    tls: &TlsFiles,
) -> Result<Client, ServeError> {
    let address = NatsAddress::parse(url).map_err(ServeError::Address)?;
    let file = credentials.map(CredentialsFile::new);
    let options = match &file {
        Some(file) => {
            file.read()?;
            file.connect_options()
        }
        None => address.connect_options(),
    };
    let options = tls.apply(options).name(name).connection_timeout(CONNECT_MAX);
    let connected = options.connect(address.servers()).await;
    connected.map_err(|error| match (error.kind(), &file) {
        (ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation, Some(file)) => {
            ServeError::Refused { reason: file.explain_refusal() }
        }
        (ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation, None) => ServeError::Refused {
            reason: "it wants a user: connect with a file that `ailoop nats-auth user add` made; to reach the nats-server of \
                     `ailoop up`, use the address in its .ailoop/run.json, which has a user and a password"
                .to_owned(),
        },
        _ => ServeError::Connect(error),
    })
}
