//! The address of an edge, and how it is reached: TLS and the API key.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::error::{ClientError, ErrorKind, root_cause};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// While a call or a stream is open, the connection is probed this often, so that a machine that vanished is noticed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of an edge, and how it is reached.
#[derive(Clone, Default)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) api_key: Option<String>,
    /// The PEM file of the authority of its certificate, if no public one signed it.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether the key may go over `http://` to another machine.
    pub(crate) allows_plaintext_key: bool,
}

impl Target {
    /// Makes the endpoint; refuses to send a key in clear to another machine.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, ClientError> {
        let Self { url, api_key, ca_file, allows_plaintext_key } = self;
        let wrong = |why: String| configuration("bad_request", format!("{url:?} is not an address: {why}"));
        let endpoint = Endpoint::from_shared(add_scheme(url)).map_err(|error| wrong(error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        match endpoint.uri().scheme_str() {
            Some("https") => {}
            Some("http") => {
                let host = endpoint.uri().host().unwrap_or_default();
                if api_key.is_some() && !allows_plaintext_key && !is_this_machine(host) {
                    let message = format!(
                        "the API key is not sent over http:// to {host}, where others could read it; use an https:// address"
                    );
                    return Err(ClientError::new(ErrorKind::PlaintextKey, "unauthorized", message));
                }
                return Ok(endpoint);
            }
            _ => return Err(wrong("it must begin with http:// or https://".to_owned())),
        }
        let mut tls = ClientTlsConfig::new().with_enabled_roots();
        if let Some(path) = ca_file {
            let pem = std::fs::read(path).map_err(|error| {
                configuration("bad_config", format!("the file {} cannot be read: {error}", path.display()))
            })?;
            tls = tls.ca_certificate(Certificate::from_pem(pem));
        }
        endpoint
            .tls_config(tls)
            .map_err(|error| configuration("bad_config", format!("TLS cannot be used: {}", root_cause(&error))))
    }

    /// Makes the interceptor that adds the key to each call.
    pub(crate) fn credentials(&self) -> Result<BearerKey, ClientError> {
        let value = self.api_key.as_ref().map(|key| format!("Bearer {key}").parse()).transpose();
        let mut value: Option<MetadataValue<Ascii>> = value.map_err(|_| {
            configuration("unauthorized", "the API key has characters that are not allowed in a header".to_owned())
        })?;
        if let Some(value) = &mut value {
            value.set_sensitive(true);
        }
        Ok(BearerKey(value))
    }
}

/// The address as it is, or one of `http://` if it has no scheme.
pub(crate) fn add_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}

fn configuration(code: &str, message: String) -> ClientError {
    ClientError::new(ErrorKind::Configuration, code, message)
}

/// Whether a host of an address is this machine itself.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Adds the API key to each call, if there is one.
#[derive(Debug, Clone)]
pub struct BearerKey(Option<MetadataValue<Ascii>>);

impl Interceptor for BearerKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, key: Option<&str>, allows_plaintext_key: bool) -> Option<ErrorKind> {
        let target = Target { url: url.into(), api_key: key.map(Into::into), ca_file: None, allows_plaintext_key };
        target.endpoint().and_then(|_| target.credentials()).err().map(|error| error.kind())
    }

    #[test]
    fn key_is_sent_in_clear_to_this_machine_only() {
        for url in
            ["http://127.0.0.1:7071", "127.0.0.1:7071", "http://localhost:7071", "http://[::1]:7071", "127.8.9.10"]
        {
            assert_eq!(check(url, Some("k"), false), None, "{url}");
        }
        for url in
            ["http://ailoop.example.com", "10.0.0.1:7071", "http://localhost.example.com", "http://[2001:db8::1]:7071"]
        {
            assert_eq!(check(url, Some("k"), false), Some(ErrorKind::PlaintextKey), "{url}");
            assert_eq!(check(url, Some("k"), true), None, "{url}");
            assert_eq!(check(url, None, false), None, "{url}: there is nothing to hide");
        }
        assert_eq!(check("https://ailoop.example.com", Some("k"), false), None);
    }

    #[test]
    fn address_or_key_that_cannot_be_used_is_a_configuration_error() {
        for url in ["ftp://ailoop.example.com", "http://", "https://a b", ""] {
            assert_eq!(check(url, None, false), Some(ErrorKind::Configuration), "{url}");
        }
        assert_eq!(check("http://127.0.0.1", Some("a\nb"), false), Some(ErrorKind::Configuration));
        let target = Target { url: "https://a".into(), ca_file: Some("/no/such.pem".into()), ..Target::default() };
        assert_eq!(target.endpoint().unwrap_err().code(), "bad_config");
    }
}
