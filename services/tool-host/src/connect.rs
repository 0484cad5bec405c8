//! Connections to NATS: each kind of tools connects as a user of its own, like the tools of strangers.

use std::path::PathBuf;

use ailoop_tool::async_nats::{Client, ConnectErrorKind};
use ailoop_tool::{ServeError, is_tls_failure};
use bus::{Bus, BusError, NatsConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use service::process::retry_while_away;

/// Calls of one tool that run in this process at the same time.
pub(crate) const CONCURRENCY: usize = 8;

/// The NATS user of a kind of tools, where users have permissions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "login")]
pub struct Login {
    /// Credentials file of the NATS user, which is read again at every connect.
    pub credentials: PathBuf,
}

/// Connects a kind of tools, as its own user or as that of the process. The name of the connection in lists of the
/// server ends with `kind`. Waits for an unavailable server as long as the configuration says.
pub(crate) async fn connect_tools(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> Result<Client, ServeError> {
    let config = user_config(nats, login, kind);
    let (tls, credentials) = (config.tls.files(), config.credentials.as_deref());
    let connect = async || ailoop_tool::connect_with_tls(&config.url, &config.name, credentials, &tls).await;
    retry_while_away(nats, is_away, connect).await
}

/// Connects to the storage of a kind of tools, as [`connect_tools`].
pub(crate) async fn connect_store(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> Result<Bus, BusError> {
    let config = user_config(nats, login, &format!("{kind} (store)"));
    retry_while_away(nats, BusError::is_away, async || Bus::connect(&config).await).await
}

fn is_away(error: &ServeError) -> bool {
    let ServeError::Connect(error) = error else { return false };
    !is_tls_failure(error)
        && matches!(error.kind(), ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::Io)
}

fn user_config(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> NatsConfig {
    let mut config = NatsConfig { name: format!("{} {kind}", nats.name), ..nats.clone() };
    if let Some(login) = login {
        config.credentials = Some(login.credentials.clone());
    }
    config
}
