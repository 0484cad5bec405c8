//! The connections of the tools that this process serves itself: they are users of their own, as anybody's tools are.

use ailoop_tool::ServeError;
use ailoop_tool::async_nats::{self, Client, ConnectOptions};
use bus::NatsConfig;
use service::Secret;

/// As which user tools connect: the one that is named, else that of the process.
pub(crate) fn as_user(nats: &NatsConfig, user: Option<&String>, password: Option<&Secret>) -> NatsConfig {
    let Some(user) = user else { return nats.clone() };
    let password = password.map(|password| password.expose().to_owned());
    NatsConfig { user: Some(user.clone()), password, ..nats.clone() }
}

/// Connects, under a name that tells the server whose connection it is.
pub(crate) async fn connect(nats: &NatsConfig, whose: &str) -> Result<Client, ServeError> {
    let mut options = ConnectOptions::new().name(format!("{} {whose}", nats.name));
    if let (Some(user), Some(password)) = (&nats.user, &nats.password) {
        options = options.user_and_password(user.clone(), password.clone());
    }
    let servers: Vec<&str> = nats.url.split(',').map(str::trim).collect();
    Ok(async_nats::connect_with_options(servers.as_slice(), options).await?)
}
