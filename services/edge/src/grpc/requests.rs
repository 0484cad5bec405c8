//! Conversion of messages to parameters.

use contract::command::Start;
use contract::model::Content;
use contract::{ClientTool, Json, Timestamp};
use edge_core::api_error::ApiError;
use edge_core::params;
use serde_json::{Map, Value};
use session_api::DeadLetterParams;

pub(super) fn parse_dead_letter(message: &proto::DeadRequest) -> Result<DeadLetterParams, ApiError> {
    Ok(DeadLetterParams {
        session_id: params::parse_session_id(&message.session_id)?,
        kind: params::parse_word("kind", &message.kind)?,
        id: params::parse("id", &message.id)?,
    })
}

pub(super) fn parse_start(message: &proto::StartRequest) -> Result<Start, ApiError> {
    let mut fields: Map<String, Value> = parse_options(&message.options_json)?;
    for (field, text) in [("agent", &message.agent), ("model", &message.model), ("prompt", &message.prompt)] {
        if !text.is_empty() {
            fields.insert(field.to_owned(), Value::from(text.as_str()));
        }
    }
    if message.interactive {
        fields.insert("interactive".to_owned(), Value::Bool(true));
    }
    params::parse_object(fields)
}

/// Parses the fields that have no field of their own in the message.
pub(super) fn parse_options(options_json: &str) -> Result<Map<String, Value>, ApiError> {
    params::check_size("`options_json`", options_json)?;
    match options_json {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text)
            .map_err(|error| ApiError::bad_request(format!("`options_json` must be a JSON object: {error}"))),
    }
}

/// Parses the tools that a message brings; an empty text means that they stay as they are.
pub(super) fn parse_client_tools(text: &str) -> Result<Option<Vec<ClientTool>>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    params::check_size("`client_tools_json`", text)?;
    let wrong = |error| ApiError::bad_request(format!("`client_tools_json` must be a list of tools: {error}"));
    serde_json::from_str(text).map(Some).map_err(wrong)
}

/// Parses the content of a message: its parts as JSON, or its text if there are none.
pub(super) fn parse_content(text: &str, content_json: &str) -> Result<Content, ApiError> {
    if content_json.is_empty() {
        return Ok(Content::from(text));
    }
    if !text.is_empty() {
        return Err(ApiError::bad_request("`text` and `content_json` exclude each other"));
    }
    params::check_size("`content_json`", content_json)?;
    let wrong = |error| ApiError::bad_request(format!("`content_json` must be a list of parts: {error}"));
    serde_json::from_str(content_json).map(Content::Parts).map_err(wrong)
}

/// Parses an instant; an empty text means none.
pub(super) fn parse_since(text: &str) -> Result<Option<Timestamp>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || ApiError::bad_request("`since` must be an instant such as 2026-01-15T10:30:45Z");
    Timestamp::parse(text).ok_or_else(wrong).map(Some)
}

/// Parses a field that holds JSON or is empty.
pub(super) fn parse_optional_json(text: &str) -> Result<Option<Json>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    params::check_size("`arguments_json`", text)?;
    let wrong = |error| ApiError::bad_request(format!("`arguments_json` is not JSON: {error}"));
    Json::parse(text).map(Some).map_err(wrong)
}
