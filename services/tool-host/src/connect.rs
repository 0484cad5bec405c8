//! Connections to NATS: each kind of tools connects as a user of its own, like the tools of strangers.

use std::time::Duration;

use ailoop_tool::ServeError;
use ailoop_tool::async_nats::{self, Client, ConnectErrorKind, ConnectOptions};
use bus::{Bus, BusError, NatsConfig};
use configuration::Secret;
use schemars::JsonSchema;
use serde::Deserialize;
use service::process::retry_while_away;

/// Calls of one tool that run in this process at the same time.
pub(crate) const CONCURRENCY: usize = 8;
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The NATS user of a kind of tools, where users have permissions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "login")]
pub struct Login {
    /// Name of the NATS user.
    pub user: String,
    /// Password of the NATS user.
    #[serde(default)]
    pub password: Option<Secret>,
}

/// Connects a kind of tools, as its own user or as that of the process. The name of the connection in lists of the
/// server ends with `kind`. Waits for an unavailable server as long as the configuration says.
pub(crate) async fn connect_tools(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> Result<Client, ServeError> {
    let config = user_config(nats, login, kind);
    let servers: Vec<&str> = config.url.split(',').map(str::trim).collect();
    let connect = async || {
        let mut options = ConnectOptions::new().name(&config.name).connection_timeout(CONNECT_MAX);
        if let (Some(user), Some(password)) = (&config.user, &config.password) {
            options = options.user_and_password(user.clone(), password.clone());
        }
        async_nats::connect_with_options(servers.as_slice(), options).await
    };
    let is_away = |error: &async_nats::ConnectError| {
        matches!(error.kind(), ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::Io)
    };
    Ok(retry_while_away(nats, is_away, connect).await?)
}

/// Connects to the storage of a kind of tools, as [`connect_tools`].
pub(crate) async fn connect_store(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> Result<Bus, BusError> {
    let config = user_config(nats, login, &format!("{kind} (store)"));
    retry_while_away(nats, BusError::is_away, async || Bus::connect(&config).await).await
}

fn user_config(nats: &NatsConfig, login: Option<&Login>, kind: &str) -> NatsConfig {
    let mut config = NatsConfig { name: format!("{} {kind}", nats.name), ..nats.clone() };
    if let Some(login) = login {
        config.user = Some(login.user.clone());
        config.password = login.password.as_ref().map(|password| password.expose().to_owned());
    }
    config
}
