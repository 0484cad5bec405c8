//! Responses of the binding JSON-RPC, also as events of a stream.

use serde_json::{Value, json};

use super::errors::A2aError;

/// Makes the response with a result.
pub(super) fn success(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Makes the response with an error.
pub(super) fn failure(id: &Value, fault: &A2aError) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": fault.to_json_rpc()})
}
