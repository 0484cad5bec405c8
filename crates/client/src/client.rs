//! A client of one edge, or of several behind one address.

use std::fmt;
use std::future::IntoFuture;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use proto::{
    Agent, FleetTool, ListAgentsRequest, ListClientCallsRequest, ListGatesRequest, ListModelsRequest,
    ListSessionsRequest, ListToolsRequest, Model, PendingCall, PendingGate, SessionPage,
};
use tonic::{Request, Response, Status};

use crate::connection::{EdgeConnection, Locate, SessionsApi};
use crate::error::ClientError;
use crate::responder::Handlers;
#[cfg(unix)]
use crate::run_file::RunFile;
use crate::session::AgentSession;
use crate::session_context::SessionContext;
use crate::start::StartSession;
use crate::target::Target;
use crate::turn::TurnResult;

/// Time for which failures are retried before one is returned, unless the builder sets another.
const RETRY_FOR: Duration = Duration::from_mins(1);

/// A client of one edge, or of several behind one address. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    connection: EdgeConnection,
}

impl Client {
    /// Connects to the gRPC address of an edge, such as `http://127.0.0.1:7071` or `https://ailoop.example.com`, when the
    /// builder is awaited. An address without a scheme is one of `http://`.
    pub fn connect(url: impl Into<String>) -> ClientBuilder {
        let target = Target { url: url.into(), ..Target::default() };
        ClientBuilder { target, retry_for: RETRY_FOR, locate: None }
    }

    /// Connects to the fleet that `ailoop up` runs in the working directory, or in the nearest one above it, with its
    /// token. When the connection breaks, the client looks there for its address.
    ///
    /// # Errors
    ///
    /// Fails if no fleet of this user runs there.
    #[cfg(unix)]
    pub fn connect_here() -> Result<ClientBuilder, ClientError> {
        let found = RunFile::find_running(|run| !run.one_session);
        let (directory, run) = found.ok_or_else(|| {
            ClientError::unreachable(
                "no fleet runs in this directory, or in one above it: start one with `ailoop up`, or connect to an address",
            )
        })?;
        let builder = Self::connect(run.grpc).locate(move || RunFile::of_running(&directory).map(|run| run.grpc));
        Ok(match run.token {
            Some(token) => builder.api_key(token),
            None => builder,
        })
    }

    /// Starts a session when the builder is awaited.
    pub fn start(&self) -> StartSession {
        StartSession::new(self.connection.clone())
    }

    /// Runs a task in a session of its own, and returns its result. [`StartSession::run`] does it with more settings.
    ///
    /// # Errors
    ///
    /// As those of [`StartSession::run`].
    pub async fn run(&self, agent: &str, prompt: &str) -> Result<TurnResult, ClientError> {
        self.start().agent(agent).prompt(prompt).run().await
    }

    /// A session that exists. Nothing is sent.
    pub fn session(&self, id: impl Into<String>) -> AgentSession {
        let context = SessionContext::existing(self.connection.clone(), id.into());
        AgentSession::new(context, Handlers::default())
    }

    /// The sessions of the tenant, newest first; `ListSessionsRequest::default()` selects all, 100 at once.
    pub async fn list(&self, request: ListSessionsRequest) -> Result<SessionPage, ClientError> {
        self.call(request, SessionsApi::list_sessions).await
    }

    /// Returns the gates that wait for a person in all sessions, the most urgent first: at most 100, with long
    /// arguments shortened.
    pub async fn gates(&self) -> Result<Vec<PendingGate>, ClientError> {
        Ok(self.call(ListGatesRequest::default(), SessionsApi::list_gates).await?.gates)
    }

    /// The calls of clients' tools that wait in all sessions, the most urgent first: at most 100, with long arguments
    /// shortened.
    pub async fn waiting_calls(&self) -> Result<Vec<PendingCall>, ClientError> {
        Ok(self.call(ListClientCallsRequest::default(), SessionsApi::list_client_calls).await?.calls)
    }

    /// The agents that sessions may have, by key.
    pub async fn agents(&self) -> Result<Vec<Agent>, ClientError> {
        Ok(self.call(ListAgentsRequest {}, SessionsApi::list_agents).await?.agents)
    }

    /// The models that are described, by id.
    pub async fn models(&self) -> Result<Vec<Model>, ClientError> {
        Ok(self.call(ListModelsRequest {}, SessionsApi::list_models).await?.models)
    }

    /// The tools of the fleet that the tenant may use.
    pub async fn tools(&self) -> Result<Vec<FleetTool>, ClientError> {
        Ok(self.call(ListToolsRequest {}, SessionsApi::list_tools).await?.tools)
    }

    /// Makes any call of the API, with a timeout, and repeats it while that can help. It must be a call that the fleet
    /// handles once, such as a command with an id, or one that changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if a retry would not help, or with the last error after `retry_for`.
    pub async fn call<R: Clone, T>(
        &self,
        request: R,
        method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
    ) -> Result<T, ClientError> {
        self.connection.call(request, method).await
    }

    /// The generated client, which sends the key and repeats nothing. Clones share the connection.
    pub fn api(&self) -> SessionsApi {
        self.connection.api()
    }

    /// The address to which it is connected.
    pub fn url(&self) -> String {
        self.connection.url()
    }

    /// Connects again if [`ClientBuilder::locate`] names another address by now.
    ///
    /// # Errors
    ///
    /// Fails if nobody listens there.
    pub async fn reconnect_if_moved(&self) -> Result<(), ClientError> {
        self.connection.reconnect_if_moved().await
    }
}

/// Builder of a client, which connects when it is awaited.
#[derive(Clone)]
#[must_use = "nothing is connected until it is awaited"]
pub struct ClientBuilder {
    target: Target,
    retry_for: Duration,
    locate: Option<Locate>,
}

impl ClientBuilder {
    /// The API key. It is not sent over `http://` to another machine.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.target.api_key = Some(key.into());
        self
    }

    /// The PEM file of the authority that signed the certificate of the edge, if no public one did.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.target.ca_file = Some(path.into());
        self
    }

    /// Sends the key over `http://` to another machine too, where others can read it: for a network that you trust.
    pub fn allow_plaintext_key(mut self) -> Self {
        self.target.allows_plaintext_key = true;
        self
    }

    /// Sets the longest time that calls and streams wait for a fleet that cannot be reached; default 60 s.
    pub fn retry_for(mut self, duration: Duration) -> Self {
        self.retry_for = duration;
        self
    }

    /// Returns the present address of a fleet that may move, or `None` if it is not known. It is asked after a lost
    /// connection.
    pub fn locate(mut self, locate: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.locate = Some(Arc::new(locate));
        self
    }

    /// Checks the address, the key and the file of the authority, without connecting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) and
    /// [`ErrorKind::PlaintextKey`](crate::ErrorKind::PlaintextKey).
    pub fn check(&self) -> Result<(), ClientError> {
        self.target.endpoint()?;
        self.target.credentials().map(drop)
    }
}

impl IntoFuture for ClientBuilder {
    type Output = Result<Client, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let connection = EdgeConnection::open(self.target, self.locate, self.retry_for).await?;
            Ok(Client { connection })
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("url", &self.target.url).finish_non_exhaustive()
    }
}
