//! Dispatch of JSON-RPC requests to the methods of the API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::Json;
use contract::{ErrorCode, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api_error::ApiError;
use crate::authentication::ApiCaller;
use crate::commands::PendingCommand;
use crate::jsonrpc::JsonRpcRequest;
use crate::method::Method;
use crate::params::{
    self, CommandBody, CommandRequest, NoParams, ResetBudgetParams, SessionParams, UnvalidatedCommand, WatchParams,
};
use crate::request_trace::{self, RequestTrace};
use crate::session_api::SessionApi;
use crate::watch::viewer::{Viewer, WatchReply};

/// Result of a request, and what the connection must do after the response is queued.
pub(super) struct MethodReply {
    pub(super) result: Json,
    pub(super) follow_up: FollowUp,
}

/// What a connection does after a response.
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
    let session = request.params.get("session_id").and_then(Value::as_str);
    let RequestTrace { span, turn } = request_trace::open(name, session, request.trace);
    let started = async {
        let method = method.ok_or_else(|| {
            let known = Method::list_names();
            let method: String = request.method.chars().take(80).collect();
            ApiError::new(ErrorCode::UnknownMethod, format!("there is no method {method:?}; there are {known}"))
        })?;
        dispatch(api, caller, waiting, method, request.params).await
    };
    let started = Box::pin(telemetry::trace::scope(turn, started.instrument(span.clone()))).await;
    async move {
        let outcome = match started {
            Ok(reply) => reply.await,
            Err(error) => Err(error),
        };
        let code = outcome.as_ref().err().map(|error| error.code.clone());
        if let Some(code) = &code {
            telemetry::span::failed(&tracing::Span::current(), code.as_str());
        }
        telemetry::metric::request(name, code.as_ref().map_or("ok", ErrorCode::as_str));
        outcome
    }
    .instrument(span)
    .boxed()
}

#[allow(clippy::too_many_lines, reason = "one arm per method: a table reads best whole")]
async fn dispatch(
    api: &SessionApi,
    caller: &ApiCaller,
    waiting: &PendingWatches,
    method: Method,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    let (api, caller) = (api.clone(), caller.clone());
    match method {
        Method::StartSession => {
            Ok(wait_for_command(api.start(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::SendMessage => {
            Ok(wait_for_command(api.send(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::PauseSession => {
            Ok(wait_for_command(api.pause(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::ResumeSession => {
            Ok(wait_for_command(api.resume(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::StopSession => {
            Ok(wait_for_command(api.stop(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::AnswerGate => {
            Ok(wait_for_command(api.answer(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::AnswerToolCall => {
            Ok(wait_for_command(api.answer_call(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::ConfigureSession => {
            Ok(wait_for_command(api.configure(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::ClearSession => {
            Ok(wait_for_command(api.clear(&caller, parse_command(&api, &caller, params).await?).await?))
        }
        Method::WatchSession => watch(api, caller, waiting, params::parse_object(params)?).await,
        Method::UnwatchSession => Ok(unwatch(waiting, params::parse_object(params)?)),
        // Later requests do not wait for the executor, so mails of one connection may be stored in another order.
        Method::SendMail => defer(params, move |params| async move { api.send_mail(&caller, params).await }),
        Method::ReplyMail => defer(params, move |params| async move { api.reply_mail(&caller, params).await }),
        Method::ListMail => defer(params, move |params| async move { api.list_mail(&caller, params).await }),
        Method::GetHistory => {
            defer(params, move |SessionParams { session_id }| async move { api.get_history(&caller, session_id).await })
        }
        Method::GetTranscript => defer(params, move |params| async move { api.get_transcript(&caller, params).await }),
        Method::GetSession => {
            defer(params, move |SessionParams { session_id }| async move { api.get_session(&caller, session_id).await })
        }
        Method::RepairSession => {
            defer(
                params,
                move |SessionParams { session_id }| async move { api.repair_session(&caller, session_id).await },
            )
        }
        Method::ReplaySession => defer(params, move |params| async move { api.replay_session(&caller, params).await }),
        Method::ListSessions => defer(params, move |params| async move { api.list_sessions(&caller, &params).await }),
        Method::TraceSession => {
            defer(
                params,
                move |SessionParams { session_id }| async move { api.trace_session(&caller, session_id).await },
            )
        }
        Method::DescribeSession => {
            defer(
                params,
                move |SessionParams { session_id }| async move { api.describe_session(&caller, session_id).await },
            )
        }
        Method::GetStats => {
            defer(params, move |params| async move { Ok(json!({"stats": api.get_stats(&caller, &params).await?})) })
        }
        Method::ListGates => {
            defer(params, move |params| async move { Ok(json!({"gates": api.list_gates(&caller, &params).await?})) })
        }
        Method::ListClientCalls => {
            defer(
                params,
                move |params| async move { Ok(json!({"calls": api.list_client_calls(&caller, &params).await?})) },
            )
        }
        Method::ListAgents => {
            defer(params, move |NoParams {}| async move { Ok(json!({"agents": api.list_agents(&caller).await?})) })
        }
        Method::ListModels => {
            defer(params, move |NoParams {}| async move { Ok(json!({"models": api.list_models(&caller).await?})) })
        }
        Method::ListTools => {
            defer(params, move |NoParams {}| async move { Ok(ToolList { tools: api.list_tools(&caller).await? }) })
        }
        Method::GetFullResult => {
            defer(params, move |params| async move { api.get_full_result(&caller, &params).await })
        }
        Method::ListBudgets => {
            defer(params, move |NoParams {}| async move { Ok(json!({"budgets": api.list_budgets(&caller).await?})) })
        }
        Method::ResetBudget => defer(params, move |ResetBudgetParams { budget }| async move {
            Ok(json!({"budgets": api.reset_budget(&caller, budget).await?}))
        }),
        Method::GetQueues => defer(params, move |NoParams {}| async move { api.get_queues(&caller).await }),
        Method::GetStatus => defer(params, move |NoParams {}| async move { api.get_status(&caller).await }),
        Method::ListDeadLetters => {
            defer(
                params,
                move |params| async move { Ok(json!({"dead": api.list_dead_letters(&caller, &params).await?})) },
            )
        }
        Method::GetDeadLetter => defer(params, move |params| async move { api.get_dead_letter(&caller, params).await }),
        Method::RetryDeadLetter => {
            defer(params, move |params| async move { api.retry_dead_letter(&caller, params).await })
        }
        Method::DropDeadLetter => {
            defer(params, move |params| async move { api.drop_dead_letter(&caller, params).await })
        }
    }
}

/// Parses the parameters now, and runs the method beside later requests.
fn defer<P, T, F>(params: Map<String, Value>, run: impl FnOnce(P) -> F) -> Result<ReplyFuture, ApiError>
where
    P: DeserializeOwned,
    T: Serialize,
    F: Future<Output = Result<T, ApiError>> + Send + 'static,
{
    let outcome = run(params::parse_object(params)?);
    Ok(async move { to_reply(outcome.await) }.boxed())
}

async fn watch(
    api: SessionApi,
    caller: ApiCaller,
    waiting: &PendingWatches,
    params: WatchParams,
) -> Result<ReplyFuture, ApiError> {
    match api.watch(&caller, &params).await {
        // The session may be about to start. Then this watch waits, but later requests do not.
        Err(error) if error.code == ErrorCode::UnknownSession => {
            let token = waiting.add(params.session_id.clone());
            Ok(async move { watch_after_start(&api, &caller, &params, token).await }.boxed())
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
    params: &WatchParams,
    token: CancellationToken,
) -> Result<MethodReply, ApiError> {
    let outcome = token.run_until_cancelled(api.watch_after_start(caller, params)).await;
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

#[derive(Serialize)]
struct ToolList {
    tools: Vec<contract::tool::ToolSpec>,
}

async fn parse_command<T>(
    api: &SessionApi,
    caller: &ApiCaller,
    params: Map<String, Value>,
) -> Result<CommandRequest<T>, ApiError>
where
    T: CommandBody + DeserializeOwned + Send + 'static,
{
    api.validate_command(caller, UnvalidatedCommand::from_json(params)?).await
}

fn wait_for_command(pending: PendingCommand) -> ReplyFuture {
    async move { to_reply(pending.wait().await) }.boxed()
}

fn to_reply<T: Serialize>(outcome: Result<T, ApiError>) -> Result<MethodReply, ApiError> {
    outcome.map(|result| MethodReply { result: Json::of(&result), follow_up: FollowUp::Nothing })
}
