//! Messages of JSON-RPC 2.0, one a line, as the Agent Client Protocol has them. Pure.

use contract::ErrorCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use terminal::failure::CommandFailure;

/// Bytes of the id of a request, as JSON.
const ID_BYTES_MAX: usize = 1 << 10;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
/// Error code of the protocol: credentials are needed.
const AUTH_REQUIRED: i32 = -32000;
/// Error code of the protocol: a session, or another resource, does not exist.
const RESOURCE_NOT_FOUND: i32 = -32002;

/// A message of the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The answer to a request of this agent.
    Response {
        id: u64,
        outcome: Result<Value, String>,
    },
}

/// An error of a request, with the stable code of ailoop.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    code: i32,
    message: String,
    stable: ErrorCode,
}

impl RpcError {
    /// Makes an error; its number follows from the stable code.
    pub(super) fn new(stable: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: rpc_code(&stable), message: message.into(), stable }
    }

    /// Describes the error for people.
    pub(super) fn describe(&self) -> String {
        format!("{} [{}]", self.message, self.stable)
    }

    fn malformed(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), stable: ErrorCode::BadRequest }
    }

    /// Makes the error for a line that is too long to be read.
    pub(super) fn long_line(bytes_max: usize) -> Self {
        let message = format!("a message has more than {bytes_max} bytes; send less");
        Self { code: INVALID_REQUEST, message, stable: ErrorCode::TooLarge }
    }
}

impl From<&CommandFailure> for RpcError {
    fn from(failure: &CommandFailure) -> Self {
        let advice = failure.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        Self::new(failure.code().clone(), format!("{}{advice}", failure.message()))
    }
}

impl From<CommandFailure> for RpcError {
    fn from(failure: CommandFailure) -> Self {
        Self::from(&failure)
    }
}

/// Returns the number of JSON-RPC or of the protocol for a stable code.
fn rpc_code(code: &ErrorCode) -> i32 {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "every other code of ailoop is an internal error of the protocol"
    )]
    match code {
        ErrorCode::Unauthorized => AUTH_REQUIRED,
        ErrorCode::UnknownSession => RESOURCE_NOT_FOUND,
        ErrorCode::UnknownMethod => METHOD_NOT_FOUND,
        ErrorCode::NotNow => INVALID_REQUEST,
        ErrorCode::BadRequest
        | ErrorCode::EmptyMessage
        | ErrorCode::TooLarge
        | ErrorCode::InvalidArguments
        | ErrorCode::UnknownAgent
        | ErrorCode::UnknownModel => INVALID_PARAMS,
        _ => INTERNAL_ERROR,
    }
}

#[derive(Deserialize)]
struct RawMessage {
    jsonrpc: Option<String>,
    id: Option<Value>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    result: Option<Value>,
    error: Option<Value>,
}

/// Parses a line. The failure has the id to which it is answered, which is null where none can be read.
pub(super) fn parse(line: &[u8]) -> Result<Incoming, (Value, RpcError)> {
    let not_json = |error: serde_json::Error| {
        let message = format!("the line is not JSON: {error}; send one JSON-RPC message a line");
        (Value::Null, RpcError::malformed(PARSE_ERROR, message))
    };
    let value: Value = serde_json::from_slice(line).map_err(not_json)?;
    let no_request = |id: Value, message: &str| (id, RpcError::malformed(INVALID_REQUEST, message));
    let has_null_id = value.get("id").is_some_and(Value::is_null);
    let message: RawMessage = serde_json::from_value(value)
        .map_err(|error| no_request(Value::Null, &format!("the message is no JSON-RPC request: {error}")))?;
    let id = if has_null_id { Some(Value::Null) } else { message.id };
    if message.jsonrpc.as_deref() != Some("2.0") {
        return Err(no_request(id.unwrap_or_default(), "`jsonrpc` must be \"2.0\""));
    }
    match (id, message.method) {
        (Some(id), Some(method)) if is_valid_id(&id) => Ok(Incoming::Request { id, method, params: message.params }),
        (Some(_), Some(_)) => {
            let text = format!("`id` must be a text or a number of at most {ID_BYTES_MAX} bytes");
            Err(no_request(Value::Null, &text))
        }
        (None, Some(method)) => Ok(Incoming::Notification { method, params: message.params }),
        (Some(id), None) if message.result.is_some() || message.error.is_some() => {
            let Some(number) = id.as_u64() else {
                return Err(no_request(Value::Null, "the response is to no request of this agent"));
            };
            let outcome = match message.error {
                Some(error) => Err(error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned()),
                None => Ok(message.result.unwrap_or_default()),
            };
            Ok(Incoming::Response { id: number, outcome })
        }
        (id, None) => Err(no_request(id.unwrap_or_default(), "a message needs `method`, `result` or `error`")),
    }
}

fn is_valid_id(id: &Value) -> bool {
    (id.is_string() || id.is_number() || id.is_null()) && id.to_string().len() <= ID_BYTES_MAX
}

/// Parses the parameters of a method.
pub(super) fn parse_params<T: DeserializeOwned>(method: &str, params: Value) -> Result<T, RpcError> {
    // Parameters may be left out where all of them are optional.
    let params = if params.is_null() { json!({}) } else { params };
    serde_json::from_value(params)
        .map_err(|error| RpcError::new(ErrorCode::BadRequest, format!("the parameters of {method} are wrong: {error}")))
}

/// Formats the answer to a request, as a line.
pub(super) fn answer_line(id: &Value, outcome: &Result<Value, RpcError>) -> String {
    let message = match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message, stable }) => json!({
            "jsonrpc": "2.0", "id": id,
            "error": {"code": code, "message": message, "data": {"code": stable.as_str()}}
        }),
    };
    format!("{message}\n")
}

/// Formats a request of this agent, as a line.
pub(super) fn request_line(id: u64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Formats a notification, as a line.
pub(super) fn notification_line(method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(line: &str) -> i32 {
        parse(line.as_bytes()).unwrap_err().1.code
    }

    #[test]
    fn line_is_a_request_a_notification_or_a_response() {
        let parse = |line: &str| parse(line.as_bytes()).unwrap();
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#),
            Incoming::Request { id: json!("a"), method: "m".to_owned(), params: json!({"x": 1}) }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#),
            Incoming::Request { id: Value::Null, method: "m".to_owned(), params: Value::Null }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","method":"m"}"#),
            Incoming::Notification { method: "m".to_owned(), params: Value::Null }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            Incoming::Response { id: 7, outcome: Ok(json!({})) }
        );
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#),
            Incoming::Response { id: 7, outcome: Err("no".to_owned()) }
        );
    }

    #[test]
    fn line_that_is_no_message_is_refused() {
        for line in ["", "{", "hello", "\u{0}"] {
            assert_eq!(code_of(line), PARSE_ERROR, "{line:?}");
        }
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(ID_BYTES_MAX));
        for line in [
            "[]",
            "1",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":"x","result":1}"#,
            &long,
        ] {
            assert_eq!(code_of(line), INVALID_REQUEST, "{line:?}");
        }
    }

    #[test]
    fn error_has_number_of_the_protocol_and_stable_code() {
        for (stable, number) in [
            (ErrorCode::UnknownSession, -32002),
            (ErrorCode::Unauthorized, -32000),
            (ErrorCode::BadRequest, -32602),
            (ErrorCode::NotNow, -32600),
            (ErrorCode::Unavailable, -32603),
        ] {
            let line = answer_line(&json!(1), &Err(RpcError::new(stable.clone(), "m")));
            let error = &serde_json::from_str::<Value>(&line).unwrap()["error"];
            assert_eq!((&error["code"], &error["data"]["code"]), (&json!(number), &json!(stable.as_str())));
        }
    }
}
