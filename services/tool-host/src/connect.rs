//! The connections of the tools that this process serves itself: they are users of their own, as anybody's tools are.

use ailoop_tool::ServeError;
use ailoop_tool::async_nats::{self, Client, ConnectOptions};
use bus::NatsConfig;
use schemars::JsonSchema;
use serde::Deserialize;
use service::Secret;

/// The NATS user of a kind of tools, where tools and executors are different users.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "login")]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    #[serde(default)]
    pub password: Option<Secret>,
}

/// Connects as a user of its own, else as the process does, under a name that tells the server whose connection it is.
pub(super) async fn connect(nats: &NatsConfig, login: Option<&Login>, whose: &str) -> Result<Client, ServeError> {
    let mut options = ConnectOptions::new().name(format!("{} {whose}", nats.name));
    let (user, password) = match login {
        Some(login) => (Some(login.user.clone()), login.password.as_ref().map(|password| password.expose().to_owned())),
        None => (nats.user.clone(), nats.password.clone()),
    };
    if let (Some(user), Some(password)) = (user, password) {
        options = options.user_and_password(user, password);
    }
    let servers: Vec<&str> = nats.url.split(',').map(str::trim).collect();
    Ok(async_nats::connect_with_options(servers.as_slice(), options).await?)
}
