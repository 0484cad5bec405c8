//! HTTP as the tools of this process speak it: straight to whom it is meant for, and nowhere else.

use std::error::Error;
use std::time::Duration;

use reqwest::{ClientBuilder, redirect};

/// How long a connection may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// What servers are told of us.
pub(super) const USER_AGENT: &str = concat!("ailoop/", env!("CARGO_PKG_VERSION"));

/// A client that asks no proxy of the environment, keeps no cookies, follows no redirect and reuses no connection.
pub(super) fn client_builder() -> ClientBuilder {
    // It fails where the process has a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        // Whoever asked before must not matter: not to the address that is judged, and not to a call that a server hangs
        // up on.
        .pool_max_idle_per_host(0)
}

/// The innermost cause: what happened, without the address that every layer around it repeats.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.source().is_none() { "the HTTP client gives no reason".to_owned() } else { cause.to_string() }
}
