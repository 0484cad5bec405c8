//! The start of a session.

use std::fmt;
use std::future::IntoFuture;

use futures::future::BoxFuture;
use proto::StartSessionRequest;
use proto::json::from_value;
use serde_json::{Map, Value};

use crate::connection::{EdgeConnection, SessionsApi};
use crate::error::{ClientError, ErrorKind};
use crate::event::GateRequest;
use crate::gate::GateDecision;
use crate::local_tool::LocalTool;
use crate::responder::Handlers;
use crate::session::AgentSession;
use crate::session_context::{FirstMessage, SessionContext, new_key};
use crate::turn::TurnResult;

/// A session that is started when this is awaited.
#[must_use = "nothing is sent until it is awaited"]
pub struct StartSession {
    connection: EdgeConnection,
    /// Parameters of `session.start`, by name.
    fields: Map<String, Value>,
    handlers: Handlers,
    has_own_key: bool,
}

impl StartSession {
    pub(crate) fn new(connection: EdgeConnection) -> Self {
        let start = Self { connection, fields: Map::new(), handlers: Handlers::default(), has_own_key: false };
        start.option("command_id", new_key()).interactive(true)
    }

    /// The agent, by key or alias; the default one without this.
    pub fn agent(self, agent: impl Into<String>) -> Self {
        self.option("agent", agent.into())
    }

    /// The model, by id; that of the agent without this.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.option("model", model.into())
    }

    /// The first message, at most 1 MiB. [`AgentSession::current_turn`] follows its turn.
    pub fn prompt(self, prompt: impl Into<String>) -> Self {
        self.option("prompt", prompt.into())
    }

    /// Whether the session waits for more messages after its first turn, as without this.
    pub fn interactive(self, interactive: bool) -> Self {
        self.option("interactive", interactive)
    }

    /// The id of the session, 1 to 64 of `A-Z a-z 0-9 _ -`; the idempotency key without this.
    pub fn session_id(self, id: impl Into<String>) -> Self {
        self.option("session_id", id.into())
    }

    /// A key of your own, 1 to 64 of `A-Z a-z 0-9 _ -`. A program that was restarted finds its session again by it, and
    /// the session is started once.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.has_own_key = true;
        self.option("command_id", key.into())
    }

    /// Adds a function of this program that the agent may call.
    pub fn tool(mut self, tool: LocalTool) -> Self {
        self.handlers.tools.push(tool);
        self
    }

    /// Decides about each gate that opens while a turn is followed; `None` leaves the gate open.
    pub fn on_gate<F, Fut>(mut self, decide: F) -> Self
    where
        F: Fn(GateRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<GateDecision>> + Send + 'static,
    {
        self.handlers.set_gate_handler(decide);
        self
    }

    /// A further field of `session.start`, such as `continuation`, `features`, `limits` or `tools`.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// Starts a session of one turn, and waits for its result.
    ///
    /// # Errors
    ///
    /// As those of the start and of [`Turn::result`](crate::Turn::result).
    pub async fn run(self) -> Result<TurnResult, ClientError> {
        self.interactive(false).await?.current_turn().await
    }

    async fn start(self) -> Result<AgentSession, ClientError> {
        let Self { connection, mut fields, handlers, has_own_key } = self;
        if !handlers.tools.is_empty() {
            fields.insert("client_tools".to_owned(), handlers.tools.iter().map(LocalTool::describe).collect());
        }
        let mut request: StartSessionRequest = from_value(Value::Object(fields))
            .map_err(|error| ClientError::new(ErrorKind::BadRequest, "bad_request", error.to_string()))?;
        // The edge would make another id for a repeated start.
        request.session_id = request.session_id.or_else(|| request.command_id.clone());
        let message = request.command_id.clone().filter(|_| request.prompt.is_some());
        let reply = connection.call(request, SessionsApi::start_session).await?;
        // A session that was started with this key before has events of its own.
        let first_message = message.map(|id| FirstMessage { id, turn: reply.turn });
        let context = SessionContext::started(connection, reply.session_id, first_message, !has_own_key);
        Ok(AgentSession::new(context, handlers))
    }
}

impl IntoFuture for StartSession {
    type Output = Result<AgentSession, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl fmt::Debug for StartSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartSession").field("fields", &self.fields).finish_non_exhaustive()
    }
}
