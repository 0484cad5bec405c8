//! Runs a method with its parameters as JSON: the part of a request that WebSocket and HTTP share.

use contract::trace::TraceContext;
use contract::{ErrorCode, Json};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use session_api::{AgentList, FleetToolList, Method, ModelList, NoParams, SessionParams, ToolReplicaList};

use crate::access::ApiCaller;
use crate::api::{ReachedSession, SessionApi, describe_caller};
use crate::api_error::ApiError;
use crate::commands::{self, CommandVerb, PendingCommand};
use crate::params::{self, CommandBody, UnvalidatedCommand};
use crate::request_trace;

/// The part of a request that may run while later requests begin.
pub(crate) type ReplyFuture = BoxFuture<'static, Result<Json, ApiError>>;

/// Runs a method from its authorization to its result, under a span of its own.
pub async fn call(
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
pub async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    method: Method,
    reached: Option<ReachedSession>,
    params: Map<String, Value>,
) -> Result<ReplyFuture, ApiError> {
    let (api, caller) = (api.clone(), caller.clone());
    // Methods that take their parameters by value, by reference, or not at all; the last ones return a list.
    macro_rules! call {
        ($method:ident(params)) => {
            defer(params, move |params| async move { api.$method(&caller, params).await })
        };
        ($method:ident(&params)) => {
            defer(params, move |params| async move { api.$method(&caller, &params).await })
        };
        ($method:ident()) => {
            defer(params, move |NoParams {}| async move { api.$method(&caller).await })
        };
        ($list:ident { $field:ident: $method:ident() }) => {
            defer(params, move |NoParams {}| async move { Ok($list { $field: api.$method(&caller).await? }) })
        };
    }
    // Methods that read the session which the parameters name.
    macro_rules! read {
        ($method:ident()) => {
            defer(params, move |SessionParams { .. }| async move { api.$method(&caller, &named(reached)?).await })
        };
        ($method:ident(&params)) => {
            defer(params, move |params| async move { api.$method(&caller, &named(reached)?, &params).await })
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
        Method::WatchSession | Method::UnwatchSession => Err(needs_stream(method)),
        // Later requests do not wait for the executor, so mails of one connection may be stored in another order.
        Method::SendMail => call!(send_mail(params)),
        Method::ReplyMail => call!(reply_mail(params)),
        Method::ListMail => call!(list_mail(params)),
        Method::GetHistory => read!(get_history()),
        Method::GetTranscript => read!(get_transcript(&params)),
        Method::GetSession => read!(get_session()),
        Method::RepairSession => read!(repair_session()),
        Method::ReplaySession => read!(replay_session(&params)),
        Method::TraceSession => read!(trace_session()),
        Method::DescribeSession => read!(describe_session()),
        Method::GetFullResult => read!(get_full_result(&params)),
        Method::ListSessions => call!(list_sessions(&params)),
        Method::GetStats => call!(get_stats(&params)),
        Method::ListClientCalls => call!(list_client_calls(&params)),
        Method::ListGates => call!(list_gates(&params)),
        Method::GetCaller => defer(params, move |NoParams {}| async move { Ok(describe_caller(&caller)) }),
        Method::ListAgents => call!(AgentList { agents: list_agents() }),
        Method::DescribeAgent => call!(describe_agent(params)),
        Method::TestReply => call!(test_reply(params)),
        Method::ListModels => call!(ModelList { models: list_models() }),
        Method::ListTools => call!(FleetToolList { tools: list_tools() }),
        Method::ListToolReplicas => call!(ToolReplicaList { replicas: list_tool_replicas() }),
        Method::TryTool => call!(try_tool(params)),
        Method::ListBudgets => call!(list_budgets()),
        Method::ResetBudget => call!(reset_budget(params)),
        Method::GetQueues => call!(get_queues()),
        Method::GetStatus => call!(get_status()),
        Method::ListDeadLetters => call!(list_dead_letters(&params)),
        Method::GetDeadLetter => call!(get_dead_letter(params)),
        Method::RetryDeadLetter => call!(retry_dead_letter(params)),
        Method::DropDeadLetter => call!(drop_dead_letter(params)),
    }
}

fn needs_stream(method: Method) -> ApiError {
    ApiError::new(ErrorCode::UnknownMethod, format!("{} needs a connection that streams", method.name()))
}

/// The session that the parameters name. They were parsed, so there is one.
pub fn named(reached: Option<ReachedSession>) -> Result<ReachedSession, ApiError> {
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
