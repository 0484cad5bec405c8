//! The gRPC service `ailoop.v1.Sessions`: the same methods as JSON-RPC.

use std::pin::Pin;
use std::sync::Arc;

use bus::Depth;
use contract::command::{Answer, AnswerDecision, Configure, ControlReason, MessageMode, SendUserMessage, Start};
use contract::commit::{Phase, SessionSummary};
use contract::compose::KnownModel;
use contract::event::GateKind;
use contract::mail::WaitingMail;
use contract::model::Content;
use contract::tool::ToolSpec;
use contract::{ErrorCode, Json};
use futures::{Stream, stream};
use proto::sessions_server::Sessions as Service;
use serde_json::{Map, Value};
use service::connections::Connection;
use tonic::{Code, Request, Response, Status};
use tracing::Instrument;

use crate::admission::QueueDepth;
use crate::api_error::ApiError;
use crate::authentication::{ApiCaller, Authenticator, CredentialHeader, Credentials};
use crate::client_queue::{ClientQueue, QueueEnd, QueueItem};
use crate::commands::{CommandReply, PendingCommand};
use crate::fair_queue::Flow;
use crate::method::Method;
use crate::params::{self, CommandRequest, ListSessionsParams, UnvalidatedCommand, WatchParams};
use crate::session_api::{AgentInfo, PendingGate, SessionApi, SessionPage, TranscriptPage};
use crate::watch::viewer_event::ViewerEvent;

/// Metadata key of the milliseconds after which a retry may succeed.
pub(crate) const RETRY_AFTER_KEY: &str = "ailoop-retry-after-ms";
/// Metadata key of the last `seq`, for errors about a cursor.
pub(crate) const SEQ_KEY: &str = "ailoop-seq";

/// Trailer with the status of a response; a header if the response has no message.
const GRPC_STATUS_KEY: &str = "grpc-status";
/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
const CONNECTION_BYTES: usize = 40 << 10;

/// Serves the gRPC methods with the [`SessionApi`].
#[derive(Debug, Clone)]
pub(crate) struct GrpcService {
    api: SessionApi,
}

/// Authenticates each request, and adds the [`ApiCaller`] to it.
#[derive(Debug, Clone)]
pub(crate) struct AuthInterceptor(pub(crate) Arc<Authenticator>);

impl tonic::service::Interceptor for AuthInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let missing = || to_status(&ApiError::new(ErrorCode::Internal, "the request has no connection"));
        let connection = request.extensions().get::<Arc<Connection>>().cloned().ok_or_else(missing)?;
        let headers = request.metadata().clone().into_headers();
        let header = |name: &str| CredentialHeader::from_values(headers.get_all(name));
        let credentials = Credentials {
            authorization: header("authorization"),
            origin: header("origin"),
            host: CredentialHeader::Absent,
            flow: Flow { address: connection.address(), connection: connection.id() },
        };
        let caller = self.0.authenticate(credentials).map_err(|error| to_status(&error))?;
        if let Err(refusal) = connection.accept(CONNECTION_BYTES) {
            telemetry::metric::connection_closed("grpc", "limit");
            return Err(to_status(&ApiError::new(ErrorCode::Overloaded, refusal.to_string())));
        }
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}

impl GrpcService {
    pub(crate) fn new(api: SessionApi) -> Self {
        Self { api }
    }

    /// Runs a method under its span, and turns its error into a status.
    async fn call<M, T>(
        &self,
        method: Method,
        session: &str,
        request: &Request<M>,
        call: impl AsyncFnOnce(&SessionApi, &ApiCaller) -> Result<T, ApiError>,
    ) -> Result<Response<T>, Status> {
        let span = telemetry::span::edge_request(method.name(), Some(session).filter(|session| !session.is_empty()));
        if let Some(parent) = request.metadata().get("traceparent").and_then(|value| value.to_str().ok()) {
            telemetry::trace::set_parent(&span, parent);
        }
        let outcome = async {
            let unknown = || {
                ApiError::new(
                    ErrorCode::Unauthorized,
                    "the request is not authenticated: send `authorization: Bearer <edge.token>`",
                )
            };
            let caller = request.extensions().get::<ApiCaller>().ok_or_else(unknown)?;
            call(&self.api, caller).await
        };
        let outcome = outcome.instrument(span.clone()).await;
        let code = outcome.as_ref().err().map(|error| error.code.clone());
        if let Some(code) = &code {
            telemetry::span::failed(&span, code.as_str());
        }
        telemetry::metric::request(method.name(), code.as_ref().map_or("ok", ErrorCode::as_str));
        outcome.map(Response::new).map_err(|error| to_status(&error))
    }
}

#[tonic::async_trait]
impl Service for GrpcService {
    async fn start(&self, request: Request<proto::StartRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::StartSession, &message.session_id, &request, async |api, caller| {
            let command = UnvalidatedCommand::new(
                &message.session_id,
                &message.command_id,
                !message.no_wait,
                parse_start(message)?,
            )?;
            let command = api.validate_command(caller, command).await?;
            wait_for_command(api.start(caller, command).await?).await
        })
        .await
    }

    async fn send(&self, request: Request<proto::SendRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::SendMessage, &message.session_id, &request, async |api, caller| {
            let mode = if message.mode.is_empty() {
                MessageMode::default()
            } else {
                params::parse_word("mode", &message.mode)?
            };
            let body = SendUserMessage { content: Content::from(message.text.as_str()), mode };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            let command = api.validate_command(caller, command).await?;
            wait_for_command(api.send(caller, command).await?).await
        })
        .await
    }

    async fn pause(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call(Method::PauseSession, &request.get_ref().session_id, &request, async |api, caller| {
            wait_for_command(api.pause(caller, parse_control(request.get_ref())?).await?).await
        })
        .await
    }

    async fn resume(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call(Method::ResumeSession, &request.get_ref().session_id, &request, async |api, caller| {
            wait_for_command(api.resume(caller, parse_control(request.get_ref())?).await?).await
        })
        .await
    }

    async fn stop(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call(Method::StopSession, &request.get_ref().session_id, &request, async |api, caller| {
            wait_for_command(api.stop(caller, parse_control(request.get_ref())?).await?).await
        })
        .await
    }

    async fn clear(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call(Method::ClearSession, &request.get_ref().session_id, &request, async |api, caller| {
            wait_for_command(api.clear(caller, parse_control(request.get_ref())?).await?).await
        })
        .await
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
            let command = api.validate_command(caller, command).await?;
            wait_for_command(api.configure(caller, command).await?).await
        })
        .await
    }

    async fn answer(&self, request: Request<proto::AnswerRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let message = request.get_ref();
        self.call(Method::AnswerGate, &message.session_id, &request, async |api, caller| {
            let decision: AnswerDecision = params::parse_word("decision", &message.decision)?;
            let body = Answer {
                gate: params::parse("gate", &message.gate)?,
                arguments_sha256: message.arguments_sha256.clone(),
                decision,
                arguments: parse_optional_json(&message.arguments_json)?,
                content: message.content.clone(),
                note: Some(message.note.clone()).filter(|note| !note.is_empty()),
            };
            let command = UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, body)?;
            let command = api.validate_command(caller, command).await?;
            wait_for_command(api.answer(caller, command).await?).await
        })
        .await
    }

    async fn history(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::HistoryReply>, Status> {
        self.call(Method::GetHistory, &request.get_ref().session_id, &request, async |api, caller| {
            let history = api.get_history(caller, params::parse_session_id(&request.get_ref().session_id)?).await?;
            let messages_json = serde_json::to_string(&history.messages)
                .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
            Ok(proto::HistoryReply { messages_json, seq: history.seq })
        })
        .await
    }

    async fn transcript(
        &self,
        request: Request<proto::TranscriptRequest>,
    ) -> Result<Response<proto::TranscriptReply>, Status> {
        let message = request.get_ref();
        self.call(Method::GetTranscript, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_session_id(&message.session_id)?;
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let params = params::TranscriptParams { session_id, after: message.after, limit };
            let TranscriptPage { session_id: _, turns, next_after, is_incomplete } =
                api.get_transcript(caller, params).await?;
            Ok(proto::TranscriptReply { turns_json: to_json(&turns)?, next_after, is_incomplete })
        })
        .await
    }

    async fn get(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::SessionInfo>, Status> {
        self.call(Method::GetSession, &request.get_ref().session_id, &request, async |api, caller| {
            Ok(to_session_info(
                api.get_session(caller, params::parse_session_id(&request.get_ref().session_id)?).await?,
            ))
        })
        .await
    }

    async fn repair(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::RepairReply>, Status> {
        self.call(Method::RepairSession, &request.get_ref().session_id, &request, async |api, caller| {
            let repaired = api.repair_session(caller, params::parse_session_id(&request.get_ref().session_id)?).await?;
            Ok(proto::RepairReply { performed: repaired.performed })
        })
        .await
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ListSessions, "", &request, async |api, caller| {
            let phase: Option<Phase> =
                if message.phase.is_empty() { None } else { Some(params::parse_word("phase", &message.phase)?) };
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let cursor = if message.cursor.is_empty() { None } else { Some(params::parse("cursor", &message.cursor)?) };
            let SessionPage { sessions, next_cursor } =
                api.list_sessions(caller, &ListSessionsParams { phase, limit, cursor }).await?;
            let sessions = sessions.into_iter().map(to_session_info).collect();
            Ok(proto::ListReply { sessions, next_cursor: next_cursor.unwrap_or_default() })
        })
        .await
    }

    async fn replay(&self, request: Request<proto::ReplayRequest>) -> Result<Response<proto::ReplayReply>, Status> {
        let message = request.get_ref();
        self.call(Method::ReplaySession, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_session_id(&message.session_id)?;
            let replayed = api.replay_session(caller, params::ReplayParams { session_id, at: message.at }).await?;
            let (slot, differs) = (replayed.slot, !replayed.differs.is_empty());
            Ok(proto::ReplayReply { json: to_json(&replayed)?, slot, differs })
        })
        .await
    }

    async fn stats(&self, request: Request<proto::StatsRequest>) -> Result<Response<proto::StatsReply>, Status> {
        let message = request.get_ref();
        self.call(Method::GetStats, "", &request, async |api, caller| {
            let since = match message.since.as_str() {
                "" => None,
                text => Some(contract::Timestamp::parse(text).ok_or_else(|| {
                    ApiError::bad_request("`since` must be an instant such as 2026-01-15T10:30:45Z".to_owned())
                })?),
            };
            let stats = api.get_stats(caller, &params::StatsParams { since }).await?;
            Ok(proto::StatsReply { json: to_json(&stats)? })
        })
        .await
    }

    async fn tool_result(
        &self,
        request: Request<proto::ToolResultRequest>,
    ) -> Result<Response<proto::ToolResultReply>, Status> {
        let message = request.get_ref();
        self.call(Method::GetFullResult, &message.session_id, &request, async |api, caller| {
            let call = params::ToolResultParams {
                session_id: params::parse_session_id(&message.session_id)?,
                call: params::parse("call", &message.call)?,
            };
            let full_result = api.get_full_result(caller, &call).await?;
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
            let session_id = match message.session_id.as_str() {
                "" => None,
                text => Some(params::parse_session_id(text)?),
            };
            let limit = usize::try_from(message.limit).unwrap_or(usize::MAX);
            let gates = api.list_gates(caller, &params::ListGatesParams { session_id, limit }).await?;
            Ok(proto::ListGatesReply { gates: gates.into_iter().map(to_gate).collect() })
        })
        .await
    }

    async fn queues(&self, request: Request<proto::QueuesRequest>) -> Result<Response<proto::QueuesReply>, Status> {
        self.call(Method::GetQueues, "", &request, async |api, caller| {
            let found = api.get_queues(caller).await?;
            let queues = found.queues.into_iter().map(|QueueDepth { queue, depth: Depth { waiting, held } }| {
                proto::Queue { queue: queue.to_owned(), waiting, held }
            });
            Ok(proto::QueuesReply {
                queues: queues.collect(),
                waiting_calls_max: found.waiting_calls_max,
                tenant_waiting_calls_max: found.tenant_waiting_calls_max,
            })
        })
        .await
    }

    async fn list_mail(
        &self,
        request: Request<proto::ListMailRequest>,
    ) -> Result<Response<proto::ListMailReply>, Status> {
        self.call(Method::ListMail, "", &request, async |api, caller| {
            let mailbox = params::parse_optional("mailbox", &request.get_ref().mailbox)?;
            let list = api.list_mail(caller, params::ListMailParams { mailbox }).await?;
            let more = u64::try_from(list.more).unwrap_or(u64::MAX);
            Ok(proto::ListMailReply { mails: list.mails.into_iter().map(to_mail).collect(), more })
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
            let params = params::SendMailParams { mailbox, command_id, to, subject, text };
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
            let params = params::ReplyMailParams { mailbox, command_id, id, text };
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
            let session_id = match message.session_id.as_str() {
                "" => None,
                text => Some(params::parse_session_id(text)?),
            };
            let dead = api.list_dead_letters(caller, &params::ListDeadLettersParams { session_id }).await?;
            Ok(proto::ListDeadReply { json: to_json(&dead)? })
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

    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::Notification, Status>> + Send>>;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let message = request.get_ref();
        self.call(Method::WatchSession, &message.session_id, &request, async |api, caller| {
            let session_id = params::parse_session_id(&message.session_id)?;
            let watch = WatchParams { session_id, from_seq: message.from_seq, no_chunks: message.no_chunks };
            let (_, viewer) = match api.watch(caller, &watch).await {
                Err(error) if error.code == ErrorCode::UnknownSession => api.watch_after_start(caller, &watch).await?,
                outcome => outcome?,
            };
            let queue = Arc::new(api.client_queue());
            let (filled, draining) = (queue.clone(), api.draining().clone());
            api.tasks().spawn("viewer", async move {
                let end = tokio::select! {
                    () = draining.cancelled() => QueueEnd::Failed(SessionApi::draining_error()),
                    outcome = viewer.run(&filled) => outcome.map_or_else(QueueEnd::Failed, |()| QueueEnd::Complete),
                };
                filled.end(end);
            });
            Ok(stream_notifications(queue))
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

fn to_mail(mail: WaitingMail) -> proto::Mail {
    let WaitingMail { id, from, subject, text, sent, answers } = mail;
    let answers = answers.map(|answered| proto::AnsweredMail {
        id: answered.id.to_string(),
        subject: answered.subject,
        excerpt: answered.excerpt,
    });
    let (id, from, sent) = (id.to_string(), from.to_string(), sent.to_string());
    proto::Mail { id, from, subject, text, sent, answers }
}

fn parse_dead_letter(message: &proto::DeadRequest) -> Result<params::DeadLetterParams, ApiError> {
    Ok(params::DeadLetterParams {
        session_id: params::parse_session_id(&message.session_id)?,
        kind: params::parse_word("kind", &message.kind)?,
        id: params::parse("id", &message.id)?,
    })
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<String, ApiError> {
    serde_json::to_string(value).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

/// Adds the stable code to errors that tonic reports itself: a message that is too long or damaged, or an unknown
/// method. Tonic reports such mistakes of a client as internal; the errors of the edge have a code already.
pub(crate) async fn add_error_code(mut response: axum::response::Response) -> axum::response::Response {
    let headers = response.headers_mut();
    if headers.contains_key(proto::ERROR_CODE) {
        return response;
    }
    let status = headers.get(GRPC_STATUS_KEY).map(|status| Code::from_bytes(status.as_bytes()));
    let (status, code) = match status {
        Some(Code::OutOfRange | Code::ResourceExhausted) => (Code::InvalidArgument, ErrorCode::TooLarge),
        Some(Code::Internal | Code::InvalidArgument) => (Code::InvalidArgument, ErrorCode::BadRequest),
        Some(Code::Unimplemented) => (Code::Unimplemented, ErrorCode::UnknownMethod),
        Some(
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated,
        )
        | None => return response,
    };
    headers.insert(GRPC_STATUS_KEY, i32::from(status).into());
    if let Ok(code) = code.as_str().parse() {
        headers.insert(proto::ERROR_CODE, code);
    }
    response
}

/// Converts an error to a status with the stable code in its metadata.
pub(crate) fn to_status(error: &ApiError) -> Status {
    let mut status = Status::new(to_grpc_code(&error.code), error.message.clone());
    let metadata = status.metadata_mut();
    if let Ok(code) = error.code.as_str().parse() {
        metadata.insert(proto::ERROR_CODE, code);
    }
    if let Some(after) = error.retry_after {
        metadata.insert(RETRY_AFTER_KEY, u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into());
    }
    if let Some(seq) = error.seq {
        metadata.insert(SEQ_KEY, seq.into());
    }
    status
}

fn to_grpc_code(code: &ErrorCode) -> Code {
    let rows: [(&[ErrorCode], Code); 9] = [
        (
            &[ErrorCode::BadRequest, ErrorCode::TooLarge, ErrorCode::EmptyMessage, ErrorCode::InvalidArguments],
            Code::InvalidArgument,
        ),
        (
            &[
                ErrorCode::UnknownAgent,
                ErrorCode::UnknownCall,
                ErrorCode::UnknownFeature,
                ErrorCode::UnknownMail,
                ErrorCode::UnknownModel,
                ErrorCode::UnknownSession,
            ],
            Code::NotFound,
        ),
        (
            &[
                ErrorCode::SessionEnded,
                ErrorCode::NotNow,
                ErrorCode::GateClosed,
                ErrorCode::StaleCommand,
                ErrorCode::ApprovalNeeded,
            ],
            Code::FailedPrecondition,
        ),
        (&[ErrorCode::SessionExists], Code::AlreadyExists),
        (&[ErrorCode::Unauthorized], Code::Unauthenticated),
        (&[ErrorCode::Overloaded, ErrorCode::TooManyWaiting, ErrorCode::SlowClient], Code::ResourceExhausted),
        (&[ErrorCode::Unavailable, ErrorCode::NatsUnreachable, ErrorCode::Draining], Code::Unavailable),
        (&[ErrorCode::Resync], Code::OutOfRange),
        (&[ErrorCode::HistoryLost], Code::DataLoss),
    ];
    rows.iter().find(|(codes, _)| codes.contains(code)).map_or(Code::Internal, |(_, code)| *code)
}

fn parse_start(message: &proto::StartRequest) -> Result<Start, ApiError> {
    let mut fields: Map<String, Value> = parse_options(&message.options_json)?;
    for (field, text) in [("agent", &message.agent), ("model", &message.model), ("prompt", &message.prompt)] {
        if !text.is_empty() {
            fields.insert(field.to_owned(), Value::from(text.as_str()));
        }
    }
    if message.interactive {
        fields.insert("interactive".to_owned(), Value::Bool(true));
    }
    params::parse_object(fields)
}

/// Parses the fields that have no field of their own in the message.
fn parse_options(options_json: &str) -> Result<Map<String, Value>, ApiError> {
    params::check_size("`options_json`", options_json)?;
    match options_json {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text)
            .map_err(|error| ApiError::bad_request(format!("`options_json` must be a JSON object: {error}"))),
    }
}

fn parse_control(message: &proto::ControlRequest) -> Result<CommandRequest<ControlReason>, ApiError> {
    let reason = Some(message.reason.clone()).filter(|reason| !reason.is_empty());
    UnvalidatedCommand::new(&message.session_id, &message.command_id, !message.no_wait, ControlReason { reason })?
        .validate()
}

async fn wait_for_command(pending: PendingCommand) -> Result<proto::CommandReply, ApiError> {
    let CommandReply { session_id, command_id, done, seq } = pending.wait().await?;
    Ok(proto::CommandReply { session_id: session_id.into(), command_id: command_id.into(), done, seq })
}

fn to_session_info(summary: SessionSummary) -> proto::SessionInfo {
    proto::SessionInfo {
        tally_json: serde_json::to_string(&summary.tally).unwrap_or_default(),
        parent: summary.parent.map(String::from).unwrap_or_default(),
        session_id: summary.session_id.into(),
        tenant: summary.tenant.into(),
        phase: to_word(&summary.phase),
        agent: summary.agent,
        model: summary.model,
        title: summary.title,
        turn: summary.turn,
        step: summary.step,
        seq: summary.seq,
        started: summary.started.to_string(),
        updated: summary.updated.to_string(),
        input_tokens: summary.spent.usage.input,
        output_tokens: summary.spent.usage.output,
        cost_usd: summary.spent.cost_usd,
        stop_reason: summary.stop_reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
    }
}

fn to_gate(pending: PendingGate) -> proto::Gate {
    let PendingGate { session_id, agent, title, gate } = pending;
    let (kind, detail) = match gate.kind {
        GateKind::Approval => ("approval", String::new()),
        GateKind::Question => ("question", String::new()),
        GateKind::Limit(limit) => ("limit", limit.as_str().to_owned()),
        GateKind::Error(kind) => ("error", kind.code().as_str().to_owned()),
    };
    proto::Gate {
        session_id: session_id.to_string(),
        agent,
        title,
        gate: gate.gate.to_string(),
        kind: kind.to_owned(),
        detail,
        tool: gate.tool.map(|tool| tool.to_string()).unwrap_or_default(),
        arguments: gate.arguments,
        shortened: gate.shortened,
        arguments_sha256: gate.arguments_sha256,
        expires: gate.expires.to_string(),
    }
}

/// Parses a field that holds JSON or is empty.
fn parse_optional_json(text: &str) -> Result<Option<Json>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    params::check_size("`arguments_json`", text)?;
    let wrong = |error| ApiError::bad_request(format!("`arguments_json` is not JSON: {error}"));
    Json::parse(text).map(Some).map_err(wrong)
}

fn to_agent_info(agent: AgentInfo) -> proto::AgentInfo {
    proto::AgentInfo {
        id: agent.id.into(),
        name: agent.name,
        aliases: agent.aliases.into_iter().map(String::from).collect(),
        model: agent.model.unwrap_or_default(),
        is_default: agent.is_default,
    }
}

fn to_model_info(model: KnownModel) -> proto::ModelInfo {
    let KnownModel { settings, provider, is_default } = model;
    proto::ModelInfo {
        id: settings.id,
        provider,
        multi_tool: settings.multi_tool,
        max_parallel_tools: settings.max_parallel_tools,
        structured_output: settings.structured_output,
        reasoning: settings.reasoning,
        context_window: settings.context_window,
        max_output: settings.max_output,
        is_default,
    }
}

fn to_tool_info(spec: ToolSpec) -> proto::ToolInfo {
    proto::ToolInfo {
        timeout_ms: u64::try_from(spec.timeout().as_millis()).unwrap_or(u64::MAX),
        max_output: u64::try_from(spec.output_bytes_max()).unwrap_or(u64::MAX),
        name: spec.name.into(),
        description: spec.description,
        parameters_json: spec.parameters.get().to_owned(),
        effect: to_word(&spec.effect),
        approval: to_word(&spec.approval),
        version: spec.version,
        instructions: spec.instructions.unwrap_or_default(),
    }
}

/// Returns the name of an enum value as the contract serialises it.
fn to_word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

fn to_notification(event: &ViewerEvent) -> proto::Notification {
    let envelope = &event.envelope;
    proto::Notification {
        topic: event.topic.as_str().to_owned(),
        id: envelope.id.clone(),
        seq: envelope.seq,
        time: envelope.time.to_string(),
        trace_id: envelope.trace_id.clone(),
        data_json: envelope.data.get().to_owned(),
    }
}

/// Ends the queue, and so the viewer, if the client drops the stream.
struct DisconnectGuard(Arc<ClientQueue>);

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.0.end(QueueEnd::Disconnected);
    }
}

fn stream_notifications(queue: Arc<ClientQueue>) -> <GrpcService as Service>::WatchStream {
    let next = async |guard: Option<DisconnectGuard>| {
        let guard = guard?;
        loop {
            match guard.0.pop().await {
                Ok(QueueItem::Event(event)) => return Some((Ok(to_notification(&event)), Some(guard))),
                Ok(QueueItem::Text(_)) => {}
                Err(end) => {
                    if let QueueEnd::Slow { .. } = end {
                        telemetry::metric::slow_client();
                    }
                    return end.error().map(|error| (Err(to_status(&error)), None));
                }
            }
        }
    };
    Box::pin(stream::unfold(Some(DisconnectGuard(queue)), next))
}
