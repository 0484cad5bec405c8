//! `SendMessage` and `SendStreamingMessage`: a message begins a turn, or answers a task that waits.

use contract::model::{Content, ImageUrl, Part};
use contract::{AgentId, ErrorCode, Json, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::params;
use edge_core::turn::{self, NewTurn, RequestIdentity, SessionChoice};
use session_api::{AgentInfo, Method};

use super::answer::{TaskAnswer, answer_id};
use super::errors::{A2aError, A2aErrorKind};
use super::loaded_task::LoadedTask;
use super::requests::{MessagePart, SendParams, UserMessage, parse_task_id};
use super::task_id::TaskId;

/// Bytes of an id that a client gives to its message.
const MESSAGE_ID_BYTES_MAX: usize = 256;

/// Sends the message; returns the task that it began or answered.
pub(super) async fn send(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    params: &SendParams,
) -> Result<LoadedTask, A2aError> {
    let message = &params.message;
    check_configuration(params)?;
    let message_id = message.message_id.as_deref().unwrap_or_default();
    if message_id.is_empty() || message_id.len() > MESSAGE_ID_BYTES_MAX {
        let message = format!(
            "`message.messageId` must have 1 to {MESSAGE_ID_BYTES_MAX} bytes: it is what a repetition is known by"
        );
        return Err(A2aError::invalid(message));
    }
    if message.role.as_deref() != Some("ROLE_USER") {
        return Err(A2aError::invalid("`message.role` must be \"ROLE_USER\""));
    }
    match message.task_id.as_deref().filter(|id| !id.is_empty()) {
        Some(task) => answer(api, caller, agent, message, task, message_id).await,
        None => begin(api, caller, agent, message, message_id).await,
    }
}

/// Refuses what no agent can do.
fn check_configuration(params: &SendParams) -> Result<(), A2aError> {
    let Some(configuration) = &params.configuration else { return Ok(()) };
    if configuration.task_push_notification_config.is_some() {
        return Err(push_not_supported());
    }
    let modes = configuration.accepted_output_modes.as_deref().unwrap_or_default();
    if !modes.is_empty() && !modes.iter().any(|mode| mode.starts_with("text") || mode.starts_with('*')) {
        let message = "agents answer with text: add `text/plain` to `acceptedOutputModes`";
        return Err(A2aError::new(A2aErrorKind::ContentTypeNotSupported, ErrorCode::BadRequest, message));
    }
    Ok(())
}

pub(super) fn push_not_supported() -> A2aError {
    let message = "push notifications are not served: stream the message, subscribe to the task, or poll it";
    A2aError::new(A2aErrorKind::PushNotificationNotSupported, ErrorCode::UnknownMethod, message)
}

async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    message: &UserMessage,
    message_id: &str,
) -> Result<LoadedTask, A2aError> {
    turn::authorize_turns(api, caller).await?;
    let prompt = to_content(&message.parts)?;
    let choice = match message.context_id.as_deref().filter(|id| !id.is_empty()) {
        Some(context) => {
            let session: SessionId = params::parse("message.contextId", context)?;
            if !is_of_interface(api, caller, &session, agent).await? {
                let message = format!("context {session} is none of the agent of this interface");
                return Err(ApiError::new(ErrorCode::UnknownSession, message).into());
            }
            SessionChoice::Chosen(session)
        }
        None => SessionChoice::New { interactive: true },
    };
    let agent: AgentId = match agent {
        Some(named) => params::parse("tenant", named)?,
        None => choose_agent(&api.list_agents(caller).await?, None)?.id.clone(),
    };
    let sender = format!("{}/{agent}", caller.name());
    // Clients use ids such as `msg-1` again: another text under a known id is another message.
    let identity = RequestIdentity::of_id(&sender, message_id, Json::of(&prompt).get().as_bytes());
    let request = NewTurn { agent, prompt, history: Vec::new(), client_tools: Vec::new() };
    let begun = turn::begin_turn(api, caller, request, choice, &identity).await?;
    LoadedTask::load(api, caller, &TaskId { session: begun.session_id, slot: begun.slot }).await
}

async fn answer(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    message: &UserMessage,
    task: &str,
    message_id: &str,
) -> Result<LoadedTask, A2aError> {
    let id = parse_task_id(task)?;
    let loaded = load_of_agent(api, caller, agent, Method::WatchSession, &id).await?;
    if let Some(context) = message.context_id.as_deref().filter(|context| !context.is_empty())
        && context != id.session.as_str()
    {
        return Err(A2aError::invalid(format!("task {id} is not of the context that the message names")));
    }
    let command = answer_id(caller, message_id)?;
    if loaded.answers.contains(&command) {
        return Ok(loaded);
    }
    TaskAnswer::parse(&loaded.task, &message.parts)?.send(api, caller, &id.session, &command).await?;
    LoadedTask::load(api, caller, &id).await
}

/// Authorizes an operation on a task, and loads it. A task of another agent than the interface names is unknown.
pub(super) async fn load_of_agent(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    method: Method,
    id: &TaskId,
) -> Result<LoadedTask, A2aError> {
    let authorized = api.authorize_session(caller, method, &id.session).await;
    authorized.map_err(|error| A2aError::of_task(error, id))?;
    if !is_of_interface(api, caller, &id.session, agent).await? {
        return Err(A2aError::task_not_found(id));
    }
    LoadedTask::load(api, caller, id).await
}

/// Finds the agent of an interface by its id or alias, or the default one if the interface names none.
pub(super) fn choose_agent<'a>(agents: &'a [AgentInfo], named: Option<&str>) -> Result<&'a AgentInfo, ApiError> {
    let Some(named) = named else {
        let message =
            "there is no default agent for this credential: use the interface of an agent, `tenant` is its id";
        let default = agents.iter().find(|agent| agent.is_default);
        return default.ok_or_else(|| ApiError::new(ErrorCode::UnknownAgent, message));
    };
    let found = agents.iter().find(|agent| agent.is_named(named));
    let named: String = named.chars().take(80).collect();
    let message = format!("there is no agent {named:?}: `tenant` is the id of an agent");
    found.ok_or_else(|| ApiError::new(ErrorCode::UnknownAgent, message))
}

/// Whether a session is one of the agent that an interface names, if it names one. A session that the index does not have
/// yet counts as one.
async fn is_of_interface(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &SessionId,
    named: Option<&str>,
) -> Result<bool, ApiError> {
    let Some(named) = named else { return Ok(true) };
    // A context that is not there may be started.
    let Some(session) = api.reach_or_absent(caller, session).await? else { return Ok(true) };
    match api.summary_of(&session).await? {
        // Only an alias needs the list of agents.
        Some(summary) if summary.agent != named => {
            let agents = api.list_agents(caller).await?;
            Ok(choose_agent(&agents, Some(named))?.id.as_str() == summary.agent)
        }
        Some(_) | None => Ok(true),
    }
}

/// Reads the parts of a message as a model gets them.
fn to_content(parts: &[MessagePart]) -> Result<Content, A2aError> {
    let mut found = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        found.push(to_part(index, part)?);
    }
    match &mut found[..] {
        [] => Err(ApiError::new(ErrorCode::EmptyMessage, "`message.parts` must not be empty").into()),
        [Part::Text { text }] => Ok(Content::Text(std::mem::take(text))),
        _ => Ok(Content::Parts(found)),
    }
}

fn to_part(index: usize, part: &MessagePart) -> Result<Part, A2aError> {
    let media_type = part.media_type.as_deref().unwrap_or_default();
    let is_image = media_type.starts_with("image/");
    let image = |url: String| Part::ImageUrl { image_url: ImageUrl { url } };
    match part {
        MessagePart { text: Some(text), .. } => Ok(Part::Text { text: text.clone() }),
        MessagePart { data: Some(data), .. } => Ok(Part::Text { text: data.to_string() }),
        MessagePart { raw: Some(raw), .. } if is_image => Ok(image(format!("data:{media_type};base64,{raw}"))),
        MessagePart { url: Some(url), .. } if is_image => Ok(image(url.clone())),
        MessagePart { raw: Some(_), .. } | MessagePart { url: Some(_), .. } => {
            let media_type: String = media_type.chars().take(80).collect();
            let message = format!(
                "`message.parts[{index}]` has the media type {media_type:?}: agents read text, data and images"
            );
            Err(A2aError::new(A2aErrorKind::ContentTypeNotSupported, ErrorCode::BadRequest, message))
        }
        _ => {
            let message = format!("`message.parts[{index}]` must have `text`, `data`, `raw` or `url`");
            Err(A2aError::invalid(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn content(parts: &Value) -> Result<Content, A2aError> {
        let parts: Vec<MessagePart> = serde_json::from_value(parts.clone()).unwrap();
        to_content(&parts)
    }

    #[test]
    fn parts_become_text_and_images() {
        assert_eq!(content(&json!([{"text": "Hi"}])).unwrap(), Content::from("Hi"));
        let found = content(&json!([
            {"text": "See"}, {"data": {"a": 1}}, {"raw": "AAAA", "mediaType": "image/png"},
            {"url": "https://h/x.png", "mediaType": "image/png", "filename": "x.png"},
        ]));
        let Content::Parts(parts) = found.unwrap() else { panic!("parts") };
        let found: Vec<String> = parts.iter().map(|part| serde_json::to_string(part).unwrap()).collect();
        assert!(found[1].contains(r#"{\"a\":1}"#), "{found:?}");
        assert!(found[2].contains("data:image/png;base64,AAAA") && found[3].contains("https://h/x.png"), "{found:?}");
    }

    #[test]
    fn part_that_no_agent_reads_is_refused() {
        let rows = [
            (json!([]), A2aErrorKind::InvalidParams),
            (json!([{}]), A2aErrorKind::InvalidParams),
            (json!([{"raw": "AAAA", "mediaType": "application/pdf"}]), A2aErrorKind::ContentTypeNotSupported),
            (json!([{"url": "https://h/x"}]), A2aErrorKind::ContentTypeNotSupported),
        ];
        for (parts, kind) in rows {
            assert_eq!(content(&parts).unwrap_err().kind, kind, "{parts}");
        }
    }
}
