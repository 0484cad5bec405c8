//! References to items of earlier responses: their ids name session and place, so that the log has the items.

use contract::client_tool::Performer;
use contract::commit::Commit;
use contract::event::Event;
use contract::limits::{COMMAND_BYTES_MAX, START_MESSAGES_MAX};
use contract::{CallId, ErrorCode, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::fair_queue::RequestCost;
use edge_core::turn::{call_id, name_for_client};
use serde_json::{Map, Value, json};
use session_api::Method;

use super::ids::{self, ItemId, ResponseId};
use super::input::{Input, REFERENCE};
use super::stored::{StoredResponse, replay_commits};

/// Logs that are read for one request. One log serves all references to it that follow each other.
const LOGS_MAX: usize = 64;

/// The log of a session.
#[derive(Debug)]
struct SessionLog {
    session: ReachedSession,
    commits: Vec<(u64, Commit)>,
}

/// Puts items of earlier responses in the place of references to them. Only sessions that the caller reaches are read.
pub(super) async fn resolve(api: &SessionApi, caller: &ApiCaller, input: Input) -> Result<Input, ApiError> {
    let Input::Items(items) = input else { return Ok(input) };
    let references = items.iter().filter(|item| item["type"] == REFERENCE).count();
    if references > START_MESSAGES_MAX {
        let message = format!("`input` has {references} references to items, at most {START_MESSAGES_MAX} are read");
        return Err(too_large(message));
    }
    let (mut bytes, mut logs) = (0, 0);
    let mut resolved = Vec::with_capacity(items.len());
    let mut last: Option<SessionLog> = None;
    for (index, item) in items.into_iter().enumerate() {
        if item["type"] != REFERENCE {
            resolved.push(item);
            continue;
        }
        let id = item["id"].as_str().unwrap_or_default();
        let unknown = || {
            let id: String = id.chars().take(120).collect();
            let message = format!("input[{index}]: there is no item {id:?}: send the item itself instead of its id");
            ApiError::bad_request(message)
        };
        let session = match ItemId::parse(id).ok_or_else(unknown)? {
            ItemId::LeftOut => continue,
            ItemId::Message { session, .. } | ItemId::Call { session, .. } => session,
        };
        let log = match last.take().filter(|log| *log.session.id() == session) {
            Some(log) => log,
            None if logs == LOGS_MAX => {
                let message = format!(
                    "input[{index}]: references to items of more than {LOGS_MAX} sessions in turn are not read: send \
                     the items themselves"
                );
                return Err(too_large(message));
            }
            None => {
                logs += 1;
                match SessionLog::read(api, caller, &session).await {
                    Err(error) if error.code == ErrorCode::UnknownSession => return Err(unknown()),
                    read => read?,
                }
            }
        };
        let item = log.find(id).ok_or_else(unknown)?;
        bytes += item.to_string().len();
        if bytes > COMMAND_BYTES_MAX {
            let message = format!(
                "input[{index}]: the items that are referred to have more than {COMMAND_BYTES_MAX} bytes in all: \
                 refer to fewer"
            );
            return Err(too_large(message));
        }
        resolved.push(item);
        last = Some(log);
    }
    Ok(Input::Items(resolved))
}

fn too_large(message: String) -> ApiError {
    ApiError::new(ErrorCode::TooLarge, message)
}

impl SessionLog {
    async fn read(api: &SessionApi, caller: &ApiCaller, session: &SessionId) -> Result<Self, ApiError> {
        let session = api.authorize_session(caller, Method::GetSession, session).await?;
        let _permit = api.acquire_permit(caller, RequestCost::Scan).await?;
        let commits = api.commits_from(&session, 0).await?;
        Ok(Self { session, commits })
    }

    fn find(&self, id: &str) -> Option<Value> {
        match ItemId::parse(id)? {
            ItemId::Message { session, slot } => {
                let (_, commit) = self.commits.iter().find(|(at, _)| *at == slot)?;
                // The id does not say whether the response waited for its turn.
                let messages = commit.events.iter().filter(|event| matches!(event, Event::UserProcessed(_))).count();
                let places = std::iter::once(None).chain((0..messages).map(Some));
                places.map(|waiting| ResponseId { session: session.clone(), slot, waiting }).find_map(|response| {
                    let stored = StoredResponse::begun_by(self.session.clone(), commit, &response, Map::new())?;
                    let replayed = replay_commits(&response, &stored, &self.commits);
                    replayed.builder.output().iter().find(|item| item["id"] == id).cloned()
                })
            }
            ItemId::Call { call, .. } => self.find_call(&call),
            ItemId::LeftOut => None,
        }
    }

    fn find_call(&self, id: &CallId) -> Option<Value> {
        let events = || self.commits.iter().flat_map(|(_, commit)| &commit.events);
        let identified = events().find_map(|event| {
            let Event::ToolCallIdentified(call) = event else { return None };
            (call.call == *id).then_some(call)
        })?;
        if identified.performer == Performer::Client {
            let name = name_for_client(identified.tool.as_str());
            return Some(json!({
                "type": "function_call", "call_id": call_id(self.session.id(), id), "name": name,
                "arguments": identified.arguments.get(),
            }));
        }
        let result = events().find_map(|event| {
            let Event::ToolCallResult(result) = event else { return None };
            (result.call == *id).then_some(&result.content)
        });
        Some(json!({
            "id": ids::fleet_call(self.session.id(), id), "type": "mcp_call", "name": identified.tool,
            "arguments": identified.arguments.get(), "output": result,
        }))
    }
}
