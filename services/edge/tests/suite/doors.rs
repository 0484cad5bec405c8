//! The doors themselves: who may come in, what garbage meets, and how they close.

use std::time::Duration;

use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use edge::{Config, Edge};
use futures::SinkExt;
use serde_json::json;
use service::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tonic::{Code, Request};

use crate::support::{World, code_of, config, key};

/// The status of an upgrade with these headers.
async fn upgrade(world: &World, headers: &[(&'static str, &str)]) -> u16 {
    let mut request = format!("ws://{}/ws", world.edge.addresses().ws).into_client_request().unwrap();
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
async fn strangers_stay_outside() {
    let world = World::with(Config { token: Some(Secret::new("s3cret")), ..config() }).await;
    assert_eq!(upgrade(&world, &[]).await, 401);
    assert_eq!(upgrade(&world, &[("authorization", "Bearer wrong")]).await, 401);
    assert_eq!(upgrade(&world, &[("authorization", "Bearer s3cret")]).await, 101);
    let evil = [("authorization", "Bearer s3cret"), ("origin", "https://evil.example.org")];
    assert_eq!(upgrade(&world, &evil).await, 401);
    assert_eq!(upgrade(&world, &[("authorization", "Bearer s3cret"), ("host", "evil.example.org")]).await, 401);

    let mut grpc = world.grpc().await;
    let refused = grpc.0.list(proto::ListRequest::default()).await.unwrap_err();
    assert_eq!((refused.code(), code_of(&refused)), (Code::Unauthenticated, ErrorCode::Unauthorized.to_string()));
    let mut request = Request::new(proto::ListRequest::default());
    request.metadata_mut().insert("authorization", "Bearer s3cret".parse().unwrap());
    assert!(grpc.0.list(request).await.is_ok());
}

#[tokio::test]
async fn garbage_is_answered_and_the_connection_stays() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let mut ws = world.ws().await;
    ws.send_text("{").await;
    assert_eq!(ws.frame().await.unwrap()["error"]["code"], -32700);
    ws.socket.send(Message::Binary(vec![1, 2, 3].into())).await.unwrap();
    assert_eq!(ws.frame().await.unwrap()["error"]["code"], -32600);
    ws.send_text(r#"{"jsonrpc":"2.0","id":1,"method":"session.get","params":["s"]}"#).await;
    assert_eq!(ws.frame().await.unwrap()["error"]["code"], -32602);
    ws.send_text(r#"{"jsonrpc":"2.0","method":"session.nothing"}"#).await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "session.get", "params": {"session_id": "s"}},
        {"jsonrpc": "2.0", "method": "session.get", "params": {"session_id": "s"}},
        7,
        {"jsonrpc": "2.0", "id": "b", "method": "session.get", "params": {"session_id": "t"}},
    ]);
    ws.send_text(&batch.to_string()).await;
    let answers = ws.frame().await.unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 3, "a notification has no answer: {answers}");
    assert_eq!(answers[0]["result"]["session_id"], "s");
    assert_eq!(answers[2]["error"]["data"]["code"], "unknown_session");
    assert_eq!(ws.ok("session.get", json!({"session_id": "s"})).await["seq"], 2);
}

#[tokio::test]
async fn an_oversized_frame_closes_with_a_word() {
    let world = World::new().await;
    let mut ws = world.ws().await;
    let _ = ws.socket.send(Message::Text("x".repeat(FRAME_BYTES_MAX + 1).into())).await;
    if let Err(Some(close)) = ws.frame().await {
        assert_eq!(u16::from(close.code), 1009);
    }
    assert_eq!(world.ws().await.ok("session.list", json!({})).await["sessions"], json!([]));
}

#[tokio::test]
async fn plain_http_says_what_this_is() {
    let world = World::new().await;
    let get = async |path: &str| {
        let mut stream = tokio::net::TcpStream::connect(world.edge.addresses().ws).await.unwrap();
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
async fn a_taken_port_is_named() {
    let world = World::new().await;
    let taken = edge::config::Listen { listen: world.edge.addresses().grpc };
    let refused = Edge::start(Config { grpc: taken, ..config() }, world.server.bus()).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PortInUse);
    let text = refused.to_string();
    assert!(text.contains("edge.grpc.listen") && text.contains(&taken.listen.to_string()), "{text}");
}

#[tokio::test]
async fn draining_tells_clients_and_ends() {
    let world = World::new().await;
    world.control.fill(&key("s"), 1).await;
    let (mut ws, mut grpc) = (world.ws().await, world.grpc().await);
    ws.ok("session.watch", json!({"session_id": "s", "from_seq": 3})).await;
    let request = proto::WatchRequest { session_id: "s".to_owned(), from_seq: 3, no_chunks: false };
    let mut stream = grpc.0.watch(request).await.unwrap().into_inner();
    let readiness = world.edge.readiness();
    assert!(readiness.is_ready());
    let address = world.edge.addresses().ws;
    let drained = world.edge.drain(Duration::from_secs(10));
    let clients = async {
        assert_eq!(ws.notification().await["method"], "server.draining");
        let close = ws.frame().await.unwrap_err().expect("a close frame");
        assert_eq!((u16::from(close.code), &*close.reason), (1012, "{\"code\":\"draining\"}"));
        let status = stream.message().await.unwrap_err();
        assert_eq!((status.code(), code_of(&status)), (Code::Unavailable, ErrorCode::Draining.to_string()));
        drop((ws, grpc, stream));
    };
    tokio::join!(drained, clients);
    assert!(!readiness.is_ready());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
