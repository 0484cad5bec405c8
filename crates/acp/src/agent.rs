//! The requests of the editor: those about the connection are answered here, those about a session by its worker.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::ErrorCode;
use fleet_connection::client::{SessionsApi, command_id, session_id};
use serde_json::{Value, json};
use service::tasks::Tasks;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::edge_link::EdgeLink;
use super::listing::{self, ListParams};
use super::peer::Peer;
use super::prompt::content_of;
use super::requests::{
    InitializeParams, OpenParams, PromptParams, SessionParams, SetParams, initialize_answer, mcp_notice,
};
use super::session::{SessionCommand, SessionWorker};
use super::settings::{Choices, SettingName};
use super::wire::{Incoming, RpcError, parse, parse_params};

/// Sessions that one editor has open.
const SESSIONS_MAX: usize = 64;
/// Requests of one session that wait for its worker.
const COMMANDS_MAX: usize = 16;
/// Requests about no session that run at the same time.
const REQUESTS_MAX: usize = 16;

/// Answers the requests of one editor.
pub(super) struct Agent {
    shared: Arc<Shared>,
    running: Arc<Semaphore>,
    /// Abilities of the editor; none before `initialize`.
    client: Option<ClientAbilities>,
}

/// State that the tasks of requests share.
struct Shared {
    peer: Peer,
    link: Arc<EdgeLink>,
    tasks: Tasks,
    default_agent: String,
    sessions: Mutex<HashMap<String, SessionHandle>>,
}

/// A session with a worker.
#[derive(Debug, Clone)]
struct SessionHandle {
    commands: mpsc::Sender<SessionCommand>,
    cancel: Arc<Notify>,
    cwd: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct ClientAbilities {
    has_forms: bool,
}

impl Agent {
    pub(super) fn new(peer: Peer, link: Arc<EdgeLink>, tasks: Tasks, default_agent: String) -> Self {
        let sessions = Mutex::default();
        let shared = Arc::new(Shared { peer, link, tasks, default_agent, sessions });
        Self { shared, running: Arc::new(Semaphore::new(REQUESTS_MAX)), client: None }
    }

    /// Answers a line that was too long.
    pub(super) async fn refuse_long_line(&self, bytes_max: usize) {
        self.shared.peer.answer(&Value::Null, &Err(RpcError::long_line(bytes_max))).await;
    }

    /// Takes a line of the editor.
    pub(super) async fn take(&mut self, line: &[u8]) {
        match parse(line) {
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.begin(&id, &method, params).await {
                    self.shared.peer.answer(&id, &Err(error)).await;
                }
            }
            Ok(Incoming::Notification { method, params }) if method == "session/cancel" => {
                if let Ok(SessionParams { session_id }) = parse_params(&method, params)
                    && let Some(handle) = self.shared.lock().get(&session_id)
                {
                    handle.cancel.notify_one();
                }
            }
            // The protocol asks to ignore notifications that are not known.
            Ok(Incoming::Notification { .. }) => {}
            Ok(Incoming::Response { id, outcome }) => self.shared.peer.resolve(id, outcome),
            Err((id, error)) => self.shared.peer.answer(&id, &Err(error)).await,
        }
    }

    /// Begins a request; the task that performs the request answers it.
    async fn begin(&mut self, id: &Value, method: &str, params: Value) -> Result<(), RpcError> {
        if method == "initialize" {
            let InitializeParams { client_capabilities } = parse_params(method, params)?;
            let has_forms = client_capabilities.pointer("/elicitation/form").is_some_and(Value::is_object);
            self.client = Some(ClientAbilities { has_forms });
            self.shared.peer.answer(id, &Ok(initialize_answer())).await;
            return Ok(());
        }
        let Some(client) = self.client else {
            return Err(RpcError::new(ErrorCode::NotNow, "the first request must be initialize"));
        };
        match method {
            "session/new" => {
                let params: OpenParams = parse_params(method, params)?;
                let shared = self.shared.clone();
                self.run(id, async move { shared.new_session(params, client).await })
            }
            "session/list" => {
                let params: ListParams = parse_params(method, params)?;
                let shared = self.shared.clone();
                self.run(id, async move { shared.list_sessions(params).await })
            }
            "session/load" | "session/resume" => {
                let params: OpenParams = parse_params(method, params)?;
                let command = SessionCommand::Load { id: id.clone(), is_shown: method == "session/load" };
                self.shared.load_session(params, client, command)
            }
            "session/prompt" => {
                let PromptParams { session_id, prompt } = parse_params(method, params)?;
                let content = content_of(prompt)?;
                self.shared.pass(&session_id, SessionCommand::Prompt { id: id.clone(), content })
            }
            "session/set_config_option" => {
                let SetParams { session_id, config_id, value } = parse_params(method, params)?;
                let name = SettingName::parse(&config_id)?;
                self.shared.pass(&session_id, SessionCommand::Set { id: id.clone(), name, value })
            }
            "session/close" => {
                let SessionParams { session_id } = parse_params(method, params)?;
                self.shared.pass(&session_id, SessionCommand::Close { id: id.clone() })
            }
            _ => Err(RpcError::new(ErrorCode::UnknownMethod, format!("there is no method {method:?}"))),
        }
    }

    /// Performs a request beside others, and answers it.
    fn run(
        &self,
        id: &Value,
        request: impl Future<Output = Result<Value, RpcError>> + Send + 'static,
    ) -> Result<(), RpcError> {
        let Ok(permit) = self.running.clone().try_acquire_owned() else {
            let message = format!("{REQUESTS_MAX} requests run already; wait for their answers");
            return Err(RpcError::new(ErrorCode::Overloaded, message));
        };
        let (peer, id, ending) = (self.shared.peer.clone(), id.clone(), self.shared.tasks.token());
        self.shared.tasks.spawn("acp-request", async move {
            let _permit = permit;
            if let Some(outcome) = ending.run_until_cancelled(request).await {
                peer.answer(&id, &outcome).await;
            }
        });
        Ok(())
    }
}

impl Shared {
    /// Prepares a session, which begins with its first prompt.
    async fn new_session(self: Arc<Self>, params: OpenParams, client: ClientAbilities) -> Result<Value, RpcError> {
        let catalogue = self.link.catalogue().await?;
        let agent = match self.default_agent.as_str() {
            "" => String::new(),
            name => catalogue.find_agent(name)?.id.clone(),
        };
        let choices = Choices { agent, model: String::new() };
        let session = command_id();
        let answer = json!({"sessionId": session, "configOptions": catalogue.options(&choices)});
        let worker = SessionWorker::new(session.clone(), self.peer.clone(), self.link.clone(), client.has_forms)
            .with_choices(catalogue, choices)
            .with_notice(mcp_notice(&params));
        self.open(session, params.cwd, worker)?;
        Ok(answer)
    }

    async fn list_sessions(&self, params: ListParams) -> Result<Value, RpcError> {
        let reply = self.link.call(params.request(), SessionsApi::list_sessions).await?;
        // A session has no directory: that of this editor, where it is open here, else the one that is asked about.
        let elsewhere = params.cwd.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let cwd_of = |session: &str| self.lock().get(session).map(|handle| handle.cwd.clone());
        Ok(listing::answer(&reply, |session| cwd_of(session).unwrap_or_else(|| elsewhere.clone())))
    }

    fn load_session(
        self: &Arc<Self>,
        params: OpenParams,
        client: ClientAbilities,
        command: SessionCommand,
    ) -> Result<(), RpcError> {
        let Some(session) = &params.session_id else {
            return Err(RpcError::new(ErrorCode::BadRequest, "`sessionId` is missing"));
        };
        let session = session_id(session)?;
        if !self.lock().contains_key(&session) {
            let worker = SessionWorker::new(session.clone(), self.peer.clone(), self.link.clone(), client.has_forms)
                .with_notice(mcp_notice(&params));
            self.open(session.clone(), params.cwd, worker)?;
        }
        self.pass(&session, command)
    }

    /// Starts the worker of a session.
    fn open(self: &Arc<Self>, session: String, cwd: PathBuf, worker: SessionWorker) -> Result<(), RpcError> {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let cancel = Arc::new(Notify::new());
        {
            let mut sessions = self.lock();
            if sessions.len() >= SESSIONS_MAX {
                let message = format!("{SESSIONS_MAX} sessions are open; close some of them");
                return Err(RpcError::new(ErrorCode::Overloaded, message));
            }
            sessions.insert(session.clone(), SessionHandle { commands: sender, cancel: cancel.clone(), cwd });
        }
        let (shared, ending) = (self.clone(), self.tasks.token());
        self.tasks.spawn("acp-session", async move {
            ending.run_until_cancelled(Box::pin(worker.run(commands, cancel))).await;
            shared.lock().remove(&session);
        });
        Ok(())
    }

    /// Passes a request on to the worker of its session.
    fn pass(&self, session: &str, command: SessionCommand) -> Result<(), RpcError> {
        let handle = self.lock().get(session).cloned().ok_or_else(|| not_open(session))?;
        handle.commands.try_send(command).map_err(|refused| match refused {
            TrySendError::Closed(_) => not_open(session),
            TrySendError::Full(_) => {
                let message = format!("{COMMANDS_MAX} requests of the session wait; wait for their answers");
                RpcError::new(ErrorCode::Overloaded, message)
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, SessionHandle>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_open(session: &str) -> RpcError {
    let message = format!("the session {session:?} is not open here; load it, or begin a new one");
    RpcError::new(ErrorCode::UnknownSession, message)
}
