//! Begins the turn of a request for a response, or continues one that waits for the client.

use std::collections::BTreeSet;

use contract::command::{Answer, AnswerDecision, Configure, ResumeFrom};
use contract::commit::Phase;
use contract::event::GateKind;
use contract::tool::sha256_hex;
use contract::{AgentId, ErrorCode, SessionId};
use edge_core::access::{self, ApiCaller};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::turn::{self, BegunTurn, ClientTurn, NewTurn, RequestIdentity, SessionChoice, before_message};
use edge_core::{commands, params};
use session::Session;
use session_api::Method;

use super::ids::{self, ResponseId};
use super::request::{ClientAnswers, Continuation, ResponseRequest};
use super::{input, references, stored};

/// Begins or continues the turn of a request.
pub(super) async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    request: &ResponseRequest,
    identity: &RequestIdentity,
) -> Result<BegunTurn, ApiError> {
    let (answers, continuation) = (request.answers()?, request.continuation()?);
    let mut lost = None;
    if !answers.is_empty() {
        let is_history = continuation == Continuation::Nothing && answers.approvals.is_empty();
        match answer(api, caller, answers).await {
            // The input may say what the session did that is not there any more.
            Err(error) if is_history && [ErrorCode::UnknownSession, ErrorCode::SessionEnded].contains(&error.code) => {
                lost = Some(error);
            }
            answered => return answered,
        }
    }
    let session = match &continuation {
        Continuation::Nothing => None,
        Continuation::Conversation(first) => Some(find_last(api, caller, first).await?),
        Continuation::Previous(response) => Some(load(api, caller, &response.session).await?),
    };
    // What a session has, it knows.
    let mut messages = match &session {
        None => {
            let input = references::resolve(api, caller, request.input()).await?;
            input::to_turn(&input).map_err(|error| lost.unwrap_or(error))?
        }
        Some(_) => ClientTurn { history: Vec::new(), ..input::to_next_turn(&request.input())? },
    };
    if let Some(session) = &session
        && let Some(begun) = answer_question(api, caller, session, &messages, identity).await?
    {
        return Ok(begun);
    }
    let choice = match continuation {
        Continuation::Nothing => SessionChoice::New { interactive: false },
        Continuation::Conversation(first) => SessionChoice::Continued(first),
        Continuation::Previous(response) => match &session {
            Some(session) => continue_or_branch(api, caller, &response, session, identity).await?,
            None => SessionChoice::Existing(response.session),
        },
    };
    if let Some(session) = &session
        && matches!(choice, SessionChoice::Existing(_) | SessionChoice::Continued(_))
        && !turn::has_message(api, caller, &session.key().session, identity).await?
    {
        check_waits_for_nothing(session)?;
    }
    let instructions: Vec<String> = request
        .instructions()
        .map(str::to_owned)
        .into_iter()
        .chain(std::mem::take(&mut messages.instructions))
        .collect();
    let instructions = instructions.join("\n\n");
    let is_known = || session.as_ref().is_some_and(|session| has_instructions(session, &instructions));
    if !instructions.trim().is_empty() && !is_known() {
        messages.instructions = vec![instructions];
    }
    let ClientTurn { prompt, history, .. } = messages.with_instructions();
    let agent = choose_agent(api, caller, request, session.as_ref(), &choice).await?;
    let request = NewTurn { agent, prompt, history, client_tools: request.client_tools()? };
    turn::begin_turn(api, caller, request, choice, identity).await
}

/// Refuses a message to a turn that waits for answers to gates, or for results of the client.
fn check_waits_for_nothing(session: &Session) -> Result<(), ApiError> {
    let id = session.key().session;
    let (gates, calls) = (session.gates(), session.client_calls());
    let approvals: Vec<String> = gates.iter().map(|gate| ids::approval(&id, &gate.gate)).collect();
    let calls: Vec<String> = calls.iter().map(|open| turn::call_id(&id, &open.call)).collect();
    let (code, missing) = match (approvals.is_empty(), calls.is_empty()) {
        (true, true) => return Ok(()),
        (true, false) => (ErrorCode::BadRequest, format!("`function_call_output` for {}", calls.join(", "))),
        (false, is_all) => {
            let approvals = format!("`mcp_approval_response` for {}", approvals.join(", "));
            let calls =
                if is_all { String::new() } else { format!(", and `function_call_output` for {}", calls.join(", ")) };
            (ErrorCode::ApprovalRequired, approvals + &calls)
        }
    };
    Err(ApiError::new(
        code,
        format!("the response waits for answers, so that no message can follow it yet: send {missing}"),
    ))
}

/// Answers everything that a turn waits for. The turn goes on when nothing is left, so all of it must be there at once.
async fn answer(api: &SessionApi, caller: &ApiCaller, answers: ClientAnswers) -> Result<BegunTurn, ApiError> {
    let sessions: BTreeSet<&SessionId> = answers
        .results
        .iter()
        .map(|result| &result.session)
        .chain(answers.approvals.iter().map(|one| &one.session))
        .collect();
    let Some(session) = sessions.first().filter(|_| sessions.len() == 1).map(|session| (*session).clone()) else {
        return Err(ApiError::bad_request("the answers are for several sessions: send them one by one"));
    };
    let state = load(api, caller, &session).await?;
    let (gates, calls) = (state.gates(), state.client_calls());
    let open = gates.iter().map(|gate| &gate.gate).chain(calls.iter().map(|call| &call.call));
    let answered: BTreeSet<_> =
        answers.approvals.iter().map(|one| &one.gate).chain(answers.results.iter().map(|one| &one.call)).collect();
    let (known, missing): (Vec<_>, Vec<_>) = open.partition(|id| answered.contains(id));
    // Answers to nothing that is open are repeated ones, whatever the session waits for now.
    if !known.is_empty() && !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().map(contract::CallId::as_str).collect();
        let message = format!("the session waits for {} too: answer everything in one request", missing.join(", "));
        return Err(ApiError::bad_request(message));
    }
    let mut last: Option<BegunTurn> = None;
    for approval in answers.approvals {
        let decision = if approval.is_approved { AnswerDecision::Approve } else { AnswerDecision::Deny };
        let answer = Answer { note: approval.note, ..turn::answer_to_gate(&gates, approval.gate, decision) };
        let begun = turn::answer_gate(api, caller, &session, answer).await?;
        last = Some(last.filter(|last| last.seq > begun.seq).unwrap_or(begun));
    }
    if !answers.results.is_empty() {
        let begun = turn::answer_calls(api, caller, answers.results).await?;
        last = Some(last.filter(|last| last.seq > begun.seq).unwrap_or(begun));
    }
    last.ok_or_else(|| ApiError::bad_request("there is no answer"))
}

/// Answers the question that the turn waits with. `None` if there is none.
async fn answer_question(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &Session,
    messages: &ClientTurn,
    identity: &RequestIdentity,
) -> Result<Option<BegunTurn>, ApiError> {
    let (id, text) = (session.key().session, messages.prompt.text());
    // The first try of a repeated request has closed its gate; another one may be open since.
    let answered = if identity.is_retry() {
        let reached = api.reach(caller, &id).await?;
        turn::find_answered_question(api, &reached, session, &text).await?
    } else {
        None
    };
    let open = || session.gates().into_iter().find(|gate| gate.kind == GateKind::Question);
    let (gate, arguments_sha256) = match (answered, open()) {
        (Some(gate), _) => (gate, sha256_hex(b"")),
        (None, Some(gate)) => (gate.gate, gate.arguments_sha256),
        (None, None) => return Ok(None),
    };
    let answer = turn::answer_to_question(gate, arguments_sha256, text);
    turn::answer_gate(api, caller, &id, answer).await.map(Some)
}

/// Continues the session of a response if it was the last one there, and branches off where it ended otherwise.
async fn continue_or_branch(
    api: &SessionApi,
    caller: &ApiCaller,
    response: &ResponseId,
    session: &Session,
    identity: &RequestIdentity,
) -> Result<SessionChoice, ApiError> {
    // Its first try has made a later turn there, from which this request must not branch off.
    if turn::has_message(api, caller, &response.session, identity).await? {
        return Ok(SessionChoice::Existing(response.session.clone()));
    }
    let stored = stored::find(api, caller, response).await?;
    let is_last = |turn| session.phase() != Phase::Ended && session.turns() <= turn;
    if stored.turn.is_some_and(is_last) {
        return Ok(SessionChoice::Existing(response.session.clone()));
    }
    let replayed = stored::replay(api, caller, response, &stored).await?;
    match (replayed.turn, replayed.end) {
        (Some(turn), Some(at)) if !is_last(turn) => {
            Ok(SessionChoice::Branch(ResumeFrom { session_id: response.session.clone(), at: Some(at) }))
        }
        (_, _) => Ok(SessionChoice::Existing(response.session.clone())),
    }
}

/// Chooses the agent, and gives it to the session if it has another one.
async fn choose_agent(
    api: &SessionApi,
    caller: &ApiCaller,
    request: &ResponseRequest,
    session: Option<&Session>,
    choice: &SessionChoice,
) -> Result<AgentId, ApiError> {
    let current = session.map(|session| session.summary().agent);
    let Some(model) = request.model.as_ref().or(current.as_ref()) else {
        return Err(ApiError::bad_request("`model` is missing: GET /models lists the agents"));
    };
    let named: AgentId = params::parse("model", model)?;
    let is_new = matches!(choice, SessionChoice::New { .. } | SessionChoice::Branch(_));
    let Some(session) = session.filter(|session| !is_new && session.phase() != Phase::Ended) else { return Ok(named) };
    if current.as_deref() == Some(named.as_str()) {
        return Ok(named);
    }
    // It may be another name of the agent that the session has.
    let agents = api.list_agents(caller).await?;
    let agent = agents.into_iter().find(|agent| agent.is_named(model)).map_or(named, |agent| agent.id);
    if current.as_deref() != Some(agent.as_str()) {
        access::authorize_part(caller, Method::ConfigureSession)?;
        let body = Configure { agent: Some(agent.clone()), ..Configure::default() };
        api.perform(caller, commands::CONFIGURE, &session.key().session, "", body).await?;
    }
    Ok(agent)
}

/// Loads a session that the caller reaches.
pub(super) async fn load(api: &SessionApi, caller: &ApiCaller, session: &SessionId) -> Result<Session, ApiError> {
    api.load_session(&api.reach(caller, session).await?).await
}

/// Loads the last session of a conversation that there is.
pub(super) async fn find_last(api: &SessionApi, caller: &ApiCaller, first: &SessionId) -> Result<Session, ApiError> {
    let mut last = load(api, caller, first).await?;
    for generation in 1.. {
        if last.phase() != Phase::Ended {
            break;
        }
        let next = turn::successor(first, generation)?;
        if generation >= turn::GENERATIONS_MAX || !api.is_session_known(caller, &next).await? {
            break;
        }
        last = load(api, caller, &next).await?;
    }
    Ok(last)
}

/// Whether the last instructions in a session are these.
fn has_instructions(session: &Session, instructions: &str) -> bool {
    let (any, these) = (before_message(""), before_message(instructions));
    let head = any.lines().next().unwrap_or_default();
    let messages = session.export_transcript();
    let last = messages.iter().rev().find_map(|message| {
        let contract::model::Message::User { content } = message else { return None };
        Some(content.text()).filter(|text| text.starts_with(head))
    });
    last.is_some_and(|text| text.starts_with(&these))
}
