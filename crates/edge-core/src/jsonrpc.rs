//! JSON-RPC 2.0: it parses requests, alone or in batches, and formats responses.

use contract::trace::TraceContext;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api_error::ApiError;
use crate::params;

/// Maximum number of requests of one batch.
pub(crate) const BATCH_MAX: usize = 64;

/// Maximum bytes of the `id` of a request, which its response repeats.
pub(crate) const ID_BYTES_MAX: usize = 1 << 10;

/// A request or, without `id`, a notification of the client.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonRpcRequest {
    /// `None` for a notification, which gets no response.
    pub id: Option<Value>,
    /// Name of the method.
    pub method: String,
    /// Named parameters of the method.
    pub params: Map<String, Value>,
    /// The client's own trace: the member `traceparent` beside `params`.
    pub trace: Option<TraceContext>,
}

/// The requests of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFrame {
    /// Whether the responses go out as one array.
    pub is_batch: bool,
    /// In the order of the frame; an `Err` is the response to something that is no valid request.
    pub parts: Vec<Result<JsonRpcRequest, String>>,
}

/// Parses a text frame.
pub fn parse_frame(text: &str) -> RequestFrame {
    let one = |part| RequestFrame { is_batch: false, parts: vec![part] };
    if let Err(error) = params::check_size("the frame", text) {
        return one(Err(format_error(&Value::Null, &error)));
    }
    match serde_json::from_str(text) {
        Err(error) => one(Err(format_protocol_error(&Value::Null, -32700, &format!("not JSON: {error}")))),
        Ok(Value::Array(parts)) if parts.is_empty() => {
            one(Err(format_protocol_error(&Value::Null, -32600, "an empty batch")))
        }
        Ok(Value::Array(parts)) if parts.len() > BATCH_MAX => {
            let message = format!("a batch of {} requests, at most {BATCH_MAX} are allowed", parts.len());
            one(Err(format_protocol_error(&Value::Null, -32600, &message)))
        }
        Ok(Value::Array(parts)) => {
            RequestFrame { is_batch: true, parts: parts.into_iter().map(parse_request).collect() }
        }
        Ok(value) => one(parse_request(value)),
    }
}

fn parse_request(value: Value) -> Result<JsonRpcRequest, String> {
    let Value::Object(mut object) = value else {
        return Err(format_protocol_error(&Value::Null, -32600, "a request is a JSON object"));
    };
    let id = object.remove("id");
    let valid_id = id.clone().filter(|id| id.is_string() || id.is_number() || id.is_null());
    let refuse = |code, message: &str| Err(format_protocol_error(&valid_id.clone().unwrap_or_default(), code, message));
    if id.is_some() && valid_id.is_none() {
        return refuse(-32600, "`id` must be a string, a number or null");
    }
    if let Some(Value::String(text)) = &valid_id
        && text.len() > ID_BYTES_MAX
    {
        let message = format!("`id` has {} bytes, at most {ID_BYTES_MAX} are allowed", text.len());
        return Err(format_protocol_error(&Value::Null, -32600, &message));
    }
    if object.remove("jsonrpc") != Some(Value::from("2.0")) {
        return refuse(-32600, "`jsonrpc` must be \"2.0\"");
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return refuse(-32600, "`method` must be a string");
    };
    let params = match object.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return refuse(-32602, "`params` must be an object: parameters go by name"),
    };
    let trace = match object.remove("traceparent") {
        None => None,
        Some(given) => match given.as_str().and_then(|text| text.parse().ok()) {
            Some(trace) => Some(trace),
            None => return refuse(-32600, "`traceparent` must be a W3C traceparent"),
        },
    };
    match object.keys().next() {
        Some(field) => refuse(-32600, &format!("unknown field `{field}`")),
        None => Ok(JsonRpcRequest { id, method, params, trace }),
    }
}

#[derive(Serialize)]
struct SuccessResponse<'a, T> {
    jsonrpc: &'static str,
    id: &'a Value,
    result: &'a T,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    jsonrpc: &'static str,
    id: &'a Value,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i32,
    message: &'a str,
    data: ErrorData<'a>,
}

#[derive(Serialize)]
struct ErrorData<'a> {
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

/// Formats the response with a result.
pub fn format_result<T: Serialize>(id: &Value, result: &T) -> String {
    serde_json::to_string(&SuccessResponse { jsonrpc: "2.0", id, result }).unwrap_or_default()
}

/// Formats the response with an error; `data.code` is the stable code.
pub fn format_error(id: &Value, error: &ApiError) -> String {
    let retry_after_ms = error.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    let data = ErrorData { code: error.code.as_str(), retry_after_ms, seq: error.seq };
    let error = ErrorObject { code: error.json_rpc_code(), message: &error.message, data };
    serde_json::to_string(&ErrorResponse { jsonrpc: "2.0", id, error }).unwrap_or_default()
}

/// Formats the response to a violation of JSON-RPC itself.
pub fn format_protocol_error(id: &Value, code: i32, message: &str) -> String {
    let data = ErrorData { code: contract::ErrorCode::BadRequest.as_str(), retry_after_ms: None, seq: None };
    serde_json::to_string(&ErrorResponse { jsonrpc: "2.0", id, error: ErrorObject { code, message, data } })
        .unwrap_or_default()
}

/// Formats the responses of a batch; `None` if all its requests were notifications.
pub fn format_batch(responses: &[String]) -> Option<String> {
    let raw: Vec<&RawValue> = responses.iter().filter_map(|response| serde_json::from_str(response).ok()).collect();
    if raw.is_empty() { None } else { serde_json::to_string(&raw).ok() }
}

#[cfg(test)]
mod tests {
    use contract::ErrorCode;
    use serde_json::json;

    use super::*;

    fn check(text: &str, wanted: &[Value]) {
        let parsed: Vec<Value> = parse_frame(text)
            .parts
            .into_iter()
            .map(|part| match part {
                Ok(request) => json!({"id": request.id, "method": request.method, "params": request.params}),
                Err(response) => {
                    let response: Value = serde_json::from_str(&response).unwrap();
                    json!({"id": response["id"], "error": response["error"]["code"]})
                }
            })
            .collect();
        assert_eq!(parsed, wanted, "{text}");
    }

    #[test]
    fn malformed_request_is_answered_with_protocol_error() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}"#,
            &[json!({"id": 1, "method": "m", "params": {"a": 1}})],
        );
        check(r#"{"jsonrpc":"2.0","method":"m"}"#, &[json!({"id": null, "method": "m", "params": {}})]);
        check("{", &[json!({"id": null, "error": -32700})]);
        check("\u{0}", &[json!({"id": null, "error": -32700})]);
        check("7", &[json!({"id": null, "error": -32600})]);
        check("[]", &[json!({"id": null, "error": -32600})]);
        check(r#"{"id":"x","method":"m"}"#, &[json!({"id": "x", "error": -32600})]);
        check(r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, &[json!({"id": null, "error": -32600})]);
        check(r#"{"jsonrpc":"2.0","id":1,"method":7}"#, &[json!({"id": 1, "error": -32600})]);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}"#, &[json!({"id": 1, "error": -32602})]);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","extra":1}"#, &[json!({"id": 1, "error": -32600})]);
        check(
            r#"[1,{"jsonrpc":"2.0","id":2,"method":"m"}]"#,
            &[json!({"id": null, "error": -32600}), json!({"id": 2, "method": "m", "params": {}})],
        );
        let values = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":[{}0]}}}}"#, "0,".repeat(40_000));
        check(&values, &[json!({"id": null, "error": -32602})]);
        let many = format!("[{}]", vec!["1"; BATCH_MAX + 1].join(","));
        check(&many, &[json!({"id": null, "error": -32600})]);
    }

    #[test]
    fn responses_have_their_documented_shape() {
        let error = ApiError::new(ErrorCode::Overloaded, "later").with_retry_after(std::time::Duration::from_secs(2));
        let response: Value = serde_json::from_str(&format_error(&json!(7), &error)).unwrap();
        assert_eq!(
            response,
            json!({"jsonrpc": "2.0", "id": 7, "error": {
                "code": -32000, "message": "later", "data": {"code": "overloaded", "retry_after_ms": 2000}
            }})
        );
        assert_eq!(format_result(&json!("a"), &json!({"x": 1})), r#"{"jsonrpc":"2.0","id":"a","result":{"x":1}}"#);
        assert_eq!(format_batch(&["{\"a\":1}".to_owned(), "{}".to_owned()]).unwrap(), r#"[{"a":1},{}]"#);
        assert_eq!(format_batch(&[]), None);
    }
}
