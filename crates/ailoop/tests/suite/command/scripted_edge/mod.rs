//! An edge that answers from a script, so that a test decides what a client sees, and when.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use contract::{CallId, SessionId, TenantId};
use futures::Stream;
use futures::future::BoxFuture;
use proto::json::from_value;
use proto::{
    AgentList, AnswerGateRequest, CommandReply, FleetStatus, FleetToolList, GateList, GetSessionRequest,
    GetStatusRequest, ListAgentsRequest, ListGatesRequest, ListModelsRequest, ListSessionsRequest, ListToolsRequest,
    ModelList, Notification, PauseSessionRequest, SendMessageRequest, SessionPage, SessionSummary, StartSessionRequest,
    WatchSessionRequest,
};
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codec::Codec;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Answers that the edge gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) notifications: Vec<Notification>,
    /// The child sessions, by the calls that lead to them from the session.
    pub(crate) children: Vec<(Vec<String>, Vec<Notification>)>,
    /// The answer to `GetStatus`, as JSON.
    pub(crate) status: Value,
    pub(crate) sessions: Vec<SessionSummary>,
    pub(crate) tools: FleetToolList,
    pub(crate) agents: AgentList,
    pub(crate) models: ModelList,
}

/// A running edge, which ends with its value.
pub(crate) struct ScriptedEdge {
    url: String,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    script: Script,
    /// The names of the calls that came, with the text of messages.
    calls: Mutex<Vec<String>>,
    /// The session that was started.
    started: Mutex<String>,
    /// The child sessions that were watched.
    watched_children: Mutex<BTreeSet<String>>,
}

impl Shared {
    /// Returns the notifications of a session, none of a child that is not in the script.
    fn notifications(&self, session: &str) -> Option<Vec<Notification>> {
        if !session.starts_with("child-") {
            return Some(self.script.notifications.clone());
        }
        self.watched_children.lock().unwrap().insert(session.to_owned());
        let root = SessionId::new(self.started.lock().unwrap().as_str()).ok()?;
        let id = |calls: &[String]| {
            calls.iter().fold(root.clone(), |parent, call| {
                let call: CallId = serde_json::from_value(json!(call)).unwrap();
                SessionId::child(&TenantId::default(), &parent, &call)
            })
        };
        let child = self.script.children.iter().find(|(calls, _)| id(calls).as_str() == session);
        child.map(|(_, notifications)| notifications.clone())
    }
}

impl ScriptedEdge {
    /// Starts an edge that shows its notifications when a session was started or a message sent.
    pub(crate) fn start(script: Script) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            script,
            calls: Mutex::default(),
            started: Mutex::default(),
            watched_children: Mutex::default(),
        });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = SessionsService { shared: shared.clone() };
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        runtime.spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        Self { url, shared, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns how many child sessions were watched so far.
    pub(crate) fn watched_child_count(&self) -> usize {
        self.shared.watched_children.lock().unwrap().len()
    }

    /// Returns the calls that came so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.shared.calls.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct SessionsService {
    shared: Arc<Shared>,
}

impl NamedService for SessionsService {
    const NAME: &'static str = proto::json::SERVICE;
}

impl Service<http::Request<Body>> for SessionsService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(answer(shared, request).await) })
    }
}

async fn answer(shared: Arc<Shared>, request: http::Request<Body>) -> http::Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let script = &shared.script;
    let command = |session_id: String, seq: u64| CommandReply { session_id, done: true, seq, ..Default::default() };
    let note = |text: String| shared.calls.lock().unwrap().push(text);
    match method.as_str() {
        "StartSession" => {
            unary(request, |start: StartSessionRequest| {
                note(format!("Start {}", text_of(start.prompt)));
                let session_id = start.session_id.unwrap_or_default();
                shared.started.lock().unwrap().clone_from(&session_id);
                Ok(command(session_id, 1))
            })
            .await
        }
        "SendMessage" => {
            unary(request, |send: SendMessageRequest| {
                note(format!("Send {} {}", send.mode.unwrap_or_default(), text_of(send.content)));
                Ok(command(send.session_id, 1))
            })
            .await
        }
        "AnswerGate" => {
            unary(request, |answer: AnswerGateRequest| {
                note(format!("Answer {} {}", answer.gate, answer.decision));
                Ok(command(answer.session_id, 1))
            })
            .await
        }
        // Their requests have the same fields.
        "PauseSession" | "ResumeSession" | "StopSession" | "CancelTurn" | "ClearSession" => {
            unary(request, |control: PauseSessionRequest| {
                note(method.trim_end_matches("Session").to_owned());
                Ok(command(control.session_id, 1))
            })
            .await
        }
        "WatchSession" => {
            let mut grpc = Grpc::new(ProstCodec::<Notification, WatchSessionRequest>::default());
            grpc.server_streaming(WatchService { shared: shared.clone() }, request).await
        }
        "GetSession" => {
            unary(request, |get: GetSessionRequest| {
                let known = script.sessions.iter().find(|session| session.session_id == get.session_id);
                let is_started = !script.children.is_empty() && get.session_id == *shared.started.lock().unwrap();
                let (session_id, tenant) = (get.session_id, TenantId::default().to_string());
                let started = is_started.then(|| SessionSummary { session_id, tenant, ..SessionSummary::default() });
                known.cloned().or(started).ok_or_else(|| Status::not_found("there is no such session"))
            })
            .await
        }
        "ListSessions" => {
            let page = SessionPage { sessions: script.sessions.clone(), ..SessionPage::default() };
            unary(request, |_: ListSessionsRequest| Ok(page)).await
        }
        "GetStatus" => {
            let status = from_value::<FleetStatus>(script.status.clone()).unwrap();
            unary(request, |_: GetStatusRequest| Ok(status)).await
        }
        "ListGates" => unary(request, |_: ListGatesRequest| Ok(GateList::default())).await,
        "ListTools" => unary(request, |_: ListToolsRequest| Ok(script.tools.clone())).await,
        "ListAgents" => unary(request, |_: ListAgentsRequest| Ok(script.agents.clone())).await,
        "ListModels" => unary(request, |_: ListModelsRequest| Ok(script.models.clone())).await,
        _ => {
            let unknown = |_: GetSessionRequest| Err::<SessionSummary, _>(Status::unimplemented("not scripted"));
            unary(request, unknown).await
        }
    }
}

fn text_of(content: Option<proto::Content>) -> String {
    content.and_then(|content| content.as_text).unwrap_or_default()
}

async fn unary<Q, R>(request: http::Request<Body>, handler: impl FnOnce(Q) -> Result<R, Status>) -> http::Response<Body>
where
    Q: Send + 'static,
    R: Send + 'static,
    ProstCodec<R, Q>: Codec<Encode = R, Decode = Q> + Default,
{
    Grpc::new(ProstCodec::<R, Q>::default()).unary(Handler { handler: Some(handler) }, request).await
}

struct Handler<F> {
    handler: Option<F>,
}

impl<Q, R, F: FnOnce(Q) -> Result<R, Status>> UnaryService<Q> for Handler<F> {
    type Response = R;
    type Future = Ready<Result<Response<R>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let handler = self.handler.take().unwrap();
        ready(handler(request.into_inner()).map(Response::new))
    }
}

struct WatchService {
    shared: Arc<Shared>,
}

impl ServerStreamingService<WatchSessionRequest> for WatchService {
    type Response = Notification;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Notification, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<WatchSessionRequest>) -> Self::Future {
        let WatchSessionRequest { session_id, from_seq, .. } = request.into_inner();
        let from_seq = from_seq.unwrap_or_default();
        let Some(notifications) = self.shared.notifications(&session_id) else {
            let mut unknown = Status::not_found("there is no such session");
            unknown.metadata_mut().insert(proto::ERROR_CODE, "unknown_session".parse().unwrap());
            return ready(Err(unknown));
        };
        let notifications = futures::stream::iter(notifications);
        // The session waits for its user.
        let stream = futures::StreamExt::chain(notifications, futures::stream::pending());
        let is_wanted = move |notification: &Notification| ready(notification.seq.is_none_or(|seq| seq >= from_seq));
        let stream = futures::StreamExt::filter(stream, is_wanted);
        ready(Ok(Response::new(Box::pin(futures::StreamExt::map(stream, Ok)))))
    }
}

/// Writes the notifications of a session; events are numbered, and each is a second after the one before.
#[derive(Debug, Default)]
pub(crate) struct SessionScript {
    notifications: Vec<Notification>,
    seq: u64,
}

impl SessionScript {
    /// A session of agent Eamonn with model qwen3:8b.
    pub(crate) fn begin(prompt: &str) -> Self {
        let mut script = Self::default();
        script.event(
            "session_started",
            &json!({"agent": {"id": "e", "name": "Eamonn the Executioner", "continuation": {"max_iterations": 10},
                    "tools": {"allow": [], "deny": []}},
                "model": {"id": "qwen3:8b", "multi_tool": true, "max_parallel_tools": 8, "structured_output": false,
                    "reasoning": false, "context_window": null, "max_output": null},
                "interactive": true, "prompt": "", "fingerprint": "", "streaming": {}}),
        );
        script.event("message.user_processed", &json!({"message_id": "m1", "content": prompt, "mode": "queue"}));
        script
    }

    pub(crate) fn event(&mut self, topic: &str, data: &Value) {
        self.seq += 1;
        self.push(topic, Some(self.seq), data);
    }

    /// Streams a part of a reply.
    pub(crate) fn chunk(&mut self, step: u32, index: u32, text: &str) {
        let data = json!({"turn": 1, "step": step, "attempt": "1.1", "index": index, "channel": "text", "delta": text,
            "final": false});
        self.push("message.ai_chunk_received", None, &data);
    }

    /// Streams a reply, and completes it.
    pub(crate) fn reply(&mut self, step: u32, text: &str) {
        self.chunk(step, 0, text);
        let data = json!({"call": format!("m1-{step}"), "turn": 1, "step": step, "text": text, "tool_calls": [],
            "finish_reason": "stop", "model": "qwen3:8b", "latency_ms": 2_150,
            "spent": {"usage": {"input": 4_000, "output": 128}, "cost_usd": 0.0012}});
        self.event("message.ai_full_received", &data);
    }

    /// Opens a call of a tool.
    pub(crate) fn call(&mut self, call: &str, tool: &str, arguments: &Value) {
        let data = json!({"call": call, "tool": tool, "arguments": arguments, "effect": "pure", "approval": "never",
            "timeout_ms": 30_000, "max_output": 65_536});
        self.event("tool_call.identified", &data);
    }

    /// Ends a call of a tool.
    pub(crate) fn result(&mut self, call: &str, tool: &str, outcome: &str, content: &str) {
        let data = json!({"call": call, "tool": tool, "outcome": outcome, "content": content, "duration_ms": 12});
        self.event("tool_call.result_processed", &data);
    }

    /// Reports how far the plan of the turn is.
    pub(crate) fn plan(&mut self, done: &[&str], left: &[&str]) {
        let data = json!({"agent_id": "e", "turn": 1, "iteration": 1, "max_iterations": 10,
            "progress": {"current_step": done.len() + 1, "total_steps": done.len() + left.len(),
                "completion_percentage": 100 * done.len() / (done.len() + left.len()), "steps_completed": done,
                "steps_remaining": left},
            "current_tools": [], "continues": true, "source": "tool_calls", "reason": "", "status": "CONTINUE", "excerpt": "", "call_ids": []});
        self.event("continuation.progress", &data);
    }

    /// Ends the turn, and also the session if it accepts no further message.
    pub(crate) fn end_turn(&mut self, steps: u32, ends_session: bool) {
        let spent = json!({"usage": {"input": 12_000, "output": 384}, "cost_usd": 0.0036});
        let data = json!({"turn": 1, "stop_reason": "completed", "iterations": steps, "final_response": "",
            "spent": spent});
        self.event("turn.completed", &data);
        if ends_session {
            let data = json!({"reason": "completed", "stop_reason": "completed", "final_response": "",
                "iterations": steps, "spent": spent});
            self.event("session_ended", &data);
        }
    }

    pub(crate) fn notifications(self) -> Vec<Notification> {
        self.notifications
    }

    /// Adds a notification with any content.
    pub(crate) fn push(&mut self, topic: &str, seq: Option<u64>, data: &Value) {
        self.notifications.push(Notification {
            topic: topic.to_owned(),
            id: format!("s-{}", self.notifications.len()),
            seq,
            time: format!("2026-01-15T10:30:{:02}.000Z", self.seq % 60),
            trace_id: String::new(),
            data_json: data.to_string(),
        });
    }
}
