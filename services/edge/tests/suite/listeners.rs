//! The listeners: authentication, malformed input, startup and draining.

use std::time::Duration;

use configuration::Secret;
use contract::limits::FRAME_BYTES_MAX;
use contract::{Coded as _, ErrorCode};
use edge::{Edge, EdgeConfig};
use futures::SinkExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tonic::{Code, Request};

use crate::support::{Fixture, TEST_TIMEOUT, config, key, read_code};

/// Returns the HTTP status of an upgrade with these headers.
async fn upgrade(fixture: &Fixture, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{}/ws", fixture.edge.addresses().ws).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn request_without_valid_credentials_is_unauthorized() {
    let fixture = Fixture::with(EdgeConfig { token: Some(Secret::new("s3cret")), ..config() }).await;
    assert_eq!(upgrade(&fixture, &[]).await, 401);
    assert_eq!(upgrade(&fixture, &[("authorization", "Bearer wrong")]).await, 401);
    assert_eq!(upgrade(&fixture, &[("authorization", "Bearer s3cret")]).await, 101);
    let evil = [("authorization", "Bearer s3cret"), ("origin", "https://evil.example.org")];
    assert_eq!(upgrade(&fixture, &evil).await, 401);
    assert_eq!(upgrade(&fixture, &[("authorization", "Bearer s3cret"), ("host", "evil.example.org")]).await, 401);

    let mut grpc = fixture.grpc().await;
    let refused = grpc.0.list_sessions(proto::ListSessionsRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), read_code(&refused)), (Code::Unauthenticated, ErrorCode::Unauthorized.to_string()));
    let mut request = Request::new(proto::ListSessionsRequest::default());
    request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    assert!(grpc.0.list_sessions(request).await.is_ok());
}

#[tokio::test]
async fn malformed_frame_is_answered_and_connection_stays_open() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    ws.send_text("{").await;
    assert_eq!(ws.receive_frame().await.unwrap()["error"]["code"], -32700);
    ws.socket.send(Message::Binary(vec![1, 2, 3].into())).await.unwrap();
    assert_eq!(ws.receive_frame().await.unwrap()["error"]["code"], -32600);
    ws.send_text(r#"{"jsonrpc":"2.0","id":1,"method":"session.get","params":["s"]}"#).await;
    assert_eq!(ws.receive_frame().await.unwrap()["error"]["code"], -32602);
    ws.send_text(r#"{"jsonrpc":"2.0","method":"session.nothing"}"#).await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "session.get", "params": {"session_id": "s"}},
        {"jsonrpc": "2.0", "method": "session.get", "params": {"session_id": "s"}},
        7,
        {"jsonrpc": "2.0", "id": "b", "method": "session.get", "params": {"session_id": "t"}},
    ]);
    ws.send_text(&batch.to_string()).await;
    let answers = ws.receive_frame().await.unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 3, "a notification has no answer: {answers}");
    assert_eq!(answers[0]["result"]["session_id"], "s");
    assert_eq!(answers[2]["error"]["data"]["code"], "unknown_session");
    assert_eq!(ws.expect_ok("session.get", json!({"session_id": "s"})).await["seq"], 2);
}

#[tokio::test]
async fn oversized_frame_closes_connection_with_code() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    let _ = ws.socket.send(Message::Text("x".repeat(FRAME_BYTES_MAX + 1).into())).await;
    if let Err(Some(close)) = ws.receive_frame().await {
        assert_eq!(u16::from(close.code), 1009);
    }
    assert_eq!(fixture.ws().await.expect_ok("session.list", json!({})).await["sessions"], json!([]));
}

#[tokio::test]
async fn plain_http_request_gets_description() {
    let fixture = Fixture::new().await;
    let get = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(fixture.edge.addresses().ws).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let about = get("/").await;
    assert!(about.starts_with("HTTP/1.1 200") && about.contains("ailoop"), "{about}");
    assert!(get("/ws").await.starts_with("HTTP/1.1 426"));
    assert!(get("/etc/passwd").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn start_on_taken_port_names_field_and_address() {
    let fixture = Fixture::new().await;
    let taken = edge::config::ListenConfig { listen: fixture.edge.addresses().grpc };
    let refused = Edge::start(EdgeConfig { grpc: taken, ..config() }, fixture.server.bus()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PortInUse);
    let text = refused.to_string();
    assert!(text.contains("edge.grpc.listen") && text.contains(&taken.listen.to_string()), "{text}");
}

#[tokio::test]
async fn draining_edge_notifies_clients_and_ends() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let (mut ws, mut grpc) = (fixture.ws().await, fixture.grpc().await);
    ws.expect_ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    let request = proto::WatchSessionRequest { session_id: "s".to_owned(), from_seq: Some(3), no_chunks: None };
    let mut stream = grpc.0.watch_session(request).await.unwrap().into_inner();
    let readiness = fixture.edge.readiness();
    assert!(readiness.is_ready());
    let address = fixture.edge.addresses().ws;
    let drained = fixture.edge.drain(Duration::from_secs(10));
    let clients = async {
        assert_eq!(ws.receive_notification().await["method"], "server.draining");
        let close = ws.receive_frame().await.unwrap_err().expect("a close frame");
        assert_eq!((u16::from(close.code), &*close.reason), (1012, "{\"code\":\"draining\"}"));
        let status = stream.message().await.unwrap_err();
        assert_eq!((status.code(), read_code(&status)), (Code::Unavailable, ErrorCode::Draining.to_string()));
        drop((ws, grpc, stream));
    };
    tokio::join!(drained, clients);
    assert!(!readiness.is_ready());
    // nats-server of another test holds a copy of each socket until its `exec`.
    let refused = async { while tokio::net::TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(TEST_TIMEOUT, refused).await.expect("somebody still listens");
}
