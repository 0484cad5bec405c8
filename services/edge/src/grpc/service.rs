//! The methods of the service: the table of methods has them, and `proto::json` their messages.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use contract::ErrorCode;
use contract::limits::{FRAME_BYTES_MAX, JSON_VALUES_MAX};
use contract::trace::TraceContext;
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::{invoke, params, request_trace};
use proto::json::{self, MethodMessages, UnknownField};
use serde_json::{Map, Value};
use session_api::{Method, WatchParams};
use tonic::server::Grpc;
use tonic::{Request as GrpcRequest, Response as GrpcResponse, Status};
use tower::service_fn;

use super::codec::BytesCodec;
use super::status::to_status;
use super::stream::{NotificationStream, stream_notifications};

/// Answers a call of the method that the path names.
pub(crate) async fn serve(State(api): State<SessionApi>, Path(name): Path<String>, request: Request) -> Response {
    let found = Method::ALL.iter().find(|method| method.rpc() == name && method.has_rpc());
    let (Some(method), Some(messages)) = (found.copied(), MethodMessages::find(&name)) else {
        return Status::unimplemented(format!("{} has no method {name}", json::SERVICE)).into_http();
    };
    let mut grpc = Grpc::new(BytesCodec).max_decoding_message_size(FRAME_BYTES_MAX);
    let response = if method.is_stream() {
        let watch = service_fn(move |request| watch(api.clone(), messages.clone(), request));
        grpc.server_streaming(watch, request).await
    } else {
        let call = service_fn(move |request| call(api.clone(), method, messages.clone(), request));
        grpc.unary(call, request).await
    };
    response.map(axum::body::Body::new)
}

async fn call(
    api: SessionApi,
    method: Method,
    messages: MethodMessages,
    request: GrpcRequest<Bytes>,
) -> Result<GrpcResponse<Bytes>, Status> {
    let outcome = async {
        let (caller, params) = read(&messages, &request)?;
        let result = invoke::call(&api, caller, method, params, trace_of(&request)).await?;
        let result = serde_json::from_str(result.get()).map_err(|error| internal(&error))?;
        json::encode(&messages.reply, result, UnknownField::LeaveOut).map_err(|error| internal(&error))
    };
    outcome.await.map(|reply| GrpcResponse::new(reply.into())).map_err(|error| to_status(&error))
}

async fn watch(
    api: SessionApi,
    messages: MethodMessages,
    request: GrpcRequest<Bytes>,
) -> Result<GrpcResponse<NotificationStream>, Status> {
    let outcome = async {
        let (caller, params) = read(&messages, &request)?;
        let watch: WatchParams = params::parse_object(params)?;
        let session = watch.session_id.as_str();
        request_trace::run(Method::WatchSession.name(), Some(session), trace_of(&request), async {
            let reached = api.authorize(caller, Method::WatchSession, Some(session)).await?;
            api.open_stream(caller, &invoke::named(reached)?, &watch).await
        })
        .await
    };
    outcome.await.map(|events| GrpcResponse::new(stream_notifications(events))).map_err(|error| to_status(&error))
}

/// Limit of the values in a message. It is that of a frame of JSON-RPC, and counts before anything is read.
struct ValueLimit {
    left: usize,
    /// Error with its stable code, once something is refused.
    refusal: Option<ApiError>,
}

impl ValueLimit {
    fn take(&mut self, what: &str, count: usize) -> Result<(), ApiError> {
        let Some(left) = self.left.checked_sub(count) else {
            let message = format!("{what} has too many values, at most {JSON_VALUES_MAX} are allowed; send less");
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        };
        self.left = left;
        Ok(())
    }

    fn refuse(&mut self, outcome: Result<(), ApiError>) -> Result<(), String> {
        outcome.map_err(|error| self.refusal.insert(error).message.clone())
    }
}

impl json::Limit for ValueLimit {
    fn take_fields(&mut self, count: usize) -> Result<(), String> {
        let outcome = self.take("the message", count);
        self.refuse(outcome)
    }

    fn take_json(&mut self, field: &str, text: &str) -> Result<(), String> {
        let what = format!("`{field}`");
        let outcome = params::check_size(&what, text).and_then(|values| self.take(&what, values));
        self.refuse(outcome)
    }
}

/// Returns the caller of a request, and its parameters.
fn read<'a>(
    messages: &MethodMessages,
    request: &'a GrpcRequest<Bytes>,
) -> Result<(&'a ApiCaller, Map<String, Value>), ApiError> {
    let unknown = || {
        ApiError::new(
            ErrorCode::Unauthorized,
            "the request is not authenticated: send `authorization: Bearer <API key, access token or edge.token>`",
        )
    };
    let caller = request.extensions().get::<ApiCaller>().ok_or_else(unknown)?;
    let mut limit = ValueLimit { left: JSON_VALUES_MAX, refusal: None };
    let params = json::decode(&messages.request, request.get_ref(), &mut limit);
    let refused = limit.refusal;
    Ok((caller, params.map_err(|error| refused.unwrap_or_else(|| ApiError::bad_request(error.to_string())))?))
}

fn trace_of(request: &GrpcRequest<Bytes>) -> Option<TraceContext> {
    request.metadata().get("traceparent")?.to_str().ok()?.parse().ok()
}

fn internal(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::Internal, error.to_string())
}
