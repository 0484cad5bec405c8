//! The methods of the service.

use contract::client_tool::AnswerToolCall;
use contract::command::{Answer, Configure, SendUserMessage};
use edge_core::api::describe_caller;
use edge_core::commands;
use edge_core::params::{self, UnvalidatedCommand};
use proto::sessions_server::Sessions as Service;
use session_api::{
    CallList, Caller, DeadLetterList, DescribeAgentParams, GateList, ListDeadLettersParams, ListMailParams,
    ListPendingParams, ListSessionsParams, MailboxPage, Method, QueueDepth, ReplayParams, ReplyDecision,
    ReplyMailParams, ResetBudgetParams, SendMailParams, SessionPage, StatsList, StatsParams, TestReplyParams,
    ToolResultParams, TranscriptPage, TranscriptParams, TryToolParams, WatchParams,
};
use tonic::{Request, Response, Status};

use super::GrpcService;
use super::replies::{
    to_agent_description, to_agent_info, to_gate, to_json, to_mail, to_model_info, to_names, to_pending_call,
    to_session_info, to_tool_info, wait_for_command,
};
use super::requests::{
    parse_client_tools, parse_content, parse_dead_letter, parse_optional_json, parse_options, parse_since, parse_start,
};
use super::stream::{NotificationStream, stream_notifications};

#[tonic::async_trait]
impl Service for GrpcService {
    async fn start(&self, request: Request<proto::StartRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::StartSession, &message.session_id, &request, async |api, caller| {
            let body = parse_start(message)?;
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            wait_for_command(Box::pin(api.start(caller, command)).await?).await
        })
        .await
    }

    async fn send(&self, request: Request<proto::SendRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::SendMessage, &message.session_id, &request, async |api, caller| {
            let mode = params::parse_optional_word("mode", &message.mode)?.unwrap_or_default();
            let body = SendUserMessage {
                client_tools: parse_client_tools(&message.client_tools_json)?,
                ..SendUserMessage::new(parse_content(&message.text, &message.content_json)?, mode)
            };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            wait_for_command(api.submit(caller, commands::SEND, command).await?).await
        })
        .await
    }

    async fn pause(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.control(Method::PauseSession, commands::PAUSE, &request).await
    }

    async fn resume(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.control(Method::ResumeSession, commands::RESUME, &request).await
    }

    async fn stop(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.control(Method::StopSession, commands::STOP, &request).await
    }

    async fn cancel_turn(
        &self,
        request: Request<proto::ControlRequest>,
    ) -> Result<Response<proto::CommandReply>, Status> {
        self.control(Method::CancelTurn, commands::CANCEL_TURN, &request).await
    }

    async fn clear(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.control(Method::ClearSession, commands::CLEAR, &request).await
    }

    async fn configure(
        &self,
        request: Request<proto::ConfigureRequest>,
    ) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ConfigureSession, &message.session_id, &request, async |api, caller| {
            let mut configure: Configure = params::parse_object(parse_options(&message.options_json)?)?;
            configure.model = Some(message.model.clone()).filter(|model| !model.is_empty()).or(configure.model);
            let command =
                UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, configure)?;
            wait_for_command(api.submit(caller, commands::CONFIGURE, command).await?).await
        })
        .await
    }

    async fn answer(&self, request: Request<proto::AnswerRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::AnswerGate, &message.session_id, &request, async |api, caller| {
            let body = Answer {
                decision: params::parse_word("decision", &message.decision)?,
                gate: params::parse("gate", &message.gate)?,
                arguments_sha256: message.arguments_sha256.clone(),
                arguments: parse_optional_json(&message.arguments_json)?,
                content: message.content.clone(),
                note: Some(message.note.clone()).filter(|note| !note.is_empty()),
            };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            wait_for_command(api.submit(caller, commands::ANSWER, command).await?).await
        })
        .await
    }

    async fn answer_call(
        &self,
        request: Request<proto::AnswerCallRequest>,
    ) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::AnswerToolCall, &message.session_id, &request, async |api, caller| {
            let body = AnswerToolCall {
                call: params::parse("call", &message.call)?,
                outcome: params::parse_word("outcome", &message.outcome)?,
                content: message.content.clone(),
            };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            wait_for_command(api.submit(caller, commands::ANSWER_CALL, command).await?).await
        })
        .await
    }

    async fn list_calls(
        &self,
        request: Request<proto::ListCallsRequest>,
    ) -> Result<Response<proto::ListCallsReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ListClientCalls, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_optional("session_id", &message.session_id)?;
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let CallList { calls, missing_cells } =
                api.list_client_calls(caller, &ListPendingParams { session_id, limit }).await?;
            let missing_cells = to_names(missing_cells);
            Ok(proto::ListCallsReply { calls: calls.into_iter().map(to_pending_call).collect(), missing_cells })
        })
        .await
    }

    async fn history(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::HistoryReply>, Status> {
        self.read(Method::GetHistory, &request.get_ref().session_id, &request, async |api, caller, session| {
            let history = api.get_history(caller, session).await?;
            Ok(proto::HistoryReply { messages_json: to_json(&history.messages)?, seq: history.seq })
        })
        .await
    }

    async fn transcript(
        &self,
        request: Request<proto::TranscriptRequest>,
    ) -> Result<Response<proto::TranscriptReply>, Status> {
        let message = request.get_ref();
        self.read(Method::GetTranscript, &message.session_id, &request, async |api, caller, session| {
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let params = TranscriptParams { session_id: session.id().clone(), after: message.after, limit };
            let TranscriptPage { session_id: _, turns, next_after, is_incomplete } =
                api.get_transcript(caller, session, &params).await?;
            Ok(proto::TranscriptReply { turns_json: to_json(&turns)?, next_after, is_incomplete })
        })
        .await
    }

    async fn get(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::SessionInfo>, Status> {
        self.read(Method::GetSession, &request.get_ref().session_id, &request, async |api, caller, session| {
            Ok(to_session_info(api.get_session(caller, session).await?))
        })
        .await
    }

    async fn repair(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::RepairReply>, Status> {
        self.read(Method::RepairSession, &request.get_ref().session_id, &request, async |api, caller, session| {
            let repaired = api.repair_session(caller, session).await?;
            Ok(proto::RepairReply { performed: repaired.performed })
        })
        .await
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ListSessions, "", &request, async |api, caller| {
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let params = ListSessionsParams {
                phase: params::parse_optional_word("phase", &message.phase)?,
                limit,
                cursor: params::parse_optional("cursor", &message.cursor)?,
                agent: params::parse_optional("agent", &message.agent)?,
                model: Some(message.model.clone()).filter(|model| !model.is_empty()),
                since: parse_since(&message.since)?,
                stop_reason: params::parse_optional_word("stop_reason", &message.stop_reason)?,
                text: Some(message.text.clone()).filter(|text| !text.is_empty()),
                is_waiting: message.is_waiting,
                is_failed: message.is_failed,
                cost_usd_min: message.cost_usd_min,
                parent: params::parse_optional("parent", &message.parent)?,
                has_total: message.has_total,
            };
            let SessionPage { sessions, next_cursor, total, missing_cells } =
                api.list_sessions(caller, &params).await?;
            let sessions = sessions.into_iter().map(to_session_info).collect();
            let total = total.map(|total| u64::try_from(total).unwrap_or(u64::MAX));
            let (next_cursor, missing_cells) = (next_cursor.unwrap_or_default(), to_names(missing_cells));
            Ok(proto::ListReply { sessions, next_cursor, total, missing_cells })
        })
        .await
    }

    async fn trace(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::TraceReply>, Status> {
        let message = request.get_ref();
        self.read(Method::TraceSession, &message.session_id, &request, async |api, caller, session| {
            let traced = api.trace_session(caller, session).await?;
            Ok(proto::TraceReply { json: to_json(&traced)? })
        })
        .await
    }

    async fn describe(
        &self,
        request: Request<proto::SessionRequest>,
    ) -> Result<Response<proto::DescribeReply>, Status> {
        let message = request.get_ref();
        self.read(Method::DescribeSession, &message.session_id, &request, async |api, caller, session| {
            let described = api.describe_session(caller, session).await?;
            Ok(proto::DescribeReply { json: to_json(&described)? })
        })
        .await
    }

    async fn replay(&self, request: Request<proto::ReplayRequest>) -> Result<Response<proto::ReplayReply>, Status> {
        let message = request.get_ref();
        self.read(Method::ReplaySession, &message.session_id, &request, async |api, caller, session| {
            let session_id = session.id().clone();
            let params = ReplayParams { session_id, at: message.at, no_commits: message.no_commits };
            let replayed = api.replay_session(caller, session, &params).await?;
            let (slot, differs) = (replayed.slot, !replayed.differs.is_empty());
            Ok(proto::ReplayReply { json: to_json(&replayed)?, slot, differs })
        })
        .await
    }

    async fn stats(&self, request: Request<proto::StatsRequest>) -> Result<Response<proto::StatsReply>, Status> {
        let message = request.get_ref();
        self.call(Method::GetStats, "", &request, async |api, caller| {
            let since = parse_since(&message.since)?;
            let interval = Some(message.interval).filter(|seconds| *seconds > 0);
            let StatsList { stats, intervals, missing_cells } =
                api.get_stats(caller, &StatsParams { since, interval }).await?;
            let intervals_json = intervals.map(|intervals| to_json(&intervals)).transpose()?.unwrap_or_default();
            let missing_cells = to_names(missing_cells);
            Ok(proto::StatsReply { json: to_json(&stats)?, intervals_json, missing_cells })
        })
        .await
    }

    async fn tool_result(
        &self,
        request: Request<proto::ToolResultRequest>,
    ) -> Result<Response<proto::ToolResultReply>, Status> {
        let message = request.get_ref();
        self.read(Method::GetFullResult, &message.session_id, &request, async |api, caller, session| {
            let call = params::parse("call", &message.call)?;
            let params = ToolResultParams { session_id: session.id().clone(), call };
            let full_result = api.get_full_result(caller, session, &params).await?;
            Ok(proto::ToolResultReply { content: full_result.content })
        })
        .await
    }

    async fn list_gates(
        &self,
        request: Request<proto::ListGatesRequest>,
    ) -> Result<Response<proto::ListGatesReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ListGates, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_optional("session_id", &message.session_id)?;
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let GateList { gates, missing_cells } =
                api.list_gates(caller, &ListPendingParams { session_id, limit }).await?;
            let missing_cells = to_names(missing_cells);
            Ok(proto::ListGatesReply { gates: gates.into_iter().map(to_gate).collect(), missing_cells })
        })
        .await
    }

    async fn queues(&self, request: Request<proto::QueuesRequest>) -> Result<Response<proto::QueuesReply>, Status> {
        self.call(Method::GetQueues, "", &request, async |api, caller| {
            let found = api.get_queues(caller).await?;
            let queues = found.queues.into_iter().map(|QueueDepth { queue, waiting, held }| proto::Queue {
                queue: queue.to_owned(),
                waiting,
                held,
            });
            Ok(proto::QueuesReply {
                queues: queues.collect(),
                waiting_calls_max: found.waiting_calls_max,
                tenant_waiting_calls_max: found.tenant_waiting_calls_max,
                missing_cells: to_names(found.missing_cells),
            })
        })
        .await
    }

    async fn list_budgets(
        &self,
        request: Request<proto::ListBudgetsRequest>,
    ) -> Result<Response<proto::BudgetsReply>, Status> {
        self.call(Method::ListBudgets, "", &request, async |api, caller| {
            Ok(proto::BudgetsReply { json: to_json(&api.list_budgets(caller).await?.budgets)? })
        })
        .await
    }

    async fn reset_budget(
        &self,
        request: Request<proto::ResetBudgetRequest>,
    ) -> Result<Response<proto::BudgetsReply>, Status> {
        self.call(Method::ResetBudget, "", &request, async |api, caller| {
            let params = ResetBudgetParams { budget: request.get_ref().budget.clone() };
            Ok(proto::BudgetsReply { json: to_json(&api.reset_budget(caller, params).await?.budgets)? })
        })
        .await
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Result<Response<proto::StatusReply>, Status> {
        self.call(Method::GetStatus, "", &request, async |api, caller| {
            Ok(proto::StatusReply { json: to_json(&api.get_status(caller).await?)? })
        })
        .await
    }

    async fn list_mail(
        &self,
        request: Request<proto::ListMailRequest>,
    ) -> Result<Response<proto::ListMailReply>, Status> {
        self.call(Method::ListMail, "", &request, async |api, caller| {
            let mailbox = params::parse_optional("mailbox", &request.get_ref().mailbox)?;
            let MailboxPage { mails, more, missing_cells } = api.list_mail(caller, ListMailParams { mailbox }).await?;
            let more = u64::try_from(more).unwrap_or(u64::MAX);
            let (mails, missing_cells) = (mails.into_iter().map(to_mail).collect(), to_names(missing_cells));
            Ok(proto::ListMailReply { mails, more, missing_cells })
        })
        .await
    }

    async fn send_mail(
        &self,
        request: Request<proto::SendMailRequest>,
    ) -> Result<Response<proto::SendMailReply>, Status> {
        self.call(Method::SendMail, "", &request, async |api, caller| {
            let proto::SendMailRequest { mailbox, command_id, to, subject, text } = request.get_ref().clone();
            let mailbox = params::parse_optional("mailbox", &mailbox)?;
            let command_id = params::parse_optional("command_id", &command_id)?;
            let params = SendMailParams { mailbox, command_id, to, subject, text };
            let sent = api.send_mail(caller, params).await?;
            Ok(proto::SendMailReply { id: sent.sent.to_string(), to: sent.to.to_string() })
        })
        .await
    }

    async fn reply_mail(
        &self,
        request: Request<proto::ReplyMailRequest>,
    ) -> Result<Response<proto::ReplyMailReply>, Status> {
        self.call(Method::ReplyMail, "", &request, async |api, caller| {
            let proto::ReplyMailRequest { mailbox, command_id, id, text } = request.get_ref().clone();
            let mailbox = params::parse_optional("mailbox", &mailbox)?;
            let command_id = params::parse_optional("command_id", &command_id)?;
            let params = ReplyMailParams { mailbox, command_id, id, text };
            let closed = api.reply_mail(caller, params).await?;
            Ok(proto::ReplyMailReply { id: closed.closed.to_string(), answered: closed.answered })
        })
        .await
    }

    async fn list_dead(
        &self,
        request: Request<proto::ListDeadRequest>,
    ) -> Result<Response<proto::ListDeadReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ListDeadLetters, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_optional("session_id", &message.session_id)?;
            let DeadLetterList { dead, missing_cells } =
                api.list_dead_letters(caller, &ListDeadLettersParams { session_id }).await?;
            Ok(proto::ListDeadReply { json: to_json(&dead)?, missing_cells: to_names(missing_cells) })
        })
        .await
    }

    async fn show_dead(&self, request: Request<proto::DeadRequest>) -> Result<Response<proto::DeadReply>, Status> {
        self.call(Method::GetDeadLetter, &request.get_ref().session_id, &request, async |api, caller| {
            let letter = api.get_dead_letter(caller, parse_dead_letter(request.get_ref())?).await?;
            Ok(proto::DeadReply { json: to_json(&letter)? })
        })
        .await
    }

    async fn retry_dead(
        &self,
        request: Request<proto::DeadRequest>,
    ) -> Result<Response<proto::RetryDeadReply>, Status> {
        self.call(Method::RetryDeadLetter, &request.get_ref().session_id, &request, async |api, caller| {
            let retried = api.retry_dead_letter(caller, parse_dead_letter(request.get_ref())?).await?;
            let (session_id, command_id) = (retried.session_id.to_string(), retried.command_id.to_string());
            Ok(proto::RetryDeadReply { session_id, command_id })
        })
        .await
    }

    async fn drop_dead(&self, request: Request<proto::DeadRequest>) -> Result<Response<proto::DeadReply>, Status> {
        self.call(Method::DropDeadLetter, &request.get_ref().session_id, &request, async |api, caller| {
            let letter = api.drop_dead_letter(caller, parse_dead_letter(request.get_ref())?).await?;
            Ok(proto::DeadReply { json: to_json(&letter)? })
        })
        .await
    }

    type WatchStream = NotificationStream;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let message = request.get_ref();
        self.read(Method::WatchSession, &message.session_id, &request, async |api, caller, session| {
            let session_id = session.id().clone();
            let watch = WatchParams { session_id, from_seq: message.from_seq, no_chunks: message.no_chunks };
            Ok(stream_notifications(api.open_stream(caller, session, &watch).await?))
        })
        .await
    }

    async fn tool_replicas(
        &self,
        request: Request<proto::ToolReplicasRequest>,
    ) -> Result<Response<proto::ToolReplicasReply>, Status> {
        self.call(Method::ListToolReplicas, "", &request, async |api, caller| {
            Ok(proto::ToolReplicasReply { json: to_json(&api.list_tool_replicas(caller).await?)? })
        })
        .await
    }

    async fn try_tool(&self, request: Request<proto::TryToolRequest>) -> Result<Response<proto::TryToolReply>, Status> {
        let message = request.get_ref();
        self.call(Method::TryTool, "", &request, async |api, caller| {
            let mut call = TryToolParams::new(params::parse("tool", &message.tool)?);
            if let Some(arguments) = parse_optional_json(&message.arguments_json)? {
                call.arguments = arguments;
            }
            call.arguments_sha256 = Some(message.arguments_sha256.clone()).filter(|hash| !hash.is_empty());
            Ok(proto::TryToolReply { json: to_json(&api.try_tool(caller, call).await?)? })
        })
        .await
    }

    async fn get_caller(
        &self,
        request: Request<proto::GetCallerRequest>,
    ) -> Result<Response<proto::GetCallerReply>, Status> {
        self.call(Method::GetCaller, "", &request, async |_, caller| {
            let Caller { subject, tenant, scopes, agents, methods } = describe_caller(caller);
            Ok(proto::GetCallerReply {
                subject,
                tenant: tenant.to_string(),
                scopes: scopes.iter().map(ToString::to_string).collect(),
                is_limited_to_agents: agents.is_some(),
                agents: agents.into_iter().flatten().map(|agent| agent.to_string()).collect(),
                methods: methods.into_iter().map(str::to_owned).collect(),
            })
        })
        .await
    }

    async fn list_agents(
        &self,
        request: Request<proto::ListAgentsRequest>,
    ) -> Result<Response<proto::ListAgentsReply>, Status> {
        self.call(Method::ListAgents, "", &request, async |api, caller| {
            let agents = api.list_agents(caller).await?;
            Ok(proto::ListAgentsReply { agents: agents.into_iter().map(to_agent_info).collect() })
        })
        .await
    }

    async fn describe_agent(
        &self,
        request: Request<proto::DescribeAgentRequest>,
    ) -> Result<Response<proto::AgentDescription>, Status> {
        let message = request.get_ref();
        self.call(Method::DescribeAgent, "", &request, async |api, caller| {
            let agent = params::parse_optional("agent", &message.agent)?;
            let model = Some(message.model.clone()).filter(|model| !model.is_empty());
            to_agent_description(api.describe_agent(caller, DescribeAgentParams { agent, model }).await?)
        })
        .await
    }

    async fn test_reply(
        &self,
        request: Request<proto::TestReplyRequest>,
    ) -> Result<Response<proto::TestReplyReply>, Status> {
        let message = request.get_ref();
        self.call(Method::TestReply, "", &request, async |api, caller| {
            let calls = message.calls.iter().map(|name| params::parse("calls", name)).collect::<Result<_, _>>()?;
            let (agent, text) = (params::parse("agent", &message.agent)?, message.text.clone());
            let step = Some(message.step).filter(|step| *step > 0);
            let reply = TestReplyParams { agent, text, calls, is_cut: message.is_cut, step };
            let ReplyDecision { continues, source, reason, visible } = api.test_reply(caller, reply).await?;
            Ok(proto::TestReplyReply { continues, source, reason, visible })
        })
        .await
    }

    async fn list_models(
        &self,
        request: Request<proto::ListModelsRequest>,
    ) -> Result<Response<proto::ListModelsReply>, Status> {
        self.call(Method::ListModels, "", &request, async |api, caller| {
            let models = api.list_models(caller).await?;
            Ok(proto::ListModelsReply { models: models.into_iter().map(to_model_info).collect() })
        })
        .await
    }

    async fn list_tools(
        &self,
        request: Request<proto::ListToolsRequest>,
    ) -> Result<Response<proto::ListToolsReply>, Status> {
        self.call(Method::ListTools, "", &request, async |api, caller| {
            let tools = api.list_tools(caller).await?;
            Ok(proto::ListToolsReply { tools: tools.into_iter().map(to_tool_info).collect() })
        })
        .await
    }
}
