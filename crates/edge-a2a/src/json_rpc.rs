//! The binding JSON-RPC: `POST /a2a`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::api_error::ApiError;
use edge_core::client_request::{authenticate, read_body};
use edge_core::http_error::respond;
use edge_core::jsonrpc::{JsonRpcRequest, parse_frame};
use edge_core::request_trace;
use serde_json::{Map, Value};

use super::card_routes::CardState;
use super::errors::{A2aError, A2aErrorKind};
use super::json_rpc_response::{failure, success};
use super::operation::{AgentOperation, OperationReply};
use super::task_stream::StreamFrame;
use super::version::check_version;

/// Performs one request. Errors have the status 200, unless the request was not read.
pub(super) async fn handle(State(state): State<CardState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let read = async {
        let caller = authenticate(&state.http, &parts).await?;
        let body = read_body(&state.http, body, &caller).await?;
        Ok::<_, ApiError>((caller, body))
    };
    let (caller, body) = match read.await {
        Ok(read) => read,
        Err(error) => {
            let fault = A2aError::from(error);
            let body = failure(&Value::Null, &fault).to_string();
            return respond(&fault.error, fault.status().0, "application/json", body);
        }
    };
    let request = match parse_request(&body) {
        Ok(request) => request,
        Err((id, fault)) => return axum::Json(failure(&id, &fault)).into_response(),
    };
    let id = request.id.clone().unwrap_or_default();
    let performed = async {
        check_version(&parts.headers, parts.uri.query())?;
        let agent = take_agent(&request.params)?;
        let operation = AgentOperation::parse(&request.method, request.params)?;
        let (name, address) = (operation.name(), state.address(&parts.headers)?);
        let trace = request.trace.or_else(|| request_trace::of_headers(&parts.headers));
        let performed = operation.perform(&state.http.api, &caller, agent.as_deref(), address);
        request_trace::run(name, None, trace, Box::pin(performed)).await
    };
    match performed.await {
        Ok(OperationReply::Json(result)) => axum::Json(success(&id, &result)).into_response(),
        Ok(OperationReply::Stream { stream, history }) => stream.into_response(history, StreamFrame::JsonRpc(id)),
        Err(fault) => axum::Json(failure(&id, &fault)).into_response(),
    }
}

/// Parses the envelope; an error comes with the id that it answers.
fn parse_request(body: &[u8]) -> Result<JsonRpcRequest, (Value, A2aError)> {
    let refuse = |kind, message: &str| (Value::Null, A2aError::new(kind, ErrorCode::BadRequest, message));
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(refuse(A2aErrorKind::Parse, "the body is not UTF-8"));
    };
    let mut frame = parse_frame(text);
    if frame.is_batch || frame.parts.len() != 1 {
        return Err(refuse(A2aErrorKind::InvalidRequest, "send one request, not a batch"));
    }
    match frame.parts.pop() {
        Some(Ok(request)) => Ok(request),
        Some(Err(answer)) => Err(read_refusal(&answer)),
        None => Err(refuse(A2aErrorKind::InvalidRequest, "there is no request")),
    }
}

/// Reads the response that the parser of envelopes has written, since errors of A2A have other details.
fn read_refusal(answer: &str) -> (Value, A2aError) {
    let mut answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let kind = match answer["error"]["code"].as_i64() {
        Some(-32_700) => A2aErrorKind::Parse,
        Some(-32_602) => A2aErrorKind::InvalidParams,
        _ => A2aErrorKind::InvalidRequest,
    };
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    let error = A2aError::new(kind, ErrorCode::BadRequest, message);
    (answer["id"].take(), error)
}

/// Returns the agent whose interface the client uses.
fn take_agent(params: &Map<String, Value>) -> Result<Option<String>, A2aError> {
    match params.get("tenant") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(agent)) => Ok(Some(agent.clone()).filter(|agent| !agent.is_empty())),
        Some(_) => Err(A2aError::invalid("`tenant` must be a string: the id of an agent")),
    }
}
