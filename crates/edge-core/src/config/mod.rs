//! The `edge` section of the configuration, and its checks.

mod cells;
pub(crate) mod issuer;
mod start_error;
mod trusted_proxies;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use configuration::Secret;
use contract::limits::{
    CELLS_MAX, CLIENT_QUEUE_MAX, ISSUERS_MAX, TENANT_SESSIONS_MAX, TENANT_SHARE_PERCENT, TENANT_STORED_BYTES_MAX,
    TENANT_TOOL_CALLS_MAX, WAITING_CALLS_MAX,
};
use contract::{CellName, TenantId};
use schemars::JsonSchema;
use serde::Deserialize;
use service::connections::ConnectionLimits;
use service::tls::TlsConfig;

use crate::admission::AdmissionLimits;

pub use cells::{CellConfig, CellTable};
pub use issuer::{IssuerConfig, SignatureAlgorithm};
pub use start_error::EdgeStartError;
pub(crate) use trusted_proxies::TrustedProxies;

/// Placeholder in `edge.trace_url` for the id of a trace.
pub(crate) const TRACE_ID_PLACE: &str = "{trace_id}";

/// Listeners, authentication and limits of the edge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "edge")]
pub struct EdgeConfig {
    /// Listener of WebSocket JSON-RPC and plain HTTP; 127.0.0.1:7070.
    pub ws: ListenConfig,
    /// Listener of gRPC; 127.0.0.1:7071.
    pub grpc: ListenConfig,
    /// The cells, at most 64. Without one, the sessions are those of the section `nats`; with one, that section is not
    /// used by the edge.
    #[schemars(length(max = CELLS_MAX))]
    pub cells: Vec<CellConfig>,
    /// The cells that a tenant uses, by tenant. A tenant that is not named uses all of them.
    #[schemars(with = "BTreeMap<String, Vec<String>>")]
    pub tenant_cells: BTreeMap<TenantId, Vec<CellName>>,
    /// Token that clients must send as `Authorization: Bearer <token>`. Without a token the edge listens on loopback
    /// only.
    pub token: Option<Secret>,
    /// Directory of files with one token each, all of which are valid beside `token`. It is read again every 2 s, so that
    /// a token is replaced without a restart.
    pub tokens_dir: Option<PathBuf>,
    /// File of API keys, each with a tenant, a subject and scopes. It is read again every 2 s. See `ailoop api-key new`.
    pub keys_file: Option<PathBuf>,
    /// Issuers of access tokens (JWT), at most 8, whose tokens are valid beside tokens and API keys.
    #[schemars(length(max = ISSUERS_MAX))]
    pub issuers: Vec<IssuerConfig>,
    /// Certificate and key of both listeners. They are read again every 2 s. Without them the listeners have no TLS.
    pub tls: Option<TlsConfig>,
    /// The tenant of clients that show a token or nothing, and of API keys and access tokens that name none.
    #[schemars(with = "String")]
    pub tenant: TenantId,
    /// Origins of web pages that may connect beside the edge's own: `https://console.example.org`.
    pub allowed_origins: Vec<String>,
    /// Networks of proxies, such as `10.0.0.0/8`, whose header `X-Forwarded-For` says the address of a client. An IPv6
    /// peer is known by its /64 network.
    pub trusted_proxies: Vec<String>,
    /// Host names by which clients may address the edge, beside localhost. Checked on loopback, and wherever it is set.
    pub allowed_hosts: Vec<String>,
    /// Whether the web console is served on `/`; true.
    pub console: bool,
    /// Address at which people see a trace, with `{trace_id}` in the place of its id:
    /// `https://traces.example.org/trace/{trace_id}`. `session.trace` and the console lead there from the turns whose
    /// spans are sent.
    pub trace_url: Option<String>,
    /// Seconds that the response to a command waits for its commit; 30.
    pub command_wait: u64,
    /// Notifications that one client may fall behind; 1 024.
    pub client_queue: usize,
    /// Limits of client connections, WebSocket, HTTP and gRPC together.
    pub connections: ConnectionLimits,
    /// Model calls that may wait for a gateway before new turns are refused as `overloaded`; 2 000.
    pub waiting_calls_max: u64,
    /// The same for the model calls of the tenant of this edge; four fifths of `waiting_calls_max`, so that another
    /// tenant always finds room.
    pub tenant_waiting_calls_max: Option<u64>,
    /// Turns of the tenant that may wait before new ones are refused as `overloaded`: commands `start` and
    /// `send_user_message` that no orchestrator has handled, and model calls that wait for a gateway. By default as
    /// many as `tenant_waiting_calls_max`.
    pub tenant_waiting_turns_max: Option<u64>,
    /// Tool calls of the tenant that may be open, waiting or held, before its new turns are refused as `overloaded`;
    /// 10 000.
    pub tenant_tool_calls_max: u64,
    /// Sessions of the tenant that have not ended; at so many a further `start` is refused as `overloaded`. 50 000.
    pub tenant_sessions_max: usize,
    /// Bytes of the tenant in the log and the archive; at so many new turns are refused as `overloaded`. 64 GiB.
    pub tenant_stored_bytes_max: u64,
}

/// A listener of the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "listen")]
pub struct ListenConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        let local = |port: u16| ListenConfig { listen: SocketAddr::from(([127, 0, 0, 1], port)) };
        Self {
            ws: local(7070),
            grpc: local(7071),
            cells: Vec::new(),
            tenant_cells: BTreeMap::new(),
            token: None,
            tokens_dir: None,
            keys_file: None,
            issuers: Vec::new(),
            tls: None,
            tenant: TenantId::default(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            allowed_hosts: Vec::new(),
            console: true,
            trace_url: None,
            command_wait: 30,
            client_queue: CLIENT_QUEUE_MAX,
            connections: ConnectionLimits::default(),
            waiting_calls_max: WAITING_CALLS_MAX,
            tenant_waiting_calls_max: None,
            tenant_waiting_turns_max: None,
            tenant_tool_calls_max: TENANT_TOOL_CALLS_MAX,
            tenant_sessions_max: TENANT_SESSIONS_MAX,
            tenant_stored_bytes_max: TENANT_STORED_BYTES_MAX,
        }
    }
}

impl EdgeConfig {
    /// Returns the limits for new turns and sessions.
    pub fn admission_limits(&self) -> AdmissionLimits {
        let all = self.waiting_calls_max;
        let share = all.saturating_mul(TENANT_SHARE_PERCENT).div_ceil(100);
        let tenant = self.tenant_waiting_calls_max.unwrap_or(share);
        AdmissionLimits {
            all,
            tenant,
            turns: self.tenant_waiting_turns_max.unwrap_or(tenant),
            tool_calls: self.tenant_tool_calls_max,
            sessions: self.tenant_sessions_max,
            stored_bytes: self.tenant_stored_bytes_max,
        }
    }

    /// Returns the table of cells; the error names the mistake.
    pub fn cell_table(&self) -> Result<CellTable, EdgeStartError> {
        CellTable::new(&self.cells, &self.tenant_cells).map_err(EdgeStartError::BadConfig)
    }

    /// Returns the longest time that the response to a command waits for its commit.
    pub(crate) fn command_wait(&self) -> Duration {
        Duration::from_secs(self.command_wait)
    }

    /// Whether clients must show a credential.
    pub fn has_credentials(&self) -> bool {
        let Self { token, tokens_dir, keys_file, issuers, .. } = self;
        token.is_some() || tokens_dir.is_some() || keys_file.is_some() || !issuers.is_empty()
    }

    /// Whether only programs of this machine can connect.
    pub fn is_local(&self) -> bool {
        self.listeners().into_iter().all(|(_, listen)| listen.ip().is_loopback())
    }

    /// Returns the listeners that others can reach, on which credentials travel in clear.
    pub fn clear_listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let is_clear = |listen: SocketAddr| self.tls.is_none() && self.has_credentials() && !listen.ip().is_loopback();
        self.listeners().into_iter().filter(|(_, listen)| is_clear(*listen)).collect()
    }

    fn listeners(&self) -> [(&'static str, SocketAddr); 2] {
        [("edge.ws.listen", self.ws.listen), ("edge.grpc.listen", self.grpc.listen)]
    }

    /// Refuses a configuration that would let anyone connect from another host.
    pub fn check(&self) -> Result<(), EdgeStartError> {
        if let Some(token) = &self.token
            && token.expose().is_empty()
        {
            return Err(EdgeStartError::BadConfig("edge.token is empty: remove it, or give it a value".to_owned()));
        }
        if let Some(url) = &self.trace_url
            && !(["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)) && url.contains(TRACE_ID_PLACE))
        {
            let message = format!("edge.trace_url is {url:?}: it must begin with https:// and have {TRACE_ID_PLACE}");
            return Err(EdgeStartError::BadConfig(message));
        }
        self.cell_table()?;
        self.connections.check("edge.connections").map_err(EdgeStartError::BadConfig)?;
        IssuerConfig::check_all(&self.issuers).map_err(EdgeStartError::BadConfig)?;
        TrustedProxies::parse(&self.trusted_proxies).map_err(EdgeStartError::BadConfig)?;
        for (field, listen) in self.listeners() {
            if !self.has_credentials() && !listen.ip().is_loopback() {
                return Err(EdgeStartError::BadConfig(format!(
                    "{field} is {listen}, which others can reach: set edge.token (AILOOP__EDGE__TOKEN), edge.tokens_dir, edge.keys_file or edge.issuers, or listen on 127.0.0.1"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use contract::ErrorCode;

    use super::*;

    #[test]
    fn listener_beyond_loopback_without_token_is_refused() {
        let local = EdgeConfig::default();
        assert!(local.check().is_ok());
        let open = EdgeConfig { ws: ListenConfig { listen: "0.0.0.0:7070".parse().unwrap() }, ..EdgeConfig::default() };
        let refused = open.check().unwrap_err();
        assert_eq!(contract::Coded::code(&refused), ErrorCode::BadConfig);
        assert!(refused.to_string().contains("edge.ws.listen"), "{refused}");
        let guarded = EdgeConfig { token: Some(Secret::new("t")), ..open };
        assert!(guarded.check().is_ok());
        assert!(!format!("{guarded:?}").contains("\"t\""), "a token is not printed");
        assert!(EdgeConfig { token: Some(Secret::new("")), ..EdgeConfig::default() }.check().is_err());
    }

    #[test]
    fn trace_url_without_a_scheme_or_a_place_for_the_id_is_refused() {
        let check = |url: &str| EdgeConfig { trace_url: Some(url.to_owned()), ..EdgeConfig::default() }.check();
        assert!(check("https://traces.example.org/trace/{trace_id}?tab=spans").is_ok());
        for url in ["https://traces.example.org/", "javascript:alert({trace_id})", "{trace_id}", ""] {
            let refused = check(url).unwrap_err();
            assert!(refused.to_string().contains("edge.trace_url"), "{refused}");
        }
    }

    #[test]
    fn credentials_in_clear_are_found_on_listeners_that_others_reach() {
        let fields =
            |config: &EdgeConfig| config.clear_listeners().into_iter().map(|(field, _)| field).collect::<Vec<_>>();
        let issuer = serde_json::json!({"issuer": "https://login.example.org", "audience": "ailoop"});
        let issuers = vec![serde_json::from_value(issuer).unwrap()];
        let open = ListenConfig { listen: "0.0.0.0:7070".parse().unwrap() };
        let config = EdgeConfig { ws: open, issuers, ..EdgeConfig::default() };
        assert!(config.check().is_ok(), "issuers are credentials");
        assert_eq!(fields(&config), ["edge.ws.listen"]);
        let tls = Some(TlsConfig { certificate: "c".into(), key: "k".into() });
        assert!(fields(&EdgeConfig { tls: tls.clone(), ..config.clone() }).is_empty());
        assert!(fields(&EdgeConfig { token: Some(Secret::new("t")), ..EdgeConfig::default() }).is_empty());
        let without = EdgeConfig { issuers: Vec::new(), tls, ..config };
        assert!(without.check().is_err(), "TLS alone lets anyone connect");
    }
}
