//! The binding HTTP+JSON, below `/a2a/v1`.

use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::client_request::{authenticate, read_body};
use edge_core::http_error::respond;
use edge_core::{params, request_trace};
use serde_json::{Map, Value};

use super::card_routes::CardState;
use super::errors::{A2aError, A2aErrorKind};
use super::operation::{AgentOperation, OperationReply};
use super::path::{PathTarget, parse_path};
use super::task_stream::StreamFrame;
use super::version::check_version;

/// Media type of requests and answers.
const MEDIA_TYPE: &str = "application/a2a+json";

/// Performs the request that its path and its method name.
pub(super) async fn handle(State(state): State<CardState>, Path(path): Path<String>, request: Request) -> Response {
    match answer(&state, &path, request).await {
        Ok(OperationReply::Json(body)) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], body.to_string()).into_response(),
        Ok(OperationReply::Stream { stream, history }) => stream.into_response(history, StreamFrame::Bare),
        Err(fault) => respond(&fault.error, fault.status().0, MEDIA_TYPE, fault.to_body().to_string()),
    }
}

async fn answer(state: &CardState, path: &str, request: Request) -> Result<OperationReply, A2aError> {
    let (parts, body) = request.into_parts();
    let caller = authenticate(&state.http, &parts).await?;
    check_version(&parts.headers, parts.uri.query())?;
    let Some((agent, target)) = parse_path(&parts.method, path) else {
        let path: String = path.chars().take(120).collect();
        let message = format!("there is no {} /a2a/v1/{path}", parts.method);
        return Err(A2aError::new(A2aErrorKind::MethodNotFound, ErrorCode::UnknownMethod, message));
    };
    let body = read_body(&state.http, body, &caller).await?;
    let operation = AgentOperation::parse(target.method, gather_params(target, &parts, &body)?)?;
    let address = state.address(&parts.headers)?;
    let (name, trace) = (operation.name(), request_trace::of_headers(&parts.headers));
    let performed = operation.perform(&state.http.api, &caller, agent.as_deref(), address);
    request_trace::run(name, None, trace, Box::pin(performed)).await
}

/// Gathers the parameters of a method from where it has them: the body, the query, and the id of the task in the path.
fn gather_params(target: PathTarget, parts: &Parts, body: &[u8]) -> Result<Map<String, Value>, A2aError> {
    let mut fields = match target.method {
        "SendMessage" | "SendStreamingMessage" => parse_body(body)?,
        "GetTask" | "ListTasks" => query_fields(parts),
        _ => Map::new(),
    };
    fields.extend(target.task.map(|id| ("id".to_owned(), Value::from(id))));
    Ok(fields)
}

fn parse_body(body: &[u8]) -> Result<Map<String, Value>, A2aError> {
    let text = std::str::from_utf8(body).map_err(|_| A2aError::invalid("the body is not UTF-8"))?;
    params::check_size("the body", text)?;
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(A2aError::invalid("the body must be a JSON object")),
        Err(error) => Err(A2aError::new(A2aErrorKind::Parse, ErrorCode::BadRequest, format!("not JSON: {error}"))),
    }
}

/// Reads the query as the fields of an object: numbers and booleans as such.
fn query_fields(parts: &Parts) -> Map<String, Value> {
    let pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let typed = |name: &str, text: String| match name {
        "historyLength" | "history_length" | "pageSize" | "page_size" => {
            text.parse::<i64>().map_or(Value::String(text), Value::from)
        }
        "includeArtifacts" | "include_artifacts" => text.parse::<bool>().map_or(Value::String(text), Value::from),
        _ => Value::String(text),
    };
    pairs.map(|(name, text)| (name.to_string(), typed(&name, text.into_owned()))).collect()
}
