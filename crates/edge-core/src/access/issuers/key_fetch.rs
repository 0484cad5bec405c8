//! Fetches the keys of an issuer over HTTP.

use std::error::Error;
use std::time::Duration;

use reqwest::{Client, Url, redirect};
use serde::Deserialize;

use super::jwks::KeySet;
use crate::config::issuer::{is_loopback, parse_url};

/// Bytes of a document of an issuer.
pub(super) const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Time to connect to an issuer.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time of one request to an issuer.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// Fetcher of the keys of an issuer.
#[derive(Debug)]
pub(super) struct KeyFetcher {
    client: Client,
    issuer: String,
    /// The URL of the keys; none until it was discovered.
    url: Option<Url>,
    is_discovered: bool,
}

/// The document of `OpenID` Connect Discovery, as far as it is used.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl KeyFetcher {
    /// Makes a fetcher that discovers the URL of the keys where none is given.
    pub(super) fn new(issuer: &str, url: Option<Url>) -> Result<Self, String> {
        // This fails if the process has a crypto provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_MAX)
            .timeout(REQUEST_MAX)
            .user_agent(concat!("ailoop/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| root_cause(&error))?;
        Ok(Self { client, issuer: issuer.to_owned(), is_discovered: url.is_none(), url })
    }

    /// Fetches the keys, after a discovery where the URL is not known or may have changed.
    pub(super) async fn fetch(&mut self, may_have_moved: bool) -> Result<KeySet, String> {
        let url = match &self.url {
            Some(url) if !(self.is_discovered && may_have_moved) => url.clone(),
            Some(_) | None => self.discover().await?,
        };
        let bytes = self.get(&url).await?;
        let keys = KeySet::parse(&bytes).map_err(|why| format!("{url}: {why}"))?;
        self.url = Some(url);
        Ok(keys)
    }

    async fn discover(&self) -> Result<Url, String> {
        let text = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let place = parse_url(&text).map_err(|why| format!("{text} {why}"))?;
        let bytes = self.get(&place).await?;
        let found: Discovery = serde_json::from_slice(&bytes).map_err(|error| format!("{place}: {error}"))?;
        if found.issuer != self.issuer {
            return Err(format!("{place} is of the issuer {:?}: set `issuer` to that", found.issuer));
        }
        let url = parse_url(&found.jwks_uri).map_err(|why| format!("{place}: jwks_uri {why}"))?;
        // An issuer elsewhere must not choose a service of this machine.
        if url.scheme() == "http" && !is_loopback(&place) {
            return Err(format!("{place}: jwks_uri begins with http: use https"));
        }
        Ok(url)
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, String> {
        let failed = |error: &reqwest::Error| format!("{url}: {}", root_cause(error));
        let mut response = self.client.get(url.clone()).send().await.map_err(|error| failed(&error))?;
        let status = response.status();
        if !status.is_success() {
            let hint = if status.is_redirection() { ": redirects are not followed" } else { "" };
            return Err(format!("{url} answers {status}{hint}"));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
            if bytes.len() + chunk.len() > DOCUMENT_BYTES_MAX {
                return Err(format!("{url}: the document has more than {DOCUMENT_BYTES_MAX} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// Returns the innermost cause, without the URL that every layer around it repeats.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() { "no answer in time".to_owned() } else { cause.to_string() }
}
