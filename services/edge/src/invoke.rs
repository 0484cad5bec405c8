//! Runs a method with its parameters as JSON: the part of a request that WebSocket and HTTP share.

use contract::client_tool::OpenClientCall;
use contract::commit::OpenGate;
use contract::trace::TraceContext;
use contract::{CellName, ErrorCode, Json};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use session_api::{Method, NoParams, ResetBudgetParams, SessionParams};

use crate::access::ApiCaller;
use crate::api::{CallerInfo, PendingList, ReachedSession, SessionApi};
use crate::api_error::ApiError;
use crate::commands::{self, CommandVerb, PendingCommand};
use crate::params::{self, CommandBody, UnvalidatedCommand};
use crate::request_trace;

/// The part of a request that may run while later requests begin.
pub(crate) type ReplyFuture = BoxFuture<'static, Result<Json, ApiError>>;

/// Runs a method from its authorization to its result, under a span of its own.
pub(crate) async fn call(
    api: &SessionApi,
    caller: &ApiCaller,
    method: Method,
    params: Map<String, Value>,
    trace: Option<TraceContext>,
) -> Result<Json, ApiError> {
    let session = params.get("session_id").and_then(Value::as_str).map(str::to_owned);
    request_trace::run(method.name(), session.as_deref(), trace, async {
        let reached = api.authorize(caller, method, session.as_deref()).await?;
        begin(api, caller, method, reached, params).await?.await
    })
    .await
}

/// Does the part of an authorized request that must keep the order of the requests: for a command, sending it.
pub(crate) async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    method: Method,
    reached: Option<ReachedSession>,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    let (api, caller) = (api.clone(), caller.clone());
    macro_rules! of_session {
        ($read:ident) => {
            defer(params, move |SessionParams { .. }| async move { api.$read(&caller, &named(reached)?).await })
        };
    }
    macro_rules! read_session {
        ($read:ident) => {
            defer(params, move |params| async move { api.$read(&caller, &named(reached)?, &params).await })
        };
    }
    match method {
        Method::StartSession => {
            Ok(wait_for_command(Box::pin(api.start(&caller, UnvalidatedCommand::from_json(params)?)).await?))
        }
        Method::SendMessage => submit(&api, &caller, commands::SEND, params).await,
        Method::PauseSession => submit(&api, &caller, commands::PAUSE, params).await,
        Method::ResumeSession => submit(&api, &caller, commands::RESUME, params).await,
        Method::StopSession => submit(&api, &caller, commands::STOP, params).await,
        Method::CancelTurn => submit(&api, &caller, commands::CANCEL_TURN, params).await,
        Method::AnswerGate => submit(&api, &caller, commands::ANSWER, params).await,
        Method::AnswerToolCall => submit(&api, &caller, commands::ANSWER_CALL, params).await,
        Method::ConfigureSession => submit(&api, &caller, commands::CONFIGURE, params).await,
        Method::ClearSession => submit(&api, &caller, commands::CLEAR, params).await,
        Method::WatchSession | Method::UnwatchSession => {
            Err(ApiError::new(ErrorCode::UnknownMethod, format!("{} needs a connection that streams", method.name())))
        }
        // Later requests do not wait for the executor, so mails of one connection may be stored in another order.
        Method::SendMail => defer(params, move |params| async move { api.send_mail(&caller, params).await }),
        Method::ReplyMail => defer(params, move |params| async move { api.reply_mail(&caller, params).await }),
        Method::ListMail => defer(params, move |params| async move {
            let (list, missing_cells) = api.list_mail(&caller, params).await?;
            Ok(with_missing(json!(list), &missing_cells))
        }),
        Method::GetHistory => of_session!(get_history),
        Method::GetTranscript => read_session!(get_transcript),
        Method::GetSession => of_session!(get_session),
        Method::RepairSession => of_session!(repair_session),
        Method::ReplaySession => read_session!(replay_session),
        Method::ListSessions => defer(params, move |params| async move { api.list_sessions(&caller, &params).await }),
        Method::TraceSession => of_session!(trace_session),
        Method::DescribeSession => of_session!(describe_session),
        Method::GetStats => defer(params, move |params| async move { api.get_stats(&caller, &params).await }),
        Method::ListClientCalls => defer(params, move |params| async move {
            let PendingList { pending, missing_cells } = api.list_pending::<OpenClientCall>(&caller, &params).await?;
            Ok(with_missing(json!({"calls": pending}), &missing_cells))
        }),
        Method::ListGates => defer(params, move |params| async move {
            let PendingList { pending, missing_cells } = api.list_pending::<OpenGate>(&caller, &params).await?;
            Ok(with_missing(json!({"gates": pending}), &missing_cells))
        }),
        Method::GetCaller => defer(params, move |NoParams {}| async move { Ok(CallerInfo::of(&caller)) }),
        Method::ListAgents => {
            defer(params, move |NoParams {}| async move { Ok(json!({"agents": api.list_agents(&caller).await?})) })
        }
        Method::DescribeAgent => defer(params, move |params| async move { api.describe_agent(&caller, params).await }),
        Method::TestReply => defer(params, move |params| async move { api.test_reply(&caller, params).await }),
        Method::ListModels => {
            defer(params, move |NoParams {}| async move { Ok(json!({"models": api.list_models(&caller).await?})) })
        }
        Method::ListTools => {
            defer(params, move |NoParams {}| async move { Ok(ToolList { tools: api.list_tools(&caller).await? }) })
        }
        Method::ListToolReplicas => {
            defer(
                params,
                move |NoParams {}| async move { Ok(json!({"replicas": api.list_tool_replicas(&caller).await?})) },
            )
        }
        Method::TryTool => defer(params, move |params| async move { api.try_tool(&caller, params).await }),
        Method::GetFullResult => read_session!(get_full_result),
        Method::ListBudgets => {
            defer(params, move |NoParams {}| async move { Ok(json!({"budgets": api.list_budgets(&caller).await?})) })
        }
        Method::ResetBudget => defer(params, move |ResetBudgetParams { budget }| async move {
            Ok(json!({"budgets": api.reset_budget(&caller, budget).await?}))
        }),
        Method::GetQueues => defer(params, move |NoParams {}| async move { api.get_queues(&caller).await }),
        Method::GetStatus => defer(params, move |NoParams {}| async move { api.get_status(&caller).await }),
        Method::ListDeadLetters => defer(params, move |params| async move {
            let (letters, missing_cells) = api.list_dead_letters(&caller, &params).await?;
            Ok(with_missing(json!({"dead": letters}), &missing_cells))
        }),
        Method::GetDeadLetter => defer(params, move |params| async move { api.get_dead_letter(&caller, params).await }),
        Method::RetryDeadLetter => {
            defer(params, move |params| async move { api.retry_dead_letter(&caller, params).await })
        }
        Method::DropDeadLetter => {
            defer(params, move |params| async move { api.drop_dead_letter(&caller, params).await })
        }
    }
}

/// The session that the parameters name. They were parsed, so there is one.
pub(crate) fn named(reached: Option<ReachedSession>) -> Result<ReachedSession, ApiError> {
    reached.ok_or_else(|| ApiError::bad_request("`session_id` is missing"))
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

/// Adds the cells that did not answer to a list, if there are any.
fn with_missing(mut list: Value, missing: &[CellName]) -> Value {
    if let (Value::Object(fields), false) = (&mut list, missing.is_empty()) {
        fields.insert("missing_cells".to_owned(), json!(missing));
    }
    list
}

#[derive(Serialize)]
struct ToolList {
    tools: Vec<contract::tool::ToolSpec>,
}

/// Sends a command now, and waits for its commit beside later requests.
async fn submit<T>(
    api: &SessionApi,
    caller: &ApiCaller,
    verb: CommandVerb<T>,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError>
where
    T: CommandBody + DeserializeOwned + Serialize + Send + 'static,
{
    Ok(wait_for_command(Box::pin(api.submit(caller, verb, UnvalidatedCommand::from_json(params)?)).await?))
}

fn wait_for_command(pending: PendingCommand) -> ReplyFuture {
    async move { to_reply(pending.wait().await) }.boxed()
}

fn to_reply<T: Serialize>(outcome: Result<T, ApiError>) -> Result<Json, ApiError> {
    outcome.map(|result| Json::of(&result))
}
