//! Parsing of fields and ids; each error names the field.

use std::fmt::Display;
use std::str::FromStr;

use contract::json::Size;
use contract::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};
use contract::{ErrorCode, SessionId};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api_error::ApiError;

/// Levels of JSON around the fields of a command: batch, request, parameters, messages and their parts.
const FRAME_DEPTH: usize = 8;

/// Parses a JSON object; the error names the field.
pub fn parse_object<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Value::Object(params)).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        // These texts name the field already.
        let named = why.starts_with("unknown field") || why.starts_with("missing field");
        match why.as_str() {
            "data did not match any variant of untagged enum Content" => {
                ApiError::bad_request(format!("`{path}` must be a text, or a list of parts with a `type`"))
            }
            _ if path == "." || named && !path.contains(['.', '[']) => ApiError::bad_request_by_parser(error.inner()),
            _ => bad_field(&path, error.inner()),
        }
    })
}

/// Refuses JSON that is too large before it is parsed, since a value takes far more memory than its text. Returns the
/// number of its values and names.
pub fn check_size(what: &str, text: &str) -> Result<usize, ApiError> {
    let Size { depth, values } = Size::of(text.as_bytes());
    let levels = JSON_DEPTH_MAX + FRAME_DEPTH;
    if depth > levels {
        let message = format!("{what} is nested {depth} levels deep, at most {levels} are allowed; flatten it");
        return Err(ApiError::bad_request(message));
    }
    if values > JSON_VALUES_MAX {
        let message =
            format!("{what} holds {values} values and names, at most {JSON_VALUES_MAX} are allowed; send less");
        return Err(ApiError::new(ErrorCode::TooLarge, message));
    }
    Ok(values)
}

/// Parses the id of a session.
pub fn parse_session_id(text: &str) -> Result<SessionId, ApiError> {
    if text.is_empty() {
        return Err(ApiError::bad_request("`session_id` is missing"));
    }
    parse("session_id", text)
}

/// Error for a field that its parser refuses.
fn bad_field(field: &str, error: impl Display) -> ApiError {
    ApiError::bad_request_by_parser(format!("`{field}`: {error}"))
}

/// Parses an enum value as the contract serialises it.
pub fn parse_word<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| bad_field(field, error))
}

/// Parses a field; the error names it.
pub fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error| bad_field(field, error))
}

/// Generates an id; later ids sort after earlier ones.
pub fn generate_id<T: FromStr<Err: Display>>() -> Result<T, ApiError> {
    let id: Result<T, T::Err> = uuid::Uuid::now_v7().to_string().parse();
    id.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

/// Takes an id out of the parameters; an empty text if there is none.
pub(super) fn take_id(params: &mut Map<String, Value>, field: &str) -> Result<String, ApiError> {
    match params.remove(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) if text.is_empty() => {
            Err(ApiError::bad_request(format!("{field} is empty: leave it out, or give an id")))
        }
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ApiError::bad_request(format!("`{field}` must be a string"))),
    }
}

pub(super) fn take_flag(params: &mut Map<String, Value>, field: &str) -> Result<Option<bool>, ApiError> {
    match params.remove(field) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(_) => Err(ApiError::bad_request(format!("`{field}` must be true or false"))),
    }
}
