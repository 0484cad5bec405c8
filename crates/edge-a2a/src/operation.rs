//! The operations of A2A, which both bindings share.

use contract::ErrorCode;
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::params;
use serde_json::{Map, Value, json};
use session_api::Method;

use super::card_routes::CardAddress;
use super::errors::{A2aError, A2aErrorKind};
use super::loaded_task::LoadedTask;
use super::requests::{ListTasksParams, SendParams, TaskParams, parse_history_length};
use super::task::TaskPhase;
use super::task_stream::TaskStream;
use super::{card, list, send};

/// An operation with its parameters.
#[derive(Debug)]
pub(super) enum AgentOperation {
    Send(SendParams),
    Stream(SendParams),
    GetTask(TaskParams),
    ListTasks(ListTasksParams),
    CancelTask(TaskParams),
    SubscribeToTask(TaskParams),
    /// Whatever is to be done with settings of push notifications.
    PushConfigs,
    ExtendedCard,
}

/// The result of an operation.
#[derive(Debug)]
pub(super) enum OperationReply {
    Json(Value),
    Stream { stream: Box<TaskStream>, history: Option<usize> },
}

impl AgentOperation {
    /// Parses the parameters of the method of this name.
    pub(super) fn parse(method: &str, params: Map<String, Value>) -> Result<Self, A2aError> {
        Ok(match method {
            "SendMessage" => Self::Send(params::parse_object(params)?),
            "SendStreamingMessage" => Self::Stream(params::parse_object(params)?),
            "GetTask" => Self::GetTask(params::parse_object(params)?),
            "ListTasks" => Self::ListTasks(params::parse_object(params)?),
            "CancelTask" => Self::CancelTask(params::parse_object(params)?),
            "SubscribeToTask" => Self::SubscribeToTask(params::parse_object(params)?),
            "GetExtendedAgentCard" => Self::ExtendedCard,
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => Self::PushConfigs,
            other => {
                let other: String = other.chars().take(80).collect();
                let message = format!("there is no method {other:?} in A2A 1.0");
                return Err(A2aError::new(A2aErrorKind::MethodNotFound, ErrorCode::UnknownMethod, message));
            }
        })
    }

    /// Returns the name in spans and metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "a2a.send_message",
            Self::Stream(_) => "a2a.send_streaming_message",
            Self::GetTask(_) => "a2a.get_task",
            Self::ListTasks(_) => "a2a.list_tasks",
            Self::CancelTask(_) => "a2a.cancel_task",
            Self::SubscribeToTask(_) => "a2a.subscribe_to_task",
            Self::PushConfigs => "a2a.push_configs",
            Self::ExtendedCard => "a2a.extended_card",
        }
    }

    /// Performs the operation at the interface of an agent, or at that of all agents.
    pub(super) async fn perform(
        self,
        api: &SessionApi,
        caller: &ApiCaller,
        agent: Option<&str>,
        card: CardAddress,
    ) -> Result<OperationReply, A2aError> {
        match self {
            Self::Send(params) => {
                let configuration = params.configuration.clone().unwrap_or_default();
                let history = parse_history_length(configuration.history_length)?;
                let loaded = send::send(api, caller, agent, &params).await?;
                let task = if configuration.return_immediately == Some(true) {
                    loaded.task
                } else {
                    TaskStream::open(api, caller, loaded, false, false).await?.wait().await?
                };
                Ok(OperationReply::Json(json!({"task": task.to_json(history, true)})))
            }
            Self::Stream(params) => {
                let history = params.configuration.as_ref().and_then(|configuration| configuration.history_length);
                let history = parse_history_length(history)?;
                let task = send::send(api, caller, agent, &params).await?;
                let stream = Box::new(TaskStream::open(api, caller, task, true, false).await?);
                Ok(OperationReply::Stream { stream, history })
            }
            Self::GetTask(params) => {
                let (id, history) = (params.task_id()?, parse_history_length(params.history_length)?);
                let loaded = send::load_of_agent(api, caller, agent, Method::GetTranscript, &id).await?;
                Ok(OperationReply::Json(loaded.task.to_json(history, true)))
            }
            Self::SubscribeToTask(params) => {
                let id = params.task_id()?;
                let loaded = send::load_of_agent(api, caller, agent, Method::WatchSession, &id).await?;
                if loaded.task.phase().is_final() {
                    let state = loaded.task.phase().as_str();
                    let message = format!("task {id} has ended ({state}): get it");
                    return Err(A2aError::unsupported(ErrorCode::NotNow, message));
                }
                let stream = Box::new(TaskStream::open(api, caller, loaded, true, true).await?);
                Ok(OperationReply::Stream { stream, history: None })
            }
            Self::CancelTask(params) => cancel(api, caller, agent, &params).await,
            Self::ListTasks(params) => list::list(api, caller, agent, &params).await.map(OperationReply::Json),
            Self::PushConfigs => Err(send::push_not_supported()),
            Self::ExtendedCard => {
                api.authorize(caller, Method::ListAgents, None).await?;
                let agents = api.list_agents(caller).await?;
                let chosen = send::choose_agent(&agents, agent)?;
                Ok(OperationReply::Json(card::extended_card(chosen, &card.base_url, card.needs_credential)))
            }
        }
    }
}

/// Cancels the turn of the task. The command names no turn, so that a message that waits cannot be taken back.
async fn cancel(
    api: &SessionApi,
    caller: &ApiCaller,
    agent: Option<&str>,
    params: &TaskParams,
) -> Result<OperationReply, A2aError> {
    let id = params.task_id()?;
    let loaded = send::load_of_agent(api, caller, agent, Method::CancelTurn, &id).await?;
    let phase = loaded.task.phase();
    let refuse = |why: String| Err(A2aError::new(A2aErrorKind::TaskNotCancelable, ErrorCode::NotNow, why));
    if phase.is_final() {
        return refuse(format!("task {id} has ended already ({})", phase.as_str()));
    }
    if phase == TaskPhase::Submitted {
        return refuse(format!("task {id} waits for its turn: cancel the task that runs in its context first"));
    }
    api.cancel_turn(caller, &id.session, format!("task {id} was cancelled")).await?;
    let loaded = LoadedTask::load(api, caller, &id).await?;
    Ok(OperationReply::Json(loaded.task.to_json(None, true)))
}
