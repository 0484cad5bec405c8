//! Running nats-servers, by the user `operator` of their system account.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use contract::subject::inbox_prefix;
use futures::StreamExt as _;
use nats_credentials::{TlsFiles, UserClaims};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::authority::SYSTEM_ACCOUNT;
use crate::claims::AccountClaims;
use crate::jwt::{Claims, decode};
use crate::{AuthError, IssuedUser};

/// Timeout of one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the answers of all servers.
const ANSWERS_MAX: Duration = Duration::from_secs(5);
/// Without a further answer for so long, no server is left that would answer.
const ANSWERS_PAUSE: Duration = Duration::from_millis(500);
/// Connections of one server in one answer.
const CONNECTIONS_MAX: usize = 16_384;

/// A connection to the system account.
#[derive(Debug)]
pub struct SystemConnection {
    client: Client,
    /// Number of servers that answer; asked once.
    servers: OnceCell<usize>,
}

/// An account as the servers have it.
#[derive(Debug, Clone)]
pub struct ServerAccount {
    /// The newest JWT of any server.
    pub claims: Claims<AccountClaims>,
    /// Number of servers that answered.
    pub servers: usize,
    /// Number of them that have an older JWT, or none.
    pub behind: usize,
}

/// A connection of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedUser {
    /// Claims of its JWT.
    pub claims: UserClaims,
    /// Name of the connection.
    pub connection: String,
    /// Address of the client.
    pub address: String,
    /// Name of its server.
    pub server: String,
}

#[derive(Deserialize)]
struct Answer {
    server: Server,
    #[serde(default)]
    data: Value,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct Server {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: String,
}

#[derive(Deserialize)]
struct AnswerError {
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Connections {
    #[serde(default)]
    connections: Vec<Connection>,
}

#[derive(Deserialize)]
struct Connection {
    #[serde(default)]
    ip: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    name: String,
    #[serde(default)]
    jwt: String,
}

impl SystemConnection {
    /// Connects as a user of the role `operator`.
    pub async fn connect(url: &str, user: &IssuedUser, tls: &TlsFiles) -> Result<Self, AuthError> {
        let malformed = |error: std::io::Error| AuthError::Malformed {
            what: "the credential of the operator".to_owned(),
            problem: error.to_string(),
        };
        let options = ConnectOptions::with_credentials(&user.credentials).map_err(malformed)?;
        let options = tls
            .apply(options)
            .name("ailoop nats-auth")
            .connection_timeout(CONNECT_MAX)
            .custom_inbox_prefix(inbox_prefix("operator"));
        let servers: Vec<&str> = url.split(',').map(str::trim).collect();
        match options.connect(servers).await {
            Ok(client) => Ok(Self { client, servers: OnceCell::new() }),
            Err(error) => Err(match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    AuthError::ForeignServer { url: url.to_owned(), problem: error.to_string() }
                }
                ConnectErrorKind::ServerParse
                | ConnectErrorKind::Dns
                | ConnectErrorKind::TimedOut
                | ConnectErrorKind::Tls
                | ConnectErrorKind::Io
                | ConnectErrorKind::MaxReconnects => {
                    AuthError::Unreachable { url: url.to_owned(), problem: error.to_string() }
                }
            }),
        }
    }

    /// Counts the servers that answer, once.
    async fn servers(&self) -> Result<usize, AuthError> {
        let count = async || Ok(self.gather("$SYS.REQ.SERVER.PING.IDZ".to_owned(), Vec::new(), None).await?.len());
        self.servers.get_or_try_init(count).await.copied()
    }

    /// Reads an account from all servers; `None` if no server has it.
    pub async fn account(&self, public_key: &str) -> Result<Option<ServerAccount>, AuthError> {
        let known = self.servers().await?;
        let subject = format!("$SYS.REQ.ACCOUNT.{public_key}.CLAIMS.LOOKUP");
        let answers = self.gather(subject, Vec::new(), Some(known)).await?;
        let mut found = Vec::new();
        for body in answers.iter().filter(|body| !body.is_empty()) {
            found.push(decode::<AccountClaims>(&String::from_utf8_lossy(body))?);
        }
        let Some(newest) = found.iter().max_by_key(|claims| claims.issued_at).cloned() else { return Ok(None) };
        let servers = known.max(answers.len());
        let behind = servers - found.iter().filter(|claims| claims.id == newest.id).count();
        Ok(Some(ServerAccount { claims: newest, servers, behind }))
    }

    /// Hands a signed account to all servers. Returns how many have it now.
    pub async fn update(&self, jwt: &str) -> Result<usize, AuthError> {
        let known = self.servers().await?;
        let answers = self.gather("$SYS.REQ.CLAIMS.UPDATE".to_owned(), jwt.as_bytes().to_vec(), Some(known)).await?;
        let mut answered = BTreeSet::new();
        for body in &answers {
            let answer: Answer = serde_json::from_slice(body).map_err(|error| AuthError::Malformed {
                what: "the answer of nats-server".to_owned(),
                problem: error.to_string(),
            })?;
            if let Some(error) = answer.error {
                return Err(AuthError::Refused { server: answer.server.name, problem: error.description });
            }
            answered.insert(answer.server.id);
        }
        if answered.is_empty() || answered.len() < known {
            return Err(AuthError::Incomplete { answered: answered.len(), known });
        }
        Ok(answered.len())
    }

    /// Lists the connections of the users of an account.
    pub async fn connections(&self, public_key: &str) -> Result<Vec<ConnectedUser>, AuthError> {
        let known = self.servers().await?;
        let body = json!({"auth": true, "acc": public_key, "limit": CONNECTIONS_MAX}).to_string();
        let answers = self.gather("$SYS.REQ.SERVER.PING.CONNZ".to_owned(), body.into_bytes(), Some(known)).await?;
        let mut connected = Vec::new();
        for answer in answers.iter().filter_map(|body| serde_json::from_slice::<Answer>(body).ok()) {
            let connections: Connections = serde_json::from_value(answer.data)
                .map_err(|error| AuthError::Malformed { what: "CONNZ".to_owned(), problem: error.to_string() })?;
            connected.extend(connections.connections.into_iter().filter_map(|connection| {
                Some(ConnectedUser {
                    claims: UserClaims::decode(&connection.jwt)?,
                    connection: connection.name,
                    address: format!("{}:{}", connection.ip, connection.port),
                    server: answer.server.name.clone(),
                })
            }));
        }
        Ok(connected)
    }

    /// Sends a request to all servers and gathers their answers: `expected` ones, or until none comes any more.
    async fn gather(
        &self,
        subject: String,
        body: Vec<u8>,
        expected: Option<usize>,
    ) -> Result<Vec<bytes::Bytes>, AuthError> {
        let failed = |problem: String| AuthError::Unreachable { url: SYSTEM_ACCOUNT.to_owned(), problem };
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| failed(error.to_string()))?;
        let sent = self.client.publish_with_reply(subject, inbox, body.into()).await;
        sent.map_err(|error| failed(error.to_string()))?;
        let end = Instant::now() + ANSWERS_MAX;
        let mut bodies = Vec::new();
        while expected.is_none_or(|expected| bodies.len() < expected) {
            // The first answer may take longer than the pause between two.
            let pause = if bodies.is_empty() || expected.is_some() { ANSWERS_MAX } else { ANSWERS_PAUSE };
            let Ok(Some(message)) = timeout_at(end.min(Instant::now() + pause), answers.next()).await else { break };
            bodies.push(message.payload);
        }
        Ok(bodies)
    }
}
