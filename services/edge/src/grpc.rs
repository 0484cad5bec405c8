//! The gRPC service `ailoop.v1.Sessions`: the same calls as JSON-RPC.

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
use crate::commands::{CommandReply, Pending};
use crate::failure::Failure;
use crate::fair_queue::Flow;
use crate::guard::{Caller, Guard, Header, Knock};
use crate::params::{self, Given, List, Unchecked, Watch};
use crate::queue::{ClientQueue, End, Item};
use crate::sessions::{Agent, SessionPage, Sessions, TranscriptPart, Waiting};
use crate::watch::notice::Notice;

/// The metadata key of the milliseconds after which the same may succeed.
pub(crate) const RETRY_AFTER: &str = "ailoop-retry-after-ms";
/// The metadata key of the last `seq`, where that is the point.
pub(crate) const SEQ: &str = "ailoop-seq";

/// The trailer with a call's status, which is a header where there is no message.
const GRPC_STATUS: &str = "grpc-status";
/// Bytes that an idle connection takes, as measured (see `tests/idle_memory.rs`), with some room.
const CONNECTION_BYTES: usize = 40 << 10;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    sessions: Sessions,
}

/// Lets requests in: adds the [`Caller`] to them, or refuses.
#[derive(Debug, Clone)]
pub(crate) struct Admission(pub(crate) Arc<Guard>);

impl tonic::service::Interceptor for Admission {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let missing = || status(&Failure::new(ErrorCode::Internal, "a request without a connection"));
        let connection = request.extensions().get::<Arc<Connection>>().cloned().ok_or_else(missing)?;
        let headers = request.metadata().clone().into_headers();
        let header = |name: &str| Header::of(headers.get_all(name));
        let knock = Knock {
            authorization: header("authorization"),
            origin: header("origin"),
            host: Header::Absent,
            flow: Flow { address: connection.address(), connection: connection.id() },
        };
        let caller = self.0.admit(knock).map_err(|failure| status(&failure))?;
        if let Err(refusal) = connection.accept(CONNECTION_BYTES) {
            telemetry::metric::connection_closed("grpc", "limit");
            return Err(status(&Failure::new(ErrorCode::Overloaded, refusal.to_string())));
        }
        request.extensions_mut().insert(caller);
        Ok(request)
    }
}

impl Door {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self { sessions }
    }

    /// Runs a call under its span, and tells its failure as a status.
    async fn call<M, T>(
        &self,
        method: &'static str,
        session: &str,
        request: &Request<M>,
        call: impl AsyncFnOnce(&Sessions, &Caller) -> Result<T, Failure>,
    ) -> Result<Response<T>, Status> {
        let span = telemetry::span::edge_request(method, Some(session).filter(|session| !session.is_empty()));
        if let Some(parent) = request.metadata().get("traceparent").and_then(|value| value.to_str().ok()) {
            telemetry::trace::set_parent(&span, parent);
        }
        let outcome = async {
            let unknown = || Failure::new(ErrorCode::Unauthorized, "nobody let this request in");
            let caller = request.extensions().get::<Caller>().ok_or_else(unknown)?;
            call(&self.sessions, caller).await
        };
        let outcome = outcome.instrument(span.clone()).await;
        let code = outcome.as_ref().err().map(|failure| failure.code.clone());
        if let Some(code) = &code {
            telemetry::span::failed(&span, code.as_str());
        }
        telemetry::metric::request(method, code.as_ref().map_or("ok", ErrorCode::as_str));
        outcome.map(Response::new).map_err(|failure| status(&failure))
    }
}

#[tonic::async_trait]
impl Service for Door {
    async fn start(&self, request: Request<proto::StartRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let given = request.get_ref();
        self.call("session.start", &given.session_id, &request, async |sessions, caller| {
            let given = Unchecked::new(&given.session_id, &given.command_id, !given.no_wait, start(given)?)?;
            let given = sessions.check(caller, given).await?;
            reply(sessions.start(caller, given).await?).await
        })
        .await
    }

    async fn send(&self, request: Request<proto::SendRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let given = request.get_ref();
        self.call("session.send", &given.session_id, &request, async |sessions, caller| {
            let mode = if given.mode.is_empty() { MessageMode::default() } else { params::word("mode", &given.mode)? };
            let body = SendUserMessage { content: Content::from(given.text.as_str()), mode };
            let given = Unchecked::new(&given.session_id, &given.command_id, !given.no_wait, body)?;
            let given = sessions.check(caller, given).await?;
            reply(sessions.send(caller, given).await?).await
        })
        .await
    }

    async fn pause(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call("session.pause", &request.get_ref().session_id, &request, async |sessions, caller| {
            reply(sessions.pause(caller, because(request.get_ref())?).await?).await
        })
        .await
    }

    async fn resume(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call("session.resume", &request.get_ref().session_id, &request, async |sessions, caller| {
            reply(sessions.resume(caller, because(request.get_ref())?).await?).await
        })
        .await
    }

    async fn stop(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call("session.stop", &request.get_ref().session_id, &request, async |sessions, caller| {
            reply(sessions.stop(caller, because(request.get_ref())?).await?).await
        })
        .await
    }

    async fn clear(&self, request: Request<proto::ControlRequest>) -> Result<Response<proto::CommandReply>, Status> {
        self.call("session.clear", &request.get_ref().session_id, &request, async |sessions, caller| {
            reply(sessions.clear(caller, because(request.get_ref())?).await?).await
        })
        .await
    }

    async fn configure(
        &self,
        request: Request<proto::ConfigureRequest>,
    ) -> Result<Response<proto::CommandReply>, Status> {
        let given = request.get_ref();
        self.call("session.configure", &given.session_id, &request, async |sessions, caller| {
            let mut configure: Configure = params::from_object(fields(&given.options_json)?)?;
            configure.model = Some(given.model.clone()).filter(|model| !model.is_empty()).or(configure.model);
            let given = Unchecked::new(&given.session_id, &given.command_id, !given.no_wait, configure)?;
            let given = sessions.check(caller, given).await?;
            reply(sessions.configure(caller, given).await?).await
        })
        .await
    }

    async fn answer(&self, request: Request<proto::AnswerRequest>) -> Result<Response<proto::CommandReply>, Status> {
        let given = request.get_ref();
        self.call("session.answer", &given.session_id, &request, async |sessions, caller| {
            let decision: AnswerDecision = params::word("decision", &given.decision)?;
            let body = Answer {
                gate: params::parse("gate", &given.gate)?,
                arguments_sha256: given.arguments_sha256.clone(),
                decision,
                arguments: optional_json(&given.arguments_json)?,
                content: given.content.clone(),
                note: Some(given.note.clone()).filter(|note| !note.is_empty()),
            };
            let given = Unchecked::new(&given.session_id, &given.command_id, !given.no_wait, body)?;
            let given = sessions.check(caller, given).await?;
            reply(sessions.answer(caller, given).await?).await
        })
        .await
    }

    async fn history(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::HistoryReply>, Status> {
        self.call("session.history", &request.get_ref().session_id, &request, async |sessions, caller| {
            let history = sessions.history(caller, params::session_id(&request.get_ref().session_id)?).await?;
            let messages_json = serde_json::to_string(&history.messages)
                .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
            Ok(proto::HistoryReply { messages_json, seq: history.seq })
        })
        .await
    }

    async fn transcript(
        &self,
        request: Request<proto::TranscriptRequest>,
    ) -> Result<Response<proto::TranscriptReply>, Status> {
        let given = request.get_ref();
        self.call("session.transcript", &given.session_id, &request, async |sessions, caller| {
            let session_id = params::session_id(&given.session_id)?;
            let limit = usize::try_from(given.limit).unwrap_or(usize::MAX);
            let wanted = params::Transcript { session_id, after: given.after, limit };
            let TranscriptPart { session_id: _, turns, next_after, is_incomplete } =
                sessions.transcript(caller, wanted).await?;
            Ok(proto::TranscriptReply { turns_json: json(&turns)?, next_after, is_incomplete })
        })
        .await
    }

    async fn get(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::SessionInfo>, Status> {
        self.call("session.get", &request.get_ref().session_id, &request, async |sessions, caller| {
            Ok(info(sessions.get(caller, params::session_id(&request.get_ref().session_id)?).await?))
        })
        .await
    }

    async fn repair(&self, request: Request<proto::SessionRequest>) -> Result<Response<proto::RepairReply>, Status> {
        self.call("session.repair", &request.get_ref().session_id, &request, async |sessions, caller| {
            let repaired = sessions.repair(caller, params::session_id(&request.get_ref().session_id)?).await?;
            Ok(proto::RepairReply { performed: repaired.performed })
        })
        .await
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Result<Response<proto::ListReply>, Status> {
        let given = request.get_ref();
        self.call("session.list", "", &request, async |sessions, caller| {
            let phase: Option<Phase> =
                if given.phase.is_empty() { None } else { Some(params::word("phase", &given.phase)?) };
            let limit = usize::try_from(given.limit).unwrap_or(usize::MAX);
            let cursor = if given.cursor.is_empty() { None } else { Some(params::parse("cursor", &given.cursor)?) };
            let SessionPage { sessions, next_cursor } = sessions.list(caller, &List { phase, limit, cursor }).await?;
            let sessions = sessions.into_iter().map(info).collect();
            Ok(proto::ListReply { sessions, next_cursor: next_cursor.unwrap_or_default() })
        })
        .await
    }

    async fn replay(&self, request: Request<proto::ReplayRequest>) -> Result<Response<proto::ReplayReply>, Status> {
        let given = request.get_ref();
        self.call("session.replay", &given.session_id, &request, async |sessions, caller| {
            let session_id = params::session_id(&given.session_id)?;
            let replayed = sessions.replay(caller, params::Replay { session_id, at: given.at }).await?;
            let (slot, differs) = (replayed.slot, !replayed.differs.is_empty());
            Ok(proto::ReplayReply { json: json(&replayed)?, slot, differs })
        })
        .await
    }

    async fn stats(&self, request: Request<proto::StatsRequest>) -> Result<Response<proto::StatsReply>, Status> {
        let given = request.get_ref();
        self.call("session.stats", "", &request, async |sessions, caller| {
            let since = match given.since.as_str() {
                "" => None,
                text => Some(contract::Timestamp::parse(text).ok_or_else(|| {
                    Failure::bad_request("`since` must be an instant such as 2026-01-15T10:30:45Z".to_owned())
                })?),
            };
            let stats = sessions.stats(caller, &params::Stats { since }).await?;
            Ok(proto::StatsReply { json: json(&stats)? })
        })
        .await
    }

    async fn tool_result(
        &self,
        request: Request<proto::ToolResultRequest>,
    ) -> Result<Response<proto::ToolResultReply>, Status> {
        let given = request.get_ref();
        self.call("tools.result", &given.session_id, &request, async |sessions, caller| {
            let call = params::Call {
                session_id: params::session_id(&given.session_id)?,
                call: params::parse("call", &given.call)?,
            };
            let whole = sessions.whole_result(caller, &call).await?;
            Ok(proto::ToolResultReply { content: whole.content })
        })
        .await
    }

    async fn list_gates(
        &self,
        request: Request<proto::ListGatesRequest>,
    ) -> Result<Response<proto::ListGatesReply>, Status> {
        let given = request.get_ref();
        self.call("gates.list", &given.session_id, &request, async |sessions, caller| {
            let session_id = match given.session_id.as_str() {
                "" => None,
                text => Some(params::session_id(text)?),
            };
            let limit = usize::try_from(given.limit).unwrap_or(usize::MAX);
            let gates = sessions.gates(caller, &params::Gates { session_id, limit }).await?;
            Ok(proto::ListGatesReply { gates: gates.into_iter().map(gate).collect() })
        })
        .await
    }

    async fn queues(&self, request: Request<proto::QueuesRequest>) -> Result<Response<proto::QueuesReply>, Status> {
        self.call("fleet.queues", "", &request, async |sessions, caller| {
            let found = sessions.queues(caller).await?;
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
        self.call("mail.list", "", &request, async |sessions, caller| {
            let mailbox = params::optional("mailbox", &request.get_ref().mailbox)?;
            let list = sessions.mails(caller, params::ListMailParams { mailbox }).await?;
            let more = u64::try_from(list.more).unwrap_or(u64::MAX);
            Ok(proto::ListMailReply { mails: list.mails.into_iter().map(mail).collect(), more })
        })
        .await
    }

    async fn send_mail(
        &self,
        request: Request<proto::SendMailRequest>,
    ) -> Result<Response<proto::SendMailReply>, Status> {
        self.call("mail.send", "", &request, async |sessions, caller| {
            let proto::SendMailRequest { mailbox, command_id, to, subject, text } = request.get_ref().clone();
            let mailbox = params::optional("mailbox", &mailbox)?;
            let command_id = params::optional("command_id", &command_id)?;
            let wanted = params::SendMailParams { mailbox, command_id, to, subject, text };
            let sent = sessions.send_mail(caller, wanted).await?;
            Ok(proto::SendMailReply { id: sent.sent.to_string(), to: sent.to.to_string() })
        })
        .await
    }

    async fn reply_mail(
        &self,
        request: Request<proto::ReplyMailRequest>,
    ) -> Result<Response<proto::ReplyMailReply>, Status> {
        self.call("mail.reply", "", &request, async |sessions, caller| {
            let proto::ReplyMailRequest { mailbox, command_id, id, text } = request.get_ref().clone();
            let mailbox = params::optional("mailbox", &mailbox)?;
            let command_id = params::optional("command_id", &command_id)?;
            let wanted = params::ReplyMailParams { mailbox, command_id, id, text };
            let closed = sessions.reply_mail(caller, wanted).await?;
            Ok(proto::ReplyMailReply { id: closed.closed.to_string(), answered: closed.answered })
        })
        .await
    }

    async fn list_dead(
        &self,
        request: Request<proto::ListDeadRequest>,
    ) -> Result<Response<proto::ListDeadReply>, Status> {
        let given = request.get_ref();
        self.call("dead.list", &given.session_id, &request, async |sessions, caller| {
            let session_id = match given.session_id.as_str() {
                "" => None,
                text => Some(params::session_id(text)?),
            };
            let dead = sessions.dead(caller, &params::DeadList { session_id }).await?;
            Ok(proto::ListDeadReply { json: json(&dead)? })
        })
        .await
    }

    async fn show_dead(&self, request: Request<proto::DeadRequest>) -> Result<Response<proto::DeadReply>, Status> {
        self.call("dead.show", &request.get_ref().session_id, &request, async |sessions, caller| {
            let letter = sessions.dead_letter(caller, dead(request.get_ref())?).await?;
            Ok(proto::DeadReply { json: json(&letter)? })
        })
        .await
    }

    async fn retry_dead(
        &self,
        request: Request<proto::DeadRequest>,
    ) -> Result<Response<proto::RetryDeadReply>, Status> {
        self.call("dead.retry", &request.get_ref().session_id, &request, async |sessions, caller| {
            let retried = sessions.retry_dead(caller, dead(request.get_ref())?).await?;
            let (session_id, command_id) = (retried.session_id.to_string(), retried.command_id.to_string());
            Ok(proto::RetryDeadReply { session_id, command_id })
        })
        .await
    }

    async fn drop_dead(&self, request: Request<proto::DeadRequest>) -> Result<Response<proto::DeadReply>, Status> {
        self.call("dead.drop", &request.get_ref().session_id, &request, async |sessions, caller| {
            let letter = sessions.drop_dead(caller, dead(request.get_ref())?).await?;
            Ok(proto::DeadReply { json: json(&letter)? })
        })
        .await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::Notification, Status>> + Send>>;

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let given = request.get_ref();
        self.call("session.watch", &given.session_id, &request, async |sessions, caller| {
            let session_id = params::session_id(&given.session_id)?;
            let watch = Watch { session_id, from_seq: given.from_seq, no_chunks: given.no_chunks };
            let (_, viewer) = match sessions.watch(caller, &watch).await {
                Err(failure) if failure.code == ErrorCode::UnknownSession => {
                    sessions.watch_started(caller, &watch).await?
                }
                outcome => outcome?,
            };
            let queue = Arc::new(sessions.client_queue());
            let (filled, draining) = (queue.clone(), sessions.draining().clone());
            sessions.tasks().spawn("viewer", async move {
                let end = tokio::select! {
                    () = draining.cancelled() => End::Failed(Sessions::going_down()),
                    outcome = viewer.run(&filled) => outcome.map_or_else(End::Failed, |()| End::Complete),
                };
                filled.end(end);
            });
            Ok(notifications(queue))
        })
        .await
    }

    async fn list_agents(
        &self,
        request: Request<proto::ListAgentsRequest>,
    ) -> Result<Response<proto::ListAgentsReply>, Status> {
        self.call("agents.list", "", &request, async |sessions, caller| {
            let agents = sessions.agents(caller).await?;
            Ok(proto::ListAgentsReply { agents: agents.into_iter().map(agent).collect() })
        })
        .await
    }

    async fn list_models(
        &self,
        request: Request<proto::ListModelsRequest>,
    ) -> Result<Response<proto::ListModelsReply>, Status> {
        self.call("models.list", "", &request, async |sessions, caller| {
            let models = sessions.models(caller).await?;
            Ok(proto::ListModelsReply { models: models.into_iter().map(model).collect() })
        })
        .await
    }

    async fn list_tools(
        &self,
        request: Request<proto::ListToolsRequest>,
    ) -> Result<Response<proto::ListToolsReply>, Status> {
        self.call("tools.list", "", &request, async |sessions, caller| {
            let tools = sessions.tools(caller).await?;
            Ok(proto::ListToolsReply { tools: tools.into_iter().map(tool).collect() })
        })
        .await
    }
}

fn mail(mail: WaitingMail) -> proto::Mail {
    let WaitingMail { id, from, subject, text, sent, answers } = mail;
    let answers = answers.map(|answered| proto::AnsweredMail {
        id: answered.id.to_string(),
        subject: answered.subject,
        excerpt: answered.excerpt,
    });
    let (id, from, sent) = (id.to_string(), from.to_string(), sent.to_string());
    proto::Mail { id, from, subject, text, sent, answers }
}

fn dead(given: &proto::DeadRequest) -> Result<params::DeadOne, Failure> {
    Ok(params::DeadOne {
        session_id: params::session_id(&given.session_id)?,
        kind: params::word("kind", &given.kind)?,
        id: params::parse("id", &given.id)?,
    })
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))
}

/// Adds the stable code to what tonic refuses by itself: a message that is too long or damaged, or a method that is not
/// there. What it calls internal is the client's mistake; failures of ours carry a code already.
pub(crate) async fn add_code(mut response: axum::response::Response) -> axum::response::Response {
    let headers = response.headers_mut();
    if headers.contains_key(proto::ERROR_CODE) {
        return response;
    }
    let status = headers.get(GRPC_STATUS).map(|status| Code::from_bytes(status.as_bytes()));
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
    headers.insert(GRPC_STATUS, i32::from(status).into());
    if let Ok(code) = code.as_str().parse() {
        headers.insert(proto::ERROR_CODE, code);
    }
    response
}

/// A failure as a status with the stable code in its metadata.
pub(crate) fn status(failure: &Failure) -> Status {
    let mut status = Status::new(grpc_code(&failure.code), failure.message.clone());
    let metadata = status.metadata_mut();
    if let Ok(code) = failure.code.as_str().parse() {
        metadata.insert(proto::ERROR_CODE, code);
    }
    if let Some(after) = failure.retry_after {
        metadata.insert(RETRY_AFTER, u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into());
    }
    if let Some(seq) = failure.seq {
        metadata.insert(SEQ, seq.into());
    }
    status
}

fn grpc_code(code: &ErrorCode) -> Code {
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

fn start(given: &proto::StartRequest) -> Result<Start, Failure> {
    let mut fields: Map<String, Value> = fields(&given.options_json)?;
    for (field, text) in [("agent", &given.agent), ("model", &given.model), ("prompt", &given.prompt)] {
        if !text.is_empty() {
            fields.insert(field.to_owned(), Value::from(text.as_str()));
        }
    }
    if given.interactive {
        fields.insert("interactive".to_owned(), Value::Bool(true));
    }
    params::from_object(fields)
}

/// The fields that have no place of their own in a message.
fn fields(options_json: &str) -> Result<Map<String, Value>, Failure> {
    params::check_size("`options_json`", options_json)?;
    match options_json {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text)
            .map_err(|error| Failure::bad_request(format!("`options_json` must be a JSON object: {error}"))),
    }
}

fn because(given: &proto::ControlRequest) -> Result<Given<ControlReason>, Failure> {
    let reason = Some(given.reason.clone()).filter(|reason| !reason.is_empty());
    Unchecked::new(&given.session_id, &given.command_id, !given.no_wait, ControlReason { reason })?.check()
}

async fn reply(pending: Pending) -> Result<proto::CommandReply, Failure> {
    let CommandReply { session_id, command_id, done, seq } = pending.done().await?;
    Ok(proto::CommandReply { session_id: session_id.into(), command_id: command_id.into(), done, seq })
}

fn info(summary: SessionSummary) -> proto::SessionInfo {
    proto::SessionInfo {
        tally_json: serde_json::to_string(&summary.tally).unwrap_or_default(),
        parent: summary.parent.map(String::from).unwrap_or_default(),
        session_id: summary.session_id.into(),
        tenant: summary.tenant.into(),
        phase: spelled(&summary.phase),
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

fn gate(waiting: Waiting) -> proto::Gate {
    let Waiting { session_id, agent, title, gate } = waiting;
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

/// A field that holds JSON, or is empty.
fn optional_json(text: &str) -> Result<Option<Json>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    params::check_size("`arguments_json`", text)?;
    let wrong = |error| Failure::bad_request(format!("`arguments_json` is not JSON: {error}"));
    Json::parse(text).map(Some).map_err(wrong)
}

fn agent(agent: Agent) -> proto::AgentInfo {
    proto::AgentInfo {
        id: agent.id.into(),
        name: agent.name,
        aliases: agent.aliases.into_iter().map(String::from).collect(),
        model: agent.model.unwrap_or_default(),
        is_default: agent.is_default,
    }
}

fn model(model: KnownModel) -> proto::ModelInfo {
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

fn tool(spec: ToolSpec) -> proto::ToolInfo {
    proto::ToolInfo {
        timeout_ms: u64::try_from(spec.timeout().as_millis()).unwrap_or(u64::MAX),
        max_output: u64::try_from(spec.output_bytes_max()).unwrap_or(u64::MAX),
        name: spec.name.into(),
        description: spec.description,
        parameters_json: spec.parameters.get().to_owned(),
        effect: spelled(&spec.effect),
        approval: spelled(&spec.approval),
        version: spec.version,
        instructions: spec.instructions.unwrap_or_default(),
    }
}

/// The word of the contract for a value of a closed set.
fn spelled<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

fn notification(notice: &Notice) -> proto::Notification {
    let envelope = &notice.envelope;
    proto::Notification {
        topic: notice.topic.as_str().to_owned(),
        id: envelope.id.clone(),
        seq: envelope.seq,
        time: envelope.time.to_string(),
        trace_id: envelope.trace_id.clone(),
        data_json: envelope.data.get().to_owned(),
    }
}

/// Ends a viewer when its client is gone.
struct Reader(Arc<ClientQueue>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end(End::Gone);
    }
}

fn notifications(queue: Arc<ClientQueue>) -> <Door as Service>::WatchStream {
    let next = async |reader: Option<Reader>| {
        let reader = reader?;
        loop {
            match reader.0.pop().await {
                Ok(Item::Notice(notice)) => return Some((Ok(notification(&notice)), Some(reader))),
                Ok(Item::Text(_)) => {}
                Err(end) => {
                    if let End::Slow { .. } = end {
                        telemetry::metric::slow_client();
                    }
                    return end.failure().map(|failure| (Err(status(&failure)), None));
                }
            }
        }
    };
    Box::pin(stream::unfold(Some(Reader(queue)), next))
}
