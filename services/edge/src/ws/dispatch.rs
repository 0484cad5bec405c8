//! Dispatch of JSON-RPC requests to the methods of the API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::Json;
use contract::command::{Answer, Configure, ControlReason, SendUserMessage, Start};
use contract::{ErrorCode, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api_error::ApiError;
use crate::authentication::ApiCaller;
use crate::commands::PendingCommand;
use crate::jsonrpc::JsonRpcRequest;
use crate::params::{self, CommandBody, CommandRequest, UncheckedCommand};
use crate::session_api::SessionApi;
use crate::watch::viewer::{Viewer, WatchReply};

const METHODS: &[&str] = &[
    "session.start",
    "session.send",
    "session.pause",
    "session.resume",
    "session.stop",
    "session.answer",
    "session.clear",
    "session.configure",
    "session.history",
    "session.transcript",
    "session.get",
    "session.list",
    "session.replay",
    "session.stats",
    "session.repair",
    "session.watch",
    "session.unwatch",
    "agents.list",
    "models.list",
    "tools.list",
    "tools.result",
    "gates.list",
    "mail.list",
    "mail.send",
    "mail.reply",
    "fleet.queues",
    "dead.list",
    "dead.show",
    "dead.retry",
    "dead.drop",
];

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
    let method = METHODS.iter().copied().find(|method| *method == request.method);
    let session = request.params.get("session_id").and_then(Value::as_str);
    let span = telemetry::span::edge_request(method.unwrap_or("unknown"), session);
    let started = async {
        let method = method.ok_or_else(|| {
            let known = METHODS.join(", ");
            let method: String = request.method.chars().take(80).collect();
            ApiError::new(ErrorCode::UnknownMethod, format!("there is no method {method:?}; there are {known}"))
        })?;
        dispatch(api, caller, waiting, method, request.params).await
    };
    let started = started.instrument(span.clone()).await;
    async move {
        let outcome = match started {
            Ok(reply) => reply.await,
            Err(error) => Err(error),
        };
        let code = outcome.as_ref().err().map(|error| error.code.clone());
        if let Some(code) = &code {
            telemetry::span::failed(&tracing::Span::current(), code.as_str());
        }
        telemetry::metric::request(method.unwrap_or("unknown"), code.as_ref().map_or("ok", ErrorCode::as_str));
        outcome
    }
    .instrument(span)
    .boxed()
}

async fn dispatch(
    api: &SessionApi,
    caller: &ApiCaller,
    waiting: &PendingWatches,
    method: &'static str,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    let (api, caller) = (api.clone(), caller.clone());
    let reply = match method {
        "session.start" => {
            wait_for_command(api.start(&caller, parse_command::<Start>(&api, &caller, params).await?).await?)
        }
        "session.send" => {
            wait_for_command(api.send(&caller, parse_command::<SendUserMessage>(&api, &caller, params).await?).await?)
        }
        "session.pause" => {
            wait_for_command(api.pause(&caller, parse_command::<ControlReason>(&api, &caller, params).await?).await?)
        }
        "session.resume" => {
            wait_for_command(api.resume(&caller, parse_command::<ControlReason>(&api, &caller, params).await?).await?)
        }
        "session.stop" => {
            wait_for_command(api.stop(&caller, parse_command::<ControlReason>(&api, &caller, params).await?).await?)
        }
        "session.answer" => {
            wait_for_command(api.answer(&caller, parse_command::<Answer>(&api, &caller, params).await?).await?)
        }
        "session.configure" => {
            wait_for_command(api.configure(&caller, parse_command::<Configure>(&api, &caller, params).await?).await?)
        }
        "session.clear" => {
            wait_for_command(api.clear(&caller, parse_command::<ControlReason>(&api, &caller, params).await?).await?)
        }
        "session.watch" => {
            let params: params::WatchParams = params::parse_object(params)?;
            match api.watch(&caller, &params).await {
                // The session may be about to start. Then this watch waits, but later requests do not.
                Err(error) if error.code == ErrorCode::UnknownSession => {
                    let token = waiting.add(params.session_id.clone());
                    async move { watch_after_start(&api, &caller, &params, token).await }.boxed()
                }
                outcome => std::future::ready(outcome.map(start_viewer)).boxed(),
            }
        }
        "session.unwatch" => {
            let params::SessionParams { session_id } = params::parse_object(params)?;
            waiting.cancel(&session_id);
            let result = Json::of(&serde_json::json!({"session_id": session_id}));
            std::future::ready(Ok(MethodReply { result, follow_up: FollowUp::Unwatch(session_id) })).boxed()
        }
        // Later requests do not wait for the executor, so mails of one connection may be stored in another order.
        "mail.send" => {
            let params: params::SendMailParams = params::parse_object(params)?;
            async move { to_reply(api.send_mail(&caller, params).await) }.boxed()
        }
        "mail.reply" => {
            let params: params::ReplyMailParams = params::parse_object(params)?;
            async move { to_reply(api.reply_mail(&caller, params).await) }.boxed()
        }
        _ => dispatch_read(api, caller, method, params)?,
    };
    Ok(reply)
}

/// Dispatches the methods that only read, and those of operators.
fn dispatch_read(
    api: SessionApi,
    caller: ApiCaller,
    method: &str,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    Ok(match method {
        "session.history" => {
            let params::SessionParams { session_id } = params::parse_object(params)?;
            async move { to_reply(api.get_history(&caller, session_id).await) }.boxed()
        }
        "session.transcript" => {
            let params: params::TranscriptParams = params::parse_object(params)?;
            async move { to_reply(api.get_transcript(&caller, params).await) }.boxed()
        }
        "session.get" => {
            let params::SessionParams { session_id } = params::parse_object(params)?;
            async move { to_reply(api.get_session(&caller, session_id).await) }.boxed()
        }
        "session.repair" => {
            let params::SessionParams { session_id } = params::parse_object(params)?;
            async move { to_reply(api.repair_session(&caller, session_id).await) }.boxed()
        }
        "session.replay" => {
            let params: params::ReplayParams = params::parse_object(params)?;
            async move { to_reply(api.replay_session(&caller, params).await) }.boxed()
        }
        "session.stats" => {
            let params: params::StatsParams = params::parse_object(params)?;
            async move { to_reply(api.get_stats(&caller, &params).await.map(|stats| serde_json::json!({"stats": stats}))) }
                .boxed()
        }
        "session.list" => {
            let params: params::ListSessionsParams = params::parse_object(params)?;
            async move { to_reply(api.list_sessions(&caller, &params).await) }.boxed()
        }
        "gates.list" => {
            let params: params::ListGatesParams = params::parse_object(params)?;
            async move { to_reply(api.list_gates(&caller, &params).await.map(|gates| serde_json::json!({"gates": gates}))) }
                .boxed()
        }
        "agents.list" => {
            let params::NoParams {} = params::parse_object(params)?;
            async move { to_reply(api.list_agents(&caller).await.map(|agents| serde_json::json!({"agents": agents}))) }
                .boxed()
        }
        "models.list" => {
            let params::NoParams {} = params::parse_object(params)?;
            async move { to_reply(api.list_models(&caller).await.map(|models| serde_json::json!({"models": models}))) }
                .boxed()
        }
        "mail.list" => {
            let params: params::ListMailParams = params::parse_object(params)?;
            async move { to_reply(api.list_mail(&caller, params).await) }.boxed()
        }
        "tools.result" => {
            let params: params::ToolResultParams = params::parse_object(params)?;
            async move { to_reply(api.get_full_result(&caller, &params).await) }.boxed()
        }
        "fleet.queues" => {
            let params::NoParams {} = params::parse_object(params)?;
            async move { to_reply(api.get_queues(&caller).await) }.boxed()
        }
        "dead.list" => {
            let params: params::ListDeadLettersParams = params::parse_object(params)?;
            async move {
                to_reply(api.list_dead_letters(&caller, &params).await.map(|dead| serde_json::json!({"dead": dead})))
            }
            .boxed()
        }
        "dead.show" => {
            let params: params::DeadLetterParams = params::parse_object(params)?;
            async move { to_reply(api.get_dead_letter(&caller, params).await) }.boxed()
        }
        "dead.retry" => {
            let params: params::DeadLetterParams = params::parse_object(params)?;
            async move { to_reply(api.retry_dead_letter(&caller, params).await) }.boxed()
        }
        "dead.drop" => {
            let params: params::DeadLetterParams = params::parse_object(params)?;
            async move { to_reply(api.drop_dead_letter(&caller, params).await) }.boxed()
        }
        _ => {
            let params::NoParams {} = params::parse_object(params)?;
            async move { to_reply(api.list_tools(&caller).await.map(|tools| ToolList { tools })) }.boxed()
        }
    })
}

async fn watch_after_start(
    api: &SessionApi,
    caller: &ApiCaller,
    params: &params::WatchParams,
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
    api.validate_command(caller, UncheckedCommand::from_json(params)?).await
}

fn wait_for_command(pending: PendingCommand) -> ReplyFuture {
    async move { to_reply(pending.wait().await) }.boxed()
}

fn to_reply<T: Serialize>(outcome: Result<T, ApiError>) -> Result<MethodReply, ApiError> {
    outcome.map(|result| MethodReply { result: Json::of(&result), follow_up: FollowUp::Nothing })
}
