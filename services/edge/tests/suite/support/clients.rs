//! Clients of both protocols.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use proto::sessions_client::SessionsClient;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tonic::Status;
use tonic::transport::Channel;

use super::TEST_TIMEOUT;

pub(crate) struct Grpc(pub(crate) SessionsClient<Channel>);

impl Grpc {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(SessionsClient::connect(format!("http://{address}")).await.unwrap())
    }
}

/// Reads the stable code of a status.
pub(crate) fn read_code(status: &Status) -> String {
    status.metadata().get(proto::ERROR_CODE).map(|code| code.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// A JSON-RPC client that separates notifications from responses.
pub(crate) struct Ws {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    notifications: VecDeque<Value>,
    next_id: u64,
}

impl Ws {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let (socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}/ws")).await.unwrap();
        Self { socket, notifications: VecDeque::new(), next_id: 1 }
    }

    pub(crate) async fn connect_with_key(address: SocketAddr, key: &str) -> Self {
        let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        let (socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        Self { socket, notifications: VecDeque::new(), next_id: 1 }
    }

    /// Connects as a web page does, which can set no header; returns the subprotocol that the edge chose.
    pub(crate) async fn connect_with_protocols(address: SocketAddr, protocols: &str) -> (Self, Option<String>) {
        let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let (socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
        let chosen = response.headers().get("sec-websocket-protocol").map(|chosen| chosen.to_str().unwrap().to_owned());
        (Self { socket, notifications: VecDeque::new(), next_id: 1 }, chosen)
    }

    /// Connects with a small receive buffer.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let stream = MaybeTlsStream::Plain(socket.connect(address).await.unwrap());
        let (socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/ws"), stream).await.unwrap();
        Self { socket, notifications: VecDeque::new(), next_id: 1 }
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::Text(text.into())).await.unwrap();
    }

    /// Returns the next text frame, or the close frame as an error.
    pub(crate) async fn receive_frame(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            let message = tokio::time::timeout(TEST_TIMEOUT, self.socket.next()).await.expect("no frame in time");
            match message {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => return Err(frame),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Sends a request without awaiting its response; returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// Waits for the response to a request; notifications before it are buffered.
    pub(crate) async fn receive_answer(&mut self, id: u64) -> Value {
        loop {
            let frame = self.receive_frame().await.expect("the connection was closed");
            if frame["id"] == json!(id) {
                return frame;
            }
            self.notifications.push_back(frame);
        }
    }

    /// Sends a request and returns its whole response.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        self.receive_answer(id).await
    }

    /// Sends a request that must succeed, and returns its result.
    pub(crate) async fn expect_ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a request that must fail, and returns its stable code.
    pub(crate) async fn expect_code(&mut self, method: &str, params: Value) -> String {
        let answer = self.call(method, params).await;
        answer["error"]["data"]["code"].as_str().unwrap_or_else(|| panic!("{method}: {answer}")).to_owned()
    }

    pub(crate) async fn receive_notification(&mut self) -> Value {
        match self.notifications.pop_front() {
            Some(notification) => notification,
            None => self.receive_frame().await.expect("the connection was closed"),
        }
    }

    /// Returns the `seq`s of the next notifications.
    pub(crate) async fn receive_seqs(&mut self, count: usize) -> Vec<u64> {
        let mut seqs = Vec::new();
        while seqs.len() < count {
            let notification = self.receive_notification().await;
            seqs.extend(notification["params"]["seq"].as_u64());
        }
        seqs
    }
}
