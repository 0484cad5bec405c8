//! The messages of a session for a client that has lost them, as people read them.

use contract::model::ToolCall;
use contract::{CallId, Json, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::params::LIST_MAX;
use edge_core::turn::{call_id, without_instructions};
use serde_json::json;
use session::readable::{ReadableCall, ReadableMessage, ReadableTurn};

use super::events::{ASSISTANT, TOOL};
use super::input::RESULT_PREFIX;
use super::names::RunNames;

/// Loads the messages of a session; of a long one the last turns.
pub(super) async fn load(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &ReachedSession,
    names: &RunNames,
) -> Result<Vec<Json>, ApiError> {
    let transcript = api.read_transcript(caller, session).await?;
    let turns = transcript.last_turns(LIST_MAX);
    Ok(turns.iter().flat_map(|turn| to_messages(session.id(), turn, names)).collect())
}

fn to_messages(session: &SessionId, turn: &ReadableTurn, names: &RunNames) -> Vec<Json> {
    let mut messages = Vec::new();
    for (index, message) in turn.messages.iter().enumerate() {
        let id = format!("history_{session}_{}_{index}", turn.turn);
        match message {
            ReadableMessage::User { text, .. } => {
                let text = without_instructions(text);
                messages.push(Json::of(&json!({"id": id, "role": "user", "content": text})));
            }
            ReadableMessage::Assistant { text, tool_calls, .. } => {
                let mut reply = json!({"id": id, "role": ASSISTANT, "content": text});
                if !tool_calls.is_empty() {
                    let calls = tool_calls.iter().map(|call| {
                        ToolCall::new(&id_for_client(session, call), names.tool(&call.tool), &call.arguments)
                    });
                    reply["toolCalls"] = json!(calls.collect::<Vec<_>>());
                }
                messages.push(Json::of(&reply));
                let results = tool_calls.iter().filter_map(|call| Some((call, call.result.as_deref()?)));
                messages.extend(results.map(|(call, result)| {
                    let id = format!("{RESULT_PREFIX}{session}_{}", call.id);
                    let call = id_for_client(session, call);
                    Json::of(&json!({"id": id, "role": TOOL, "toolCallId": call, "content": result}))
                }));
            }
        }
    }
    messages
}

fn id_for_client(session: &SessionId, call: &ReadableCall) -> String {
    CallId::new(&call.id).map_or_else(|_| call.id.clone(), |id| call_id(session, &id))
}
