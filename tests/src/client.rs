//! Clients of a fleet: gRPC, and JSON-RPC over WebSocket. Every wait has a deadline.

use std::collections::VecDeque;

use ailoop_client::{Client, SessionsApi};
use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use proto::json::from_value;
use proto::{
    AnswerGateRequest, AnswerToolCallRequest, CancelTurnRequest, CommandReply, ControlRequest, GetHistoryRequest,
    GetSessionRequest, ListClientCallsRequest, ListGatesRequest, ListSessionsRequest, ListToolsRequest, Notification,
    PauseSessionRequest, PendingCall, PendingGate, ResumeSessionRequest, SendMessageRequest, SessionPage,
    StartSessionRequest, StopSessionRequest, WatchSessionRequest,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{ClientRequestBuilder, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tonic::{Response, Status, Streaming};

use crate::wait::soon;

/// A gRPC client of the edge.
#[derive(Debug, Clone)]
pub struct TestClient(SessionsApi);

/// A command that controls a session.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    /// Opens no new call until `Resume`.
    Pause,
    /// Continues a paused session.
    Resume,
    /// Cancels open calls and ends the turn.
    CancelTurn,
    /// Cancels open calls and ends the session.
    Stop,
}

/// An event of a session, as a viewer receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedEvent {
    /// Topic of the event, such as `turn.completed`.
    pub topic: String,
    /// Number among the committed events, from 1; `None` where the event is not committed, such as a chunk.
    pub seq: Option<u64>,
    /// W3C trace id; empty without tracing.
    pub trace_id: String,
    /// Fields that depend on the topic.
    pub data: Value,
}

/// A watch of a session from its beginning.
#[derive(Debug)]
pub struct SessionWatch {
    stream: Streaming<Notification>,
    /// All events received so far.
    pub events: Vec<ReceivedEvent>,
}

/// The stable error code of a refused call.
pub fn code_of(status: &Status) -> String {
    status.metadata().get(proto::ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned()
}

/// Makes a parameter that is absent if the text is empty.
fn some(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn with_code<T>(reply: Result<Response<T>, Status>) -> anyhow::Result<T> {
    reply.map(Response::into_inner).map_err(|status| anyhow::anyhow!("{}: {}", code_of(&status), status.message()))
}

impl TestClient {
    /// Connects to an edge at `http://<address>`.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self(Client::connect(url).await?.api()))
    }

    /// Connects as [`TestClient::connect`], with a token or an API key.
    pub async fn connect_with_key(url: &str, key: &str) -> anyhow::Result<Self> {
        Ok(Self(Client::connect(url).api_key(key).await?.api()))
    }

    /// Begins a session that ends with its first turn.
    pub async fn start(&self, session: &str, prompt: &str) -> anyhow::Result<CommandReply> {
        self.begin(session, prompt, &json!({})).await
    }

    /// Begins a session that waits for further messages after each turn.
    pub async fn start_interactive(&self, session: &str, prompt: &str) -> anyhow::Result<CommandReply> {
        self.begin(session, prompt, &json!({"interactive": true})).await
    }

    /// Begins a session with further fields of `session.start`.
    pub async fn begin(&self, session: &str, prompt: &str, options: &Value) -> anyhow::Result<CommandReply> {
        with_code(self.try_begin(session, "", prompt, options).await)
    }

    /// As [`TestClient::begin`], with a command id, so that the command may be repeated.
    pub async fn begin_as(
        &self,
        session: &str,
        id: &str,
        prompt: &str,
        options: &Value,
    ) -> anyhow::Result<CommandReply> {
        with_code(self.try_begin(session, id, prompt, options).await)
    }

    async fn try_begin(
        &self,
        session: &str,
        id: &str,
        prompt: &str,
        options: &Value,
    ) -> Result<Response<CommandReply>, Status> {
        let fields = from_value(options.clone()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let request = StartSessionRequest {
            session_id: some(session),
            command_id: some(id),
            prompt: some(prompt).map(Into::into),
            ..fields
        };
        self.0.clone().start_session(request).await
    }

    /// Sends a user message.
    pub async fn send(&self, session: &str, text: &str, mode: &str) -> anyhow::Result<CommandReply> {
        self.send_as(session, "", text, mode).await
    }

    /// As [`TestClient::send`], with a command id, so that the command may be repeated.
    pub async fn send_as(&self, session: &str, id: &str, text: &str, mode: &str) -> anyhow::Result<CommandReply> {
        let request = SendMessageRequest {
            session_id: session.to_owned(),
            command_id: some(id),
            content: Some(text.to_owned().into()),
            mode: some(mode),
            ..SendMessageRequest::default()
        };
        with_code(self.0.clone().send_message(request).await)
    }

    /// Pauses, resumes or stops.
    pub async fn control(&self, session: &str, control: Control) -> anyhow::Result<CommandReply> {
        self.control_as(session, "", control).await
    }

    /// As [`TestClient::control`], with a command id, so that the command may be repeated.
    pub async fn control_as(&self, session: &str, id: &str, control: Control) -> anyhow::Result<CommandReply> {
        let (id, mut sessions) = (some(id), self.0.clone());
        with_code(match control {
            Control::Pause => sessions.pause_session(PauseSessionRequest::of(session, id, "")).await,
            Control::Resume => sessions.resume_session(ResumeSessionRequest::of(session, id, "")).await,
            Control::CancelTurn => sessions.cancel_turn(CancelTurnRequest::of(session, id, "")).await,
            Control::Stop => sessions.stop_session(StopSessionRequest::of(session, id, "")).await,
        })
    }

    /// The open gates of a session.
    pub async fn gates(&self, session: &str) -> anyhow::Result<Vec<PendingGate>> {
        let request = ListGatesRequest { session_id: some(session), limit: None };
        Ok(with_code(self.0.clone().list_gates(request).await)?.gates)
    }

    /// Answers a gate; `more` sets further fields of the request.
    pub async fn answer(
        &self,
        gate: &PendingGate,
        decision: &str,
        more: impl FnOnce(&mut AnswerGateRequest),
    ) -> anyhow::Result<CommandReply> {
        let mut request = AnswerGateRequest {
            session_id: gate.session_id.clone(),
            gate: gate.gate.clone(),
            arguments_sha256: gate.arguments_sha256.clone(),
            decision: decision.to_owned(),
            ..AnswerGateRequest::default()
        };
        more(&mut request);
        with_code(self.0.clone().answer_gate(request).await)
    }

    /// The calls of a session that wait for a client.
    pub async fn client_calls(&self, session: &str) -> anyhow::Result<Vec<PendingCall>> {
        let request = ListClientCallsRequest { session_id: some(session), limit: None };
        Ok(with_code(self.0.clone().list_client_calls(request).await)?.calls)
    }

    /// Answers a call that waits for a client.
    pub async fn answer_call(
        &self,
        session: &str,
        call: &str,
        outcome: &str,
        content: &str,
    ) -> anyhow::Result<CommandReply> {
        let request = AnswerToolCallRequest {
            session_id: session.to_owned(),
            call: call.to_owned(),
            outcome: outcome.to_owned(),
            content: content.to_owned(),
            ..AnswerToolCallRequest::default()
        };
        with_code(self.0.clone().answer_tool_call(request).await)
    }

    /// The transcript as the model sees it.
    pub async fn history(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        let reply = with_code(self.0.clone().get_history(GetHistoryRequest { session_id: session.to_owned() }).await)?;
        Ok(reply.messages_json.iter().map(|message| serde_json::from_str(message)).collect::<Result<_, _>>()?)
    }

    /// The phase of a session, such as `running`.
    pub async fn phase(&self, session: &str) -> anyhow::Result<String> {
        Ok(with_code(self.0.clone().get_session(GetSessionRequest { session_id: session.to_owned() }).await)?.phase)
    }

    /// The newest sessions, and the cells that did not answer.
    pub async fn list(&self) -> anyhow::Result<SessionPage> {
        with_code(self.0.clone().list_sessions(ListSessionsRequest::default()).await)
    }

    /// The names of the tools of the catalogue.
    pub async fn tools(&self) -> anyhow::Result<Vec<String>> {
        let reply = with_code(self.0.clone().list_tools(ListToolsRequest {}).await)?;
        Ok(reply.tools.into_iter().map(|tool| tool.name).collect())
    }

    /// Watches a session from its beginning.
    pub async fn watch(&self, session: &str) -> anyhow::Result<SessionWatch> {
        let request = WatchSessionRequest { session_id: session.to_owned(), from_seq: Some(1), no_chunks: None };
        let stream = with_code(self.0.clone().watch_session(request).await)?;
        Ok(SessionWatch { stream, events: Vec::new() })
    }
}

impl SessionWatch {
    /// The next event; none after the session's end.
    pub async fn next(&mut self) -> anyhow::Result<Option<ReceivedEvent>> {
        let next = soon("an event", self.stream.message()).await.with_context(|| self.received_topics())?;
        let Some(notification) = next? else { return Ok(None) };
        let event = ReceivedEvent {
            topic: notification.topic,
            seq: notification.seq,
            trace_id: notification.trace_id,
            data: serde_json::from_str(&notification.data_json)?,
        };
        self.events.push(event.clone());
        Ok(Some(event))
    }

    /// The next event of this topic whose data fits.
    pub async fn until(&mut self, topic: &str, fits: impl Fn(&Value) -> bool) -> anyhow::Result<ReceivedEvent> {
        while let Some(event) = self.next().await? {
            if event.topic == topic && fits(&event.data) {
                return Ok(event);
            }
        }
        bail!("the session ended without {topic}: {}", self.received_topics())
    }

    /// Returns when chunks ended with this text. White space at its end is ignored: the stream holds it back.
    pub async fn until_streamed(&mut self, text: &str) -> anyhow::Result<()> {
        let mut streamed = String::new();
        while !streamed.ends_with(text.trim_end()) {
            let event = self.until("message.ai_chunk_received", |_| true).await?;
            streamed += event.data["delta"].as_str().unwrap_or_default();
        }
        Ok(())
    }

    /// All events to the session's end; fails unless the last one is `session_ended`.
    pub async fn to_end(mut self) -> anyhow::Result<Vec<ReceivedEvent>> {
        while self.next().await?.is_some() {}
        ensure!(self.events.last().is_some_and(|last| last.topic == "session_ended"), "{}", self.received_topics());
        Ok(self.events)
    }

    fn received_topics(&self) -> String {
        let topics: Vec<&str> = self.events.iter().map(|event| event.topic.as_str()).collect();
        format!("events so far: {topics:?}")
    }
}

/// A JSON-RPC client over WebSocket that queues notifications while it waits for a response.
#[derive(Debug)]
pub struct Ws {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    notifications: VecDeque<Value>,
    next: u64,
}

impl Ws {
    /// Connects to an edge at `ws://<address>/ws`.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        Self::connect_by(ClientRequestBuilder::new(url.parse()?)).await
    }

    /// As [`Ws::connect`], with a token or an API key.
    pub async fn connect_with_key(url: &str, key: &str) -> anyhow::Result<Self> {
        let request = ClientRequestBuilder::new(url.parse()?);
        Self::connect_by(request.with_header("authorization", format!("Bearer {key}"))).await
    }

    async fn connect_by(request: ClientRequestBuilder) -> anyhow::Result<Self> {
        let (socket, _) = tokio_tungstenite::connect_async(request).await?;
        Ok(Self { socket, notifications: VecDeque::new(), next: 1 })
    }

    /// Calls a method and returns the whole response.
    pub async fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let id = json!(self.next);
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.socket.send(Message::Text(request.to_string().into())).await?;
        loop {
            let frame = self.frame().await?;
            if frame["id"] == id {
                return Ok(frame);
            }
            self.notifications.push_back(frame);
        }
    }

    /// Calls a method and returns its result; fails on an error response.
    pub async fn ok(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let answer = self.call(method, params).await?;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(answer["result"].clone())
    }

    /// The next notification of this method.
    pub async fn until(&mut self, method: &str) -> anyhow::Result<Value> {
        loop {
            let notification = match self.notifications.pop_front() {
                Some(notification) => notification,
                None => self.frame().await?,
            };
            if notification["method"] == method {
                return Ok(notification);
            }
        }
    }

    /// As [`Ws::until`], with the notifications of another method that came before it.
    pub async fn until_counting(&mut self, method: &str, other: &str) -> anyhow::Result<(Value, Vec<Value>)> {
        let mut others = Vec::new();
        loop {
            let notification = match self.notifications.pop_front() {
                Some(notification) => notification,
                None => self.frame().await?,
            };
            if notification["method"] == method {
                return Ok((notification, others));
            }
            if notification["method"] == other {
                others.push(notification);
            }
        }
    }

    async fn frame(&mut self) -> anyhow::Result<Value> {
        loop {
            match soon("a frame", self.socket.next()).await?.context("the connection was closed")?? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(why) => bail!("the connection was closed: {why:?}"),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}
