//! Clients of a fleet: gRPC, and JSON-RPC over WebSocket. Whatever they await has a deadline.

use std::collections::VecDeque;

use anyhow::{Context, bail, ensure};
use futures::{SinkExt, StreamExt};
use proto::sessions_client::SessionsClient;
use proto::{
    CommandReply, ControlRequest, ListToolsRequest, Notification, SendRequest, SessionRequest, StartRequest,
    WatchRequest,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::fleet::soon;

/// A gRPC client.
#[derive(Debug, Clone)]
pub struct Client(SessionsClient<Channel>);

/// What is asked of a session.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    /// Open no new call.
    Pause,
    /// Go on.
    Resume,
    /// Cancel and end.
    Stop,
}

/// An event as a viewer receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Which.
    pub topic: String,
    /// Counts the committed ones.
    pub seq: Option<u64>,
    /// Its trace; empty where nothing is traced.
    pub trace_id: String,
    /// Its own fields.
    pub data: Value,
}

/// A session that is watched from its beginning.
#[derive(Debug)]
pub struct Watching {
    stream: Streaming<Notification>,
    /// Everything so far.
    pub seen: Vec<Seen>,
}

/// The stable code of a refusal.
pub fn code_of(status: &Status) -> String {
    status.metadata().get(proto::ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned()
}

fn told<T>(reply: Result<Response<T>, Status>) -> anyhow::Result<T> {
    reply.map(Response::into_inner).map_err(|status| anyhow::anyhow!("{}: {}", code_of(&status), status.message()))
}

impl Client {
    /// Connects to `http://<address>`.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self(SessionsClient::connect(url.to_owned()).await?))
    }

    /// Begins a session that ends with its first turn.
    pub async fn start(&self, session: &str, prompt: &str) -> anyhow::Result<CommandReply> {
        self.begin(session, prompt, &json!({})).await
    }

    /// Begins a session that waits for more.
    pub async fn start_interactive(&self, session: &str, prompt: &str) -> anyhow::Result<CommandReply> {
        self.begin(session, prompt, &json!({"interactive": true})).await
    }

    /// Begins a session with further fields of `session.start`.
    pub async fn begin(&self, session: &str, prompt: &str, options: &Value) -> anyhow::Result<CommandReply> {
        told(self.try_begin(session, "", prompt, options).await)
    }

    /// As [`Client::begin`], under an id of the sender's, so that it may be repeated.
    pub async fn begin_as(
        &self,
        session: &str,
        id: &str,
        prompt: &str,
        options: &Value,
    ) -> anyhow::Result<CommandReply> {
        told(self.try_begin(session, id, prompt, options).await)
    }

    async fn try_begin(
        &self,
        session: &str,
        id: &str,
        prompt: &str,
        options: &Value,
    ) -> Result<Response<CommandReply>, Status> {
        let mut options = options.clone();
        let interactive = options["interactive"] == true;
        let text = |value: Option<Value>| value.and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let (agent, model) = match options.as_object_mut() {
            Some(fields) => {
                fields.remove("interactive");
                (text(fields.remove("agent")), text(fields.remove("model")))
            }
            None => Default::default(),
        };
        let request = StartRequest {
            session_id: session.to_owned(),
            command_id: id.to_owned(),
            agent,
            model,
            prompt: prompt.to_owned(),
            interactive,
            options_json: options.to_string(),
            ..StartRequest::default()
        };
        self.0.clone().start(request).await
    }

    /// Sends a user message.
    pub async fn send(&self, session: &str, text: &str, mode: &str) -> anyhow::Result<CommandReply> {
        self.send_as(session, "", text, mode).await
    }

    /// As [`Client::send`], under an id of the sender's, so that it may be repeated.
    pub async fn send_as(&self, session: &str, id: &str, text: &str, mode: &str) -> anyhow::Result<CommandReply> {
        let request = SendRequest {
            session_id: session.to_owned(),
            command_id: id.to_owned(),
            text: text.to_owned(),
            mode: mode.to_owned(),
            ..SendRequest::default()
        };
        told(self.0.clone().send(request).await)
    }

    /// Pauses, resumes or stops.
    pub async fn control(&self, session: &str, control: Control) -> anyhow::Result<CommandReply> {
        self.control_as(session, "", control).await
    }

    /// As [`Client::control`], under an id of the sender's, so that it may be repeated.
    pub async fn control_as(&self, session: &str, id: &str, control: Control) -> anyhow::Result<CommandReply> {
        let request =
            ControlRequest { session_id: session.to_owned(), command_id: id.to_owned(), ..ControlRequest::default() };
        let mut sessions = self.0.clone();
        told(match control {
            Control::Pause => sessions.pause(request).await,
            Control::Resume => sessions.resume(request).await,
            Control::Stop => sessions.stop(request).await,
        })
    }

    /// What waits for a person in a session.
    pub async fn gates(&self, session: &str) -> anyhow::Result<Vec<proto::Gate>> {
        let request = proto::ListGatesRequest { session_id: session.to_owned(), limit: 0 };
        Ok(told(self.0.clone().list_gates(request).await)?.gates)
    }

    /// Answers what waits; `more` adds to the answer.
    pub async fn answer(
        &self,
        gate: &proto::Gate,
        decision: &str,
        more: impl FnOnce(&mut proto::AnswerRequest),
    ) -> anyhow::Result<CommandReply> {
        let mut request = proto::AnswerRequest {
            session_id: gate.session_id.clone(),
            gate: gate.gate.clone(),
            arguments_sha256: gate.arguments_sha256.clone(),
            decision: decision.to_owned(),
            ..proto::AnswerRequest::default()
        };
        more(&mut request);
        told(self.0.clone().answer(request).await)
    }

    /// The transcript as the model sees it.
    pub async fn history(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        let reply = told(self.0.clone().history(SessionRequest { session_id: session.to_owned() }).await)?;
        Ok(serde_json::from_str(&reply.messages_json)?)
    }

    /// What a session is doing.
    pub async fn phase(&self, session: &str) -> anyhow::Result<String> {
        Ok(told(self.0.clone().get(SessionRequest { session_id: session.to_owned() }).await)?.phase)
    }

    /// The names of the tools of the catalogue.
    pub async fn tools(&self) -> anyhow::Result<Vec<String>> {
        let reply = told(self.0.clone().list_tools(ListToolsRequest {}).await)?;
        Ok(reply.tools.into_iter().map(|tool| tool.name).collect())
    }

    /// Watches a session from its beginning.
    pub async fn watch(&self, session: &str) -> anyhow::Result<Watching> {
        let request = WatchRequest { session_id: session.to_owned(), from_seq: 1, no_chunks: false };
        let stream = told(self.0.clone().watch(request).await)?;
        Ok(Watching { stream, seen: Vec::new() })
    }
}

impl Watching {
    /// The next event; none after the session's end.
    pub async fn next(&mut self) -> anyhow::Result<Option<Seen>> {
        let next = soon("an event", self.stream.message()).await.with_context(|| self.told())?;
        let Some(notification) = next? else { return Ok(None) };
        let seen = Seen {
            topic: notification.topic,
            seq: notification.seq,
            trace_id: notification.trace_id,
            data: serde_json::from_str(&notification.data_json)?,
        };
        self.seen.push(seen.clone());
        Ok(Some(seen))
    }

    /// The next event that fits.
    pub async fn until(&mut self, topic: &str, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Seen> {
        while let Some(seen) = self.next().await? {
            if seen.topic == topic && fits(&seen.data) {
                return Ok(seen);
            }
        }
        bail!("the session ended without {topic}: {}", self.told())
    }

    /// Returns when as much of a text was streamed. White space at its end waits for what follows.
    pub async fn until_streamed(&mut self, text: &str) -> anyhow::Result<()> {
        let mut streamed = String::new();
        while !streamed.ends_with(text.trim_end()) {
            let seen = self.until("message.ai_chunk_received", |_| true).await?;
            streamed += seen.data["delta"].as_str().unwrap_or_default();
        }
        Ok(())
    }

    /// Everything to the session's end.
    pub async fn to_end(mut self) -> anyhow::Result<Vec<Seen>> {
        while self.next().await?.is_some() {}
        ensure!(self.seen.last().is_some_and(|last| last.topic == "session_ended"), "{}", self.told());
        Ok(self.seen)
    }

    fn told(&self) -> String {
        let topics: Vec<&str> = self.seen.iter().map(|seen| seen.topic.as_str()).collect();
        format!("seen so far: {topics:?}")
    }
}

/// A JSON-RPC client that keeps notifications apart from answers.
#[derive(Debug)]
pub struct Ws {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    heard: VecDeque<Value>,
    next: u64,
}

impl Ws {
    /// Connects to `ws://<address>/ws`.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let (socket, _) = tokio_tungstenite::connect_async(url).await?;
        Ok(Self { socket, heard: VecDeque::new(), next: 1 })
    }

    /// A call and its whole answer.
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
            self.heard.push_back(frame);
        }
    }

    /// A call that succeeds.
    pub async fn ok(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        let answer = self.call(method, params).await?;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(answer["result"].clone())
    }

    /// The next notification of this method.
    pub async fn until(&mut self, method: &str) -> anyhow::Result<Value> {
        loop {
            let heard = match self.heard.pop_front() {
                Some(heard) => heard,
                None => self.frame().await?,
            };
            if heard["method"] == method {
                return Ok(heard);
            }
        }
    }

    /// As [`Ws::until`], with the notifications of another method that came before it.
    pub async fn until_counting(&mut self, method: &str, other: &str) -> anyhow::Result<(Value, Vec<Value>)> {
        let mut others = Vec::new();
        loop {
            let heard = match self.heard.pop_front() {
                Some(heard) => heard,
                None => self.frame().await?,
            };
            if heard["method"] == method {
                return Ok((heard, others));
            }
            if heard["method"] == other {
                others.push(heard);
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
