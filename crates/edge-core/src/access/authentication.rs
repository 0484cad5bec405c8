//! Authentication of requests by token, origin and host. A web page that a user visits must not control their sessions.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use contract::ErrorCode;
use service::connections::Connection;

use super::grant::{ApiCaller, Grant};
use super::grants::Grants;
use super::issuers::Issuers;
use super::refusals::RefusalLog;
use crate::api_error::ApiError;
use crate::config::{EdgeConfig, EdgeStartError, TrustedProxies};

/// Requests for which a refused credential counts in the pace of the refusals of its connection.
const REFUSAL_REQUESTS: usize = 20;
/// Longest wait of a refused request for its answer.
const REFUSAL_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Subprotocol of WebSocket that the edge speaks, for web pages that name protocols.
pub const SUBPROTOCOL: &str = "ailoop.v1";
/// Beginning of the subprotocol that carries the credential of a web page.
const BEARER_SUBPROTOCOL: &str = "ailoop.bearer.";

/// Headers and origin of a request, as far as authentication needs them.
#[derive(Debug, Clone, Copy)]
pub struct RequestCredentials<'a> {
    /// Value of the header `authorization`.
    pub authorization: CredentialHeader<'a>,
    /// `x-api-key`, which some SDKs send in place of `authorization`.
    pub api_key: CredentialHeader<'a>,
    /// `Sec-WebSocket-Protocol`: web pages cannot set other headers of a WebSocket.
    pub subprotocols: CredentialHeader<'a>,
    /// Browsers always send it.
    pub origin: CredentialHeader<'a>,
    /// Value of the header `host`.
    pub host: CredentialHeader<'a>,
    /// All headers, for the address that proxies say.
    pub headers: &'a HeaderMap,
    /// Connection on which the request came.
    pub connection: &'a Connection,
}

impl<'a> RequestCredentials<'a> {
    /// Reads the headers of a request. A protocol leaves out what it does not use.
    pub fn of_request(headers: &'a HeaderMap, connection: &'a Connection) -> Self {
        let header = |name: &str| CredentialHeader::from_values(headers.get_all(name));
        Self {
            authorization: header("authorization"),
            api_key: header("x-api-key"),
            subprotocols: CredentialHeader::Absent,
            origin: header("origin"),
            host: header("host"),
            headers,
            connection,
        }
    }
}

/// A header that authentication reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialHeader<'a> {
    /// The request has no such header.
    Absent,
    /// The only value of the header.
    Text(&'a str),
    /// Sent twice, or with bytes outside visible ASCII: implementations read such a header differently.
    Unusable,
}

impl<'a> CredentialHeader<'a> {
    /// Reads all values of one header of a request.
    pub fn from_values<V: AsRef<[u8]> + 'a>(values: impl IntoIterator<Item = &'a V>) -> Self {
        let mut values = values.into_iter();
        match (values.next().map(AsRef::as_ref), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) if value.iter().all(|byte| (0x20..0x7F).contains(byte)) => {
                std::str::from_utf8(value).map_or(Self::Unusable, Self::Text)
            }
            (Some(_), _) => Self::Unusable,
        }
    }

    /// Returns the text, `None` if the header is absent, and an error if it is unusable.
    fn text(self, name: &str) -> Result<Option<&'a str>, ApiError> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            Self::Unusable => Err(ApiError::new(
                ErrorCode::Unauthorized,
                format!(
                    "the header `{name}` was sent twice or holds bytes outside visible ASCII: send it once, in ASCII"
                ),
            )),
        }
    }
}

/// Authentication rules of one listener.
#[derive(Debug, Clone)]
pub struct Authenticator {
    grants: Grants,
    origins: Vec<String>,
    hosts: Vec<String>,
    is_host_checked: bool,
    proxies: TrustedProxies,
    refusals: RefusalLog,
}

impl Authenticator {
    /// Makes the rules of the listener at `listen`.
    pub fn new(
        config: &EdgeConfig,
        grants: Grants,
        refusals: RefusalLog,
        listen: SocketAddr,
    ) -> Result<Self, EdgeStartError> {
        Ok(Self {
            grants,
            origins: config.allowed_origins.iter().map(|origin| origin.to_ascii_lowercase()).collect(),
            hosts: config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            is_host_checked: listen.ip().is_loopback() || !config.allowed_hosts.is_empty(),
            proxies: TrustedProxies::parse(&config.trusted_proxies).map_err(EdgeStartError::BadConfig)?,
            refusals,
        })
    }

    /// Returns the issuers of access tokens.
    pub fn issuers(&self) -> &Issuers {
        self.grants.issuers()
    }

    /// Whether clients must show a credential.
    pub fn needs_credential(&self) -> bool {
        self.grants.are_needed()
    }

    /// Returns a caller without a credential, for documents that anybody may read. It has no scope.
    pub fn public_caller(&self, credentials: &RequestCredentials<'_>) -> ApiCaller {
        let tenant = self.grants.without_credential().tenant.clone();
        self.to_caller(Arc::new(Grant { scopes: BTreeSet::new(), ..Grant::full(tenant, "public") }), credentials)
    }

    /// Authenticates a request, or returns the reason why it is refused, which goes to the audit log too.
    pub async fn authenticate(&self, credentials: RequestCredentials<'_>) -> Result<ApiCaller, ApiError> {
        let checked = self.check_page(&credentials);
        let authenticated = match checked {
            Ok(()) => self.find_grant(&credentials).await,
            Err(error) => Err(error),
        };
        match authenticated {
            Ok(grant) => Ok(self.to_caller(grant, &credentials)),
            Err(error) => {
                self.refusals.note(self.address_of(&credentials), &error);
                // Who guesses credentials is answered more slowly with each guess.
                let pause = credentials.connection.refusals().count(REFUSAL_REQUESTS, 0);
                tokio::time::sleep(pause.min(REFUSAL_PAUSE_MAX)).await;
                Err(error)
            }
        }
    }

    fn to_caller(&self, grant: Arc<Grant>, credentials: &RequestCredentials<'_>) -> ApiCaller {
        let (address, connection) = (self.address_of(credentials), credentials.connection);
        ApiCaller::new(grant, address, connection.id(), connection.pace())
    }

    fn address_of(&self, credentials: &RequestCredentials<'_>) -> IpAddr {
        self.proxies.client_address(credentials.connection.address(), credentials.headers)
    }

    /// Refuses web pages that may not use the edge, and names that a page could have made for its address.
    pub fn check_page(&self, credentials: &RequestCredentials<'_>) -> Result<(), ApiError> {
        let origin = credentials.origin.text("Origin")?;
        let host = credentials.host.text("Host")?.map(str::to_ascii_lowercase);
        if self.is_host_checked
            && let Some(host) = &host
            && !self.is_known_host(host)
        {
            return unauthorized(format!("the host {host:?} is not allowed: add it to edge.allowed_hosts"));
        }
        if let Some(origin) = origin {
            let origin = origin.to_ascii_lowercase();
            let is_own = origin.split_once("://").is_some_and(|(_, authority)| Some(authority) == host.as_deref());
            if !is_own && !self.origins.contains(&origin) {
                return unauthorized(format!(
                    "web pages of {origin:?} may not connect: add their origin to edge.allowed_origins"
                ));
            }
        }
        Ok(())
    }

    async fn find_grant(&self, credentials: &RequestCredentials<'_>) -> Result<Arc<Grant>, ApiError> {
        let authorization = credentials.authorization.text("Authorization")?;
        let api_key = credentials.api_key.text("x-api-key")?;
        if !self.grants.are_needed() {
            return Ok(self.grants.without_credential());
        }
        let bearer = authorization.and_then(|text| text.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
        let mut protocols = credentials.subprotocols.text("Sec-WebSocket-Protocol")?.unwrap_or_default().split(',');
        let of_protocol = protocols.find_map(|protocol| protocol.trim().strip_prefix(BEARER_SUBPROTOCOL));
        let presented = bearer.or(api_key.map(str::trim)).or(of_protocol);
        self.grants.authenticate(presented).await
    }

    fn is_known_host(&self, host: &str) -> bool {
        is_local(host) || self.hosts.iter().any(|known| known == host_name(host) || known == host)
    }
}

/// Whether a header `Host` names this machine.
pub(super) fn is_local(host: &str) -> bool {
    let name = host_name(host);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A header `Host` without its port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(ipv6) => ipv6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn unauthorized(message: String) -> Result<(), ApiError> {
    Err(ApiError::new(ErrorCode::Unauthorized, message))
}

#[cfg(test)]
mod tests {
    use configuration::Secret;
    use service::connections::{ConnectionLimits, Connections};

    use super::*;

    fn authenticator(token: Option<&str>, listen: &str) -> Authenticator {
        let config = EdgeConfig {
            token: token.map(Secret::new),
            allowed_origins: vec!["https://console.example.org".to_owned()],
            ..EdgeConfig::default()
        };
        let grants = Grants::new(&config).unwrap();
        Authenticator::new(&config, grants, RefusalLog::default(), listen.parse().unwrap()).unwrap()
    }

    fn connection() -> Arc<Connection> {
        Connections::new(ConnectionLimits::default()).open("test", IpAddr::from([10, 0, 0, 1]))
    }

    fn header(text: Option<&str>) -> CredentialHeader<'_> {
        text.map_or(CredentialHeader::Absent, CredentialHeader::Text)
    }

    #[tokio::test]
    async fn header_outside_ascii_or_repeated_is_refused() {
        let rows: [(&[&[u8]], CredentialHeader<'_>); 5] = [
            (&[], CredentialHeader::Absent),
            (&[b"localhost"], CredentialHeader::Text("localhost")),
            (&[b"localhost", b"localhost"], CredentialHeader::Unusable),
            (&[b"ev\xffil"], CredentialHeader::Unusable),
            (&["evil\u{200b}".as_bytes()], CredentialHeader::Unusable),
        ];
        let authenticator = authenticator(None, "127.0.0.1:7070");
        for (values, wanted) in rows {
            let found = CredentialHeader::from_values(values);
            assert_eq!(found, wanted, "{values:?}");
            let (headers, connection) = (HeaderMap::new(), connection());
            let credentials =
                RequestCredentials { host: found, ..RequestCredentials::of_request(&headers, &connection) };
            let authenticated = authenticator.authenticate(credentials).await;
            assert_eq!(authenticated.is_ok(), wanted != CredentialHeader::Unusable, "{values:?}");
        }
    }

    #[tokio::test]
    async fn foreign_origin_or_host_is_refused() {
        let authenticator = authenticator(None, "127.0.0.1:7070");
        let rows = [
            (None, Some("127.0.0.1:7070"), true),
            (None, Some("localhost:7070"), true),
            (None, Some("[::1]:7070"), true),
            (None, None, true),
            (None, Some("evil.example.org:7070"), false),
            (None, Some("127.0.0.1.evil.example.org"), false),
            (Some("http://127.0.0.1:7070"), Some("127.0.0.1:7070"), true),
            (Some("http://LOCALHOST:7070"), Some("localhost:7070"), true),
            (Some("http://127.0.0.1:9999"), Some("127.0.0.1:7070"), false),
            (Some("https://evil.example.org"), Some("127.0.0.1:7070"), false),
            (Some("null"), Some("127.0.0.1:7070"), false),
            (Some("https://console.example.org"), Some("127.0.0.1:7070"), true),
            (Some("https://evil.example.org"), Some("evil.example.org"), false),
        ];
        for (origin, host, wanted) in rows {
            let (headers, connection) = (HeaderMap::new(), connection());
            let authenticated = authenticator.authenticate(RequestCredentials {
                origin: header(origin),
                host: header(host),
                ..RequestCredentials::of_request(&headers, &connection)
            });
            let authenticated = authenticated.await;
            assert_eq!(authenticated.is_ok(), wanted, "{origin:?} {host:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_guesses_credentials_is_answered_more_and_more_slowly() {
        let authenticator = authenticator(Some("s3cret"), "127.0.0.1:7070");
        let (headers, connection) = (HeaderMap::new(), connection());
        let authorization = header(Some("Bearer guess"));
        let mut waits = Vec::new();
        for _ in 0..100 {
            let sent = tokio::time::Instant::now();
            let credentials =
                RequestCredentials { authorization, ..RequestCredentials::of_request(&headers, &connection) };
            authenticator.authenticate(credentials).await.unwrap_err();
            waits.push(sent.elapsed().as_millis());
        }
        assert!(waits[4] == 0 && waits[5..].iter().all(|wait| *wait >= 100), "ten in a second: {waits:?}");
        assert_eq!(connection.pace().count(1, 0), Duration::ZERO, "others behind the same proxy are read as before");
        let other = Connections::new(ConnectionLimits::default()).open("test", IpAddr::from([10, 0, 0, 2]));
        let authorization = header(Some("Bearer s3cret"));
        let credentials = RequestCredentials { authorization, ..RequestCredentials::of_request(&headers, &other) };
        assert!(authenticator.authenticate(credentials).await.is_ok());
    }

    #[tokio::test]
    async fn wrong_or_missing_token_is_refused() {
        let authenticator = authenticator(Some("s3cret"), "0.0.0.0:7070");
        let rows = [
            (None, false),
            (Some("Bearer s3cret"), true),
            (Some("bearer s3cret"), true),
            (Some("Bearer s3cre"), false),
            (Some("Bearer s3crets3cret"), false),
            (Some("Bearer "), false),
            (Some("Basic s3cret"), false),
            (Some("s3cret"), false),
        ];
        for (authorization, wanted) in rows {
            let host = header(Some("edge.example.org"));
            let (headers, connection) = (HeaderMap::new(), connection());
            let authenticated = authenticator.authenticate(RequestCredentials {
                authorization: header(authorization),
                host,
                ..RequestCredentials::of_request(&headers, &connection)
            });
            let authenticated = authenticated.await;
            assert_eq!(authenticated.is_ok(), wanted, "{authorization:?}");
        }
    }
}
