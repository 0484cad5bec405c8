//! A run: it begins a turn, or goes on with one by answers to its interrupts or results of the client's tools.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use contract::{AgentId, CallId, ErrorCode};
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, read_body};
use edge_core::turn::{self, BegunTurn, RequestIdentity, SessionChoice, TurnStream};
use edge_core::{params, request_trace};

use super::errors::to_response;
use super::input::RunInput;
use super::names::RunNames;
use super::reply::{RunReply, Waiting};
use super::snapshot::ThreadSnapshot;
use super::stream;
use super::thread::Thread;

/// Name of the request in spans and metrics.
const NAME: &str = "ag_ui.run";

/// Runs an agent for `POST /ag-ui/{agent}`.
pub(super) async fn run(State(state): State<HttpState>, Path(agent): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let answered = answer(&state, &parts, &agent, body);
    request_trace::run(NAME, None, trace, answered).await.unwrap_or_else(|error| to_response(&error))
}

async fn answer(state: &HttpState, parts: &Parts, agent: &str, body: Body) -> Result<Response, ApiError> {
    let caller = authenticate(state, parts).await?;
    let api = &state.api;
    turn::authorize_turns(api, &caller).await?;
    let agent = params::parse("agent", agent)?;
    let input = RunInput::parse(&read_body(state, body, &caller).await?)?;
    let names = RunNames::of(&input);
    let begun = match begin(api, &caller, agent, &input).await? {
        Begun::Run(begun) => begun,
        Begun::Refused(error) => return Ok(stream::send(RunReply::refuse(&names, &error))),
    };
    let followed = BegunTurn { seq: begun.from_seq, ..begun.turn.clone() };
    let turn = TurnStream::open(api, &caller, &followed, true).await?;
    let snapshot = ThreadSnapshot::new(api.budget().clone(), input.state, input.messages);
    let BegunTurn { session_id, seq, .. } = begun.turn;
    let mut reply = RunReply::new(names, session_id, seq, snapshot).continues(begun.waiting, begun.answered);
    let first = reply.begin();
    Ok(stream::follow(reply, first, turn))
}

/// A run that has begun, or one that the state of its thread does not allow.
enum Begun {
    Run(Box<BegunRun>),
    /// The protocol wants this as an event.
    Refused(ApiError),
}

struct BegunRun {
    /// Its `seq` is the same when the run is repeated, and so are the ids of messages.
    turn: BegunTurn,
    /// The turn is followed from the event after this one.
    from_seq: u64,
    /// Gates and calls that wait already when the run begins.
    waiting: Waiting,
    /// Calls that the client has answered.
    answered: Vec<CallId>,
}

async fn begin(api: &SessionApi, caller: &ApiCaller, agent: AgentId, input: &RunInput) -> Result<Begun, ApiError> {
    let thread = Thread::find(api, caller, &input.thread_id).await?;
    let results = input.call_results()?;
    if input.resume().is_empty() && results.is_empty() {
        return begin_turn(api, caller, agent, input, thread.as_ref()).await;
    }
    let Some(thread) = thread else {
        let message = format!("the thread {} has no session whose calls could be answered", input.thread_id);
        return Ok(Begun::Refused(ApiError::new(ErrorCode::UnknownSession, message)));
    };
    let mut answers = Vec::new();
    for entry in input.resume() {
        let (session, answer) = entry.to_answer()?;
        if session != *thread.session.id() {
            let message = format!("the interrupt of gate {} is of another thread", answer.gate);
            return Ok(Begun::Refused(ApiError::new(ErrorCode::GateClosed, message)));
        }
        answers.push(answer);
    }
    if let Some(result) = results.iter().find(|result| result.session != *thread.session.id()) {
        let message = format!("the call {} is of another thread", result.call);
        return Ok(Begun::Refused(ApiError::new(ErrorCode::UnknownCall, message)));
    }
    // With answers to interrupts, older results of the client may stand at the end of the messages.
    let is_resumed = !answers.is_empty();
    let results = results.into_iter().filter(|result| !is_resumed || thread.is_open(&result.call));
    let results: Vec<_> = results.collect();
    let gates = answers.iter().map(|answer| &answer.gate);
    let answered: Vec<CallId> = gates.chain(results.iter().map(|result| &result.call)).cloned().collect();
    let is_first_try = answered.iter().any(|call| thread.is_open(call));
    let unanswered = thread.gates.iter().find(|gate| !answered.contains(&gate.gate));
    if is_first_try && let Some(gate) = unanswered {
        return Ok(Begun::Refused(unanswered_gate(&gate.gate)));
    }
    let waiting = thread.left_after(&answered);
    let mut turns = Vec::new();
    for result in results {
        turns.push(turn::answer_calls(api, caller, vec![result]).await);
    }
    for answer in answers {
        turns.push(turn::answer_gate(api, caller, thread.session.id(), answer).await);
    }
    let mut first: Option<BegunTurn> = None;
    for turn in turns {
        match turn {
            // Between the answers there may be results of other calls.
            Ok(turn) => first = Some(first.filter(|first| first.seq < turn.seq).unwrap_or(turn)),
            Err(error) if is_stale(&error.code) => return Ok(Begun::Refused(error)),
            Err(error) => return Err(error),
        }
    }
    let turn = first.ok_or_else(|| ApiError::bad_request("there is no answer"))?;
    // What came between the look at the thread and the answer belongs to the run.
    let from_seq = if is_first_try { turn.seq.min(thread.seq) } else { turn.seq };
    Ok(Begun::Run(Box::new(BegunRun { turn, from_seq, waiting, answered })))
}

/// Begins a turn with the last message of the user, unless the thread waits for answers first.
async fn begin_turn(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: AgentId,
    input: &RunInput,
    thread: Option<&Thread>,
) -> Result<Begun, ApiError> {
    let id = format!("ag-ui\0{}\0{}", input.thread_id, input.run_id);
    let identity = RequestIdentity::of_id(&caller.name(), &id, b"");
    if let Some(thread) = thread
        && !(thread.gates.is_empty() && thread.client_calls.is_empty())
        && !turn::has_message(api, caller, thread.session.id(), &identity).await?
    {
        if let Some(gate) = thread.gates.first() {
            return Ok(Begun::Refused(unanswered_gate(&gate.gate)));
        }
        let calls: Vec<&str> = thread.client_calls.iter().map(|open| open.call.as_str()).collect();
        let message = format!(
            "the thread waits for results of its client, of the calls {}: send them as messages of the role `tool`",
            calls.join(", ")
        );
        return Ok(Begun::Refused(ApiError::new(ErrorCode::NotNow, message)));
    }
    let request = input.turn(agent)?;
    let choice = SessionChoice::Named(input.thread_id.clone());
    let turn = turn::begin_turn(api, caller, request, choice, &identity).await?;
    let from_seq = turn.seq;
    Ok(Begun::Run(Box::new(BegunRun { turn, from_seq, waiting: Waiting::default(), answered: Vec::new() })))
}

fn unanswered_gate(gate: &CallId) -> ApiError {
    let message = format!("the thread waits for a person at gate {gate}: answer all its interrupts with `resume`");
    ApiError::new(ErrorCode::NotNow, message)
}

/// Whether an answer came too late, or in vain.
fn is_stale(code: &ErrorCode) -> bool {
    [ErrorCode::GateClosed, ErrorCode::NotNow, ErrorCode::UnknownCall, ErrorCode::SessionEnded].contains(code)
}
