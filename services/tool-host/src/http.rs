//! The HTTP client of the tools: it connects to the target itself, and to nothing else.

use std::error::Error;
use std::time::Duration;

use reqwest::{ClientBuilder, redirect};

/// Timeout for opening a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Value of the header `User-Agent`.
pub(super) const USER_AGENT: &str = concat!("ailoop/", env!("CARGO_PKG_VERSION"));

/// Builds a client that uses no proxy of the environment, keeps no cookies, follows no redirect and reuses no
/// connection.
pub(super) fn client_builder() -> ClientBuilder {
    // It fails where the process has a provider already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_MAX)
        // A reused connection would skip the check of its address, and a server may close it at the moment of the next
        // call.
        .pool_max_idle_per_host(0)
}

/// Returns the innermost cause, without the URL that every layer around it repeats.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.source().is_none() { "the HTTP client gives no reason".to_owned() } else { cause.to_string() }
}
