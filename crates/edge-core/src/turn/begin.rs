//! Begins a turn for a request, or finds the one that an earlier try of the request has begun.

use contract::client_tool::{AnswerToolCall, ClientOutcome, ClientTool};
use contract::command::{Answer, AnswerDecision, MessageMode, ResumeFrom, SendUserMessage, Start, Verb};
use contract::commit::OpenGate;
use contract::event::{Event, GateKind, GateOpened, InputKind, InputRef};
use contract::model::Content;
use contract::subject::SessionKey;
use contract::tool::sha256_hex;
use contract::{CallId, CommandId, ErrorCode, SessionId};
use session::Session;
use session_api::{CommandReply, Method};

use super::client_tool_names;
use super::request::NewTurn;
use super::request_identity::RequestIdentity;
use crate::access::{self, ApiCaller};
use crate::api::{ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::commands;
use crate::params::{self, UnvalidatedCommand};
use crate::starts::ChosenId;

/// Sessions of one name, of which all but the last have ended.
pub const GENERATIONS_MAX: u32 = 16;

/// The session of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChoice {
    /// A session of its own.
    New {
        /// Whether later turns may follow.
        interactive: bool,
    },
    /// The session of this id, or that of a name which the client chose: the first request of a name starts one, and one
    /// that has ended is followed by another.
    Named(String),
    /// A session that must be there.
    Existing(SessionId),
    /// A session that must be there, and that keeps the tools which its client brought before.
    Unchanged(SessionId),
    /// A session of its own that begins with what another one has done so far, for later turns too.
    Branch(ResumeFrom),
    /// A session that has begun under this id. Once it has ended, others follow it that go on where it ended.
    Continued(SessionId),
    /// The session of an id that the client chose, which is started if it is not there.
    Chosen(SessionId),
}

/// A turn that has begun, or that will begin once earlier ones have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunTurn {
    /// Session of the turn.
    pub session_id: SessionId,
    /// The slot of the commit that began or continued it.
    pub slot: u64,
    /// The last event before those that follow from the request.
    pub seq: u64,
    /// Whether the turn runs or waits.
    pub start: TurnStart,
}

/// Turn that answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnStart {
    /// The turn that runs.
    Running,
    /// The turn of a message that waits for the end of earlier ones.
    Waiting {
        /// Command of the message that waits.
        message: CommandId,
    },
}

/// The result of a call that a client performed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenResult {
    /// Session of the call.
    pub session: SessionId,
    /// Id of the call.
    pub call: CallId,
    /// Outcome, as the client says it.
    pub outcome: ClientOutcome,
    /// Text for the model.
    pub content: String,
}

/// Checks that a caller may begin turns and follow them.
pub async fn authorize_turns(api: &SessionApi, caller: &ApiCaller) -> Result<(), ApiError> {
    api.authorize(caller, Method::StartSession, None).await?;
    access::authorize_part(caller, Method::SendMessage)?;
    access::authorize_part(caller, Method::WatchSession)
}

/// Begins the turn of a request. A repeated request finds the turn of the first one.
pub async fn begin_turn(
    api: &SessionApi,
    caller: &ApiCaller,
    mut request: NewTurn,
    choice: SessionChoice,
    identity: &RequestIdentity,
) -> Result<BegunTurn, ApiError> {
    client_tool_names::rename_taken(api, caller, &mut request).await?;
    // Nothing of this waits for the other. A repetition comes later than both.
    let (reply, ()) = tokio::join!(Box::pin(send_request(api, caller, request, choice, identity)), identity.note());
    let CommandReply { session_id, command_id, done, seq, turn, slot } = reply?;
    if !done {
        let message = "the message is stored, but its turn has not begun in time: repeat the request";
        return Err(ApiError::unavailable(message));
    }
    let start = match turn {
        Some(_) => TurnStart::Running,
        None => TurnStart::Waiting { message: command_id },
    };
    Ok(BegunTurn { session_id, slot, seq, start })
}

/// Sends the command that begins the turn of a request.
async fn send_request(
    api: &SessionApi,
    caller: &ApiCaller,
    request: NewTurn,
    choice: SessionChoice,
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    match choice {
        SessionChoice::New { interactive } => {
            start_own_session(api, caller, request.into_start(interactive), identity).await
        }
        SessionChoice::Branch(from) => {
            let start = Start { resume_from: Some(from), ..request.into_start(true) };
            start_own_session(api, caller, start, identity).await
        }
        SessionChoice::Continued(session) => continue_after_end(api, caller, &session, request, identity).await,
        SessionChoice::Named(name) => continue_named(api, caller, &name, request, identity).await,
        SessionChoice::Existing(session) => {
            api.reach(caller, &session).await?;
            let command = choose(api, caller, identity, Some(&session)).await?.id;
            send_message(api, caller, &session, &command, &request).await
        }
        SessionChoice::Unchanged(session) => {
            api.reach(caller, &session).await?;
            let command = choose(api, caller, identity, Some(&session)).await?.id;
            send_content(api, caller, &session, &command, request.prompt, None).await
        }
        SessionChoice::Chosen(session) => {
            let start = Some(request.clone().into_start(true));
            let sent = send_or_start(api, caller, &session, &request, start, identity).await?;
            sent.ok_or_else(|| ApiError::new(ErrorCode::SessionEnded, format!("session {session} has ended")))
        }
    }
}

/// Starts the session of a request. Its events are kept, since its turn is followed next.
async fn start_own_session(
    api: &SessionApi,
    caller: &ApiCaller,
    start: Start,
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    let choosing = choose(api, caller, identity, None);
    Box::pin(api.start_chosen(caller, start, choosing)).await?.wait().await
}

/// Whether an earlier try of a request has sent its message to a session.
pub async fn has_message(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    identity: &RequestIdentity,
) -> Result<bool, ApiError> {
    Ok(!choose(api, caller, identity, Some(session)).await?.is_unused)
}

/// Answers calls of the client's tools, after which their turn goes on. A repeated answer changes nothing.
pub async fn answer_calls(
    api: &SessionApi,
    caller: &ApiCaller,
    results: Vec<GivenResult>,
) -> Result<BegunTurn, ApiError> {
    if results.iter().any(|result| result.session != results[0].session) {
        return Err(ApiError::bad_request("the results are of calls of several sessions: send them one by one"));
    }
    access::authorize_part(caller, Method::AnswerToolCall)?;
    let mut last: Option<BegunTurn> = None;
    for GivenResult { session, call, outcome, content } in results {
        let id = format!("answer-{}", &sha256_hex(format!("{call} {content}").as_bytes())[..32]);
        let body = AnswerToolCall { call, outcome, content };
        let reply = api.perform(caller, commands::ANSWER_CALL, &session, &id, body).await?;
        let begun = BegunTurn::running(reply)?;
        // The turn goes on after the last of them, whatever their order.
        last = Some(last.filter(|last| last.seq > begun.seq).unwrap_or(begun));
    }
    last.ok_or_else(|| ApiError::bad_request("there is no result"))
}

/// Answers a gate, after which its turn goes on. A repeated answer changes nothing.
pub async fn answer_gate(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    answer: Answer,
) -> Result<BegunTurn, ApiError> {
    access::authorize_part(caller, Method::AnswerGate)?;
    let id = answer_id(&answer)?;
    BegunTurn::running(api.perform(caller, commands::ANSWER, session, &id, answer).await?)
}

/// Makes the answer to a gate. One that is closed refuses it, unless it is the answer that closed the gate.
pub fn answer_to_gate(open: &[OpenGate], gate: CallId, decision: AnswerDecision) -> Answer {
    let found = open.iter().find(|open| open.gate == gate);
    let arguments_sha256 = found.map_or_else(|| sha256_hex(b""), |open| open.arguments_sha256.clone());
    Answer::new(gate, arguments_sha256, decision)
}

/// Makes the answer to a question of the model.
pub fn answer_to_question(gate: CallId, arguments_sha256: String, text: String) -> Answer {
    Answer { content: Some(text), ..Answer::new(gate, arguments_sha256, AnswerDecision::Answer) }
}

/// Finds the question that a session had this text as its answer for, among its last commits.
pub async fn find_answered_question(
    api: &SessionApi,
    reached: &ReachedSession,
    session: &Session,
    text: &str,
) -> Result<Option<CallId>, ApiError> {
    let commits = api.cell_of(reached).await?.bus.load_latest(reached.key()).await?.unwrap_or_default();
    let events = commits.iter().rev().flat_map(|(_, commit)| commit.events.iter().rev());
    for event in events {
        let Event::GateOpened(GateOpened { gate, kind: GateKind::Question, .. }) = event else { continue };
        let id = answer_id(&answer_to_question(gate.clone(), String::new(), text.to_owned()))?;
        let input = InputRef { kind: InputKind::Control(Verb::Answer), id: params::parse("command_id", &id)? };
        if session.handled(&input).is_some() {
            return Ok(Some(gate.clone()));
        }
    }
    Ok(None)
}

/// Returns the id of the command of an answer. A repeated request does not know the arguments of a gate that is closed.
fn answer_id(answer: &Answer) -> Result<String, ApiError> {
    let Answer { gate, arguments_sha256: _, decision, arguments, content, note } = answer;
    let text = serde_json::to_vec(&(gate, decision, arguments, content, note))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(format!("gate-{}", &sha256_hex(&text)[..32]))
}

impl BegunTurn {
    fn running(reply: CommandReply) -> Result<Self, ApiError> {
        let CommandReply { session_id, slot, seq, done, .. } = reply;
        if !done {
            let message = "the answer is stored, but the session has not handled it in time: repeat the request";
            return Err(ApiError::unavailable(message));
        }
        Ok(Self { session_id, slot, seq, start: TurnStart::Running })
    }
}

impl NewTurn {
    fn into_start(self, interactive: bool) -> Start {
        let Self { agent, prompt, history, client_tools } = self;
        let (agent, prompt) = (Some(agent), Some(prompt));
        Start { agent, prompt, messages: history, interactive, client_tools, ..Start::default() }
    }
}

/// Sends the message to the session of a name, and starts the session if there is none.
async fn continue_named(
    api: &SessionApi,
    caller: &ApiCaller,
    name: &str,
    request: NewTurn,
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    if let Ok(session) = params::parse_session_id(name)
        && api.is_session_known(caller, &session).await?
    {
        api.reach(caller, &session).await?;
        let command = choose(api, caller, identity, Some(&session)).await?.id;
        return send_message(api, caller, &session, &command, &request).await;
    }
    for generation in 0..GENERATIONS_MAX {
        let session = params::parse_session_id(&session_of_name(caller, name, generation))?;
        let start = Some(request.clone().into_start(true));
        if let Some(reply) = send_or_start(api, caller, &session, &request, start, identity).await? {
            return Ok(reply);
        }
    }
    let message = format!("the last {GENERATIONS_MAX} sessions of this name have ended: choose another name");
    Err(ApiError::new(ErrorCode::SessionEnded, message))
}

/// Sends the message to a session, and starts the session if it is not there. Returns nothing if the session has ended.
async fn send_or_start(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    request: &NewTurn,
    start: Option<Start>,
    identity: &RequestIdentity,
) -> Result<Option<CommandReply>, ApiError> {
    api.reach_or_absent(caller, session).await?;
    let command = choose(api, caller, identity, Some(session)).await?.id;
    // A repetition of the request that started the session must not be a message to it.
    let has_started = identity.is_retry
        && api.find_message(caller, session, &params::parse("command_id", &command)?).await? == Some(Verb::Start);
    // While a cell is missing, only a start tells that no other one has the session.
    let is_new = start.is_some() && api.cells().are_several() && !api.is_session_known(caller, session).await?;
    if !has_started && !is_new {
        match send_message(api, caller, session, &command, request).await {
            Err(error) if error.code == ErrorCode::SessionEnded => return Ok(None),
            Err(error) if error.code == ErrorCode::UnknownSession && start.is_some() => {}
            outcome => return outcome.map(Some),
        }
    }
    let key = SessionKey { tenant: caller.tenant.clone(), session: session.clone() };
    let start = start.ok_or_else(|| SessionApi::unknown_session(&key))?;
    match send_start(api, caller, session, &command, start).await {
        // Another request has started it meanwhile.
        Err(error) if error.code == ErrorCode::SessionExists => {
            send_message(api, caller, session, &command, request).await.map(Some)
        }
        outcome => outcome.map(Some),
    }
}

/// Sends the message to the last session that follows one, and starts another if that has ended too.
async fn continue_after_end(
    api: &SessionApi,
    caller: &ApiCaller,
    first: &SessionId,
    request: NewTurn,
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    let mut ended: Option<SessionId> = None;
    for generation in 0..GENERATIONS_MAX {
        let session = successor(first, generation)?;
        let start = ended.map(|session_id| {
            let from = ResumeFrom { session_id, at: None };
            Start { resume_from: Some(from), ..request.clone().into_start(true) }
        });
        if let Some(reply) = send_or_start(api, caller, &session, &request, start, identity).await? {
            return Ok(reply);
        }
        ended = Some(session);
    }
    let message = format!("the session {first} and the {GENERATIONS_MAX} that followed it have ended");
    Err(ApiError::new(ErrorCode::SessionEnded, message))
}

/// Returns the id of a session that follows another one, by its number from 1; number 0 is that one.
pub fn successor(first: &SessionId, generation: u32) -> Result<SessionId, ApiError> {
    if generation == 0 {
        return Ok(first.clone());
    }
    params::parse_session_id(&format!("{first}-{generation}"))
}

/// Returns the id of the session of a name: tenants and their names share nothing.
pub(super) fn session_of_name(caller: &ApiCaller, name: &str, generation: u32) -> String {
    let digest = sha256_hex(format!("{}\0{name}\0{generation}", caller.tenant).as_bytes());
    format!("chat-{}", &digest[..32])
}

async fn send_message(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    command: &str,
    request: &NewTurn,
) -> Result<CommandReply, ApiError> {
    send_content(api, caller, session, command, request.prompt.clone(), Some(request.client_tools.clone())).await
}

/// Sends a message. Tools of the client replace those that it brought before.
async fn send_content(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    command: &str,
    content: Content,
    client_tools: Option<Vec<ClientTool>>,
) -> Result<CommandReply, ApiError> {
    let body = SendUserMessage { content, mode: MessageMode::Queue, client_tools };
    api.perform(caller, commands::SEND, session, command, body).await
}

async fn send_start(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    command: &str,
    start: Start,
) -> Result<CommandReply, ApiError> {
    let start = UnvalidatedCommand::new(session.as_str(), command, true, start)?;
    Box::pin(api.start(caller, start)).await?.wait().await
}

/// Chooses the id of a request: that of its earlier try, or else a new one. It is the id of a message in a session, or
/// else that of a session.
async fn choose(
    api: &SessionApi,
    caller: &ApiCaller,
    identity: &RequestIdentity,
    session: Option<&SessionId>,
) -> Result<ChosenId, ApiError> {
    for id in identity.known_ids() {
        let is_known = match session {
            Some(session) => api.find_message(caller, session, &params::parse("command_id", id)?).await?.is_some(),
            None => api.is_session_known(caller, &params::parse_session_id(id)?).await?,
        };
        if is_known {
            return Ok(ChosenId { id: id.to_owned(), is_unused: false });
        }
    }
    Ok(ChosenId { id: identity.id().to_owned(), is_unused: true })
}
