//! Calls of tools, from NATS to an MCP server and back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tool::{Call, Effect, Reply, ToolError};
use contract::ErrorCode;
use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::ServiceError;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject, ReadResourceRequest, ReadResourceRequestParams,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::config::ToolRules;
use super::failure::{CallFailure, connection_lost_error, timeout_error, unknown_outcome_error, unreachable_error};
use super::notifications::ProgressRouter;
use super::result;
use crate::server_name::ServerName;
use tool_schema::{Checker, Schema};

/// Calls with a permit that the connection has not taken yet; each caller waits.
const QUEUE_MAX: usize = 64;
/// Progress messages of one call that wait for NATS; a further one is dropped.
const PROGRESS_WAITING: usize = 16;
/// Progress messages of one call that are passed on: NATS limits the replies of a tool to one call, and the result is
/// one of them. A longer call reports less often.
const PROGRESS_MAX: u32 = 500;
/// Shortest pause between two of them.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Time after its timeout at which a call is given up here: the caller has given up by then, with a better message.
const OVERDUE: Duration = Duration::from_secs(2);
/// Key of the call's id in the `_meta` of a request.
const CALL_META: &str = "ailoop/call";

/// Sends calls to the connection of a server.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    server: ServerName,
    queue: mpsc::Sender<QueuedCall>,
    permits: Arc<Semaphore>,
    /// Pause between two progress messages of one call.
    pause: Duration,
}

/// A call that waits for the connection.
pub(super) struct QueuedCall {
    kind: RequestKind,
    arguments: JsonObject,
    meta: RequestMetaObject,
    effect: Effect,
    /// Closed when the caller no longer waits.
    answer: oneshot::Sender<Result<Reply, ToolError>>,
    progress: mpsc::Sender<String>,
}

/// A request to a server.
#[derive(Clone)]
pub(super) enum RequestKind {
    /// A call of the tool of this name, with the schema of its structured result, and the threads that check it.
    Tool(String, Option<(Schema, Checker)>),
    /// The read of a resource.
    Resource,
}

impl RequestKind {
    /// Makes the request with these arguments. Returns it with the schema of its structured result, if it has one.
    fn into_request(self, arguments: JsonObject) -> Result<(ClientRequest, Option<(Schema, Checker)>), ToolError> {
        match self {
            Self::Tool(tool, result_schema) => {
                let mut params = CallToolRequestParams::new(tool);
                params.arguments = Some(arguments);
                Ok((ClientRequest::CallToolRequest(CallToolRequest::new(params)), result_schema))
            }
            Self::Resource => {
                let Some(uri) = arguments.get("uri").and_then(Value::as_str) else {
                    return Err(ToolError::new("the arguments do not fit: uri is missing"));
                };
                let params = ReadResourceRequestParams::new(uri);
                Ok((ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params)), None))
            }
        }
    }
}

/// State of the connection, as the end of a call shows it.
#[derive(Debug)]
pub(super) enum ConnectionSignal {
    Alive,
    /// Nothing: the caller no longer waited.
    Ignored,
    /// The connection failed, with the reason.
    Broken(String),
}

impl ConnectionHandle {
    /// A handle, and the receiver of its calls.
    pub(super) fn new(
        server: ServerName,
        concurrency: usize,
        call_timeout: Duration,
    ) -> (Self, mpsc::Receiver<QueuedCall>) {
        let (queue, queued) = mpsc::channel(QUEUE_MAX);
        let pause = PROGRESS_EVERY.max(call_timeout / PROGRESS_MAX);
        (Self { server, queue, permits: Arc::new(Semaphore::new(concurrency)), pause }, queued)
    }

    /// Builds the handler of a tool. Dropping its future cancels the call at the server.
    pub(super) fn handler(
        &self,
        kind: RequestKind,
        effect: Effect,
    ) -> impl Fn(Call) -> BoxFuture<'static, Result<Reply, ToolError>> + Send + Sync + 'static {
        let handle = self.clone();
        move |call| handle.clone().forward(kind.clone(), effect, call).boxed()
    }

    async fn forward(self, kind: RequestKind, effect: Effect, call: Call) -> Result<Reply, ToolError> {
        let arguments: JsonObject = call.arguments()?;
        let _permit = self.permits.acquire().await.map_err(|_| unreachable_error(&self.server, "it is going down"))?;
        if call.time_left().is_some_and(|left| left.is_zero()) {
            return Err(ToolError::new("the deadline has passed while the call waited for a place: it was not sent"));
        }
        let (answer, mut answered) = oneshot::channel();
        let (progress, mut progress_texts) = mpsc::channel(PROGRESS_WAITING);
        let queued_call = QueuedCall { kind, arguments, meta: build_meta(&call), effect, answer, progress };
        self.queue.send(queued_call).await.map_err(|_| unreachable_error(&self.server, "it went down"))?;
        let mut last: Option<Instant> = None;
        loop {
            tokio::select! {
                Some(text) = progress_texts.recv() => if last.is_none_or(|last| last.elapsed() >= self.pause) {
                    last = Some(Instant::now());
                    call.progress(text).await;
                },
                answer = &mut answered => {
                    return answer.unwrap_or_else(|_| Err(connection_lost_error(&self.server, effect, "its connection ended")));
                }
            }
        }
    }
}

fn build_meta(call: &Call) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if !call.id().is_empty() {
        meta.insert(CALL_META.to_owned(), call.id().into());
    }
    if !call.traceparent().is_empty() {
        meta.set_traceparent(call.traceparent());
    }
    meta
}

/// Checks a structured result against its schema; returns the text of the error.
async fn find_mismatch(result: &ServerResult, schema: Option<(Schema, Checker)>) -> Option<String> {
    let ServerResult::CallToolResult(result) = result else { return None };
    let structured = result.structured_content.clone().filter(|_| result.is_error != Some(true))?;
    let (schema, checker) = schema?;
    let refusal = checker.check_result(schema, structured).await.err()?;
    if refusal.code != ErrorCode::InvalidArguments {
        tracing::debug!(reason = refusal.text, "a structured result is not checked");
        return None;
    }
    Some(format!("the tool's outputSchema is not kept: {}", refusal.text))
}

impl QueuedCall {
    /// Refuses the call: it is not sent to the server.
    pub(super) fn refuse(self, server: &ServerName, why: &str) {
        self.reply(Err(unreachable_error(server, why)));
    }

    /// Sends the call to the server, and replies with its result.
    pub(super) async fn execute(
        mut self,
        peer: Peer<RoleClient>,
        progress: ProgressRouter,
        server: ServerName,
        rules: Arc<ToolRules>,
    ) -> ConnectionSignal {
        // The caller gave up while the call was queued.
        if self.answer.is_closed() {
            return ConnectionSignal::Ignored;
        }
        let effect = self.effect;
        let kind = std::mem::replace(&mut self.kind, RequestKind::Resource);
        let (request, result_schema) = match kind.into_request(std::mem::take(&mut self.arguments)) {
            Ok(made) => made,
            Err(error) => {
                self.reply(Err(error));
                return ConnectionSignal::Ignored;
            }
        };
        let options = PeerRequestOptions::no_options().with_meta(std::mem::take(&mut self.meta));
        let Ok(mut handle) = peer.send_request_with_option(request, options).await else {
            self.refuse(&server, "it went down");
            return ConnectionSignal::Ignored;
        };
        let guard = progress.subscribe(handle.progress_token.clone(), self.progress.clone());
        let call_timeout = rules.call_timeout() + OVERDUE;
        let mut late = pin!(sleep(call_timeout));
        let outcome = loop {
            tokio::select! {
                received = &mut handle.rx => break received.unwrap_or(Err(ServiceError::TransportClosed)),
                // Progress grants a call its whole timeout again.
                () = guard.updated.notified() => late.as_mut().reset(Instant::now() + call_timeout),
                () = self.answer.closed() => {
                    let _server_gone = handle.cancel(Some("nobody waits for it any more".to_owned())).await.is_err();
                    return ConnectionSignal::Ignored;
                }
                () = &mut late => {
                    let _server_gone = handle.cancel(Some("it takes too long".to_owned())).await.is_err();
                    self.reply(Err(timeout_error(&server, effect, rules.call_timeout())));
                    return ConnectionSignal::Ignored;
                }
            }
        };
        match outcome {
            Ok(result) => {
                let answer = match find_mismatch(&result, result_schema).await {
                    Some(mismatch) => Err(unknown_outcome_error(effect, &mismatch)),
                    None => result::to_reply(result, effect, rules.output_bytes_max()),
                };
                self.reply(answer);
                ConnectionSignal::Alive
            }
            Err(error) => {
                let failure = CallFailure::from_error(&error);
                let signal = if failure.is_transport_failure() {
                    ConnectionSignal::Broken(format!("{failure:?}"))
                } else {
                    ConnectionSignal::Alive
                };
                self.reply(Err(failure.into_tool_error(&server, effect)));
                signal
            }
        }
    }

    fn reply(self, answer: Result<Reply, ToolError>) {
        // A caller that no longer waits has reported the reason itself.
        let _receiver_gone = self.answer.send(answer).is_err();
    }
}
