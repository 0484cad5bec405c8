//! Dispatch of JSON-RPC requests to the methods of the API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::Json;
use contract::{ErrorCode, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::jsonrpc::JsonRpcRequest;
use edge_core::request_trace::{self, RequestTrace};
use edge_core::watch::viewer::{Viewer, WatchReply};
use edge_core::{invoke, params};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use session_api::{Method, SessionParams, WatchParams};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Result of a request, and what the connection must do after the response is queued.
pub(super) struct MethodReply {
    pub(super) result: Json,
    pub(super) follow_up: FollowUp,
}

/// Action of a connection after a response.
pub(super) enum FollowUp {
    Nothing,
    Watch(Box<Viewer>),
    Unwatch(SessionId),
}

/// The part of a request that may run while later requests begin.
pub(super) type ReplyFuture = BoxFuture<'static, Result<MethodReply, ApiError>>;

/// The watches of one connection that wait for the start of their session, at most as many as its open requests.
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingWatches {
    by_session: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
}

impl PendingWatches {
    /// Adds a watch, in place of one of the same session; the returned token is cancelled with the watch.
    fn add(&self, session: SessionId) -> CancellationToken {
        let token = CancellationToken::new();
        let mut waiting = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, token| !token.is_cancelled());
        if let Some(before) = waiting.insert(session, token.clone()) {
            before.cancel();
        }
        token
    }

    /// Cancels the watch of a session, if one waits.
    fn cancel(&self, session: &SessionId) {
        let waiting = self.by_session.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        if let Some(token) = waiting {
            token.cancel();
        }
    }
}

/// Does the part of a request that must keep the order of the requests: for a command, sending it.
pub(super) async fn begin_request(
    api: &SessionApi,
    caller: &ApiCaller,
    waiting: &PendingWatches,
    request: JsonRpcRequest,
) -> ReplyFuture {
    let method = Method::from_name(&request.method);
    let name = method.map_or("unknown", Method::name);
    let session = request.params.get("session_id").and_then(Value::as_str).map(str::to_owned);
    let RequestTrace { span, turn } = request_trace::open(name, session.as_deref(), request.trace);
    let started = async {
        let method = method.ok_or_else(|| {
            let known = Method::list_names();
            let method: String = request.method.chars().take(80).collect();
            ApiError::new(ErrorCode::UnknownMethod, format!("there is no method {method:?}; there are {known}"))
        })?;
        let reached = api.authorize(caller, method, session.as_deref()).await?;
        dispatch(api, caller, waiting, method, reached, request.params).await
    };
    let started = Box::pin(telemetry::trace::scope(turn, started.instrument(span.clone()))).await;
    async move {
        let outcome = match started {
            Ok(reply) => reply.await,
            Err(error) => Err(error),
        };
        request_trace::record(name, &tracing::Span::current(), outcome.as_ref().err());
        outcome
    }
    .instrument(span)
    .boxed()
}

async fn dispatch(
    api: &SessionApi,
    caller: &ApiCaller,
    waiting: &PendingWatches,
    method: Method,
    reached: Option<ReachedSession>,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    if method == Method::WatchSession {
        let watched = params::parse_object(params)?;
        return watch(api.clone(), caller.clone(), waiting, invoke::named(reached)?, watched).await;
    }
    if method == Method::UnwatchSession {
        return Ok(unwatch(waiting, params::parse_object(params)?));
    }
    let reply = invoke::begin(api, caller, method, reached, params).await?;
    Ok(reply.map(|result| result.map(|result| MethodReply { result, follow_up: FollowUp::Nothing })).boxed())
}

async fn watch(
    api: SessionApi,
    caller: ApiCaller,
    waiting: &PendingWatches,
    session: ReachedSession,
    params: WatchParams,
) -> Result<ReplyFuture, ApiError> {
    match api.watch(&caller, &session, &params).await {
        // The session may be about to start. Then this watch waits, but later requests do not.
        Err(error) if error.code == ErrorCode::UnknownSession => {
            let token = waiting.add(params.session_id.clone());
            Ok(async move { watch_after_start(&api, &caller, &session, &params, token).await }.boxed())
        }
        outcome => Ok(std::future::ready(outcome.map(start_viewer)).boxed()),
    }
}

fn unwatch(waiting: &PendingWatches, SessionParams { session_id }: SessionParams) -> ReplyFuture {
    waiting.cancel(&session_id);
    let result = Json::of(&json!({"session_id": session_id}));
    std::future::ready(Ok(MethodReply { result, follow_up: FollowUp::Unwatch(session_id) })).boxed()
}

async fn watch_after_start(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &ReachedSession,
    params: &WatchParams,
    token: CancellationToken,
) -> Result<MethodReply, ApiError> {
    let outcome = token.run_until_cancelled(api.watch_after_start(caller, session, params)).await;
    // This frees the entry among the pending watches.
    token.cancel();
    match outcome {
        Some(outcome) => outcome.map(start_viewer),
        None => Err(ApiError::new(ErrorCode::NotNow, "a later request for this session cancelled the watch")),
    }
}

fn start_viewer((reply, viewer): (WatchReply, Viewer)) -> MethodReply {
    MethodReply { result: Json::of(&reply), follow_up: FollowUp::Watch(Box::new(viewer)) }
}
